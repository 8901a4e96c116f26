"""Training, from raw features and supervision to a hash function.

Centre and scale the rows; draw the representatives; choose the kernel on a sample of them; choose the inducing inputs;
then let EP converge over all rows, and make bits of its answers (`decoding`). Where codes are sampled (sections 3 and 4
of the paper), they start on the sample too, and EP and Gibbs sampling alternate until they have settled.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.codes.reading import DistanceReader
from gphash.data.blocks import ArrayTable, Table
from gphash.execution.local import Executor, row_blocks
from gphash.execution.spill import Spill
from gphash.method import (
    collapse,
    decoding,
    gibbs,
    inducing,
    metric,
    partition,
    sampled,
    selection,
    sweeping,
    trusting,
)
from gphash.method import prior as priors
from gphash.method.collapse import CodeCounts
from gphash.method.hashing import ClassReading, HashFunction
from gphash.method.kernels import KERNELS, Kernel
from gphash.method.partition import Partition, RowSource
from gphash.method.posteriors import PosteriorFunction
from gphash.method.scaling import Scaling
from gphash.method.selection import Start
from gphash.method.state import State, Sweep
from gphash.method.sweeping import Answers, Drawn, persist
from gphash.supervision.similarity import Signatures, Supervision

Resized = Callable[[int], PosteriorFunction]
Ended = tuple[HashFunction | PosteriorFunction, CodeCounts, Callable[[], Signs], Resized | None]

READING = 16384  # rows read at a time where nothing else decides


class Settings(NamedTuple):
    """What the user decides, as `GPHasher` explains it; None lets training choose."""

    n_bits: int
    codes: str = "posterior"
    n_inducing: int = 1000
    inducing: str = "kmeans"
    solver: str = "auto"
    unit_length: bool = True
    kernel: str = "squared-exponential"
    length_scale: float | None = None
    signal_scale: float | None = None
    power: float = 0.05  # α
    metric: bool = False  # whether to look for one
    similarity_scale: float | None = None  # σ_y; None is 2/m
    pair_weight: float | None = 1.0
    n_representatives: int = 5000
    n_starts: int = 2
    max_sweeps: int = 50
    block_size: int = 2048
    memory_limit: float = np.inf  # bytes of Phi in memory; beyond, it is kept in a memory-mapped file
    seed: int = 0


class Chosen(NamedTuple):
    """What is settled before the first sweep over all rows."""

    supervision: str  # registered name of what is learned from
    scaling: Scaling
    Z: Floats  # inducing inputs, scaled, [r, d]
    kernel: Kernel
    pair_weight: float  # κ


class Trained(NamedTuple):
    """Outcome of training."""

    function: HashFunction | PosteriorFunction
    chosen: Chosen
    words: NDArray[np.uint8] | None  # with class labels: the (commonest) code of every class, bits, [c, m]
    collapse: str | None  # what is wrong with the codes of the training rows, if they have collapsed
    codes: Callable[[], Signs]  # brings the codes of the training rows here, [n, m]; 0 where nothing is known of one
    sweeps: list[Sweep]
    seconds: dict[str, float]  # by phase
    resized: Resized | None  # the same with codes of another length; None if sampled


class Checkpoint(NamedTuple):
    """Where training can go on from."""

    chosen: Chosen
    start: Start | None  # of the codes, while no sweep is done
    state: State | None  # between two sweeps; None before the first codes. Latents that are missing are recovered
    sweeps: list[Sweep]


def train(
    table: Table,
    supervision: Supervision,
    settings: Settings,
    executor: Executor,
    watch: Callable[[Sweep], None] | None = None,
    keep: Callable[[Checkpoint], None] | None = None,
    resumed: Checkpoint | None = None,
    codes: Callable[[int], Signs | None] | None = None,
) -> Trained:
    """Train a hash function on raw rows.

    Blocks of rows that the executor loses are made again, and training goes on. `watch` sees every sweep. `keep` is
    handed a checkpoint when all is chosen and, but for conjugate gradients, when the first codes are there and after
    every sweep; `resumed` is one to go on from. `codes` gives those of a lost block, as kept at some sweep, or None.
    """
    clock, keep = _Clock(), keep or (lambda _: None)
    parts, answers = layout(supervision, settings), _answers(supervision, settings)
    n_inducing, fixed = min(settings.n_inducing, table.n_rows), answers is not None
    solver = sweeping.solver(settings.solver, n_inducing, settings.power, fixed)
    if resumed is None:
        choose = partial(_choose, table, supervision, answers, settings, parts, executor, clock)
        resumed = Checkpoint(*persist(choose), None, [])
        keep(resumed)
    chosen, start, sweeps = resumed.chosen, resumed.start, [*resumed.sweeps]

    def note(state: State | None, sweep: Sweep | None) -> None:
        if sweep is not None:
            sweeps[sweep.number - 1 :] = [sweep]  # after a loss, some are done again
        if state is not None:
            keep(Checkpoint(chosen, start if sweep is None else None, state, [*sweeps]))
        if watch is not None and sweep is not None:
            watch(sweep)

    here = ArrayTable(persist(lambda: partition.read(table, parts.order[: parts.n_apart], executor)))
    apart = [here.select(np.arange(here.n_rows)[rows]) for rows in row_blocks(here.n_rows, settings.block_size)]
    prior = priors.build(chosen.kernel, chosen.Z, settings.power, sweeping.JITTER.get(solver, priors.JITTER))
    source = RowSource(table, supervision, executor, parts, apart, chosen.scaling, prior, answers, solver)
    fits = len(parts.order) * len(chosen.Z) * 4 <= settings.memory_limit
    with nullcontext() if fits else Spill() as spill:
        width = settings.n_bits if answers is None else answers.shape[1]
        pair_table = gibbs.pair_table(width, settings.similarity_scale, chosen.pair_weight)
        problem = persist(lambda: source.problem(pair_table, settings.seed, spill))
        clock.lap("features")
        if solver == "conjugate":
            outcome: Answers | Drawn = sweeping.solve(source, problem, settings.seed, note, clock.lap)
        else:
            outcome = sweeping.alternate(source, problem, resumed[1:3], settings.max_sweeps, note, codes, clock.lap)
    means = (outcome.mean, None) if isinstance(outcome, Answers) else (outcome.state.mean, outcome.state.factor)
    machine = priors.hash_function(chosen.scaling, prior, *means)
    if isinstance(outcome, Drawn):
        read = replace(machine, reading=_reading(outcome.left_out, supervision, settings, parts))
        ended: Ended = read, outcome.counts, partial(source.codes, outcome.state.latents), None
    else:
        ended = persist(partial(_read, outcome.left_out, machine, table, supervision, settings, parts, executor))
    function, tally, trained_codes, resized = ended
    clock.lap("hash function")
    words = _words(function, tally) if supervision.form == "labels" else None
    found = collapse.remark(tally, supervision, settings.n_bits)
    return Trained(function, chosen, words, found, trained_codes, sweeps, clock.seconds, resized)


def _read(
    means: Floats,
    machine: HashFunction,
    table: Table,
    supervision: Supervision,
    settings: Settings,
    parts: Partition,
    executor: Executor,
) -> Ended:
    """Bits from the answers to questions, how often codes would occur, and the codes that training rows should have.

    And what does the same for codes of another length, as training with it would.
    """
    assert isinstance(supervision, Signatures)
    rows = np.concatenate([parts.blocks[number] for number in parts.asked])
    some, starts = supervision[rows], selection.seeds(settings.seed, settings.n_starts)
    learned = decoding.learn(means, some, supervision, settings.n_bits, starts, machine, executor)
    spared = inducing.spare(table.n_rows, settings.n_inducing, settings.seed)
    like = trusting.like_all(some, supervision, settings.seed)
    apart = like[np.isin(rows[like], spared)]
    near = (apart if len(apart) else like)[: trusting.STORED]
    near = near[np.argsort(rows[near])]
    nearness = inducing.nearness(table, rows[near], 0 if len(apart) else 1, machine, executor)
    function = replace(learned.function, trust=trusting.learn(learned, some, like, near, nearness))
    known, signs = supervision.known, np.zeros((supervision.n_rows, settings.n_bits), np.int8)
    signs[known] = decoding.true_codes(function, supervision[known], supervision)

    def resized(n_bits: int) -> PosteriorFunction:
        other = settings._replace(n_bits=n_bits)
        found, *_ = persist(partial(_read, means, machine, table, supervision, other, parts, executor))
        assert isinstance(found, PosteriorFunction)
        return found

    return function, collapse.count(learned.codes, some), signs.copy, resized


def _reading(
    gamma: Floats, supervision: Supervision, settings: Settings, parts: Partition
) -> ClassReading | DistanceReader:
    """What sampled codes know beside bits."""
    rows = np.concatenate([parts.blocks[number] for number in parts.asked])
    if isinstance(supervision, Signatures):
        return sampled.classes(gamma, supervision[rows], supervision)
    return sampled.distances(gamma, supervision.among(rows), settings.seed)


def _answers(supervision: Supervision, settings: Settings) -> Signs | None:
    """True answers of all rows to the questions that functions learn, [n, q]; None if codes are sampled."""
    if settings.codes == "sampled" or not isinstance(supervision, Signatures):
        return None
    return decoding.questions(supervision, settings.seed)


def n_columns(supervision: Supervision, settings: Settings) -> int:
    """How many latent functions are learned."""
    answers = _answers(supervision, settings)
    return settings.n_bits if answers is None else answers.shape[1]


def layout(supervision: Supervision, settings: Settings) -> Partition:
    """Which rows are trained on, and in which blocks."""
    order, size = supervision.order(np.random.default_rng(settings.seed), selection.SAMPLE), settings.block_size
    n_apart = min(settings.n_representatives, len(order)) if supervision.complete else 0
    apart = [order[rows] for rows in row_blocks(n_apart, size)]
    rest = np.sort(order[n_apart:])
    blocks = [*apart, *(rest[rows] for rows in row_blocks(len(rest), size))]
    if supervision.complete:
        return Partition(order, n_apart, n_apart, blocks, len(apart))
    return Partition(order, 0, len(order), blocks, len(blocks))


def _choose(
    table: Table,
    supervision: Supervision,
    answers: Signs | None,
    settings: Settings,
    parts: Partition,
    executor: Executor,
    clock: "_Clock",
) -> tuple[Chosen, Start | None]:
    """Scaling, inducing inputs, and on a sample of the rows: kernel, pair weight and start."""
    generator = np.random.default_rng(settings.seed)
    order = supervision.order(generator, selection.SAMPLE)  # as in `layout`; what follows is drawn after it
    everything = np.arange(table.n_rows, dtype=np.int64)
    pieces = executor.hold([table.select(everything[rows]) for rows in row_blocks(table.n_rows, READING)])
    centre = _centring(supervision, table.n_rows)
    shares = [centre[rows] for rows in row_blocks(table.n_rows, READING)]
    (total,) = executor.sum(lambda piece, share: (share @ piece.read().astype(np.float64),), pieces, shares)
    scaled = Scaling(total / centre.sum(), settings.unit_length)
    some = order[: min(selection.SAMPLE, parts.n_central)]
    raw, known, seed = partition.read(table, some, executor), supervision.among(some), settings.seed
    sampling = settings.power, settings.n_inducing, seed
    sample = selection.sample(raw, known, scaled, *sampling)
    # Fewer representatives stand for all of them: the pair term keeps its strength.
    strength = parts.n_central / len(some) if supervision.complete else 1.0

    def table_of(pair_weight: float, n_bits: int = settings.n_bits) -> Floats:
        return gibbs.pair_table(n_bits, settings.similarity_scale, pair_weight * strength)

    weight = 1.0 if settings.pair_weight is None else settings.pair_weight
    asked = KERNELS.find(settings.kernel), settings.length_scale, settings.signal_scale
    few = None if answers is None else answers[some]
    width = min(settings.n_bits, selection.KERNEL_BITS) if few is None else few.shape[1]
    choosing = table_of(weight, width), seed, *asked, few, executor
    kernel = selection.choose_kernel(sample, *choosing)
    clock.lap("hyper-parameters")
    if settings.metric and isinstance(supervision, Signatures):
        plain = metric.Plain(scaled, kernel, sample.Z, settings.power)
        if (found := metric.learn(table, order, supervision, plain, seed, executor)) is not None:
            scaled, sample = found, selection.sample(raw, known, found, *sampling)
            kernel = selection.choose_kernel(sample, *choosing)
    clock.lap("metric")
    spared = inducing.spare(table.n_rows, settings.n_inducing, seed)
    Z = inducing.choose(table, scaled, settings.n_inducing, settings.inducing, generator, executor, spared)
    clock.lap("inducing inputs")
    if answers is not None:
        return Chosen(supervision.kind, scaled, Z, kernel, weight), None
    first = selection.first_codes(sample, kernel, settings.n_bits, seed, settings.n_starts, executor)
    begin = seed, settings.n_starts, first, executor
    if settings.pair_weight is None:
        n_partners = supervision.n_partners(parts.n_central)
        weight = selection.choose_pair_weight(sample, kernel, table_of, n_partners, *begin)
    start = selection.best_start(sample, kernel, table_of(weight), *begin)
    clock.lap("start of the codes")
    return Chosen(supervision.kind, scaled, Z, kernel, weight), start


def _centring(supervision: Supervision, n_rows: int) -> Floats:
    """How much every row counts for the centre, [n]; of classes of unequal sizes, the small ones count for more.

    Around the mean of all rows, a class that most rows belong to would itself lie, and its rows point everywhere.
    """
    shares = np.ones(n_rows)
    if isinstance(supervision, Signatures):
        shares[supervision.known] = supervision[supervision.known].pulls()
    return shares


def _words(function: HashFunction | PosteriorFunction, tally: CodeCounts) -> NDArray[np.uint8]:
    """The code of every class, bits, [c, m]; of sampled codes, the commonest."""
    if isinstance(function, PosteriorFunction):
        return function.words
    return np.unpackbits(collapse.commonest(tally), axis=1, count=function.n_bits)


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = now - self._last
        self._last = now
