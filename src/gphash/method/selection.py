"""What nobody should have to tune: kernel, pair weight and the start of the codes, chosen on a sample of rows.

The leave-one-out score of EP compares hyper-parameters for fixed codes; it correlates with retrieval on unseen rows and
costs nothing. It cannot choose what codes ought to be: it prefers those that are easy to predict. So the words of
classes and tags are chosen by retrieval among rows that predict each other (`words`), and the pair weight κ by
retrieval among rows held out of the sample. Judged pairs know no words: of several random starts of their codes, the
one with the best score goes on.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.codes import packing
from gphash.evaluation import retrieval
from gphash.execution import clustering
from gphash.execution.local import Executor, SerialExecutor, row_blocks
from gphash.method import inference, kernels, scaling, words
from gphash.method import prior as priors
from gphash.method.hashing import HashFunction
from gphash.method.kernels import Kernel
from gphash.method.scaling import Scaling
from gphash.method.state import Problem, RowBlock, Schedule
from gphash.supervision import similarity
from gphash.supervision.similarity import Signatures, Supervision

SAMPLE = 2000
INDUCING = 300
SIGNAL_SCALES = (4.0, 8.0, 16.0)
# Where a few rows count for much, smoother kernels are looked at as well: times the longest, and scales.
LONGER, WEAKER = (1.4, 2.0), (1.0, 2.0)
UNEVEN = 2.0  # times as many rows as would be as sure if they counted the same
KERNEL_BITS = 64  # of the codes that the kernel is chosen by, at most
# How far scores may be apart for a single row; of 0, ¼, ½ and 1, the best on Gaussian clusters that no table has.
SPREAD = 1.0
STRENGTHS = (200.0, 60.0)  # κ t of the pair weights to try besides κ = 1
SCHEDULE = Schedule(max_sweeps=15, settled=1e-3, patience=2, steps=2, converged=2e-2, max_finish=40)


class Sample(NamedTuple):
    """The rows that choices are made on."""

    X: Floats  # scaled, [s, d]
    supervision: Supervision
    Z: Floats  # inducing inputs, scaled; a part of those of the model
    scaling: Scaling
    power: float  # α


def sample(raw: Floats, supervision: Supervision, scaled: Scaling, power: float, n_inducing: int, seed: int) -> Sample:
    """A sample of raw rows, with inducing inputs of its own: k-means centres, unless all its rows can be."""
    X = scaling.apply(scaled, raw)
    n_few = min(INDUCING, n_inducing, len(X))
    if n_few == len(X):
        return Sample(X, supervision, X, scaled, power)
    blocks = [X[rows] for rows in row_blocks(len(X), clustering.BLOCK)]
    Z = clustering.kmeans(blocks, len(X), n_few, np.random.default_rng([seed, 3]), SerialExecutor())
    return Sample(X, supervision, Z, scaled, power)


class Start(NamedTuple):
    """A trained start: codes of the sample's rows and a hash function for the others."""

    signs: Signs  # [s, m]
    function: HashFunction
    score: float  # mean, leave-one-out


def train_sample(
    sample: Sample, kernel: Kernel, table: Floats, seed: int, first: Signs | None = None, frozen: bool = False
) -> Start:
    """Train on the sample alone, from first codes, by default random ones; frozen, they stay as they are."""
    executor = SerialExecutor()
    prior = priors.build(kernel, sample.Z, sample.power)
    Phi, residual = priors.features(prior, sample.X)
    rows = RowBlock(0, Phi, residual, None, sample.supervision.row_weights)
    problem = Problem([rows], 1, sample.supervision, table, seed)
    signs = random_signs(len(sample.X), problem.n_bits, seed) if first is None else first
    state = inference.init(problem, [signs], executor)._replace(frozen=frozen)
    scores: list[float] = []
    state = inference.run(problem, state, SCHEDULE, executor, lambda _, sweep: scores.append(sweep.leave_one_out))
    state = inference.finish(problem, state, executor)
    assert state.factor is not None
    function = priors.hash_function(sample.scaling, prior, state.mean, state.factor)
    return Start(state.latents[0].signs, function, scores[-1])


def random_signs(n_rows: int, n_bits: int, seed: int) -> Signs:
    """Codes drawn with even odds."""
    draws = np.random.default_rng([seed, n_rows]).random((n_rows, n_bits))
    return np.where(draws < 0.5, -1, 1).astype(np.int8)


def choose_kernel(
    sample: Sample,
    table: Floats,
    seed: int,
    kind: type[Kernel],
    length_scale: float | None,
    signal_scale: float | None,
    signs: Signs | None,
    executor: Executor,
) -> Kernel:
    """The kernel of a kind with the best leave-one-out score for one and the same codes; what is given is kept.

    Without codes, words are spelled, or for pairs a start is trained.
    """
    distance = kernels.median_distance(sample.X)
    factors: tuple[float, ...] = kind.LENGTH_SCALES
    scales: tuple[float, ...] = SIGNAL_SCALES
    weights = sample.supervision.row_weights
    if weights is not None and len(weights) * np.square(weights).sum() > UNEVEN * weights.sum() ** 2:
        factors, scales = (*factors, *(factors[-1] * times for times in LONGER)), (*WEAKER, *scales)
    lengths = (length_scale,) if length_scale else tuple(distance * factor for factor in factors)
    signals = (signal_scale,) if signal_scale else scales
    middle = kind(length_scale or distance, signal_scale or SIGNAL_SCALES[1])
    if length_scale and signal_scale:
        return middle
    if signs is None and isinstance(sample.supervision, Signatures):
        ballots, n_bits = words.votes(sample.supervision), table.shape[1] // 2 - 1
        signs = words.spell(ballots, words.hadamard(ballots.shape[1], n_bits, np.random.default_rng(seed)))
    elif signs is None:
        signs = train_sample(sample, middle, table, seed).signs

    def best(candidates: list[Kernel]) -> Kernel:
        found = executor.collect(
            lambda kernel: train_sample(sample, kernel, table, seed, signs, True).score, candidates
        )
        return smoothest(candidates, list(found), sample.supervision.row_weights)

    # One after the other: a ridge of good pairs runs across the grid, and where on it hardly matters.
    length = best([kind(length, middle.signal_scale) for length in lengths]).length_scale
    return best([kind(length, signal) for signal in signals])


