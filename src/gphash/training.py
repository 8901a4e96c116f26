"""Training, from raw features and supervision to a hash function (sections 3 and 4 of the paper).

Centre and scale the rows; choose the inducing inputs; draw the representatives; choose kernel and start on a sample
of them; then let EP and Gibbs sampling alternate over all rows until codes have settled and EP has converged.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from gphash import hashing, inference, selection
from gphash.arrays import Floats, Indices, Signs
from gphash.coding import gibbs, similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor, row_blocks
from gphash.execution.spill import Spill
from gphash.features import inducing, scaling
from gphash.features.scaling import Scaling
from gphash.gp import prior as priors
from gphash.gp.prior import Prior
from gphash.hashing import HashFunction
from gphash.kernels import SquaredExponential
from gphash.selection import Sample, Start
from gphash.state import Prediction, Problem, Rows, Schedule, State, Sweep


class Settings(NamedTuple):
    """What the user decides; None lets training choose.

    n_bits
        m, the length of a code.
    n_inducing, inducing
        r, the number of inducing inputs, and how to find them: "kmeans" or "random".
    solver
        "shared" or "blockwise".
    unit_length
        Whether centred rows are scaled to unit length.
    length_scale, signal_scale
        ℓ and σ_f.
    similarity_scale
        σ_y; None is 2/m.
    pair_weight
        κ; None chooses it by retrieval on held-out rows.
    n_representatives
        t, rows that all others are compared with.
    n_starts
        Random starts of the codes to choose from.
    max_sweeps
        Sweeps before codes are frozen.
    block_size
        Rows of a block, the unit of work and of random numbers.
    memory_limit
        Bytes that Phi may take in memory; beyond, it is kept in memory-mapped files.
    seed
        Of all random numbers.
    """

    n_bits: int
    n_inducing: int = 1000
    inducing: str = "kmeans"
    solver: str = "shared"
    unit_length: bool = True
    length_scale: float | None = None
    signal_scale: float | None = None
    similarity_scale: float | None = None
    pair_weight: float | None = 1.0
    n_representatives: int = 5000
    n_starts: int = 4
    max_sweeps: int = 50
    block_size: int = 2048
    memory_limit: float = np.inf
    seed: int = 0


class Plan(NamedTuple):
    """What is settled before the first sweep over all rows.

    scaling
        From raw to scaled features.
    Z
        Inducing inputs, scaled, [r, d].
    kernel
        As given or as chosen.
    pair_weight
        κ, as given or as chosen.
    """

    scaling: Scaling
    Z: Floats
    kernel: SquaredExponential
    pair_weight: float


class Trained(NamedTuple):
    """Outcome of training.

    function
        The hash function.
    plan
        What was chosen.
    codes
        The sampled codes of the training rows, int8 [n, m]; 0 for rows that no pair names.
    sweeps
        One record per sweep.
    seconds
        Time by phase.
    """

    function: HashFunction
    plan: Plan
    codes: Signs
    sweeps: list[Sweep]
    seconds: dict[str, float]


class Checkpoint(NamedTuple):
    """Where training can go on from.

    plan
        Everything that was chosen.
    start
        The start of the codes, while there is no state yet; else None.
    state
        Between two sweeps, with its blocks at hand; None before the first codes.
    sweeps
        Those done.
    """

    plan: Plan
    start: Start | None
    state: State | None
    sweeps: list[Sweep]


def train(
    X: Floats,
    supervision: Signatures | PairGraph,
    settings: Settings,
    executor: Executor,
    watch: Callable[[Sweep], None] | None = None,
    keep: Callable[[Checkpoint], None] | None = None,
    resumed: Checkpoint | None = None,
) -> Trained:
    """Train a hash function.

    Parameters
    ----------
    X
        Raw features, [n, d].
    supervision
        Labels or tags as signatures, or a pair list.
    settings
        All choices.
    executor
        Where row blocks are worked on.
    watch
        Sees every sweep.
    keep
        Is handed a checkpoint when all is chosen, when the first codes are there, and after every sweep.
    resumed
        Checkpoint to go on from.
    """
    clock = _Clock()
    keep = keep or (lambda _: None)
    generator = np.random.default_rng(settings.seed)
    order = selection.draw_order(supervision, len(X), generator)
    n_central = _count_central(supervision, settings, order)
    if resumed is None:
        chosen = _choose(X, supervision, settings, order, generator, executor, clock)
        resumed = Checkpoint(*chosen, None, [])
        keep(resumed)
    plan, start, state, sweeps = resumed

    blocks, n_central_blocks = _blocks(order, n_central, settings.block_size)
    prior = priors.build(plan.kernel, plan.Z)
    with _storage(len(order) * len(plan.Z) * 4, settings.memory_limit) as spill:
        rows = _rows(X, supervision, plan.scaling, prior, blocks, spill, executor)
        graph = similarity.among(supervision, order) if isinstance(supervision, PairGraph) else None
        table = pair_table(settings, plan.pair_weight)
        central = supervision[order[:n_central]] if isinstance(supervision, Signatures) else None
        problem = Problem(rows, n_central_blocks, central, graph, table, settings.seed)
        clock.lap("features")

        def kept(state: State) -> Checkpoint:
            at_hand = list(executor.collect(lambda latent: latent, state.latents))
            return Checkpoint(plan, None, state._replace(latents=at_hand), [*sweeps])

        if state is None:
            assert start is not None
            state = _first_state(X, problem, blocks, start, executor)
            keep(kept(state))
            clock.lap("first codes")

        def watch_state(state: State, sweep: Sweep) -> None:
            sweeps.append(sweep)
            keep(kept(state))
            if watch is not None:
                watch(sweep)

        schedule = Schedule(max_sweeps=settings.max_sweeps)
        state = inference.run(problem, state, schedule, executor, watch_state, settings.solver)
        state = inference.finish(problem, state, executor)
        signs = np.concatenate(list(executor.collect(lambda latent: latent.signs, state.latents)))
        clock.lap("sweeps")
    assert state.factor is not None
    function = hashing.build(plan.scaling, prior, state.mean, state.factor)
    clock.lap("hash function")
    codes = np.zeros((len(X), settings.n_bits), dtype=np.int8)
    codes[np.concatenate(blocks)] = signs
    return Trained(function, plan, codes, sweeps, clock.seconds)


def pair_table(settings: Settings, pair_weight: float) -> Floats:
    """Table of the similarity likelihood under the settings."""
    scale = settings.similarity_scale or 2 / settings.n_bits
    return gibbs.pair_table(settings.n_bits, scale, pair_weight)


def _choose(
    X: Floats,
    supervision: Signatures | PairGraph,
    settings: Settings,
    order: Indices,
    generator: np.random.Generator,
    executor: Executor,
    clock: "_Clock",
) -> tuple[Plan, Start]:
    """Scaling, inducing inputs, and on a sample of the rows: kernel, pair weight and start."""
    scaled = scaling.fit(X, settings.unit_length)
    Z = inducing.choose(X, scaled, settings.n_inducing, settings.inducing, generator, executor)
    n_inducing = len(Z)
    clock.lap("inducing inputs")

    n_central = _count_central(supervision, settings, order)
    some = order[: min(selection.SAMPLE, n_central)]
    part = supervision[some] if isinstance(supervision, Signatures) else similarity.among(supervision, some)
    few = np.sort(generator.choice(n_inducing, min(selection.INDUCING, n_inducing), replace=False))
    sample = Sample(scaling.apply(scaled, X[some]), part, Z[few])
    # Fewer representatives stand for all of them: the pair term keeps its strength.
    strength = n_central / len(some) if isinstance(supervision, Signatures) else 1.0

    def table(pair_weight: float) -> Floats:
        return pair_table(settings, pair_weight * strength)

    weight = 1.0 if settings.pair_weight is None else settings.pair_weight
    lengths = settings.length_scale, settings.signal_scale
    kernel = selection.choose_kernel(sample, scaled, table(weight), settings.seed, *lengths, executor)
    if settings.pair_weight is None:
        partners = n_central if isinstance(supervision, Signatures) else len(supervision.partners) / len(order)
        weight = selection.choose_pair_weight(
            sample, scaled, kernel, table, partners, settings.seed, settings.n_starts, executor
        )
    clock.lap("hyper-parameters")
    start = selection.best_start(sample, scaled, kernel, table(weight), settings.seed, settings.n_starts, executor)
    clock.lap("start of the codes")
    return Plan(scaled, Z, kernel, weight), start


def _count_central(supervision: Signatures | PairGraph, settings: Settings, order: Indices) -> int:
    """How many rows are sampled one after another: the representatives, or all rows of a pair list."""
    return min(settings.n_representatives, len(order)) if isinstance(supervision, Signatures) else len(order)


def _blocks(order: Indices, n_central: int, block_size: int) -> tuple[list[Indices], int]:
    """Row numbers of every block, the central rows in blocks of their own; and how many blocks those are."""
    central = [order[rows] for rows in row_blocks(n_central, block_size)]
    others = [np.sort(order[n_central:])[rows] for rows in row_blocks(len(order) - n_central, block_size)]
    return central + others, len(central)


def _rows(
    X: Floats,
    supervision: Signatures | PairGraph,
    scaled: Scaling,
    prior: Prior,
    blocks: Sequence[Indices],
    spill: Spill | None,
    executor: Executor,
) -> Sequence[Rows]:
    """Whitened features and supervision of every block."""
    n_inducing = len(prior.Z)
    ends = np.cumsum([len(rows) * n_inducing * 4 for rows in blocks])
    offsets = [0, *ends[:-1].tolist()]

    def make(number: int, rows: Indices, offset: int) -> Rows:
        Phi, residual = priors.features(prior, scaling.apply(scaled, X[rows]))
        if spill is not None:
            spill.write(offset, Phi)
            Phi = np.empty((0, n_inducing), np.float32)
        return Rows(number, Phi, residual, supervision[rows] if isinstance(supervision, Signatures) else None)

    def look(block: Rows, offset: int) -> Rows:
        assert spill is not None
        return block._replace(Phi=spill.read(offset, (len(block.residual), n_inducing), np.float32))

    made = executor.map(make, range(len(blocks)), blocks, offsets)
    return made if spill is None else executor.map(look, made, offsets)


def _first_state(X: Floats, problem: Problem, blocks: Sequence[Indices], start: Start, executor: Executor) -> State:
    """State before the first sweep, from the start's own codes for its sample (the first rows), else predicted bits."""
    predictions = executor.map(lambda rows: Prediction(*hashing.predict(start.function, X[rows])), blocks)
    ends = np.cumsum([len(rows) for rows in blocks])
    own = [start.signs[end - len(rows) : end] for rows, end in zip(blocks, ends, strict=True)]

    def signs(prediction: Prediction, known: Signs) -> Signs:
        bits = np.where(prediction.mean >= 0, 1, -1).astype(np.int8)
        bits[: len(known)] = known
        return bits

    return inference.init_from_predictions(problem, executor.map(signs, predictions, own), predictions, executor)


@contextmanager
def _storage(needed: float, limit: float) -> Iterator[Spill | None]:
    """A temporary file for Phi when it would not fit in memory; else None."""
    if needed <= limit:
        yield None
        return
    with Spill() as spill:
        yield spill


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = now - self._last
        self._last = now
