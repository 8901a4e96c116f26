"""Search by P(similar): what distinct codes say about classes is worked out once, and kept as long as the codes are.

Codes that say much the same stand together in blocks: by their most probable class, the surest first. Of every block
the largest probability of each class is known, and so a bound on how similar its codes can be. A query looks at blocks
in the order of their bounds, and ends where the bound says that no code of the others can be among the k best. Bounds
are computed as the codes' own values are, step by step, and every step keeps the order: rounding hides nothing.
"""

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.codes.reading import CodeReader, rounded
from gphash.compiled import jit
from gphash.index import buckets as bucketing
from gphash.index.buckets import Words

BLOCK = 128  # codes that stand together

_tables: dict[tuple[Any, ...], tuple[Any, "CodeTable"]] = {}
_making = Lock()


class CodeTable(NamedTuple):
    """What distinct codes say, in blocks."""

    order: NDArray[np.int64]  # numbers of the codes, [u]
    read: NDArray[np.float32]  # P(class | code) in this order, [c, u]; float32 holds multiples of 2⁻²⁴ exactly
    tops: NDArray[np.float32]  # the largest of every block, [c, b]


def table(reader: CodeReader, codes: Words, n_bits: int) -> CodeTable:
    """The table of distinct codes; it is kept as long as they are."""
    owners = reader.weights, reader.bias, codes
    key = (reader.exclusive, *map(id, owners))
    with _making:
        kept = _tables.get(key)
        if kept is None or any(there() is not owner for there, owner in zip(kept[0], owners, strict=True)):
            read = reader.read(bucketing.to_packed(codes, n_bits)).astype(np.float32)
            order = np.lexsort((-read.max(axis=1), read.argmax(axis=1)))
            sorted_ = np.ascontiguousarray(read[order].T)
            tops = np.maximum.reduceat(sorted_, np.arange(0, len(order), BLOCK), axis=1)
            made = CodeTable(order, sorted_, np.ascontiguousarray(tops))
            kept = [weakref.ref(owner, lambda _: _tables.pop(key, None)) for owner in owners], made
            _tables[key] = kept
    return kept[1]


def searcher(reader: CodeReader, queries: NDArray[Any], n_bits: int) -> Callable[..., None]:
    """A function that searches a part for some rows of the queries, and fills ids and probabilities."""
    asked = rounded(queries)

    def search(arrays: Any, rows: slice, k: int, ids: Any, scores: Any) -> None:
        codes, starts, numbers, kept, counts, _, _ = arrays
        known = table(reader, codes, n_bits)
        for query, own_ids, own_scores in zip(asked[rows], ids, scores, strict=True):
            told = np.flatnonzero(query)
            chosen, unlike = _compare(*known, told, query[told], reader.exclusive, starts, counts, k)
            # Ids ascend in a bucket, so that of each only the first k matter.
            places, costs = _first(chosen, unlike, starts, len(numbers), kept, k)
            order = np.lexsort((numbers[places], costs))[:k]
            own_ids[:], own_scores[:] = numbers[places[order]], 1 - costs[order]

    return search


@jit
def _compare(
    order: Any, read: Any, tops: Any, told: Any, query: Any, exclusive: Any, starts: Any, counts: Any, k: Any
) -> Any:
    """Codes with items that may be one of the k best, and their 1 − P(similar)."""
    bounds = np.ones(tops.shape[1])
    _lower(bounds, tops, told, query, exclusive, 0, len(bounds))
    bounds = 1.0 - (1.0 - bounds)
    blocks, n_blocks = np.arange(len(bounds)), len(bounds)  # a heap, the least bound first
    for place in range(n_blocks // 2 - 1, -1, -1):
        _sink(blocks, n_blocks, bounds, place)
    best = np.full(k, np.inf)  # of the k best items so far, a heap, the largest first
    room, chosen, unlike, n_chosen = np.empty(BLOCK), np.empty(len(order), np.int64), np.empty(len(order)), 0
    while n_blocks and bounds[blocks[0]] <= best[0]:
        start = blocks[0] * BLOCK
        n_blocks -= 1
        blocks[0] = blocks[n_blocks]
        _sink(blocks, n_blocks, bounds, 0)
        n = min(BLOCK, len(order) - start)
        room[:n] = 1.0
        _lower(room, read, told, query, exclusive, start, n)
        for i in range(n):
            # As coarse as the probability that is told, so that equal ones are ties.
            away, code = 1.0 - (1.0 - max(room[i], 0.0)), order[start + i]
            if away > best[0]:
                continue
            size = counts[code] if len(counts) else np.int64(starts[code + 1]) - np.int64(starts[code])
            if size <= 0:
                continue
            chosen[n_chosen], unlike[n_chosen] = code, away
            n_chosen += 1
            for _ in range(min(size, k)):
                if away >= best[0]:
                    break
                _replace_largest(best, away)
    within = unlike[:n_chosen] <= best[0]
    return chosen[:n_chosen][within], unlike[:n_chosen][within]


@jit
def _sink(blocks: Any, n: Any, bounds: Any, place: Any) -> None:
    """Bring the block at a place of a heap of n to where none below it has a smaller bound."""
    while 2 * place + 1 < n:
        child = 2 * place + 1
        if child + 1 < n and bounds[blocks[child + 1]] < bounds[blocks[child]]:
            child += 1
        if bounds[blocks[place]] <= bounds[blocks[child]]:
            break
        blocks[place], blocks[child] = blocks[child], blocks[place]
        place = child


@jit
def _lower(room: Any, read: Any, told: Any, query: Any, exclusive: Any, start: Any, n: Any) -> None:
    """From ones to 1 − P(similar), for classes that the query may have."""
    for c in range(len(told)):
        row, weight = read[told[c]], query[c]
        if exclusive:
            for i in range(n):
                room[i] -= np.float64(row[start + i]) * weight
        else:
            for i in range(n):
                room[i] *= 1.0 - np.float64(row[start + i]) * weight


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
def _first(chosen: Any, unlike: Any, starts: Any, n_items: Any, kept: Any, k: Any) -> Any:
    """Places of the first k items of chosen codes that count, and their costs."""
    total = np.int64(0)
    for code in chosen:
        total += max(min(np.int64(starts[code + 1]) - np.int64(starts[code]), k), 0)
    places, costs = np.empty(total, np.int64), np.empty(total)
    n = np.int64(0)
    for i in range(len(chosen)):
        code, found = chosen[i], np.int64(0)
        for place in range(np.int64(starts[code]), min(np.int64(starts[code + 1]), n_items)):
            if found == k:
                break
            if len(kept) == 0 or kept[place]:
                places[n], costs[n] = place, unlike[i]
                n += 1
                found += 1
    return places[:n], costs[:n]
