"""Retrieval metrics that do not depend on the order of rows at equal distance.

A ranking is a sequence of ties: groups of rows at equal distance, each with its size and its number of relevant rows.
Every metric is the expectation over all orders within ties, in closed form. In a tie of n rows of which r are relevant,
after a rows of which b were relevant, position p (1 … n) adds

    (r/n) · (b + 1 + (p − 1) s) / (a + p),   s = (r − 1)/(n − 1),

to the sum of precisions at relevant rows, and since b + 1 + (p − 1) s = s (a + p) + (b + 1 − s (a + 1)), the first q
positions add (r/n) · (s q + (b + 1 − s (a + 1)) (H(a + q) − H(a))) with the harmonic numbers H.

To add a metric, write a `Metric` and register its name in `METRICS`: it is then measured, reported and shown.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.compiled import jit
from gphash.registry import Registry


class TiedRanking(NamedTuple):
    """Rankings of the same rows for q queries, as ties from the nearest to the farthest.

    sizes, hits
        Rows, and relevant rows, in every tie, [q, t]; zeros follow where a query has fewer ties than others.
    relevant
        Relevant rows of every query, [q].
    depths
        The k of metrics at k, ascending, and last the number of all rows, [k + 1].
    found, precisions
        Expected number of relevant rows among the first k, and expected sum of the precisions at those, [q, k + 1].
    radius
        Of the Hamming ball, if the tie at place d holds the rows at Hamming distance d; None for another distance.
    """

    sizes: NDArray[np.int64]
    hits: NDArray[np.int64]
    relevant: NDArray[np.int64]
    depths: NDArray[np.int64]
    found: Floats
    precisions: Floats
    radius: int | None


class Metric(NamedTuple):
    """A metric as data, so that tables and plots can label themselves.

    name, unit, meaning
        As they are shown; the unit is empty for shares of 1, and the meaning one sentence.
    higher_is_better
        Which direction is better; None where neither is.
    measure
        Its value for every query, [q], or for every query and depth, [q, k]; NaN leaves a query out of the mean. None
        if it does not apply to the ranking.
    """

    name: str
    unit: str
    higher_is_better: bool | None
    meaning: str
    measure: Callable[[TiedRanking], Floats | None]


def _share(part: Floats, whole: NDArray[Any]) -> Floats:
    """The quotient; NaN, which means leave out, for a query that has nothing to find."""
    share: Floats = np.full(part.shape, np.nan)
    np.divide(part, whole, out=share, where=np.broadcast_to(whole > 0, part.shape))
    return share


def _within_radius(ranking: TiedRanking) -> Floats | None:
    if ranking.radius is None:
        return None
    inside, hits = (part[:, : ranking.radius + 1].sum(axis=1) for part in (ranking.sizes, ranking.hits))
    return np.asarray(hits / np.maximum(inside, 1))


# All of them are shares of 1, and higher is better.
_OWN: dict[str, tuple[str, str, Callable[[TiedRanking], Floats | None]]] = {
    "map": (
        "mAP",
        "mean over queries of the average precision of the whole ranking, ties averaged",
        lambda one: _share(one.precisions[:, -1], one.relevant),
    ),
    "map_at_k": (
        "mAP@k",
        "the same for the first k rows, divided by min(k, relevant rows)",
        lambda one: _share(one.precisions[:, :-1], np.minimum(one.relevant[:, None], one.depths[:-1])),
    ),
    "precision_at_k": (
        "precision@k",
        "share of relevant rows among the first k",
        lambda one: one.found[:, :-1] / np.maximum(one.depths[:-1], 1),
    ),
    "recall_at_k": (
        "recall@k",
        "share of the relevant rows that are among the first k",
        lambda one: _share(one.found[:, :-1], one.relevant[:, None]),
    ),
    "precision_within_radius": (
        "precision within the radius",
        "share of relevant rows within the Hamming radius; none found counts 0",
        _within_radius,
    ),
}
METRICS: Registry[Metric] = Registry("metric", {})
for _key, (_name, _meaning, _measure) in _OWN.items():
    METRICS.register(_key, Metric(_name, "", True, _meaning, _measure))


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
        shapes = f"distances have shape {distances.shape} and relevant {relevant.shape}"
        raise ValueError(f"{shapes}; give [queries, rows] for both.")
    if np.isnan(distances).any():
        raise ValueError("distances hold NaN; give a number for every candidate.")
    sizes, hits = np.zeros(distances.shape, np.int64), np.zeros(distances.shape, np.int64)
    for query, (row, mask) in enumerate(zip(distances, relevant, strict=True)):
        _, tie, counts = np.unique(row, return_inverse=True, return_counts=True)
        sizes[query, : len(counts)] = counts
        hits[query, : len(counts)] = np.bincount(tie[mask], minlength=len(counts))
    n = distances.shape[1]
    ranking = rank(sizes, hits, np.array([n]), harmonic_numbers(n))
    return _share(ranking.precisions[:, -1], ranking.relevant)


def mean_average_precision(distances: ArrayLike, relevant: ArrayLike) -> float:
    """Mean of `average_precision` over the queries that have something to find."""
    return mean(average_precision(distances, relevant))


def mean(values: Floats) -> float:
    """Mean of the numbers among [n] that are not NaN, the same to the last bit in whichever order; NaN of none."""
    known = values[~np.isnan(values)]
    return math.fsum(known.tolist()) / len(known) if len(known) else math.nan


def harmonic_numbers(n: int) -> Floats:
    """H(0), …, H(n), [n + 1]."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


def rank(
    sizes: NDArray[np.int64],
    hits: NDArray[np.int64],
    depths: NDArray[np.int64],
    harmonic: Floats,
    radius: int | None = None,
) -> TiedRanking:
    """A ranking from its ties; `depths` end with the number of all rows, up to which harmonic numbers are given."""
    found, precisions = np.empty((len(sizes), len(depths))), np.empty((len(sizes), len(depths)))
    _walk(sizes, hits, depths, harmonic, found, precisions)
    return TiedRanking(sizes, hits, found[:, -1].astype(np.int64), depths, found, precisions, radius)


@jit(inline="always")
def _tie_precision(n, r, a, b, q, harmonic):  # type: ignore[no-untyped-def]
    """What the first q positions of a tie are expected to add; n, r, a and b as in the equation above."""
    if r == 0:
        return 0.0
    slope = (r - 1) / (n - 1) if n > 1 else 0.0
    return r / n * (slope * q + (b + 1 - slope * (a + 1)) * (harmonic[a + q] - harmonic[a]))


@jit
def _walk(sizes, hits, depths, harmonic, found, precisions):  # type: ignore[no-untyped-def]
    """Fill in what is found at every depth; depths ascend, so that one walk serves them all."""
    for query in range(len(sizes)):
        total, a, b, at = 0.0, 0, 0, 0
        for tie in range(sizes.shape[1]):
            n, r = sizes[query, tie], hits[query, tie]
            while at < len(depths) and depths[at] <= a + n:
                q = depths[at] - a
                found[query, at] = b + r * q / n if n > 0 else b
                precisions[query, at] = total + _tie_precision(n, r, a, b, q, harmonic)
                at += 1
            if at == len(depths):
                break
            total += _tie_precision(n, r, a, b, n, harmonic)
            a += n
            b += r
