"""Inference of codes and Gaussian processes together: EP and Gibbs sampling in turn (section 3 of the paper).

One sweep, over row blocks that each hold their rows of Phi, residual, supervision, codes and sites:

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
from gphash.method.state import Latent, Problem, RowBlock, Schedule, State, Sweep
from gphash.method.triangular import Factor

TOLERANCE = 1e-3  # relative error at which conjugate gradients end
START_STEPS = 4  # for means that start from zero
FINISH_STEPS, FINISH_TOLERANCE = 20, 3e-4  # for the means of the hash function
FINISH_DRIFT = 0.1  # of τ̄ beyond which the last factor is made anew
SHRINKING = 0.2  # of the change of the sites, from sweep to sweep, is the least to expect of EP without damping
LEAST_DAMPING = 0.1
FEWER = 0.97  # times as many flips as ever before are fewer
CALM = 0.1  # relative change of the site precisions below which EP is about to converge
SETTLING = 3  # sweeps of Gibbs sampling alone before the first sweep
CONTRACTION = 0.3  # of cavity variances, from a smaller model to the whole one


def settle(problem: Problem, signs: Sequence[Signs], gammas: Sequence[Floats], executor: Executor) -> Sequence[Signs]:
    """Codes of every block after a few sweeps of Gibbs sampling alone, the z-scores γ staying as they are."""
    n, seed, table = problem.n_central, problem.seed, problem.table
    parts = list(executor.collect(lambda block_signs: block_signs, signs[:n]))
    gamma = np.concatenate(list(executor.collect(lambda block_gamma: block_gamma, gammas[:n])))
    central, groups = np.concatenate(parts), None
    for sweep in range(SETTLING):
        central, _, groups = _sample_central(problem, central, gamma, 0, sweep)

    def sample(block: RowBlock, block_signs: Signs, block_gamma: Floats) -> Signs:
        assert groups is not None
        for sweep in range(SETTLING):
            block_signs, _ = _sample_block(block, block_signs, block_gamma, groups, table, (seed, 0, sweep))
        return block_signs

    others = executor.map(sample, problem.rows[n:], signs[n:], gammas[n:])
    return [*_split(central, parts), *others]


def init(problem: Problem, signs: Sequence[Signs], executor: Executor) -> State:
    """State before the first sweep, from initial codes of every block."""
    latents = executor.map(lambda block_signs: Latent(block_signs, ep.initial_sites(block_signs), None), signs)
    return _begin(problem, latents, executor)


def init_from_predictions(
    problem: Problem, signs: Sequence[Signs], predictions: Sequence[tuple[Floats, Floats]], executor: Executor
) -> State:
    """State before the first sweep, from a smaller model's means [b, m] and variances [b]: settled codes, and sites."""
    gammas = executor.map(lambda prediction: prediction[0] / np.sqrt(1 + prediction[1])[:, None], predictions)
    settled = settle(problem, signs, gammas, executor)

    def make(block: RowBlock, block_signs: Signs, gamma: Floats, prediction: tuple[Floats, Floats]) -> Latent:
        # A model of all rows and all inducing inputs will be surer of itself than the smaller one.
        _, variance = prediction
        cavity = CONTRACTION * np.maximum(variance - block.residual, 0.1 * variance)
        return Latent(block_signs, ep.match(gamma, block_signs, cavity, block.residual)[0], None)

    return _begin(problem, executor.map(make, problem.rows, settled, gammas, predictions), executor)


def _begin(problem: Problem, latents: Sequence[Latent], executor: Executor) -> State:
    (n_inducing,) = executor.collect(lambda block: block.Phi.shape[1], problem.rows[:1])
    return State(0, latents, np.zeros((n_inducing, problem.n_bits)))


