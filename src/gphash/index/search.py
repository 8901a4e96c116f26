"""Searches over the parts of an index, block by block of queries: the k best by a ranking, and balls.

Little work is done by numpy, and so are rankings other than the two that are compiled. Once a process has asked for
more, the compiled search is loaded, and does all the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.codes.reading import CodeReader
from gphash.execution.local import row_blocks, side_by_side
from gphash.index import buckets as bucketing
from gphash.index import contents, rankings
from gphash.index.buckets import Words
from gphash.index.contents import Allowed, Contents, Piece
from gphash.index.rankings import EXPECTED, HAMMING, Ranking, Similar

QUERIES = 32  # per unit of parallel work
PATIENCE = 3 * 10**7  # comparisons of a query with a code before the compiled search is loaded: a second of numpy's
UNLIKE = 6  # times as long numpy takes for an expected distance as for a Hamming distance

Items: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]
"""Ids and costs, in the order of (cost, id)."""

Balls: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]
"""Offsets [q + 1], and the ids and distances between them, in the order of (distance, id)."""


class _Scanner:
    """Chooses between the two searches by how much has been asked for so far.

    While threads are getting the compiled search ready, nobody else waits for the compiler.
    """

    def __init__(self) -> None:
        self.compiled = False
        self.warming = 0
        self._compared = 0
        self._lock = Lock()

    def is_worth_it(self, pieces: list[Piece], n_queries: int, weight: int = 1) -> bool:
        """Whether to compile; a query that weighs more takes numpy so many times as long."""
        if not self.compiled:
            with self._lock:
                self._compared += weight * n_queries * sum(len(arrays[0]) for arrays, _ in pieces)
                self.compiled |= self._compared > PATIENCE and not self.warming
        return self.compiled

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


def warm(pieces: list[Piece], n_bits: int) -> None:
    """Compile the searches for such parts, or load them; others search in numpy meanwhile."""
    code = bucketing.to_words(np.zeros((1, -(-n_bits // 8)), np.uint8), n_bits)
    alone = bucketing.group(code, np.zeros(1, np.int64))  # for an index that is empty as yet
    ids, costs = np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)
    with scanner.getting_ready():
        from gphash.index import scan

        query = _rows(code)
        for arrays in [arrays for arrays, there in pieces if there] or [contents.piece(alone)[0]]:
            scan.search_many(arrays, query, 1, n_bits, ids, costs)
            scan.search_many_expected(arrays, query, np.ones((1, n_bits), np.int64), 1, ids, costs)
            scan.emit_balls(arrays, scan.balls(arrays, query, n_bits), ids[0], costs[0].astype(np.int32))


def pieces_of(held: Contents, allowed: Allowed | None) -> list[Piece]:
    """The parts of an index, of which the items that are allowed count."""
    chosen = None if allowed is None else contents.resolve(allowed, held.ids, held.state)
    return [part.piece if chosen is None else chosen.piece(part) for part in held.parts]


def nearest(
    ranking: Ranking, pieces: list[Piece], queries: NDArray[Any], k: int, n_bits: int, n_jobs: int | None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Ids and scores of the k best items of every query, [q, k]."""
    run = _way(ranking, pieces, queries, n_bits)
    found = []
    for arrays, there in pieces:
        columns = min(k, there)
        ids, scores = np.empty((len(queries), columns), np.int64), np.empty((len(queries), columns), ranking.dtype)

        def work(rows: slice, arrays: Any = arrays, n: int = columns, ids: Any = ids, scores: Any = scores) -> None:
            run(arrays, rows, n, ids[rows], scores[rows])

        if columns:
            _over(work, len(queries), n_jobs)
        found.append((ids, scores))
    if len(found) == 1:
        return found[0]
    ids, scores = (np.concatenate(both, axis=1) for both in zip(*found, strict=True))
    order = np.lexsort((ids, -scores if ranking.descending else scores), axis=-1)[:, :k]
    return np.take_along_axis(ids, order, -1), np.take_along_axis(scores, order, -1)


def _way(ranking: Ranking, pieces: list[Piece], queries: NDArray[Any], n_bits: int) -> Callable[..., None]:
    """A function that searches a part for some rows of the queries, and fills ids and scores."""
    n = len(queries)
    if ranking is HAMMING and scanner.is_worth_it(pieces, n):
        from gphash.index import scan

        words = _rows(bucketing.to_words(queries, n_bits))
        return lambda arrays, rows, k, ids, out: scan.search_many(arrays, words[rows], k, n_bits, ids, out)
    if ranking is EXPECTED and scanner.is_worth_it(pieces, n, UNLIKE):
        from gphash.index import scan

        asked = rankings.uncertain(queries)
        modes = _rows(bucketing.to_words(asked.modes, n_bits))

        def by_cost(arrays: Any, rows: slice, k: int, ids: Any, scores: Any) -> None:
            costs = np.empty(ids.shape, np.int64)
            scan.search_many_expected(arrays, modes[rows], asked.weights[rows], k, ids, costs)
            scores[:] = asked.certain[rows, None] + costs * rankings.UNIT

        return by_cost

    reader = ranking.reader if isinstance(ranking, Similar) else None
    if isinstance(reader, CodeReader) and scanner.is_worth_it(pieces, n, UNLIKE * reader.n_classes):
        from gphash.index import similar

        return similar.searcher(reader, queries, n_bits)

    def by_score(arrays: Any, rows: slice, k: int, ids: Any, scores: Any) -> None:
        packed = bucketing.to_packed(arrays[0], n_bits)
        for query, own_ids, own_scores in zip(queries[rows], ids, scores, strict=True):
            costs = ranking.scores(query, packed, n_bits)
            if ranking.descending:
                costs = -costs.astype(ranking.dtype)  # scores may be unsigned
            own_ids[:], found = _best(arrays, costs, k)
            own_scores[:] = -found if ranking.descending else found

    return by_score


