"""Retrieval metrics that do not depend on the order of rows at equal distance.

Average precision is the expectation over all orders within ties, in closed form: in a tie of n rows of which r are
relevant, after a
rows of which b were relevant,

    Σ_{k=1..n} (r/n) · (b + 1 + (k − 1)(r − 1)/(n − 1)) / (a + k)

is what the tie adds to the sum of precisions at relevant rows.
"""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats


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
    [q]; a query with nothing relevant has 0.
    """
    distances, relevant = np.asarray(distances), np.asarray(relevant, dtype=bool)
    result = np.zeros(len(distances))
    for query in range(len(distances)):
        result[query] = average_precision_of(distances[query], relevant[query])
    return result


def mean_average_precision(distances: ArrayLike, relevant: ArrayLike) -> float:
    """Mean of `average_precision` over queries."""
    return float(average_precision(distances, relevant).mean())


def average_precision_of(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> float:
    """Tie-aware average precision of one query, [n] each."""
    if len(distances) == 0:
        return 0.0
    order = np.argsort(distances, kind="stable")
    ranked = distances[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked))
    hits = np.cumsum(relevant[order])[ends - 1]
    return float(_sum_over_ties(ends, hits))


@njit(cache=True, nogil=True)
def _sum_over_ties(ends, hits):  # type: ignore[no-untyped-def]
    total = 0.0
    a = 0
    b = 0
    for tie in range(len(ends)):
        n = ends[tie] - a
        r = hits[tie] - b
        if r > 0:
            slope = (r - 1) / (n - 1) if n > 1 else 0.0
            for k in range(1, n + 1):
                total += r / n * (b + 1 + (k - 1) * slope) / (a + k)
        a = ends[tie]
        b = hits[tie]
    return total / b if b > 0 else 0.0
