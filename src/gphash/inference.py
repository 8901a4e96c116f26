"""Inference of codes and Gaussian processes together: expectation propagation and Gibbs sampling in turn (section 3 of the paper).

One sweep, over row blocks that each hold their rows of Phi, residual, supervision, codes and sites:

1. refresh the shared factor, if the sites have moved since it was made;
2. leave-one-out z-scores γ of every row and bit, from the posterior means;
3. Gibbs: the representatives (for pair lists, all rows) one after another, then the other rows in parallel;
4. new sites from the same cavities with the new codes, and the gradient of the means;
5. a few steps of conjugate gradients for the means of all bits together.

Each is a map over blocks and a sum of [r, r] or [r, m] matrices. Once codes have settled they are frozen and EP finishes alone.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.coding import gibbs
from gphash.coding.gibbs import Groups
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor
from gphash.gp import ep
from gphash.gp.ep import Shared, Sites
from gphash.gp.triangular import Factor


class Rows(NamedTuple):
    """What a row block knows and inference does not change.

    number
        Which block this is; seeds its random numbers.
    Phi, residual
        Whitened features, [b, r], and FITC residual, [b].
    signatures
        Labels or tags of the rows; None when the supervision is a pair list.
    """

    number: int
    Phi: Floats
    residual: Floats
    signatures: Signatures | None


class Latent(NamedTuple):
    """What inference finds out about a row block.

    signs
        Codes, int8 [b, m].
    sites
        EP sites, [b, m].
    shared
        Cavity variances under the shared factor; None before there is one.
    """

    signs: Signs
    sites: Sites
    shared: Shared | None


class Problem(NamedTuple):
    """Everything that stays the same from sweep to sweep.

    rows
        Row blocks; the first `n_central` are sampled together, one row after another.
    n_central
        Number of blocks that hold the representatives; all of them for a pair list.
    graph
        The pair list, rows numbered through the blocks; None for labels and tags.
    table
        From `gibbs.pair_table`.
    seed
        Of all random numbers, together with the numbers of sweep and block.
    """

    rows: Sequence[Rows]
    n_central: int
    graph: PairGraph | None
    table: Floats
    seed: int


class State(NamedTuple):
    """What the next sweep needs.

    sweep
        Number of sweeps done.
    latents
        Codes and sites of the row blocks.
    mean
        Posterior mean of the whitened inducing values, one column per bit, [r, m].
    factor
        Shared factor; None before the first sweep.
    drift
        How far τ̄ has moved since the factor was made, relative to its mean.
    quiet
        Sweeps in a row that flipped next to nothing.
    frozen
        Whether codes have settled, so that only EP goes on.
    finished
        Whether EP has converged too.
    """

    sweep: int
    latents: Sequence[Latent]
    mean: Floats
    factor: Factor | None
    drift: float
    quiet: int
    frozen: bool
    finished: bool


class Sweep(NamedTuple):
    """What a reader of diagnostics wants to know about one sweep.

    number
        Counted from 1.
    flips
        Bits that Gibbs sampling changed.
    leave_one_out
        Mean of log Φ(y γ) over rows and bits; higher is better, log ½ is chance.
    change
        Mean absolute change of the site precisions, relative to their mean.
    refreshed
        Whether the shared factor was made anew.
    frozen
        Whether codes were fixed already.
    seconds
        Time that the sweep took.
    """

    number: int
    flips: int
    leave_one_out: float
    change: float
    refreshed: bool
    frozen: bool
    seconds: float


class Schedule(NamedTuple):
    """When to stop, and how much to do in a sweep.

    max_sweeps
        Sweeps before codes are frozen whatever they do.
    settled
        Share of bits that may still flip when codes count as settled.
    patience
        Settled sweeps in a row before codes are frozen.
    drift
        Movement of τ̄ that calls for a new factor.
    steps
        Conjugate gradient steps per sweep.
    converged
        Relative change of the site precisions at which EP ends.
    max_finish
        Sweeps after the freeze at the most.
    """

    max_sweeps: int = 50
    settled: float = 1e-4
    patience: int = 3
    drift: float = 0.1
    steps: int = 1
    converged: float = 2e-3
    max_finish: int = 20


TOLERANCE = 1e-4  # relative residual at which conjugate gradients end
START_STEPS = 8  # steps for means that start from zero


def init(problem: Problem, signs: Sequence[Signs], executor: Executor, n_inducing: int) -> State:
    """State before the first sweep, from initial codes of every block."""
    latents = executor.map(lambda block_signs: Latent(block_signs, ep.initial_sites(block_signs), None), signs)
    n_bits = problem.table.shape[1] // 2 - 1
    return State(0, latents, np.zeros((n_inducing, n_bits)), None, np.inf, 0, False, False)


def step(problem: Problem, state: State, schedule: Schedule, executor: Executor) -> tuple[State, Sweep]:
    """One sweep of EP and, unless codes are frozen, Gibbs sampling."""
    began = time.perf_counter()
    rows, latents, mean, factor = problem.rows, state.latents, state.mean, state.factor
    refreshed = factor is None or state.drift > schedule.drift
    if factor is None or refreshed:
        factor, latents = refresh(problem, latents, executor)
    if state.sweep == 0:
        mean = _solve(problem, latents, mean, factor, START_STEPS, executor)

    flips, groups = 0, None
    if not state.frozen:
        latents, flips, groups = _sample_central(problem, latents, mean, state.sweep, executor)

    small_mean = mean.astype(np.float32)
    seed, sweep, n_central, table = problem.seed, state.sweep, problem.n_central, problem.table
    # A central block has its new codes already; the others draw theirs on the way to their sites.
    visits = executor.map(
        lambda block, latent: visit(
            block, latent, small_mean, groups if block.number >= n_central else None, table, (seed, sweep)
        ),
        rows,
        latents,
    )
    latents = executor.map(lambda visited: visited[0], visits)
    gradient, target, counts = executor.sum(lambda visited: visited[1:], visits)
    n_sites, other_flips, score, change, precision, drift, shared = counts
    flips += int(other_flips)
    mean = ep.solve_means(
        lambda direction: _apply(problem, latents, direction, executor),
        gradient,
        mean,
        factor,
        np.linalg.norm(target, axis=0),
        schedule.steps,
        TOLERANCE,
    ).mean

    change = float(change / precision)
    number = state.sweep + 1
    quiet = state.quiet + 1 if flips <= schedule.settled * n_sites else 0
    frozen = state.frozen or quiet >= schedule.patience or number >= schedule.max_sweeps
    finished = (state.frozen and change <= schedule.converged) or number >= schedule.max_sweeps + schedule.max_finish
    following = State(number, latents, mean, factor, float(drift / shared), quiet, frozen, finished)
    seconds = time.perf_counter() - began
    return following, Sweep(number, flips, float(score / n_sites), change, refreshed, state.frozen, seconds)


def run(
    problem: Problem,
    state: State,
    schedule: Schedule,
    executor: Executor,
    watch: Callable[[State, Sweep], None] | None = None,
) -> State:
    """Sweep until codes have settled and EP has converged; `watch` sees every sweep as it ends."""
    while not state.finished:
        state, sweep = step(problem, state, schedule, executor)
        if watch is not None:
            watch(state, sweep)
    return state


def finish(problem: Problem, state: State, executor: Executor, drift: float = 0.02) -> State:
    """Bring factor and means up to date with the last sites."""
    factor, latents = state.factor, state.latents
    if factor is None or state.drift > drift:
        factor, latents = refresh(problem, latents, executor)
    mean = _solve(problem, latents, state.mean, factor, START_STEPS, executor)
    return state._replace(latents=latents, factor=factor, drift=0.0, mean=mean)


def refresh(problem: Problem, latents: Sequence[Latent], executor: Executor) -> tuple[Factor, Sequence[Latent]]:
    """Make the shared factor anew, and the cavities of every block with it."""
    (total,) = executor.sum(
        lambda block, latent: (ep.precision_sum(block.Phi, latent.sites.precision.mean(axis=1)),), problem.rows, latents
    )
    factor = ep.shared_factor(total, np.float32)
    return factor, executor.map(
        lambda block, latent: latent._replace(
            shared=ep.share(factor, block.Phi, latent.sites.precision.mean(axis=1))
        ),
        problem.rows,
        latents,
    )


def scores(block: Rows, latent: Latent, mean: Floats) -> tuple[Floats, Floats]:
    """Posterior means μ of a block's latent values and leave-one-out z-scores γ, [b, m]."""
    assert latent.shared is not None
    latent_mean = block.Phi @ mean
    return latent_mean, ep.leave_one_out(latent_mean, latent.sites, latent.shared, block.residual)


