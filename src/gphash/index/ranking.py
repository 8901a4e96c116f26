"""Searches over the parts of an index, block by block of queries: the k best, balls, and codes one by one.

Little work is done by numpy. Once a process has asked for more, the compiled search is loaded, and does all the rest.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.execution.local import row_blocks, side_by_side
from gphash.hamming import packing
from gphash.index import array_scan, filters
from gphash.index import buckets as bucketing
from gphash.index.buckets import Buckets, Words
from gphash.index.contents import ALL, Contents, Marks, mark
from gphash.index.filters import Allowed

QUERIES = 32  # per unit of parallel work
PATIENCE = 3 * 10**7  # comparisons of a query with a code before the compiled search is loaded: a second of numpy's
UNLIKE = 6  # times as long numpy takes for a cost as for a Hamming distance

Part: TypeAlias = tuple[Any, int]
"""Arrays as a search takes them, and how many of their items count."""

Found: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ids and costs."""


class _Scanner:
    """Chooses between the two searches by how much has been asked for so far.

    compiled
        Whether the compiled search does all work from now on.
    warming
        How many threads are getting it ready; until they have, nobody else waits for the compiler.
    """

    def __init__(self) -> None:
        self.compiled = False
        self.warming = 0
        self._compared = 0
        self._lock = Lock()

    def choose(self, parts: list[Part], n_queries: int, weight: int = 1) -> Any:
        """The module that searches; a query that weighs more takes numpy so many times as long."""
        if not self.compiled:
            with self._lock:
                self._compared += weight * n_queries * sum(len(arrays[0]) for arrays, _ in parts)
                if self._compared <= PATIENCE or self.warming:
                    return array_scan
                self.compiled = True
        from gphash.index import scan

        return scan

    @contextmanager
    def getting_ready(self) -> Iterator[None]:
        """While the compiled search is compiled; it does all work afterwards."""
        with self._lock:
            self.warming += 1
        try:
            yield
            self.compiled = True
        finally:
            with self._lock:
                self.warming -= 1


scanner = _Scanner()


