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
from collections.abc import Callable, Sequence

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.coding import gibbs
from gphash.coding.gibbs import Groups
from gphash.execution.local import Executor
from gphash.gp import blockwise, ep, triangular
from gphash.gp.ep import Sites
from gphash.gp.triangular import Factor
from gphash.state import Latent, Prediction, Problem, Rows, Schedule, State, Sweep

TOLERANCE = 1e-3  # relative error at which conjugate gradients end
START_STEPS = 4  # for means that start from zero
FINISH_STEPS, FINISH_TOLERANCE = 20, 3e-4  # for the means of the hash function
SHRINKING = 0.2  # of the change of the sites, from sweep to sweep, is the least to expect of EP without damping
LEAST_DAMPING = 0.1
FEWER = 0.97  # times as many flips as ever before are fewer
CALM = 0.1  # relative change of the site precisions below which EP is about to converge
SETTLING = 3  # sweeps of Gibbs sampling alone before the first sweep
CONTRACTION = 0.3  # of cavity variances, from a smaller model to the whole one


def settle(problem: Problem, signs: Sequence[Signs], gammas: Sequence[Floats], executor: Executor) -> Sequence[Signs]:
    """Codes of every block after a few sweeps of Gibbs sampling alone, the z-scores γ staying as they are."""
    n = problem.n_central
    parts = list(executor.collect(lambda block_signs: block_signs, signs[:n]))
    gamma = np.concatenate(list(executor.collect(lambda block_gamma: block_gamma, gammas[:n])))
    central, groups = np.concatenate(parts), None
    seed, table = problem.seed, problem.table
    for sweep in range(SETTLING):
        generator = _generator(seed, 0, sweep, len(signs))
        central, _, groups = _sample_together(problem, central, gamma, generator)

    def sample(block: Rows, block_signs: Signs, block_gamma: Floats) -> Signs:
        assert groups is not None
        assert block.signatures is not None
        for sweep in range(SETTLING):
            uniforms = _generator(seed, 0, sweep, block.number).random(block_gamma.shape)
            block_signs, _ = gibbs.sample_rows(block_signs, block_gamma, uniforms, block.signatures, groups, table)
        return block_signs

    others = executor.map(sample, problem.rows[n:], signs[n:], gammas[n:])
    return [*np.split(central, np.cumsum([len(part) for part in parts])[:-1]), *others]


def init(problem: Problem, signs: Sequence[Signs], executor: Executor) -> State:
    """State before the first sweep, from initial codes of every block."""
    latents = executor.map(lambda block_signs: Latent(block_signs, ep.initial_sites(block_signs), None), signs)
    return _begin(problem, latents, executor)


def init_from_predictions(
    problem: Problem, signs: Sequence[Signs], predictions: Sequence[Prediction], executor: Executor
) -> State:
    """State before the first sweep, from the predictions of a smaller model: settled codes, and sites to match."""
    gammas = executor.map(lambda prediction: prediction.mean / np.sqrt(1 + prediction.variance)[:, None], predictions)
    settled = settle(problem, signs, gammas, executor)

    def make(block: Rows, block_signs: Signs, gamma: Floats, prediction: Prediction) -> Latent:
        # A model of all rows and all inducing inputs will be surer of itself than the smaller one.
        cavity = CONTRACTION * np.maximum(prediction.variance - block.residual, 0.1 * prediction.variance)
        return Latent(block_signs, ep.match(gamma, block_signs, cavity, block.residual)[0], None)

    return _begin(problem, executor.map(make, problem.rows, settled, gammas, predictions), executor)


def _begin(problem: Problem, latents: Sequence[Latent], executor: Executor) -> State:
    (n_inducing,) = executor.collect(lambda block: block.Phi.shape[1], problem.rows[:1])
    return State(
        sweep=0,
        latents=latents,
        mean=np.zeros((n_inducing, problem.n_bits)),
        factor=None,
        drift=np.inf,
        calm=False,
        quiet=0,
        flips=np.inf,
        steady=0,
        frozen=False,
        finishing=0,
        finished=False,
        damping=1.0,
        change=np.inf,
    )