def visit(
    block: Rows, latent: Latent, mean: Floats, groups: Groups | None, table: Floats, seed: tuple[int, int]
) -> tuple[Latent, Floats, Floats, Floats]:
    """Steps 2 to 4 of a sweep for one block: codes against the representatives' groups (if given), sites, gradient.

    Returns
    -------
    The block's new codes and sites; Phiᵀ(ν − τ μ) and Phiᵀ ν, [r, m]; and seven sums: number of sites, flips, leave-one-out
    score, |change of τ|, τ, |change of τ̄ since the factor was made|, and that older τ̄.
    """
    assert latent.shared is not None
    latent_mean, gamma = scores(block, latent, mean)
    signs, flips = latent.signs, 0
    if groups is not None and block.signatures is not None:
        uniforms = _generator(*seed, block.number).random(gamma.shape)
        signs, flips = gibbs.sample_rows(signs, gamma, uniforms, block.signatures, groups, table)
    sites, score = ep.match(gamma, signs, latent.shared.cavity, block.residual)
    rest = (sites.shift - sites.precision * latent_mean).astype(np.float32)
    # One product for both sums: Phi is read once.
    both = block.Phi.T @ np.concatenate([rest, sites.shift.astype(np.float32)], axis=1)
    drift = np.abs(sites.precision.mean(axis=1) - latent.shared.precision).sum()
    change = np.abs(sites.precision - latent.sites.precision).sum()
    counts = (gamma.size, flips, score.sum(), change, latent.sites.precision.sum(), drift, latent.shared.precision.sum())
    n_bits = gamma.shape[1]
    return Latent(signs, sites, latent.shared), both[:, :n_bits], both[:, n_bits:], np.array(counts)


