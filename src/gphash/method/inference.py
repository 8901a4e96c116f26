"""Inference of Gaussian processes, and of codes with them: EP and Gibbs sampling in turn (section 3 of the paper).

Answers to fixed questions are codes that are frozen from the start, and EP is alone; least squares may follow. One
sweep, over row blocks that each hold their rows of Phi, residual, supervision, codes and sites:

1. refresh the shared factor, if the sites have moved since it was made;
2. leave-one-out z-scores γ of every row and bit, from the posterior means;
3. Gibbs: the representatives (for pair lists, all rows) one after another, then the other rows in parallel;
4. new sites from the same cavities with the new codes, and the gradient of the means;
5. a few steps of conjugate gradients for the means of all bits together.

Each is a map over blocks and a sum of [r, r] or [r, m] matrices. Once codes have settled they are frozen and EP
finishes alone.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.execution.local import Executor
from gphash.method import blockwise, ep, gibbs, triangular
from gphash.method.ep import Sites
from gphash.method.gibbs import Groups
from gphash.method.kernels import squared_norms
from gphash.method.state import Latent, Problem, RowBlock, Schedule, State, Sweep
from gphash.method.triangular import Factor

TOLERANCE = 1e-3  # relative error at which conjugate gradients end
START_STEPS = 4  # for means that start from zero
FINISH_STEPS, FINISH_TOLERANCE = 20, 3e-4  # for the means of the hash function
FINISH_DRIFT = 0.1  # of τ̄ beyond which the last factor is made anew
SHRINKING = 0.02  # of the change of the sites, from sweep to sweep, is the least to expect of EP without damping,
GROWING = 5  # sweeps after the codes are fixed: until then, precisions grow
REFRESHED = 1.2  # times as large a change is to expect with a new factor
LEAST_DAMPING = 0.1
RECOVERY = 1.2  # of damping, in a sweep that does not oscillate
FEWER = 0.97  # times as many flips as ever before are fewer
CALM = 0.05  # relative change of the site precisions below which EP is about to converge
SETTLING = 3  # sweeps of Gibbs sampling alone before the first sweep
COARSER = 4  # times fewer inducing inputs has the model that EP for fixed codes begins with,
COARSEST = 100  # and not fewer than these;
NEAR = 0.03  # relative change of the site precisions at which the whole model takes over
CONTRACTION = 0.3  # of cavity variances, from a smaller model to the whole one

Match = Callable[[RowBlock, Latent, Signs | None, Floats, Floats], tuple[Latent, tuple[float, ...]]]


def init(problem: Problem, signs: Sequence[Signs], executor: Executor) -> State:
    """State before the first sweep, from initial codes of every block."""
    # Rows come along, so that each block is made where its rows are.
    latents = executor.map(lambda _, own: Latent(own, ep.initial_sites(own), None), problem.rows, signs)
    return _begin(problem, latents, executor)


def init_fixed(problem: Problem, signs: Sequence[Signs], power: float, executor: Executor) -> State:
    """State before the first sweep for codes that stay as they are, from a coarser model if that is worth it.

    Phi = K L⁻ᵀ, and L is triangular: its first columns are the features of a model with the first inducing inputs
    alone. EP needs most of its sweeps to get near its fixed point. They cost little in the coarse model, and its sites
    and means are near those of the whole one.
    """
    state = init(problem, signs, executor)._replace(frozen=True)
    n = len(state.mean) // COARSER
    if n < COARSEST:
        return state

    def narrowed(block: RowBlock) -> RowBlock:
        unexplained = power * squared_norms(block.Phi[:, n:]).astype(np.float64)
        return block._replace(Phi=block.Phi[:, :n], residual=block.residual + unexplained)

    coarse = problem._replace(rows=executor.map(narrowed, problem.rows))
    found = run(coarse, init_fixed(coarse, signs, power, executor), Schedule(converged=NEAR), executor)
    mean = np.concatenate([found.mean, np.zeros_like(state.mean[n:])])
    return state._replace(latents=found.latents, mean=mean)


def init_from_predictions(
    problem: Problem, signs: Sequence[Signs], predictions: Sequence[tuple[Floats, Floats]], executor: Executor
) -> State:
    """State before the first sweep, from a smaller model's means [b, m] and variances [b].

    A few sweeps of Gibbs sampling alone settle the codes, while the z-scores γ stay as they are.
    """
    n, groups = problem.n_central, None
    gammas = executor.map(lambda prediction: prediction[0] / np.sqrt(1 + prediction[1])[:, None], predictions)
    central = list(executor.collect(lambda own: own, signs[:n]))
    central_gammas = list(executor.collect(lambda gamma: gamma, gammas[:n]))
    for sweep in range(SETTLING):
        central, groups = _draw_central(problem, 0, sweep, zip(central, central_gammas, strict=True))
    draws = [_drawing(problem, 0, sweep, groups) for sweep in range(SETTLING)]

    def settle(block: RowBlock, block_signs: Signs, gamma: Floats) -> Signs:
        for draw in draws:
            block_signs = draw(block, block_signs, gamma)
        return block_signs

    def make(block: RowBlock, block_signs: Signs, gamma: Floats, prediction: tuple[Floats, Floats]) -> Latent:
        # A model of all rows and all inducing inputs will be surer of itself than the smaller one.
        _, variance = prediction
        cavity = CONTRACTION * np.maximum(variance - block.residual, 0.1 * variance)
        return Latent(block_signs, ep.match(gamma, block_signs, cavity, block.residual, block.weights)[0], None)

    settled = [*central, *executor.map(settle, problem.rows[n:], signs[n:], gammas[n:])]
    return _begin(problem, executor.map(make, problem.rows, settled, gammas, predictions), executor)


def _begin(problem: Problem, latents: Sequence[Latent], executor: Executor) -> State:
    (n_inducing,) = executor.collect(lambda block: block.Phi.shape[1], problem.rows[:1])
    return State(0, latents, np.zeros((n_inducing, problem.n_bits)))


def step(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of EP and, unless codes are frozen, Gibbs sampling."""
    began = time.perf_counter()
    refreshed = state.factor is None or state.drift > (schedule.late_drift if state.calm else schedule.drift)
    # The very first factor is only there to get going, unless a coarser model has: a random sample of rows will do.
    sampled = state.factor is None and problem.supervision.complete and not state.mean.any()
    if refreshed:
        state = refresh(problem, state, executor, problem.n_central if sampled else None)
    if state.sweep == 0:
        state = state._replace(mean=_solve(problem, state, START_STEPS, TOLERANCE, executor))

    rows, latents, n = problem.rows, state.latents, problem.n_central
    small_mean, groups = state.mean.astype(np.float32), None
    drawn: list[Signs | None] = [None] * len(rows)
    if not state.frozen:
        central = executor.collect(
            lambda block, latent: (latent.signs, _scores(block, latent, small_mean)[1]), rows[:n], latents[:n]
        )
        drawn[:n], groups = _draw_central(problem, 1, state.sweep, central)
    match = _matching(problem, state, groups)
    latents, (gradient, energy, counts) = executor.map_and_sum(
        lambda block, latent, own: _visit(block, latent, own, small_mean, match), rows, latents, drawn
    )
    state = state._replace(latents=latents)
    mean = _solve(problem, state, schedule.steps, TOLERANCE, executor, (gradient, energy))
    *others, drift, shared = counts
    moved = np.inf if sampled or not shared else float(abs(drift) / shared)
    return _close(state._replace(mean=mean, drift=moved), schedule, others, refreshed, began)