def step(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of EP and, unless codes are frozen, Gibbs sampling."""
    began = time.perf_counter()
    rows, latents, mean, factor = problem.rows, state.latents, state.mean, state.factor
    refreshed = factor is None or state.drift > (schedule.late_drift if state.calm else schedule.drift)
    if factor is None or refreshed:
        # The very first factor is only there to get going: a random sample of the rows will do.
        sampled = state.sweep == 0 and problem.graph is None
        factor, latents = refresh(problem, latents, executor, problem.n_central if sampled else None)
    if state.sweep == 0:
        mean = _solve(problem, latents, mean, factor, START_STEPS, TOLERANCE, executor)

    flips, groups = 0, None
    small_mean = mean.astype(np.float32)
    drawn: list[Signs | None] = [None] * len(rows)
    if not state.frozen:
        central = executor.collect(
            lambda block, latent: (latent.signs, scores(block, latent, small_mean)[1]),
            rows[: problem.n_central],
            latents[: problem.n_central],
        )
        signs, gammas = zip(*central, strict=True)
        drawn[: problem.n_central], flips, groups = _sample_central(problem, signs, gammas, state.sweep)

    seed, table, damping = (problem.seed, state.sweep), problem.table, state.damping
    # A central block has its new codes already; the others draw theirs on the way to their sites.
    latents, (gradient, energy, counts) = executor.map_and_sum(
        lambda block, latent, own: visit(
            block,
            latent if own is None else latent._replace(signs=own),
            small_mean,
            groups if own is None else None,
            table,
            seed,
            damping,
        ),
        rows,
        latents,
        drawn,
    )
    mean = ep.solve_means(
        lambda direction: _apply(problem, latents, direction, executor),
        gradient,
        mean,
        energy,
        factor,
        schedule.steps,
        TOLERANCE,
    )
    *others, drift, shared = counts
    moved = np.inf if state.sweep == 0 else float(drift / shared)  # the first factor is never kept
    following = state._replace(latents=latents, mean=mean, factor=factor, drift=moved)
    return _close(following, schedule, flips, others, refreshed, time.perf_counter() - began)


def step_blockwise(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of the paper's own EP, bits side by side, each in blocks of 1,000 rows; then Gibbs sampling.

    Work is divided by bits, not by rows: row blocks must be at hand here.
    """
    began = time.perf_counter()
    rows, latents = problem.rows, state.latents
    Phis = [block.Phi for block in rows]
    residual = np.concatenate([block.residual for block in rows])
    signs = np.concatenate([latent.signs for latent in latents])
    precision = np.concatenate([latent.sites.precision for latent in latents])
    shift = np.concatenate([latent.sites.shift for latent in latents])
    bits = list(
        executor.collect(
            lambda j: blockwise.sweep_bit(
                Phis, residual, signs[:, j], precision[:, j], shift[:, j], damping=state.damping
            ),
            range(problem.n_bits),
        )
    )
    ends = np.cumsum([len(block.residual) for block in rows])[:-1]
    gammas = np.split(np.stack([bit.gamma for bit in bits], axis=1), ends)
    cavities = np.split(np.stack([bit.cavity for bit in bits], axis=1), ends)

    flips, groups, n = 0, None, problem.n_central
    if not state.frozen:
        own = [latent.signs for latent in latents[:n]]
        renewed, flips, groups = _sample_central(problem, own, gammas[:n], state.sweep)
        latents = [latent._replace(signs=new) for latent, new in zip(latents, renewed, strict=False)] + [*latents[n:]]

    def match(block: Rows, latent: Latent, gamma: Floats, cavity: Floats) -> tuple[Latent, tuple[float, ...]]:
        drawn, flipped = latent.signs, 0
        if groups is not None and block.number >= n:
            drawn, flipped = _sample_block(block, drawn, gamma, groups, problem.table, (problem.seed, state.sweep))
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
    state: State,
    schedule: Schedule,
    central_flips: int,
    counts: Sequence[float] | Floats,
    refreshed: bool,
    seconds: float,
) -> tuple[State, Sweep]:
    """Count the sweep, and decide whether codes have settled and EP has converged."""
    n_sites, other_flips, score, change, precision = (float(count) for count in counts)
    flips = central_flips + int(other_flips)
    number = state.sweep + 1
    quiet = state.quiet + 1 if flips <= schedule.settled * n_sites else 0
    relative = change / precision if precision else float(change > 0)
    sweep = Sweep(number, flips, score / n_sites, relative, refreshed, state.frozen, seconds)
    steady = state.steady + 1 if flips > FEWER * state.flips else 0
    settled = quiet >= schedule.patience or steady >= schedule.steadiness
    frozen = state.frozen or settled or number >= schedule.max_sweeps
    finishing = state.finishing + 1 if state.frozen else 0
    finished = state.frozen and (sweep.change <= schedule.converged or finishing >= schedule.max_finish)
    # Updating all sites at once can overshoot; with codes fixed, changes that do not shrink show it.
    oscillates = finishing > 1 and sweep.change > (1 - SHRINKING * state.damping) * state.change
    damping = max(state.damping / 2, LEAST_DAMPING) if oscillates else state.damping
    calm = state.frozen and sweep.change <= CALM
    following = state._replace(
        sweep=number,
        calm=calm,
        quiet=quiet,
        flips=min(flips, state.flips),
        steady=steady,
        frozen=frozen,
        finishing=finishing,
        finished=finished,
        damping=damping,
        change=sweep.change,
    )
    return following, sweep


