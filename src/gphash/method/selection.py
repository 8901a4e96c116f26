"""What nobody should have to tune: kernel, pair weight and the start of the codes, chosen on a sample of rows.

The leave-one-out score of EP compares hyper-parameters for fixed codes, and random starts of the codes with each other;
it correlates with retrieval on unseen rows and costs nothing. It cannot choose the pair weight κ, which is chosen by
retrieval among rows held out of the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.codes import packing
from gphash.evaluation import retrieval
from gphash.execution.local import Executor, SerialExecutor
from gphash.method import inference
from gphash.method import prior as priors
from gphash.method.hashing import HashFunction
from gphash.method.kernels import Kernel, squared_norms
from gphash.method.scaling import Scaling
from gphash.method.state import Problem, RowBlock, Schedule
from gphash.supervision.similarity import Signatures, Supervision

SAMPLE = 2000
INDUCING = 300
SIGNAL_SCALES = (2.0, 4.0, 8.0, 16.0)
# How far scores may be apart for a single row; of 0, ¼, ½ and 1, the best on Gaussian clusters that no table has.
SPREAD = 1.0
STRENGTHS = (200.0, 60.0)  # κ t of the pair weights to try besides κ = 1
SCHEDULE = Schedule(max_sweeps=15, settled=1e-3, patience=2, steps=2, converged=2e-2, max_finish=5)


class Sample(NamedTuple):
    """The rows that choices are made on."""

    X: Floats  # scaled, [s, d]
    supervision: Supervision
    Z: Floats  # inducing inputs, scaled; a part of those of the model
    scaling: Scaling


class Start(NamedTuple):
    """A trained start: codes of the sample's rows and a hash function for the others."""

    signs: Signs  # [s, m]
    function: HashFunction
    score: float  # mean, leave-one-out


def median_distance(X: Floats) -> float:
    """Median distance between rows (at most a few hundred of them), leaving equal rows out; 1 if all are equal."""
    X = X[:512].astype(np.float64)
    norms = squared_norms(X)
    squared = np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0)
    different = squared[squared > 1e-12 * max(float(norms.max(initial=0)), 1e-300)]
    return float(np.sqrt(np.median(different))) if len(different) else 1.0


def train_sample(sample: Sample, kernel: Kernel, table: Floats, seed: int, signs: Signs | None = None) -> Start:
    """Train on the sample alone, from random codes, or with codes fixed when they are given."""
    executor = SerialExecutor()
    prior = priors.build(kernel, sample.Z)
    Phi, residual = priors.features(prior, sample.X)
    rows = RowBlock(0, Phi, residual, None, sample.supervision.row_weights)
    problem = Problem([rows], 1, sample.supervision, table, seed)
    first = random_signs(len(sample.X), problem.n_bits, seed) if signs is None else signs
    state = inference.init(problem, [first], executor)._replace(frozen=signs is not None)
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
    executor: Executor,
) -> Kernel:
    """The kernel of a kind with the best leave-one-out score for one and the same codes; what is given is kept."""
    distance = median_distance(sample.X)
    lengths = (length_scale,) if length_scale else tuple(distance * factor for factor in kind.LENGTH_SCALES)
    signals = (signal_scale,) if signal_scale else SIGNAL_SCALES
    candidates = [kind(length, signal) for length in lengths for signal in signals]
    if len(candidates) == 1:
        return candidates[0]
    middle = kind(length_scale or distance, signal_scale or SIGNAL_SCALES[1])
    signs = train_sample(sample, middle, table, seed).signs
    scores = list(executor.collect(lambda kernel: train_sample(sample, kernel, table, seed, signs).score, candidates))
    return smoothest(candidates, scores, sample.supervision.row_weights)


def smoothest(candidates: list[Kernel], scores: list[float], weights: Floats | None) -> Kernel:
    """The kernel with the best score; where a few rows count for much, the smoothest that may be as good.

    A mean over rows of weights w is as uncertain as one over (Σ w)²/Σ w² rows.
    """
    slack = 0.0
    if weights is not None:
        slack = SPREAD * (np.sqrt((weights**2).sum()) / weights.sum() - len(weights) ** -0.5)
    near = [kernel for kernel, score in zip(candidates, scores, strict=True) if score >= max(scores) - slack]
    return min(near, key=lambda kernel: kernel.signal_scale / kernel.length_scale)


def best_start(sample: Sample, kernel: Kernel, table: Floats, seed: int, n_starts: int, executor: Executor) -> Start:
    """The start with the best leave-one-out score out of several random ones."""
    seeds = [int(np.random.SeedSequence([seed, 1, start]).generate_state(1)[0]) for start in range(n_starts)]
    starts = executor.collect(lambda start_seed: train_sample(sample, kernel, table, start_seed), seeds)
    return max(starts, key=lambda start: start.score)


def choose_pair_weight(
    sample: Sample,
    kernel: Kernel,
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
    n_rows = len(sample.X)
    kept, taught, judged, judge = sample.supervision.hold_out(np.arange(n_rows) >= 2 * n_rows // 3, seed)
    part = sample._replace(X=sample.X[kept], supervision=taught)
    found = {}
    for weight in (1.0, *(strength / n_partners for strength in STRENGTHS if strength < n_partners)):
        # With fewer partners than the sample has, each counts for more.
        whole = table(weight if len(kept) == n_rows else weight * n_rows / len(kept))
        start = best_start(part, kernel, whole, seed, n_starts, executor)
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