def step_blockwise(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of the paper's own EP, bits side by side, each in blocks of 1,000 rows; then Gibbs sampling.

    Work is divided by bits, not by rows: row blocks must be at hand here.
    """
    began = time.perf_counter()
    rows, latents = problem.rows, state.latents
    Phis, residuals = [block.Phi for block in rows], [block.residual for block in rows]
    residual, weights = np.concatenate(residuals), _row_weights(rows)
    signs = np.concatenate([latent.signs for latent in latents])
    precision = np.concatenate([latent.sites.precision for latent in latents])
    shift = np.concatenate([latent.sites.shift for latent in latents])

    def sweep_bit(j: int) -> blockwise.BitSweep:
        bit = signs[:, j], precision[:, j], shift[:, j]
        return blockwise.sweep_bit(Phis, residual, *bit, damping=state.damping, weights=weights)

    bits = list(executor.collect(sweep_bit, range(problem.n_bits)))
    gammas = _split(np.stack([bit.gamma for bit in bits], axis=1), residuals)
    cavities = _split(np.stack([bit.cavity for bit in bits], axis=1), residuals)

    n, groups = problem.n_central, None
    drawn: list[Signs | None] = [None] * len(rows)
    if not state.frozen:
        central = [(latent.signs, gamma) for latent, gamma in zip(latents[:n], gammas[:n], strict=True)]
        drawn[:n], groups = _draw_central(problem, 1, state.sweep, central)
    results = executor.map(_matching(problem, state, groups), rows, latents, drawn, gammas, cavities)
    mean = np.stack([bit.mean for bit in bits], axis=1)
    following = state._replace(latents=[latent for latent, _ in results], mean=mean)
    return _close(following, schedule, np.sum([counts for _, counts in results], axis=0), False, began)


def _close(
    state: State, schedule: Schedule, counts: Iterable[float], refreshed: bool, began: float
) -> tuple[State, Sweep]:
    """Count the sweep, and decide whether codes have settled and EP has converged."""
    n_sites, flipped, score, total_change, precision = (float(count) for count in counts)
    flips = int(flipped)
    number = state.sweep + 1
    change = total_change / precision if precision else float(total_change > 0)
    quiet = state.quiet + 1 if flips <= schedule.settled * n_sites else 0
    steady = state.steady + 1 if flips > FEWER * state.flips else 0
    settled = quiet >= schedule.patience or steady >= schedule.steadiness
    finishing = state.finishing + 1 if state.frozen else 0
    # Updating all sites at once can overshoot; with codes fixed, changes that do not shrink show it. New
    # cavities may let them grow a little.
    bound = REFRESHED if refreshed else 1 - SHRINKING * state.damping
    oscillates = finishing > GROWING and change > bound * state.change
    following = state._replace(
        sweep=number,
        calm=state.frozen and change <= CALM,
        quiet=quiet,
        flips=min(flips, state.flips),
        steady=steady,
        frozen=state.frozen or settled or number >= schedule.max_sweeps,
        finishing=finishing,
        finished=state.frozen and (change <= schedule.converged or finishing >= schedule.max_finish),
        damping=max(state.damping / 2, LEAST_DAMPING) if oscillates else min(state.damping * RECOVERY, 1.0),
        change=change,
    )
    return following, Sweep(
        number, flips, score / n_sites, change, refreshed, state.frozen, time.perf_counter() - began
    )


SOLVERS = {"shared": step, "blockwise": step_blockwise}


def run(
    problem: Problem,
    state: State,
    schedule: Schedule,
    executor: Executor,
    watch: Callable[[State, Sweep], None] = lambda state, sweep: None,
    solver: str = "shared",
) -> State:
    """Sweep until codes have settled and EP has converged; `watch` sees every sweep as it ends."""
    while not state.finished:
        state, sweep = SOLVERS[solver](problem, state, schedule, executor)
        watch(state, sweep)
    return state


def finish(problem: Problem, state: State, executor: Executor) -> State:
    """Bring factor and means up to date with the last sites."""
    if state.factor is None or state.drift > FINISH_DRIFT:
        state = refresh(problem, state, executor)
    return state._replace(drift=0.0, mean=_solve(problem, state, FINISH_STEPS, FINISH_TOLERANCE, executor))


def least_squares(problem: Problem, state: State, precision: float, executor: Executor) -> State:
    """The state of least squares with the same codes: as if they were values seen with noise of this precision.

    What inducing inputs leave open counts for nothing here. A row that counts for more than the mean counts like the
    mean: least squares would follow it too closely.
    """

    def seen(block: RowBlock, latent: Latent) -> Latent:
        share = np.full(latent.signs.shape, precision)
        if block.weights is not None:
            share *= np.minimum(block.weights, 1.0)[:, None]
        return Latent(latent.signs, Sites(share, share * latent.signs), None)

    latents = executor.map(seen, problem.rows, state.latents)
    return finish(problem, state._replace(latents=latents, mean=np.zeros_like(state.mean), factor=None), executor)


def left_out_means(problem: Problem, state: State, blocks: Sequence[int], executor: Executor) -> Floats:
    """Leave-one-out means of the latent values of the rows of some blocks, [s, m]."""
    mean = state.mean.astype(np.float32)

    def means(block: RowBlock, latent: Latent) -> Floats:
        assert latent.shared is not None
        gamma = _scores(block, latent, mean)[1]
        return np.asarray(gamma * np.sqrt(1 + block.residual + latent.shared.cavity)[:, None])

    rows, latents = ([every[number] for number in blocks] for every in (problem.rows, state.latents))
    return np.concatenate(list(executor.collect(means, rows, latents)))


def left_out_scores(problem: Problem, state: State, blocks: Sequence[int], executor: Executor) -> Floats:
    """Leave-one-out z-scores γ of the same rows, [s, m]."""
    mean = state.mean.astype(np.float32)
    rows, latents = ([every[number] for number in blocks] for every in (problem.rows, state.latents))
    scores = executor.collect(lambda block, latent: _scores(block, latent, mean)[1], rows, latents)
    return np.concatenate(list(scores))


def recover(block: RowBlock, signs: Signs | None, mean: Floats, factor: Factor) -> Latent:
    """Codes (if not given, signs of the posterior means) and sites of a row block that were lost.

    Sites come from one pass of EP that takes the posterior of all rows for the cavity; as EP goes on it converges to
    the fixed point that it would have reached anyway.
    """
    latent_mean = block.Phi @ mean.astype(np.float32)
    if signs is None:
        signs = np.where(latent_mean >= 0, 1, -1).astype(np.int8)
    whole = ep.share(factor, block.Phi, np.zeros(len(block.residual)))
    gamma = latent_mean / np.sqrt(1 + block.residual + whole.cavity)[:, None]
    sites, _ = ep.match(gamma, signs, whole.cavity, block.residual, block.weights)
    return Latent(signs, sites, ep.share(factor, block.Phi, sites.precision.mean(axis=1)))


def refresh(problem: Problem, state: State, executor: Executor, n_sampled: int | None = None) -> State:
    """Make the shared factor anew, from all blocks or only the first, and the cavities of every block with it."""

    def weigh(block: RowBlock, latent: Latent) -> tuple[Floats, Floats]:
        return ep.precision_sum(block.Phi, latent.sites.precision.mean(axis=1)), np.array(len(block.residual))

    total, n_rows = executor.sum(weigh, problem.rows[:n_sampled], state.latents[:n_sampled])
    if n_sampled is not None:
        (n_all,) = executor.sum(lambda block: (np.array(len(block.residual)),), problem.rows)
        total *= n_all / n_rows
    factor = ep.shared_factor(total, np.float32)
    light = triangular.light(factor)

    def share(block: RowBlock, latent: Latent) -> Latent:
        return latent._replace(shared=ep.share(light, block.Phi, latent.sites.precision.mean(axis=1)))

    return state._replace(factor=factor, latents=executor.map(share, problem.rows, state.latents))


def _scores(block: RowBlock, latent: Latent, mean: Floats) -> tuple[Floats, Floats]:
    """Posterior means μ of a block's latent values and leave-one-out z-scores γ, [b, m]."""
    assert latent.shared is not None
    latent_mean = block.Phi @ mean
    return latent_mean, ep.leave_one_out(latent_mean, latent.sites, latent.shared, block.residual)


def _visit(
    block: RowBlock, latent: Latent, own: Signs | None, mean: Floats, match: Match
) -> tuple[Latent, tuple[Floats, Floats, Floats]]:
    """Steps 2 to 4 of a sweep for one block: new codes, sites, gradient.

    To add up are Phiᵀ(ν − τ μ), [r, m]; Σ τ μ², [m]; and the counts of `_matching`, the change of τ̄ since the factor
    was made, and that older τ̄, [7].
    """
    latent_mean, gamma = _scores(block, latent, mean)
    assert latent.shared is not None
    older = latent.shared.precision
    latent, counts = match(block, latent, own, gamma, latent.shared.cavity)
    drift = latent.sites.precision.mean(axis=1).sum() - older.sum()
    return latent, (*_gradient(block, latent.sites, latent_mean), np.array([*counts, drift, older.sum()]))


def _matching(problem: Problem, state: State, groups: Groups | None) -> Match:
    """What finds new codes and sites of a block, from its z-scores γ [b, m] and cavity variances [b] or [b, m].

    A central block has its `own` new codes already; the others draw theirs, unless codes are frozen. With the block
    come the numbers of its sites and flips, the leave-one-out score, |change of τ|, and τ, [5].
    """
    draw, damping = _drawing(problem, 1, state.sweep, groups), state.damping

    def match(
        block: RowBlock, latent: Latent, own: Signs | None, gamma: Floats, cavity: Floats
    ) -> tuple[Latent, tuple[float, ...]]:
        signs, before = draw(block, latent.signs, gamma) if own is None else own, latent.sites
        matched, score = ep.match(gamma, signs, cavity, block.residual, block.weights)
        if cavity.ndim == 2:  # of every bit: a site that the blockwise sweep has skipped has none
            matched = Sites(*(np.where(cavity > 0, new, old) for new, old in zip(matched, before, strict=True)))
        flips, change = int((signs != latent.signs).sum()), np.abs(matched.precision - before.precision).sum()
        found = latent._replace(signs=signs, sites=ep.damp(before, matched, damping))
        n_sites = gamma.size if block.weights is None else gamma.shape[1] * block.weights.sum()
        return found, (n_sites, flips, score.sum(), change, before.precision.sum())

    return match


def _gradient(block: RowBlock, sites: Sites, latent_mean: Floats) -> tuple[Floats, Floats]:
    """Phiᵀ(ν − τ μ), [r, m], and Σ τ μ², [m], of a block."""
    pull = sites.precision * latent_mean
    gradient = block.Phi.T @ (sites.shift - pull).astype(np.float32)
    return gradient, np.einsum("im,im->m", pull, latent_mean)


def _draw_central(
    problem: Problem, phase: int, sweep: int, central: Iterable[tuple[Signs, Floats]]
) -> tuple[list[Signs], Groups | None]:
    """Gibbs sampling of all central rows, from codes and z-scores γ of their blocks.

    Returns the blocks' new codes, and the groups that other rows see, if there are others.
    """
    signs, gammas = zip(*central, strict=True)
    gamma, generator = np.concatenate(gammas), _generator(problem.seed, phase, sweep, len(problem.rows))
    uniforms, order = generator.random(gamma.shape), generator.permutation(len(gamma)).astype(np.int64)
    own, table = np.concatenate(signs), problem.table
    new, groups = gibbs.sample_central(problem.supervision, own, gamma, uniforms, order, table)
    return _split(new, signs), groups


def _drawing(problem: Problem, phase: int, sweep: int, groups: Groups | None) -> Callable[..., Signs]:
    """Gibbs sampling of a block that depends on the representatives only; codes stay as they are without groups."""
    seed, table = (problem.seed, phase, sweep), problem.table

    def draw(block: RowBlock, signs: Signs, gamma: Floats) -> Signs:
        if groups is None:
            return signs
        assert block.signatures is not None
        uniforms = _generator(*seed, block.number).random(gamma.shape)
        return gibbs.sample_rows(signs, gamma, uniforms, block.signatures, groups, table)

    return draw


def _solve(
    problem: Problem,
    state: State,
    steps: int,
    tolerance: float,
    executor: Executor,
    slope: tuple[Floats, ...] | None = None,
) -> Floats:
    """Means for sites and factor as they are; `slope` is the sum of `_gradient`, if that is known."""
    rows, latents, small = problem.rows, state.latents, state.mean.astype(np.float32)
    gradient, energy = slope or executor.sum(
        lambda block, latent: _gradient(block, latent.sites, block.Phi @ small), rows, latents
    )

    def product(direction: Floats) -> Floats:
        """The map p_j ↦ Phiᵀ diag(τ_j) Phi p_j for all bits together, [r, m]."""
        pushed = direction.astype(np.float32)

        def push(block: RowBlock, latent: Latent) -> tuple[Floats]:
            return (block.Phi.T @ (latent.sites.precision * (block.Phi @ pushed)).astype(np.float32),)

        return executor.sum(push, rows, latents)[0]

    assert state.factor is not None
    return ep.solve_means(product, gradient, state.mean, energy, state.factor, steps, tolerance)


def _row_weights(rows: Sequence[RowBlock]) -> Floats:
    """Weights of all rows, [n]."""
    return np.concatenate([np.ones(len(one.residual)) if one.weights is None else one.weights for one in rows])


def _split(together: NDArray[Any], parts: Sequence[NDArray[Any]]) -> list[Any]:
    """Cut rows into pieces as long as the parts."""
    return np.split(together, np.cumsum([len(part) for part in parts])[:-1])


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