def step(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of EP and, unless codes are frozen, Gibbs sampling."""
    began = time.perf_counter()
    refreshed = state.factor is None or state.drift > (schedule.late_drift if state.calm else schedule.drift)
    if refreshed:
        # The very first factor is only there to get going: a random sample of the rows will do.
        sampled = state.sweep == 0 and problem.supervision.complete
        state = refresh(problem, state, executor, problem.n_central if sampled else None)
    if state.sweep == 0:
        state = state._replace(mean=_solve(problem, state, START_STEPS, TOLERANCE, executor))
    assert state.factor is not None

    rows, latents = problem.rows, state.latents
    flips, groups, n = 0, None, problem.n_central
    small_mean = state.mean.astype(np.float32)
    drawn: list[Signs | None] = [None] * len(rows)
    if not state.frozen:
        central = executor.collect(
            lambda block, latent: (latent.signs, _scores(block, latent, small_mean)[1]), rows[:n], latents[:n]
        )
        signs, gammas = zip(*central, strict=True)
        new, flips, groups = _sample_central(problem, np.concatenate(signs), np.concatenate(gammas), 1, state.sweep)
        drawn[:n] = _split(new, signs)

    common = small_mean, groups, problem.table, (problem.seed, 1, state.sweep), state.damping
    latents, (gradient, energy, counts) = executor.map_and_sum(
        lambda block, latent, own: _visit(block, latent, own, *common), rows, latents, drawn
    )
    product = _product(problem, latents, executor)
    mean = ep.solve_means(product, gradient, state.mean, energy, state.factor, schedule.steps, TOLERANCE)
    *others, drift, shared = counts
    moved = np.inf if state.sweep == 0 else float(drift / shared)  # the first factor is never kept
    following = state._replace(latents=latents, mean=mean, drift=moved)
    return _close(following, schedule, flips, others, refreshed, time.perf_counter() - began)


def step_blockwise(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of the paper's own EP, bits side by side, each in blocks of 1,000 rows; then Gibbs sampling.

    Work is divided by bits, not by rows: row blocks must be at hand here.
    """
    began = time.perf_counter()
    rows, latents = problem.rows, state.latents
    Phis, residuals = [block.Phi for block in rows], [block.residual for block in rows]
    residual = np.concatenate(residuals)
    signs = np.concatenate([latent.signs for latent in latents])
    precision = np.concatenate([latent.sites.precision for latent in latents])
    shift = np.concatenate([latent.sites.shift for latent in latents])

    def sweep_bit(j: int) -> blockwise.BitSweep:
        bit = signs[:, j], precision[:, j], shift[:, j]
        return blockwise.sweep_bit(Phis, residual, *bit, damping=state.damping)

    bits = list(executor.collect(sweep_bit, range(problem.n_bits)))
    gammas = _split(np.stack([bit.gamma for bit in bits], axis=1), residuals)
    cavities = _split(np.stack([bit.cavity for bit in bits], axis=1), residuals)

    flips, groups, n = 0, None, problem.n_central
    if not state.frozen:
        own = [latent.signs for latent in latents[:n]]
        new, flips, groups = _sample_central(problem, np.concatenate(own), np.concatenate(gammas[:n]), 1, state.sweep)
        central = [latent._replace(signs=part) for latent, part in zip(latents[:n], _split(new, own), strict=True)]
        latents = [*central, *latents[n:]]

    def match(block: RowBlock, latent: Latent, gamma: Floats, cavity: Floats) -> tuple[Latent, tuple[float, ...]]:
        drawn, flipped = latent.signs, 0
        if groups is not None and block.number >= n:
            drawn, flipped = _sample_block(block, drawn, gamma, groups, problem.table, (problem.seed, 1, state.sweep))
        matched, score = ep.match(gamma, drawn, cavity, block.residual)
        # A site that the sweep has skipped has no cavity.
        matched = Sites(*(np.where(cavity > 0, new, old) for new, old in zip(matched, latent.sites, strict=True)))
        change = np.abs(matched.precision - latent.sites.precision).sum()
        sites = ep.damp(latent.sites, matched, state.damping)
        return Latent(drawn, sites, None), (gamma.size, flipped, score.sum(), change, latent.sites.precision.sum())

    results = executor.map(match, rows, latents, gammas, cavities)
    mean = np.stack([bit.mean for bit in bits], axis=1)
    following = state._replace(latents=[latent for latent, _ in results], mean=mean)
    counts = np.sum([numbers for _, numbers in results], axis=0)
    return _close(following, schedule, flips, counts, False, time.perf_counter() - began)


def _close(
    state: State, schedule: Schedule, central_flips: int, counts: Iterable[float], refreshed: bool, seconds: float
) -> tuple[State, Sweep]:
    """Count the sweep, and decide whether codes have settled and EP has converged."""
    n_sites, other_flips, score, total_change, precision = (float(count) for count in counts)
    flips = central_flips + int(other_flips)
    number = state.sweep + 1
    change = total_change / precision if precision else float(total_change > 0)
    quiet = state.quiet + 1 if flips <= schedule.settled * n_sites else 0
    steady = state.steady + 1 if flips > FEWER * state.flips else 0
    settled = quiet >= schedule.patience or steady >= schedule.steadiness
    finishing = state.finishing + 1 if state.frozen else 0
    # Updating all sites at once can overshoot; with codes fixed, changes that do not shrink show it.
    oscillates = finishing > 1 and change > (1 - SHRINKING * state.damping) * state.change
    following = state._replace(
        sweep=number,
        calm=state.frozen and change <= CALM,
        quiet=quiet,
        flips=min(flips, state.flips),
        steady=steady,
        frozen=state.frozen or settled or number >= schedule.max_sweeps,
        finishing=finishing,
        finished=state.frozen and (change <= schedule.converged or finishing >= schedule.max_finish),
        damping=max(state.damping / 2, LEAST_DAMPING) if oscillates else state.damping,
        change=change,
    )
    return following, Sweep(number, flips, score / n_sites, change, refreshed, state.frozen, seconds)


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
    sites, _ = ep.match(gamma, signs, whole.cavity, block.residual)
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
    block: RowBlock,
    latent: Latent,
    own: Signs | None,
    mean: Floats,
    groups: Groups | None,
    table: Floats,
    seed: tuple[int, int, int],
    damping: float,
) -> tuple[Latent, tuple[Floats, Floats, Floats]]:
    """Steps 2 to 4 of a sweep for one block: new codes, sites, gradient.

    A central block has its `own` new codes already; the others draw theirs here, unless codes are frozen. To add up
    are Phiᵀ(ν − τ μ), [r, m]; Σ τ μ², [m]; and the number of sites, flips, leave-one-out score, |change of τ|, τ,
    |change of τ̄ since the factor was made|, and that older τ̄, [7].
    """
    latent_mean, gamma = _scores(block, latent, mean)
    assert latent.shared is not None
    signs, flips, before = latent.signs if own is None else own, 0, latent.sites.precision
    if own is None and groups is not None:
        signs, flips = _sample_block(block, signs, gamma, groups, table, seed)
    matched, score = ep.match(gamma, signs, latent.shared.cavity, block.residual)
    change = np.abs(matched.precision - before).sum()
    sites = ep.damp(latent.sites, matched, damping)
    drift = np.abs(sites.precision.mean(axis=1) - latent.shared.precision).sum()
    counts = gamma.size, flips, score.sum(), change, before.sum(), drift, latent.shared.precision.sum()
    return Latent(signs, sites, latent.shared), (*_gradient(block, sites, latent_mean), np.array(counts))


