"""What nobody should have to tune: kernel, pair weight and the start of the codes, chosen on a sample of rows.

The leave-one-out score of EP compares hyper-parameters for fixed codes, and random starts of the codes with each other;
it correlates with retrieval on unseen rows and costs nothing. It cannot choose the pair weight κ (a small κ lets codes
follow the features, which flatters the score), so κ is chosen by retrieval among rows held out of the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from gphash import inference, kernels
from gphash.arrays import Floats, Indices, Signs
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.evaluation import metrics
from gphash.evaluation import retrieval as ranking
from gphash.execution.local import Executor, SerialExecutor
from gphash.features.scaling import Scaling
from gphash.functions.kernel import HashFunction
from gphash.gp import posterior
from gphash.gp import prior as priors
from gphash.hamming import packing
from gphash.kernels import SquaredExponential
from gphash.state import Problem, Rows, Schedule

SAMPLE = 2000
INDUCING = 300
LENGTH_SCALES = (0.35, 0.5, 0.7, 1.0, 1.4)  # times the median distance between rows
SIGNAL_SCALES = (2.0, 4.0, 8.0, 16.0)
STRENGTHS = (200.0, 60.0)  # κ t of the pair weights to try besides κ = 1
SCHEDULE = Schedule(max_sweeps=15, settled=1e-3, patience=2, steps=2, converged=2e-2, max_finish=5)


class Sample(NamedTuple):
    """The rows that choices are made on.

    X
        Scaled rows, [s, d].
    supervision
        Of these rows.
    Z
        Inducing inputs, scaled; a part of those of the model.
    """

    X: Floats
    supervision: Signatures | PairGraph
    Z: Floats


class Start(NamedTuple):
    """A trained start: codes of the sample's rows and a hash function for the others.

    signs
        Codes of the sample's rows, [s, m].
    function
        Predicts the bits of any other row.
    score
        Mean leave-one-out score.
    """

    signs: Signs
    function: HashFunction
    score: float


def draw_order(supervision: Signatures | PairGraph, n_rows: int, generator: np.random.Generator) -> Indices:
    """The rows to train on in random order, so that the first ones are a sample.

    For a pair list these are the rows that some pair names: others have no likelihood, and codes sampled for them would
    only teach the Gaussian processes what they say already. Rows follow each other along pairs (breadth first from a
    random row), or a sample would hold next to no pair.
    """
    order = generator.permutation(n_rows).astype(np.int64)
    if isinstance(supervision, Signatures):
        return order
    order = order[np.diff(supervision.offsets)[order] > 0]
    if len(order) <= SAMPLE:
        return order
    n_pairs = len(supervision.partners)
    graph = csr_array((np.ones(n_pairs, np.int8), supervision.partners, supervision.offsets), shape=(n_rows, n_rows))
    seen = np.zeros(n_rows, dtype=bool)
    walked: list[Indices] = []
    count = 0
    for row in order:
        if count >= SAMPLE:
            break
        if not seen[row]:
            found = breadth_first_order(graph, row, return_predecessors=False).astype(np.int64)[:SAMPLE]
            seen[found] = True
            walked.append(found)
            count += len(found)
    first = np.concatenate(walked)[:SAMPLE]
    rest = np.ones(n_rows, dtype=bool)
    rest[first] = False
    return np.concatenate([first, order[rest[order]]])


def median_distance(X: Floats) -> float:
    """Median distance between rows (at most a few hundred of them), leaving equal rows out; 1 if all are equal."""
    X = X[:512].astype(np.float64)
    norms = np.einsum("ij,ij->i", X, X)
    squared = np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0)
    different = squared[squared > 1e-12 * max(float(norms.max(initial=0)), 1e-300)]
    return float(np.sqrt(np.median(different))) if len(different) else 1.0


def train_sample(
    sample: Sample,
    scaling: Scaling,
    kernel: SquaredExponential,
    table: Floats,
    seed: int,
    signs: Signs | None = None,
) -> Start:
    """Train on the sample alone, from random codes, or with codes fixed when they are given."""
    executor = SerialExecutor()
    prior = priors.build(kernel, sample.Z)
    Phi, residual = priors.features(prior, sample.X)
    signatures = sample.supervision if isinstance(sample.supervision, Signatures) else None
    graph = sample.supervision if isinstance(sample.supervision, PairGraph) else None
    problem = Problem([Rows(0, Phi, residual, signatures)], 1, signatures, graph, table, seed)
    first = random_signs(len(sample.X), problem.n_bits, seed) if signs is None else signs
    state = inference.init(problem, [first], executor)._replace(frozen=signs is not None)
    scores: list[float] = []
    state = inference.run(problem, state, SCHEDULE, executor, lambda _, sweep: scores.append(sweep.leave_one_out))
    state = inference.finish(problem, state, executor)
    assert state.factor is not None
    return Start(state.latents[0].signs, posterior.hash_function(scaling, prior, state.mean, state.factor), scores[-1])


def random_signs(n_rows: int, n_bits: int, seed: int) -> Signs:
    """Codes drawn with even odds."""
    draws = np.random.default_rng([seed, n_rows]).random((n_rows, n_bits))
    return np.where(draws < 0.5, -1, 1).astype(np.int8)


def choose_kernel(
    sample: Sample,
    scaling: Scaling,
    table: Floats,
    seed: int,
    length_scale: float | None,
    signal_scale: float | None,
    executor: Executor,
) -> SquaredExponential:
    """The kernel with the best leave-one-out score for one and the same codes; what is given is kept."""
    distance = median_distance(sample.X)
    lengths = (length_scale,) if length_scale else tuple(distance * factor for factor in LENGTH_SCALES)
    signals = (signal_scale,) if signal_scale else SIGNAL_SCALES
    candidates = [SquaredExponential(length, signal) for length in lengths for signal in signals]
    if len(candidates) == 1:
        return candidates[0]
    middle = SquaredExponential(length_scale or distance, signal_scale or SIGNAL_SCALES[1])
    signs = train_sample(sample, scaling, middle, table, seed).signs
    scores = list(
        executor.collect(lambda kernel: train_sample(sample, scaling, kernel, table, seed, signs).score, candidates)
    )
    return candidates[int(np.argmax(scores))]


def best_start(
    sample: Sample,
    scaling: Scaling,
    kernel: SquaredExponential,
    table: Floats,
    seed: int,
    n_starts: int,
    executor: Executor,
) -> Start:
    """The start with the best leave-one-out score out of several random ones."""
    seeds = [int(np.random.SeedSequence([seed, 1, start]).generate_state(1)[0]) for start in range(n_starts)]
    starts = executor.collect(lambda start_seed: train_sample(sample, scaling, kernel, table, start_seed), seeds)
    return max(starts, key=lambda start: start.score)


def choose_pair_weight(
    sample: Sample,
    scaling: Scaling,
    kernel: SquaredExponential,
    table: Callable[[float], Floats],
    n_partners: float,
    seed: int,
    n_starts: int,
    executor: Executor,
) -> float:
    """The pair weight with the best retrieval among held-out rows of the sample, or of held-out pairs.

    `n_partners` is how many partners a row has in the whole problem, t for labels and tags; `table` gives the table of
    a weight for the sample.
    """
    n_train = 2 * len(sample.X) // 3
    kept, held = np.arange(n_train), np.arange(n_train, len(sample.X))
    judge: PairGraph | None
    if isinstance(sample.supervision, PairGraph):
        remaining, judge = hold_out_pairs(sample.supervision, seed)
        part = sample._replace(supervision=remaining)
    else:
        part, judge = sample._replace(X=sample.X[kept], supervision=sample.supervision[kept]), None
    best, best_quality = 1.0, -np.inf
    for weight in (1.0, *(strength / n_partners for strength in STRENGTHS if strength < n_partners)):
        # With fewer partners than the sample has, each counts for more.
        whole = table(weight) if judge is not None else table(weight * len(sample.X) / len(part.X))
        start = best_start(part, scaling, kernel, whole, seed, n_starts, executor)
        if judge is None:
            assert isinstance(sample.supervision, Signatures)
            margins = kernels.evaluate(start.function.landmarks, sample.X[held]) @ start.function.weights
            quality = retrieval(margins, sample.supervision[held])
        else:
            quality = separation(start.signs, judge)
        if quality > best_quality:
            best, best_quality = weight, quality
    return best


def retrieval(margins: Floats, signatures: Signatures) -> float:
    """Mean average precision, among themselves, of rows whose bits are the signs of margins, [n, m]."""
    packed = packing.pack(margins >= 0)
    collection = ranking.store(packed, signatures)
    found = ranking.rank_by_hamming(packed, signatures, collection, margins.shape[1], leave_one_out=True, n_jobs=1)
    return metrics.mean(found.average_precision)


def hold_out_pairs(graph: PairGraph, seed: int) -> tuple[PairGraph, PairGraph]:
    """A pair list with a fifth of its pairs removed, and those pairs."""
    low, high = np.minimum(graph.owners, graph.partners), np.maximum(graph.owners, graph.partners)
    # Both directions of a pair must fall on the same side: decide by a number that both share.
    draw = np.random.default_rng([seed, 5]).random(graph.n_rows)
    held = (draw[low] + draw[high]) % 1 < 0.2
    return similarity.select(graph, ~held), similarity.select(graph, held)


def separation(signs: Signs, pairs: PairGraph) -> float:
    """Chance that a similar pair is nearer than a dissimilar one, ties counting half."""
    product = np.einsum("pm,pm->p", signs[pairs.owners].astype(np.int64), signs[pairs.partners].astype(np.int64))
    alike, unlike = np.sort(product[pairs.similar == 1]), np.sort(product[pairs.similar == 0])
    if not len(alike) or not len(unlike):
        return 0.5
    below = np.searchsorted(unlike, alike, "left").mean() + np.searchsorted(unlike, alike, "right").mean()
    return float(below / (2 * len(unlike)))