SOLVERS = {"shared": step, "blockwise": step_blockwise}


def run(
    problem: Problem,
    state: State,
    schedule: Schedule,
    executor: Executor,
    watch: Callable[[State, Sweep], None] | None = None,
    solver: str = "shared",
) -> State:
    """Sweep until codes have settled and EP has converged; `watch` sees every sweep as it ends."""
    while not state.finished:
        state, sweep = SOLVERS[solver](problem, state, schedule, executor)
        if watch is not None:
            watch(state, sweep)
    return state


def recover(block: Rows, signs: Signs | None, mean: Floats, factor: Factor) -> Latent:
    """Codes and sites of a row block that were lost, from the posterior of all rows: where EP goes on from.

    Codes are those given, or else the signs of the posterior means. Sites come from one pass of EP that takes the
    posterior for the cavity; as EP goes on it converges to the fixed point that it would have reached anyway.
    """
    latent_mean = block.Phi @ mean.astype(np.float32)
    if signs is None:
        signs = np.where(latent_mean >= 0, 1, -1).astype(np.int8)
    whole = ep.share(factor, block.Phi, np.zeros(len(block.residual)))
    gamma = latent_mean / np.sqrt(1 + block.residual + whole.cavity)[:, None]
    sites, _ = ep.match(gamma, signs, whole.cavity, block.residual)
    return Latent(signs, sites, ep.share(factor, block.Phi, sites.precision.mean(axis=1)))


def finish(problem: Problem, state: State, executor: Executor, drift: float = 0.1) -> State:
    """Bring factor and means up to date with the last sites."""
    factor, latents = state.factor, state.latents
    if factor is None or state.drift > drift:
        factor, latents = refresh(problem, latents, executor)
    mean = _solve(problem, latents, state.mean, factor, FINISH_STEPS, FINISH_TOLERANCE, executor)
    return state._replace(latents=latents, factor=factor, drift=0.0, mean=mean)


def refresh(
    problem: Problem, latents: Sequence[Latent], executor: Executor, n_sampled: int | None = None
) -> tuple[Factor, Sequence[Latent]]:
    """Make the shared factor anew, from all blocks or only the first, and the cavities of every block with it."""
    total, n_rows = executor.sum(
        lambda block, latent: (
            ep.precision_sum(block.Phi, latent.sites.precision.mean(axis=1)),
            np.array(len(block.residual)),
        ),
        problem.rows[:n_sampled],
        latents[:n_sampled],
    )
    if n_sampled is not None:
        (n_all,) = executor.sum(lambda block: (np.array(len(block.residual)),), problem.rows)
        total *= n_all / n_rows
    factor = ep.shared_factor(total, np.float32)
    light = triangular.light(factor)
    return factor, executor.map(
        lambda block, latent: latent._replace(shared=ep.share(light, block.Phi, latent.sites.precision.mean(axis=1))),
        problem.rows,
        latents,
    )


def scores(block: Rows, latent: Latent, mean: Floats) -> tuple[Floats, Floats]:
    """Posterior means μ of a block's latent values and leave-one-out z-scores γ, [b, m]."""
    assert latent.shared is not None
    latent_mean = block.Phi @ mean
    return latent_mean, ep.leave_one_out(latent_mean, latent.sites, latent.shared, block.residual)


