"""Training, from raw features and supervision to a hash function (sections 3 and 4 of the paper).

Centre and scale the rows; choose the inducing inputs; draw the representatives; choose kernel and start on a sample
of them; then let EP and Gibbs sampling alternate over all rows until codes have settled and EP has converged.

Rows are read where the executor keeps them. Here come only a sample: the representatives, and the inducing inputs.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import inference, selection
from gphash.arrays import Floats, Indices, Signs
from gphash.coding import gibbs, similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.datasets.blocks import ArrayTable, Piece, Table
from gphash.execution.local import BlocksLostError, Executor, row_blocks
from gphash.execution.spill import Spill
from gphash.features import inducing, scaling
from gphash.features.scaling import Scaling
from gphash.functions import kernel as kernel_functions
from gphash.functions.kernel import HashFunction
from gphash.gp import posterior, triangular
from gphash.gp import prior as priors
from gphash.kernels import SquaredExponential
from gphash.selection import Sample, Start
from gphash.state import Latent, Prediction, Problem, Rows, Schedule, State, Sweep

R = TypeVar("R")

READING = 16384  # rows read at a time where nothing else decides
MOST_LOSSES = 3  # of blocks, one after another without a sweep between them


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
    words
        With class labels: the commonest code of every class in training, bits, uint8 [c, m]; else None.
    codes
        Brings the sampled codes of the training rows here, int8 [n, m]; 0 for rows that no pair names.
    sweeps
        One record per sweep.
    seconds
        Time by phase.
    """

    function: HashFunction
    plan: Plan
    words: NDArray[np.uint8] | None
    codes: Callable[[], Signs]
    sweeps: list[Sweep]
    seconds: dict[str, float]


class Checkpoint(NamedTuple):
    """Where training can go on from.

    plan
        Everything that was chosen.
    start
        The start of the codes, while no sweep is done; else None.
    state
        Between two sweeps; None before the first codes. Without latents, these are recovered from the rest.
    sweeps
        Those done.
    """

    plan: Plan
    start: Start | None
    state: State | None
    sweeps: list[Sweep]


def train(
    table: Table,
    supervision: Signatures | PairGraph,
    settings: Settings,
    executor: Executor,
    watch: Callable[[Sweep], None] | None = None,
    keep: Callable[[Checkpoint], None] | None = None,
    resumed: Checkpoint | None = None,
    codes: Callable[[int], Signs | None] | None = None,
) -> Trained:
    """Train a hash function.

    Parameters
    ----------
    table
        Raw features.
    supervision
        Labels or tags as signatures, or a pair list.
    settings
        All choices.
    executor
        Where row blocks are worked on. When it loses some of them, they are made again, and training goes on.
    watch
        Sees every sweep.
    keep
        Is handed a checkpoint when all is chosen, when the first codes are there, and after every sweep.
    resumed
        Checkpoint to go on from.
    codes
        The codes of a block that was lost, by its number, as they were kept at some sweep; None if they were not.
    """
    clock = _Clock()
    keep = keep or (lambda _: None)
    rows = layout(table, supervision, settings)
    if resumed is None:
        chosen = _persist(lambda: _choose(table, supervision, settings, rows, executor, clock))
        resumed = Checkpoint(*chosen, None, [])
        keep(resumed)
    plan, start, state, sweeps = resumed
    central = _persist(lambda: _read(table, rows.order[: rows.n_apart], executor))
    source = _Source(table, supervision, settings, rows, plan, central, executor)
    with _storage(rows.n_rows * len(plan.Z) * 4, settings.memory_limit) as spill:
        problem = _persist(lambda: source.problem(spill))
        clock.lap("features")
        if state is None:
            assert start is not None
            first = start
            state = _persist(lambda: source.first_state(source.mended(problem), first))
            keep(Checkpoint(plan, start, state, [*sweeps]))
            clock.lap("first codes")
        latest, losses = state, 0

        def watch_state(state: State, sweep: Sweep) -> None:
            nonlocal latest, losses
            latest, losses = state, 0
            sweeps.append(sweep)
            keep(Checkpoint(plan, None, state, [*sweeps]))
            if watch is not None:
                watch(sweep)

        schedule = Schedule(max_sweeps=settings.max_sweeps)
        while True:
            try:
                problem, latest = source.recovered(problem, latest, start, codes)
                state = inference.run(problem, latest, schedule, executor, watch_state, settings.solver)
                state = inference.finish(problem, state, executor)
                words = _words(problem, state.latents, executor)
                break
            except BlocksLostError as error:
                losses += 1
                if losses > MOST_LOSSES:
                    raise
                warnings.warn(
                    f"{error}; its blocks are made again, and training goes on.", RuntimeWarning, stacklevel=2
                )
        clock.lap("sweeps")
    assert state.factor is not None
    function = posterior.hash_function(plan.scaling, source.prior, state.mean, state.factor)
    clock.lap("hash function")
    latents = state.latents

    def bring() -> Signs:
        signs = np.zeros((table.n_rows, settings.n_bits), dtype=np.int8)
        signs[np.concatenate(rows.blocks)] = np.concatenate(
            list(executor.collect(lambda latent: latent.signs, latents))
        )
        return signs

    return Trained(function, plan, words, bring, sweeps, clock.seconds)