def warm(parts: list[Part], n_bits: int) -> None:
    """Compile the searches for such parts, or load them; others search in numpy meanwhile."""
    code = bucketing.to_words(np.zeros((1, -(-n_bits // 8)), np.uint8), n_bits)
    alone = bucketing.group(code, np.zeros(1, np.int64))  # for an index that is empty as yet
    ids, costs = np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)
    with scanner.getting_ready():
        from gphash.index import scan

        for arrays in [arrays for arrays, there in parts if there] or [_arrays(alone, mark(alone, ALL))]:
            query = _rows(code)
            scan.search_many(arrays, query, 1, n_bits, ids, costs)
            scan.search_many_expected(arrays, query, np.ones((1, n_bits), np.int64), 1, ids, costs)
            scan.emit_balls(arrays, scan.balls(arrays, query, n_bits), ids[0], costs[0].astype(np.int32))


def parts_of(contents: Contents, allowed: Allowed | None) -> list[Part]:
    """The parts of an index, of which the items that are allowed count."""
    if allowed is None:
        return [(_arrays(part.buckets, part.marks), part.marks.total) for part in contents.parts]
    chosen = filters.resolve(allowed, contents)
    found = [(part.buckets, chosen.marks(part)) for part in contents.parts]
    return [(_arrays(buckets, marks), marks.total) for buckets, marks in found]


def _arrays(buckets: Buckets, marks: Marks) -> Any:
    return buckets.codes, buckets.starts, buckets.ids, marks.kept, marks.counts, buckets.same, buckets.value


def nearest(parts: list[Part], queries: Words, k: int, n_bits: int, n_jobs: int | None) -> Found:
    """Ids and distances of the k nearest items of every query, [q, w]."""
    queries = _rows(queries)
    scan = scanner.choose(parts, len(queries))

    def run(arrays: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
        scan.search_many(arrays, queries[rows], k, n_bits, ids[rows], costs[rows])

    return _best(run, parts, len(queries), k, n_jobs)


def cheapest(parts: list[Part], modes: Words, weights: NDArray[np.int64], k: int, n_jobs: int | None) -> Found:
    """Ids and costs of the k items of least cost for every query, whose likeliest code is its mode."""
    modes = _rows(modes)
    scan = scanner.choose(parts, len(modes), UNLIKE)

    def run(arrays: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
        scan.search_many_expected(arrays, modes[rows], weights[rows], k, ids[rows], costs[rows])

    return _best(run, parts, len(modes), k, n_jobs)


def _best(run: Callable[..., None], parts: list[Part], n_queries: int, k: int, n_jobs: int | None) -> Found:
    """The k best of every part, put together."""
    found = []
    for arrays, there in parts:
        columns = min(k, there)
        ids, costs = np.empty((n_queries, columns), np.int64), np.empty((n_queries, columns), np.int64)

        def work(rows: slice, arrays: Any = arrays, n: int = columns, ids: Any = ids, costs: Any = costs) -> None:
            run(arrays, rows, n, ids, costs)

        if columns:
            _over(work, n_queries, n_jobs)
        found.append((ids, costs))
    if len(found) == 1:
        return found[0]
    ids, costs = (np.concatenate(both, axis=1) for both in zip(*found, strict=True))
    order = np.lexsort((ids, costs), axis=-1)[:, :k]
    return np.take_along_axis(ids, order, -1), np.take_along_axis(costs, order, -1)


Balls: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]
"""Offsets [q + 1], and the ids and distances between them, in the order of (distance, id)."""


def balls(parts: list[Part], queries: Words, radius: int, n_jobs: int | None) -> Balls:
    """Everything within a Hamming radius of every query."""
    queries = _rows(queries)
    scan = scanner.choose(parts, len(queries))
    found = [_balls(scan, arrays, queries, radius, n_jobs) for arrays, _ in parts]
    if len(found) == 1:
        return found[0]
    numbers = np.concatenate([np.repeat(np.arange(len(queries)), np.diff(offsets)) for offsets, _, _ in found])
    ids, distances = (np.concatenate([one[place] for one in found]) for place in (1, 2))
    order = np.lexsort((ids, distances, numbers))
    return np.sum([offsets for offsets, _, _ in found], axis=0), ids[order], distances[order]


def _balls(scan: Any, arrays: Any, queries: Words, radius: int, n_jobs: int | None) -> Balls:
    """Balls in one part: first how much there is, then, as much as that is, the items."""
    found = _over(lambda rows: scan.balls(arrays, queries[rows], radius), len(queries), n_jobs)
    offsets = np.zeros(len(queries) + 1, np.int64)
    for number, one in enumerate(found):
        offsets[number * QUERIES + 1 :][: len(one[0])] = one[0]
    np.cumsum(offsets, out=offsets)
    ids, distances = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int32)

    def emit(rows: slice) -> None:
        items = slice(offsets[rows.start], offsets[rows.stop])
        scan.emit_balls(arrays, found[rows.start // QUERIES], ids[items], distances[items])

    _over(emit, len(queries), n_jobs)
    return offsets, ids, distances


def _over(work: Callable[[slice], Any], n_queries: int, n_jobs: int | None) -> list[Any]:
    """Work on blocks of queries side by side; few queries are not worth a thread."""
    return side_by_side(work, row_blocks(n_queries, QUERIES), n_jobs)


def probes(
    parts: list[tuple[Any, int]], mode: Words, weights: NDArray[np.int64], n_bits: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Ids by cost, as long as probing single codes is cheaper than ranking all."""
    order = np.argsort(weights, kind="stable")
    steps = weights[order]
    budget = 64 + sum(len(arrays[0]) for arrays, _ in parts) // 32
    # Every set of flipped bits comes once: the last flipped bit moves on, or the next one is flipped as well.
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting and budget > 0:
        cost = waiting[0][0]
        flips: list[tuple[int, ...]] = []
        while waiting and waiting[0][0] == cost and len(flips) < budget:
            _, places = heapq.heappop(waiting)
            flips.append(places)
            last = places[-1] if places else -1
            if last + 1 < len(steps):
                heapq.heappush(waiting, (cost + int(steps[last + 1]), (*places, last + 1)))
                if places:
                    moved = cost - int(steps[last]) + int(steps[last + 1])
                    heapq.heappush(waiting, (moved, (*places[:-1], last + 1)))
        budget -= len(flips)
        if waiting and waiting[0][0] == cost:
            return  # this level is not complete: let the ranking of all have it
        codes = _flipped(mode, [order[list(places)] for places in flips], n_bits)
        ids = items_of(parts, codes)
        if len(ids):
            yield cost, ids


def _flipped(mode: Words, flips: list[Any], n_bits: int) -> Words:
    """Codes that differ from the likeliest one in certain bits."""
    bits = np.repeat(packing.unpack(bucketing.to_packed(mode[None], n_bits), n_bits), len(flips), axis=0)
    for row, places in enumerate(flips):
        bits[row, places] ^= 1
    return bucketing.to_words(packing.pack(bits), n_bits)


def items_of(parts: list[Part], codes: Words) -> NDArray[np.int64]:
    """Ids that have one of some codes and count, ascending."""
    found = [np.empty(0, np.int64)]
    for (stored, starts, ids, kept, _, same, value), _ in parts:
        numbers = bucketing.find(Buckets(stored, starts, ids, same, value), codes)
        for number in numbers[numbers >= 0]:
            here = slice(int(starts[number]), int(starts[number + 1]))
            found.append(ids[here][kept[here]] if len(kept) else ids[here])
    return np.sort(np.concatenate(found).astype(np.int64))


def _rows(words: Words) -> Words:
    """Codes as [q, w] whatever their length."""
    return words[:, None] if words.ndim == 1 else words