def smoothest(candidates: list[Kernel], scores: list[float], weights: Floats | None) -> Kernel:
    """The kernel with the best score; where a few rows count for much, the smoothest that may be as good.

    A mean over rows of weights w is as uncertain as one over (Σ w)²/Σ w² rows.
    """
    slack = 0.0
    if weights is not None:
        spread = float(np.sqrt((weights**2).sum()) / weights.sum())
        slack = SPREAD * max(spread - len(weights) ** -0.5, 0.0)  # not below for rounding
    near = [kernel for kernel, score in zip(candidates, scores, strict=True) if score >= max(scores) - slack]
    return min(near, key=lambda kernel: kernel.signal_scale / kernel.length_scale)


def first_codes(
    sample: Sample, kernel: Kernel, n_bits: int, seed: int, n_starts: int, executor: Executor
) -> Signs | None:
    """Codes from the best of several searches for words, [s, m]; None for pairs, which know no words."""
    if not isinstance(sample.supervision, Signatures):
        return None
    signatures, found = sample.supervision, words.smoother(priors.build(kernel, sample.Z, sample.power), sample.X)
    judge, scores = signatures[: words.JUDGED], words.left_out(found, words.votes(signatures))[: words.JUDGED]
    alike = similarity.alike(judge, judge)
    ballots = words.votes(signatures)

    def search(one: int) -> tuple[Floats, float]:
        first = words.hadamard(ballots.shape[1], n_bits, np.random.default_rng(one)).astype(np.float64)
        return words.search(scores, alike, first, one)

    best, _ = max(executor.collect(search, seeds(seed, n_starts)), key=lambda found: found[1])
    return words.spell(ballots, words.distinct(ballots, best, np.random.default_rng(seed)))


def best_start(
    sample: Sample, kernel: Kernel, table: Floats, seed: int, n_starts: int, first: Signs | None, executor: Executor
) -> Start:
    """A start from first codes, or the one with the best leave-one-out score out of several random ones."""
    if first is not None:
        return train_sample(sample, kernel, table, seed, first)
    starts = executor.collect(lambda one: train_sample(sample, kernel, table, one), seeds(seed, n_starts))
    return max(starts, key=lambda start: start.score)


def seeds(seed: int, n_starts: int) -> list[int]:
    """A seed for every start."""
    return [int(np.random.SeedSequence([seed, 1, start]).generate_state(1)[0]) for start in range(n_starts)]


def choose_pair_weight(
    sample: Sample,
    kernel: Kernel,
    table: Callable[[float], Floats],
    n_partners: float,
    seed: int,
    n_starts: int,
    first: Signs | None,
    executor: Executor,
) -> float:
    """The pair weight with the best retrieval among held-out rows of the sample, or of held-out pairs.

    `n_partners` is how many partners a row has in the whole problem, t for labels and tags; `table` gives the table of
    a weight for the sample, and `first` are codes to begin with.
    """
    n_rows = len(sample.X)
    kept, taught, judged, judge = sample.supervision.hold_out(np.arange(n_rows) >= 2 * n_rows // 3, seed)
    part = sample._replace(X=sample.X[kept], supervision=taught)
    found = {}
    for weight in (1.0, *(strength / n_partners for strength in STRENGTHS if strength < n_partners)):
        # With fewer partners than the sample has, each counts for more.
        whole = table(weight if len(kept) == n_rows else weight * n_rows / len(kept))
        begun = None if first is None else first[kept]
        start = best_start(part, kernel, whole, seed, n_starts, begun, executor)
        if len(kept) == n_rows:  # every row has a code already
            margins = start.signs.astype(np.float64)
        else:
            function = start.function
            margins = kernel.evaluate(function.landmarks, sample.X[judged]) @ function.weights
        found[weight] = quality(judge, margins)
    return max(found, key=found.__getitem__)


def quality(judge: Supervision, margins: Floats) -> float:
    """How good codes are by a judge that they were not learned from; bits are the signs of the margins, [n, m].

    For labels and tags, mean average precision of the rows among themselves; for pairs, the chance that a similar pair
    is nearer than a dissimilar one, ties counting half.
    """
    if isinstance(judge, Signatures):
        return retrieval.mean_average_precision(packing.pack(margins >= 0), judge, margins.shape[1])
    signs = np.where(margins >= 0, 1, -1)
    product = np.einsum("pm,pm->p", signs[judge.owners], signs[judge.partners])
    alike, unlike = np.sort(product[judge.similar == 1]), np.sort(product[judge.similar == 0])
    if not len(alike) or not len(unlike):
        return 0.5
    below = np.searchsorted(unlike, alike, "left").mean() + np.searchsorted(unlike, alike, "right").mean()
    return float(below / (2 * len(unlike)))