def pair_table(settings: Settings, pair_weight: float) -> Floats:
    """Table of the similarity likelihood under the settings."""
    scale = settings.similarity_scale or 2 / settings.n_bits
    return gibbs.pair_table(settings.n_bits, scale, pair_weight)


class Layout(NamedTuple):
    """Which rows are trained on, and in which blocks.

    order
        The rows in random order: the first ones are a sample.
    n_apart
        How many of them, the representatives, are in blocks of their own at the beginning, in that order.
    n_central
        How many rows are sampled one after another: the representatives, or all rows of a pair list.
    blocks
        Row numbers of every block; rows that are not apart follow each other as in the table.
    n_central_blocks
        How many blocks hold the central rows.
    """

    order: Indices
    n_apart: int
    n_central: int
    blocks: list[Indices]
    n_central_blocks: int

    @property
    def n_rows(self) -> int:
        """Number of rows in all blocks."""
        return len(self.order)


def layout(table: Table, supervision: Signatures | PairGraph, settings: Settings) -> Layout:
    """Which rows are trained on, and in which blocks."""
    order = selection.draw_order(supervision, table.n_rows, _choices(settings))
    n_apart = min(settings.n_representatives, len(order)) if isinstance(supervision, Signatures) else 0
    apart = [order[rows] for rows in row_blocks(n_apart, settings.block_size)]
    rest = np.sort(order[n_apart:])
    others = [rest[rows] for rows in row_blocks(len(rest), settings.block_size)]
    if isinstance(supervision, Signatures):
        return Layout(order, n_apart, n_apart, apart + others, len(apart))
    return Layout(order, 0, len(order), others, len(others))


def _choices(settings: Settings) -> np.random.Generator:
    """Draws the order of the rows, and all else that is chosen before the first sweep."""
    return np.random.default_rng(settings.seed)


def _persist(work: Callable[[], R]) -> R:
    """Do work that can be done again when blocks are lost."""
    for _ in range(MOST_LOSSES):
        try:
            return work()
        except BlocksLostError:
            continue
    return work()


def _read(table: Table, rows: Indices, executor: Executor) -> Floats:
    """Some rows, here, in the order given."""
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    pieces = executor.hold([table.select(sorted_rows[part]) for part in row_blocks(len(rows), inducing.BLOCK)])
    parts = list(executor.collect(lambda piece: piece.read(), pieces))
    if not parts:
        return np.empty((0, table.n_features), np.float32)
    read: Floats = np.empty((len(rows), table.n_features), parts[0].dtype)
    read[order] = np.concatenate(parts)
    return read


def _choose(
    table: Table,
    supervision: Signatures | PairGraph,
    settings: Settings,
    layout: Layout,
    executor: Executor,
    clock: "_Clock",
) -> tuple[Plan, Start]:
    """Scaling, inducing inputs, and on a sample of the rows: kernel, pair weight and start."""
    generator = _choices(settings)
    order = selection.draw_order(supervision, table.n_rows, generator)
    everything = np.arange(table.n_rows, dtype=np.int64)
    pieces = executor.hold([table.select(everything[rows]) for rows in row_blocks(table.n_rows, READING)])
    (total,) = executor.sum(lambda piece: (piece.read().sum(axis=0, dtype=np.float64),), pieces)
    scaled = Scaling(total / table.n_rows, settings.unit_length)
    Z = inducing.choose(table, scaled, settings.n_inducing, settings.inducing, generator, executor)
    n_inducing = len(Z)
    clock.lap("inducing inputs")

    some = order[: min(selection.SAMPLE, layout.n_central)]
    part = supervision[some] if isinstance(supervision, Signatures) else similarity.among(supervision, some)
    few = np.sort(generator.choice(n_inducing, min(selection.INDUCING, n_inducing), replace=False))
    sample = Sample(scaling.apply(scaled, _read(table, some, executor)), part, Z[few])
    # Fewer representatives stand for all of them: the pair term keeps its strength.
    strength = layout.n_central / len(some) if isinstance(supervision, Signatures) else 1.0

    def table_of(pair_weight: float) -> Floats:
        return pair_table(settings, pair_weight * strength)

    weight = 1.0 if settings.pair_weight is None else settings.pair_weight
    lengths = settings.length_scale, settings.signal_scale
    kernel = selection.choose_kernel(sample, scaled, table_of(weight), settings.seed, *lengths, executor)
    if settings.pair_weight is None:
        partners = layout.n_central if isinstance(supervision, Signatures) else len(supervision.partners) / len(order)
        weight = selection.choose_pair_weight(
            sample, scaled, kernel, table_of, partners, settings.seed, settings.n_starts, executor
        )
    clock.lap("hyper-parameters")
    start = selection.best_start(sample, scaled, kernel, table_of(weight), settings.seed, settings.n_starts, executor)
    clock.lap("start of the codes")
    return Plan(scaled, Z, kernel, weight), start


