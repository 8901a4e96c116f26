"""Search by P(similar): what distinct codes say about classes is worked out once, and kept as long as the codes are.

A query is compared with every distinct code: one short sum of products each, all exact (see `codes.reading`). The best
k codes so far give a bound; every one of them holds an item, so that codes beyond the last bound hold none of the k
most probable items.
"""

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.codes.reading import CodeReader, rounded
from gphash.compiled import jit
from gphash.index import buckets as bucketing
from gphash.index.buckets import Words

BLOCK = 1024  # codes that are compared together

_tables: dict[tuple[Any, ...], tuple[Any, NDArray[np.float32]]] = {}
_making = Lock()


def table(reader: CodeReader, codes: Words, n_bits: int) -> NDArray[np.float32]:
    """P(class | code) of distinct codes, [c, u]; float32 holds multiples of 2⁻²⁴ exactly."""
    owners = reader.weights, reader.bias, codes
    key = (reader.exclusive, *map(id, owners))
    with _making:
        kept = _tables.get(key)
        if kept is None or any(there() is not owner for there, owner in zip(kept[0], owners, strict=True)):
            read = np.ascontiguousarray(reader.read(bucketing.to_packed(codes, n_bits)).T, np.float32)
            kept = [weakref.ref(owner, lambda _: _tables.pop(key, None)) for owner in owners], read
            _tables[key] = kept
    return kept[1]


def searcher(reader: CodeReader, queries: NDArray[Any], n_bits: int) -> Callable[..., None]:
    """A function that searches a part for some rows of the queries, and fills ids and probabilities."""
    asked = rounded(queries)

    def search(arrays: Any, rows: slice, k: int, ids: Any, scores: Any) -> None:
        codes, starts, numbers, kept, counts, _, _ = arrays
        read = table(reader, codes, n_bits)
        unlike = np.empty(len(codes))
        for query, own_ids, own_scores in zip(asked[rows], ids, scores, strict=True):
            told = np.flatnonzero(query)
            last = _compare(read, told, query[told], reader.exclusive, counts, k, unlike)
            chosen = np.flatnonzero(unlike <= last)
            if len(counts):
                chosen = chosen[counts[chosen] > 0]
            # Ids ascend in a bucket, so that of each only the first k matter.
            places, costs = _first(chosen, starts, len(numbers), kept, unlike, k)
            order = np.lexsort((numbers[places], costs))[:k]
            own_ids[:], own_scores[:] = numbers[places[order]], 1 - costs[order]

    return search


@jit
def _compare(read: Any, told: Any, query: Any, exclusive: Any, counts: Any, k: Any, unlike: Any) -> Any:
    """1 − P(similar) of every code, for classes that the query may have, and the k-th least among codes with items."""
    best = np.full(k, np.inf)  # a heap, the largest first
    room = np.empty(BLOCK)
    for start in range(0, len(unlike), BLOCK):
        n = min(BLOCK, len(unlike) - start)
        for i in range(n):
            room[i] = 1.0
        for c in range(len(told)):
            row, weight = read[told[c]], query[c]
            if exclusive:
                for i in range(n):
                    room[i] -= np.float64(row[start + i]) * weight
            else:
                for i in range(n):
                    room[i] *= 1.0 - np.float64(row[start + i]) * weight
        for i in range(n):
            away = max(room[i], 0.0)
            unlike[start + i] = away
            if away < best[0] and (len(counts) == 0 or counts[start + i] > 0):
                _replace_largest(best, away)
    return best[0]


@jit
def _replace_largest(heap: Any, value: Any) -> None:
    """Put a smaller value in the place of the largest."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@jit
def _first(chosen: Any, starts: Any, n_items: Any, kept: Any, unlike: Any, k: Any) -> Any:
    """Places of the first k items of chosen codes that count, and their costs."""
    total = np.int64(0)
    for code in chosen:
        total += max(min(np.int64(starts[code + 1]) - np.int64(starts[code]), k), 0)
    places, costs = np.empty(total, np.int64), np.empty(total)
    n = np.int64(0)
    for code in chosen:
        found = np.int64(0)
        for place in range(np.int64(starts[code]), min(np.int64(starts[code + 1]), n_items)):
            if found == k:
                break
            if len(kept) == 0 or kept[place]:
                places[n], costs[n] = place, unlike[code]
                n += 1
                found += 1
    return places[:n], costs[:n]