def _sample_central(
    problem: Problem, latents: Sequence[Latent], mean: Floats, sweep: int, executor: Executor
) -> tuple[Sequence[Latent], int, Groups | None]:
    """Gibbs sampling of the rows that depend on each other, in one place."""
    n = problem.n_central
    central, small_mean = problem.rows[:n], mean.astype(np.float32)
    gamma = np.concatenate(list(executor.collect(lambda b, l: scores(b, l, small_mean)[1], central, latents[:n])))
    parts = list(executor.collect(lambda latent: latent.signs, latents[:n]))
    signs = np.concatenate(parts)
    generator = _generator(problem.seed, sweep, len(problem.rows))
    uniforms, order = generator.random(gamma.shape), generator.permutation(len(gamma)).astype(np.int64)
    groups = None
    if problem.graph is not None:
        signs, flips = gibbs.sample_pairs(signs, gamma, uniforms, order, problem.graph, problem.table)
    else:
        marks = list(executor.collect(lambda block: block.signatures, central))
        signatures = Signatures(np.concatenate([mark.masks for mark in marks]), marks[0].exact)
        signs, flips = gibbs.sample_representatives(signs, gamma, uniforms, order, signatures, problem.table)
        groups = gibbs.group(signs, signatures)
    split = np.split(signs, np.cumsum([len(part) for part in parts])[:-1])
    renewed = executor.map(lambda latent, block_signs: latent._replace(signs=block_signs), latents[:n], split)
    return [*renewed, *latents[n:]], flips, groups


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
    problem: Problem, latents: Sequence[Latent], mean: Floats, factor: Factor, steps: int, executor: Executor
) -> Floats:
    """Means for sites as they are."""
    (target,) = executor.sum(
        lambda block, latent: (block.Phi.T @ latent.sites.shift.astype(np.float32),), problem.rows, latents
    )
    gradient = target - _apply(problem, latents, mean, executor) if mean.any() else target
    norm = np.linalg.norm(target, axis=0)
    return ep.solve_means(
        lambda direction: _apply(problem, latents, direction, executor), gradient, mean, factor, norm, steps, TOLERANCE
    ).mean


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))