class _Source:
    """Makes row blocks from raw rows: all of them at first, and later those that were lost.

    Parameters
    ----------
    table, supervision, settings, executor
        As for `train`.
    layout
        Which rows are in which block.
    plan
        What was chosen.
    central
        The rows that stand apart, in their order.
    """

    def __init__(
        self,
        table: Table,
        supervision: Signatures | PairGraph,
        settings: Settings,
        layout: Layout,
        plan: Plan,
        central: Floats,
        executor: Executor,
    ) -> None:
        self.table, self.supervision, self.settings, self.layout = table, supervision, settings, layout
        self.plan, self.central, self.executor = plan, central, executor
        self.prior = priors.build(plan.kernel, plan.Z)

    def problem(self, spill: Spill | None) -> Problem:
        """All row blocks, with everything that stays the same."""
        layout, supervision = self.layout, self.supervision
        everywhere = np.concatenate(layout.blocks)
        graph = similarity.among(supervision, everywhere) if isinstance(supervision, PairGraph) else None
        central = supervision[layout.order[: layout.n_apart]] if isinstance(supervision, Signatures) else None
        table = pair_table(self.settings, self.plan.pair_weight)
        rows = self._rows(range(len(layout.blocks)), spill)
        return Problem(rows, layout.n_central_blocks, central, graph, table, self.settings.seed)

    def mended(self, problem: Problem) -> Problem:
        """The same with row blocks made again that were lost."""
        lost = self.executor.lost(problem.rows)
        return problem._replace(rows=_renewed(problem.rows, lost, self._rows(lost, None))) if lost else problem

    def first_state(self, problem: Problem, start: Start) -> State:
        """State before the first sweep, from the start's own codes for its sample, else predicted bits."""
        function = start.function
        predictions = self.executor.map(
            lambda piece: Prediction(*kernel_functions.predict(function, piece.read())),
            self._pieces(range(len(self.layout.blocks))),
        )

        def signs(prediction: Prediction, places: Indices, known: Signs) -> Signs:
            bits = np.where(prediction.mean >= 0, 1, -1).astype(np.int8)
            bits[places] = known
            return bits

        own = self._own(start)
        first = self.executor.map(signs, predictions, [places for places, _ in own], [known for _, known in own])
        return inference.init_from_predictions(problem, first, predictions, self.executor)

    def recovered(
        self, problem: Problem, state: State, start: Start | None, codes: Callable[[int], Signs | None] | None
    ) -> tuple[Problem, State]:
        """Problem and state with all that was lost made again: blocks from raw rows, sites from the posterior."""
        n_blocks, executor = len(self.layout.blocks), self.executor
        lost = executor.lost(state.latents) if len(state.latents) else list(range(n_blocks))
        problem = self.mended(problem)
        if not lost:
            return problem, state
        if state.factor is None:
            assert start is not None
            return problem, self.first_state(problem, start)
        mean, factor = state.mean, triangular.light(state.factor)

        def recover(block: Rows) -> tuple[Latent, tuple[Floats]]:
            signs = None if codes is None else codes(block.number)
            if signs is not None and len(signs) != len(block.residual):
                signs = None
            return inference.recover(block, signs, mean, factor), (np.array(float(signs is None)),)

        made, (unknown,) = executor.map_and_sum(recover, [problem.rows[place] for place in lost])
        latents = _renewed(state.latents or [None] * n_blocks, lost, made)
        state = state._replace(latents=latents, finished=False, finishing=0, calm=False)
        if unknown:
            # Codes that were only predicted have to be sampled, so that all codes begin to move again.
            state = state._replace(frozen=False, quiet=0, steady=0, flips=np.inf)
        if unknown and codes is not None:
            warnings.warn(
                f"the codes of {int(unknown)} of {len(lost)} blocks were not found beside the checkpoint; they are "
                "drawn anew.",
                RuntimeWarning,
                stacklevel=2,
            )
        return problem, state

    def _own(self, start: Start) -> list[tuple[Indices, Signs]]:
        """Of every block, which rows the start was trained on, and their codes."""
        some, blocks = self.layout.order[: len(start.signs)], self.layout.blocks
        if self.layout.n_apart:
            ends = np.cumsum([len(rows) for rows in blocks])
            cut = [start.signs[end - len(rows) : end] for rows, end in zip(blocks, ends, strict=True)]
            return [(np.arange(len(known)), known) for known in cut]
        order = np.argsort(some)
        found = []
        for rows in blocks:
            mine = order[slice(*np.searchsorted(some, (rows[0], rows[-1] + 1), sorter=order))]
            found.append((np.searchsorted(rows, some[mine]), start.signs[mine]))
        return found

    def _pieces(self, numbers: Sequence[int]) -> Sequence[Piece]:
        """Raw rows of some blocks, each where it is to stay."""
        size = self.settings.block_size
        apart = [ArrayTable(self.central[rows]) for rows in row_blocks(len(self.central), size)]
        return self.executor.hold(
            [
                apart[number].select(np.arange(apart[number].n_rows))
                if number < len(apart)
                else self.table.select(self.layout.blocks[number])
                for number in numbers
            ]
        )

    def _rows(self, numbers: Sequence[int], spill: Spill | None) -> Sequence[Rows]:
        """Whitened features and supervision of some blocks."""
        supervision, scaled, prior, n_inducing = self.supervision, self.plan.scaling, self.prior, len(self.plan.Z)
        blocks = [self.layout.blocks[number] for number in numbers]
        ends = np.cumsum([len(rows) * n_inducing * 4 for rows in blocks])
        offsets = [0, *ends[:-1].tolist()]
        known = [supervision[rows] if isinstance(supervision, Signatures) else None for rows in blocks]

        def make(number: int, piece: Piece, signatures: Signatures | None, offset: int) -> Rows:
            Phi, residual = priors.features(prior, scaling.apply(scaled, piece.read()))
            if spill is not None:
                spill.write(offset, Phi)
                Phi = np.empty((0, n_inducing), np.float32)
            return Rows(number, Phi, residual, signatures)

        def look(block: Rows, offset: int) -> Rows:
            assert spill is not None
            return block._replace(Phi=spill.read(offset, (len(block.residual), n_inducing), np.float32))

        made = self.executor.map(make, list(numbers), self._pieces(numbers), known, offsets)
        return made if spill is None else self.executor.map(look, made, offsets)