def balls(pieces: list[Piece], packed: NDArray[np.uint8], radius: int, n_bits: int, n_jobs: int | None) -> Balls:
    """Everything within a Hamming radius of every query."""
    if scanner.is_worth_it(pieces, len(packed)):
        from gphash.index import scan

        queries = _rows(bucketing.to_words(packed, n_bits))
        find, emit = (lambda arrays, rows: scan.balls(arrays, queries[rows], radius)), scan.emit_balls
    else:
        find = lambda arrays, rows: _numpy_balls(arrays, packed[rows], radius, n_bits)  # noqa: E731
        emit = _emit_numpy_balls
    found = [_balls(partial(find, arrays), partial(emit, arrays), len(packed), n_jobs) for arrays, _ in pieces]
    if len(found) == 1:
        return found[0]
    numbers = np.concatenate([np.repeat(np.arange(len(packed)), np.diff(offsets)) for offsets, _, _ in found])
    ids, distances = (np.concatenate([one[place] for one in found]) for place in (1, 2))
    order = np.lexsort((ids, distances, numbers))
    return np.sum([offsets for offsets, _, _ in found], axis=0), ids[order], distances[order]


def _balls(find: Callable[..., Any], emit: Callable[..., None], n_queries: int, n_jobs: int | None) -> Balls:
    """Balls in one part: first how much there is, then, as much as that is, the items."""
    found = _over(find, n_queries, n_jobs)
    offsets = np.concatenate([np.zeros(1, np.int64), *(one[0] for one in found)]).cumsum()
    ids, distances = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int32)

    def fill(rows: slice) -> None:
        items = slice(offsets[rows.start], offsets[rows.stop])
        emit(found[rows.start // QUERIES], ids[items], distances[items])

    _over(fill, n_queries, n_jobs)
    return offsets, ids, distances


def _over(work: Callable[[slice], Any], n_queries: int, n_jobs: int | None) -> list[Any]:
    """Work on blocks of queries side by side; few queries are not worth a thread."""
    return side_by_side(work, row_blocks(n_queries, QUERIES), n_jobs)


def _rows(words: Words) -> Words:
    """Codes as [q, w] whatever their length."""
    return words[:, None] if words.ndim == 1 else words


# In numpy, where every code is looked at; both searches answer alike, to the last id


def _best(arrays: Any, costs: NDArray[Any], k: int) -> Items:
    """The k items of least cost, where every code costs so much, [u]; `arrays` as `scan` has them."""
    _, starts, _, _, counts, _, _ = arrays
    sizes = counts if len(counts) else np.diff(starts.astype(np.int64))
    chosen = np.flatnonzero(sizes)
    if k < len(chosen):
        # Every bucket that counts holds an item, so that k of them are enough, and all that cost as little.
        held = costs[chosen]
        chosen = chosen[held <= np.partition(held, k - 1)[k - 1]]
    # Fewer are enough if they hold more; which items of the last cost come first is for the ids to say.
    order = chosen[np.argsort(costs[chosen], kind="stable")]
    last = min(int(np.searchsorted(np.cumsum(sizes[order]), k)), len(order) - 1)
    chosen = order[: int(np.searchsorted(costs[order], costs[order[last]], side="right"))]
    ids, found = _items(arrays, chosen, costs)
    return ids[:k], found[:k]


def _numpy_balls(
    arrays: Any, queries: NDArray[np.uint8], radius: int, n_bits: int
) -> tuple[NDArray[np.int64], list[Items]]:
    """How many items there are within a Hamming radius of every packed query, [q], and the items."""
    packed = bucketing.to_packed(arrays[0], n_bits)
    distances = (HAMMING.scores(query, packed, n_bits) for query in queries)
    found = [_items(arrays, np.flatnonzero(away <= radius), away) for away in distances]
    return np.array([len(ids) for ids, _ in found], np.int64), found


def _emit_numpy_balls(arrays: Any, found: tuple[Any, list[Items]], out_ids: Any, out_distances: Any) -> None:
    """Put what `_numpy_balls` found one query after the other."""
    out_ids[:], out_distances[:] = (np.concatenate(parts) for parts in zip(*found[1], strict=True))


def _items(arrays: Any, chosen: NDArray[Any], costs: NDArray[Any]) -> Items:
    """Items of chosen codes that count."""
    _, starts, ids, kept, _, _, _ = arrays
    begins = starts[chosen].astype(np.int64)
    sizes = starts[chosen + 1].astype(np.int64) - begins
    # Positions of all items: a run of consecutive numbers for every bucket.
    places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    away = np.repeat(costs[chosen], sizes)
    if len(kept):
        places, away = places[kept[places]], away[kept[places]]
    order = np.lexsort((ids[places], away))
    return ids[places][order], away[order]