def _gradient(block: RowBlock, sites: Sites, latent_mean: Floats) -> tuple[Floats, Floats]:
    """Phiᵀ(ν − τ μ), [r, m], and Σ τ μ², [m], of a block."""
    pull = sites.precision * latent_mean
    gradient = block.Phi.T @ (sites.shift - pull).astype(np.float32)
    return gradient, np.einsum("im,im->m", pull, latent_mean)


def _sample_central(
    problem: Problem, signs: Signs, gamma: Floats, phase: int, sweep: int
) -> tuple[Signs, int, Groups | None]:
    """Gibbs sampling of all central rows: codes, flips, and the groups that other rows see, if there are others."""
    generator = _generator(problem.seed, phase, sweep, len(problem.rows))
    uniforms, order = generator.random(gamma.shape), generator.permutation(len(gamma)).astype(np.int64)
    return gibbs.sample_central(problem.supervision, signs, gamma, uniforms, order, problem.table)


def _sample_block(
    block: RowBlock, signs: Signs, gamma: Floats, groups: Groups, table: Floats, seed: tuple[int, int, int]
) -> tuple[Signs, int]:
    """Gibbs sampling of a block that depends on the representatives only; `seed` is that of run, phase and sweep."""
    assert block.signatures is not None
    uniforms = _generator(*seed, block.number).random(gamma.shape)
    return gibbs.sample_rows(signs, gamma, uniforms, block.signatures, groups, table)


def _product(problem: Problem, latents: Sequence[Latent], executor: Executor) -> Callable[[Floats], Floats]:
    """The map p_j ↦ Phiᵀ diag(τ_j) Phi p_j for all bits together, [r, m]."""

    def apply(direction: Floats) -> Floats:
        small = direction.astype(np.float32)

        def push(block: RowBlock, latent: Latent) -> tuple[Floats]:
            return (block.Phi.T @ (latent.sites.precision * (block.Phi @ small)).astype(np.float32),)

        return executor.sum(push, problem.rows, latents)[0]

    return apply


def _solve(problem: Problem, state: State, steps: int, tolerance: float, executor: Executor) -> Floats:
    """Means for sites and factor as they are."""
    small = state.mean.astype(np.float32)
    gradient, energy = executor.sum(
        lambda block, latent: _gradient(block, latent.sites, block.Phi @ small), problem.rows, state.latents
    )
    assert state.factor is not None
    product = _product(problem, state.latents, executor)
    return ep.solve_means(product, gradient, state.mean, energy, state.factor, steps, tolerance)


def _split(together: NDArray[Any], parts: Sequence[NDArray[Any]]) -> list[Any]:
    """Cut rows into pieces as long as the parts."""
    return np.split(together, np.cumsum([len(part) for part in parts])[:-1])


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