def _renewed(blocks: Sequence[Any], places: Sequence[int], made: Sequence[Any]) -> list[Any]:
    """A list with some of its elements replaced."""
    renewed = list(blocks)
    for place, block in zip(places, made, strict=True):
        renewed[place] = block
    return renewed


def _words(problem: Problem, latents: Sequence[Latent], executor: Executor) -> NDArray[np.uint8] | None:
    """The commonest code of every class, bits [c, m]; of equally common codes, the smallest."""
    if problem.representatives is None or not problem.representatives.exact:
        return None

    def count(block: Rows, latent: Latent) -> tuple[NDArray[np.uint64], NDArray[np.uint8], Indices]:
        assert block.signatures is not None
        packed = np.packbits(latent.signs > 0, axis=1)
        # Big-endian, so that bytes sort as numbers do.
        numbers = block.signatures.masks[:, :1].astype(">u8").view(np.uint8)
        rows = np.concatenate([numbers, packed], axis=1)
        flat, counts = np.unique(rows.view(np.dtype((np.void, rows.shape[1]))).ravel(), return_counts=True)
        keys = flat.view(np.uint8).reshape(len(flat), -1)
        return keys[:, :8].copy().view(">u8")[:, 0].astype(np.uint64), keys[:, 8:], counts

    tallies = list(executor.collect(count, problem.rows, latents))
    classes, codes, counts = (np.concatenate(parts) for parts in zip(*tallies, strict=True))
    words, word = np.unique(codes, axis=0, return_inverse=True)
    cells, cell = np.unique(classes.astype(np.int64) * len(words) + word.reshape(-1), return_inverse=True)
    owner, word = np.divmod(cells, len(words))
    order = np.lexsort((word, -np.bincount(cell, counts), owner))
    commonest = word[order][np.searchsorted(owner[order], np.arange(owner[-1] + 1))]
    return np.unpackbits(words[commonest], axis=1, count=problem.n_bits)


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