def visit(
    block: Rows,
    latent: Latent,
    mean: Floats,
    groups: Groups | None,
    table: Floats,
    seed: tuple[int, int],
    damping: float = 1.0,
) -> tuple[Latent, tuple[Floats, Floats, Floats]]:
    """Steps 2 to 4 of a sweep for one block: codes against the representatives' groups (if given), sites, gradient.

    Returns
    -------
    The block's new codes and sites; and to add up: Phiᵀ(ν − τ μ), [r, m]; Σ τ μ², [m]; and the number of sites, flips,
    leave-one-out score, |change of τ|, τ, |change of τ̄ since the factor was made|, and that older τ̄, [7].
    """
    assert latent.shared is not None
    latent_mean, gamma = scores(block, latent, mean)
    signs, flips = latent.signs, 0
    if groups is not None:
        signs, flips = _sample_block(block, signs, gamma, groups, table, seed)
    matched, score = ep.match(gamma, signs, latent.shared.cavity, block.residual)
    change = np.abs(matched.precision - latent.sites.precision).sum()
    sites = ep.damp(latent.sites, matched, damping)
    pull = sites.precision * latent_mean
    gradient = block.Phi.T @ (sites.shift - pull).astype(np.float32)
    energy = np.einsum("im,im->m", pull, latent_mean)
    drift = np.abs(sites.precision.mean(axis=1) - latent.shared.precision).sum()
    counts = (
        gamma.size,
        flips,
        score.sum(),
        change,
        latent.sites.precision.sum(),
        drift,
        latent.shared.precision.sum(),
    )
    return Latent(signs, sites, latent.shared), (gradient, energy, np.array(counts))


def _sample_central(
    problem: Problem, parts: Sequence[Signs], gammas: Sequence[Floats], sweep: int
) -> tuple[list[Signs], int, Groups | None]:
    """Gibbs sampling of the rows that depend on each other, in one place: codes of every central block, and flips."""
    generator = _generator(problem.seed, 1, sweep, len(problem.rows))
    signs, flips, groups = _sample_together(problem, np.concatenate(parts), np.concatenate(gammas), generator)
    return np.split(signs, np.cumsum([len(part) for part in parts])[:-1]), flips, groups


def _sample_block(
    block: Rows, signs: Signs, gamma: Floats, groups: Groups, table: Floats, seed: tuple[int, int]
) -> tuple[Signs, int]:
    """Gibbs sampling of a block that depends on the representatives only; `seed` is that of the run and the sweep."""
    assert block.signatures is not None
    uniforms = _generator(seed[0], 1, seed[1], block.number).random(gamma.shape)
    return gibbs.sample_rows(signs, gamma, uniforms, block.signatures, groups, table)


def _sample_together(
    problem: Problem, signs: Signs, gamma: Floats, generator: np.random.Generator
) -> tuple[Signs, int, Groups | None]:
    """Codes of the central rows, flips, and (unless the supervision is a pair list) the groups that the others see."""
    uniforms, order = generator.random(gamma.shape), generator.permutation(len(gamma)).astype(np.int64)
    if problem.graph is not None:
        signs, flips = gibbs.sample_pairs(signs, gamma, uniforms, order, problem.graph, problem.table)
        return signs, flips, None
    assert problem.representatives is not None
    signs, flips = gibbs.sample_representatives(signs, gamma, uniforms, order, problem.representatives, problem.table)
    return signs, flips, gibbs.group(signs, problem.representatives)


def _apply(problem: Problem, latents: Sequence[Latent], direction: Floats, executor: Executor) -> Floats:
    """Phiᵀ diag(τ_j) Phi p_j for all bits together, [r, m]."""
    small = direction.astype(np.float32)
    (total,) = executor.sum(
        lambda block, latent: (block.Phi.T @ (latent.sites.precision * (block.Phi @ small)).astype(np.float32),),
        problem.rows,
        latents,
    )
    return total


def _solve(
    problem: Problem,
    latents: Sequence[Latent],
    mean: Floats,
    factor: Factor,
    steps: int,
    tolerance: float,
    executor: Executor,
) -> Floats:
    """Means for sites as they are."""
    small = mean.astype(np.float32)

    def start(block: Rows, latent: Latent) -> tuple[Floats, Floats]:
        latent_mean = block.Phi @ small
        pull = latent.sites.precision * latent_mean
        gradient = block.Phi.T @ (latent.sites.shift - pull).astype(np.float32)
        return gradient, np.einsum("im,im->m", pull, latent_mean)

    gradient, energy = executor.sum(start, problem.rows, latents)
    return ep.solve_means(
        lambda direction: _apply(problem, latents, direction, executor),
        gradient,
        mean,
        energy,
        factor,
        steps,
        tolerance,
    )


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
