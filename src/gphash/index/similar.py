"""Search by P(similar): what distinct codes say about classes is worked out once, and kept as long as the codes are.

A query is compared with every distinct code: one short sum of products each, all exact (see `codes.reading`), and a
count of items by how probable they are. So it is known which codes hold the k most probable items, and only these are
put in order.
"""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.codes.reading import Similarity, rounded
from gphash.compiled import jit
from gphash.index import buckets as bucketing
from gphash.index.buckets import Words

BINS = 4096  # of probabilities

_tables: dict[tuple[int, int], tuple[Any, Any, NDArray[np.float32]]] = {}


def table(likeness: Similarity, codes: Words, n_bits: int) -> NDArray[np.float32]:
    """P(class | code) of distinct codes, [u, c]; float32 holds multiples of 2⁻²⁴ exactly."""
    key = id(likeness.weights), id(codes)
    kept = _tables.get(key)
    if kept is None or kept[0]() is not likeness.weights or kept[1]() is not codes:
        read = likeness.read(bucketing.to_packed(codes, n_bits)).astype(np.float32)
        first, second = (weakref.ref(owner, lambda _: _tables.pop(key, None)) for owner in (likeness.weights, codes))
        kept = _tables[key] = (first, second, read)
    return kept[2]


def searcher(
    likeness: Similarity, queries: NDArray[Any], n_bits: int, items: Callable[..., Any]
) -> Callable[..., None]:
    """A function that searches a part for some rows of the queries, and fills ids and probabilities.

    `items` gives the items of chosen codes, and their costs, in order.
    """
    asked = rounded(queries)

    def search(arrays: Any, rows: slice, k: int, ids: Any, scores: Any) -> None:
        codes, starts, _, _, counts, _, _ = arrays
        read, sizes = table(likeness, codes, n_bits), counts if len(counts) else np.diff(starts.astype(np.int64))
        unlike = np.empty(len(read))
        for query, own_ids, own_scores in zip(asked[rows], ids, scores, strict=True):
            last = _compare(read, query, likeness.exclusive, sizes, k, unlike)
            chosen = np.flatnonzero((unlike < last) & (sizes > 0))
            found, costs = items(arrays, chosen, unlike)
            own_ids[:], own_scores[:] = found[:k], 1 - costs[:k]

    return search


@jit
def _compare(read: Any, query: Any, exclusive: Any, sizes: Any, k: Any, unlike: Any) -> Any:
    """1 − P(similar) of every code, and a bound that at least k items are below."""
    n_below = np.zeros(BINS, np.int64)
    for i in range(len(read)):
        if exclusive:
            total = 0.0
            for c in range(len(query)):
                total += np.float64(read[i, c]) * query[c]
            away = max(1.0 - total, 0.0)
        else:
            away = 1.0
            for c in range(len(query)):
                away *= 1.0 - np.float64(read[i, c]) * query[c]
        unlike[i] = away
        n_below[int(min(away * BINS, BINS - 1.0))] += sizes[i]
    n_items = np.int64(0)
    for b in range(BINS):
        n_items += n_below[b]
        if n_items >= k:
            return (b + 1) / BINS if b + 1 < BINS else np.inf
    return np.inf
