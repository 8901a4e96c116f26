"""Retrieval metrics that do not depend on the order of rows at equal distance.

A ranking is a sequence of ties: groups of rows at equal distance, each with its size and its number of relevant rows.
Every metric is the expectation over all orders within ties, in closed form. In a tie of n rows of which r are relevant,
after a rows of which b were relevant, position p (1 … n) adds

    (r/n) · (b + 1 + (p − 1) s) / (a + p),   s = (r − 1)/(n − 1),

to the sum of precisions at relevant rows, and since b + 1 + (p − 1) s = s (a + p) + (b + 1 − s (a + 1)), the first q
positions add (r/n) · (s q + (b + 1 − s (a + 1)) (H(a + q) − H(a))) with the harmonic numbers H.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.compiled import jit


class Metric(NamedTuple):
    """A metric as data, so that tables and plots can label themselves.

    name
        As it is written.
    unit
        Of its values; empty for shares of 1.
    higher_is_better
        Which direction is better; None where neither is.
    meaning
        One sentence.
    """

    name: str
    unit: str
    higher_is_better: bool | None
    meaning: str


METRICS = {
    "map": Metric("mAP", "", True, "mean over queries of the average precision of the whole ranking, ties averaged"),
    "map_at_k": Metric("mAP@k", "", True, "the same for the first k rows, divided by min(k, relevant rows)"),
    "precision_at_k": Metric("precision@k", "", True, "share of relevant rows among the first k"),
    "recall_at_k": Metric("recall@k", "", True, "share of the relevant rows that are among the first k"),
    "precision_within_radius": Metric(
        "precision within the radius", "", True, "share of relevant rows within the Hamming radius; none found counts 0"
    ),
    "balance": Metric("balance of a bit", "", None, "share of ones; ½ is even"),
    "calibration_error": Metric(
        "expected calibration error", "", False, "mean distance of bit probabilities from the frequencies they predict"
    ),
    "bit_entropy": Metric("entropy of a bit", "bits", True, "mean over bits; 1 when a bit is 1 for half of the rows"),
    "code_entropy": Metric("entropy of a code", "bits", True, "of the distribution of codes"),
    "bit_correlation": Metric("correlation of bits", "", False, "mean absolute correlation of two different bits"),
    "distinct_codes": Metric("distinct codes", "codes", None, "how many different codes occur"),
    "largest_bucket": Metric("largest bucket", "rows", None, "how many rows share the commonest code"),
    "queries_with_nothing_to_find": Metric(
        "queries with nothing to find", "queries", None, "no relevant row exists; left out of mAP and recall"
    ),
    "training_seconds": Metric("training time", "s", False, "wall-clock time of fit"),
}


def average_precision(distances: ArrayLike, relevant: ArrayLike) -> Floats:
    """Tie-aware average precision of every query.

    Parameters
    ----------
    distances
        Of every query to every candidate, [q, n]; equal numbers are ties.
    relevant
        Which candidates are relevant to a query, bool [q, n].

    Returns
    -------
    [q]; NaN for a query that has nothing to find, which means leave out.
    """
    distances, relevant = np.asarray(distances), np.asarray(relevant, dtype=bool)
    if distances.ndim != 2 or distances.shape != relevant.shape:
        raise ValueError(
            f"distances have shape {distances.shape} and relevant {relevant.shape}; give [queries, rows] for both."
        )
    if np.isnan(distances).any():
        raise ValueError("distances hold NaN; give a number for every candidate.")
    return np.array(
        [average_precision_of(row, mask) for row, mask in zip(distances, relevant, strict=True)], dtype=np.float64
    )


def mean_average_precision(distances: ArrayLike, relevant: ArrayLike) -> float:
    """Mean of `average_precision` over the queries that have something to find."""
    return mean(average_precision(distances, relevant))


def mean(values: Floats) -> float:
    """Mean of the numbers among [n] that are not NaN, the same to the last bit in whichever order; NaN of none."""
    known = values[~np.isnan(values)]
    return math.fsum(known.tolist()) / len(known) if len(known) else math.nan


def average_precision_of(distances: NDArray[Any], relevant: NDArray[np.bool_]) -> float:
    """Tie-aware average precision of one query, [n] each; NaN if nothing is relevant."""
    if not relevant.any():
        return math.nan
    order = np.argsort(distances, kind="stable")
    ranked = distances[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked))
    sizes = np.diff(ends, prepend=0)
    hits = np.diff(np.cumsum(relevant[order])[ends - 1], prepend=0)
    return float(precision_sum(sizes, hits, harmonic_numbers(len(ranked))) / hits.sum())


def harmonic_numbers(n: int) -> Floats:
    """H(0), …, H(n), [n + 1]."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


@jit(inline="always")
def tie_precision(n, r, a, b, q, harmonic):  # type: ignore[no-untyped-def]
    """What the first q positions of a tie are expected to add; n, r, a and b as in the equation above."""
    if r == 0:
        return 0.0
    slope = (r - 1) / (n - 1) if n > 1 else 0.0
    return r / n * (slope * q + (b + 1 - slope * (a + 1)) * (harmonic[a + q] - harmonic[a]))


@jit
def precision_sum(sizes, hits, harmonic):  # type: ignore[no-untyped-def]
    """Expected sum of the precisions at the relevant rows, from sizes and hits of the ties."""
    total = 0.0
    a = 0
    b = 0
    for tie in range(len(sizes)):
        total += tie_precision(sizes[tie], hits[tie], a, b, sizes[tie], harmonic)
        a += sizes[tie]
        b += hits[tie]
    return total
