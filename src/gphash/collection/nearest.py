"""The nearest items of queries in any index, by any ranking, within a radius."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gphash.collection.records import Query
from gphash.index.backends import Index
from gphash.index.rankings import HAMMING, RANKINGS, Ranking

NEARBY = 8  # times as many as asked for are looked at before a ball is listed


def nearest(
    index: Index, queries: list[Query], k: int, ranking: str, radius: int | None, **narrowed: Any
) -> Iterator[tuple[list[int], list[float]]]:
    """Ids and distances of the k nearest items of every query whose codes differ from it in at most `radius` bits."""
    by = RANKINGS.find(ranking, "ranking")
    reach = index.n_bits if radius is None else min(radius, index.n_bits)
    if by is not HAMMING and reach < index.n_bits:
        for query in queries:
            yield _within(index, query, k, by, reach, **narrowed)
        return
    asked: list[Any] = [query.code if by.needs == "code" else query.probabilities for query in queries]
    found = index.search(np.stack(asked), k, ranking=by, **narrowed)
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        n = len(ids) if by is not HAMMING else sum(distance <= reach for distance in distances)
        yield ids[:n], distances[:n]


def _within(
    index: Index, query: Query, k: int, by: Ranking, reach: int, **narrowed: Any
) -> tuple[list[int], list[float]]:
    asked: Any = query.code if by.needs == "code" else query.probabilities
    # Of a large ball, some of the very nearest are enough; a small one is listed.
    near = index.search(asked[None], NEARBY * k, ranking=by, **narrowed)
    apart = np.bitwise_count(index.codes_of(near.ids[0]) ^ query.code).sum(axis=1, dtype=np.int64)
    within = apart <= reach
    if within.sum() < k and len(within) == NEARBY * k:
        inside = index.within(query.code[None], reach, **narrowed).ids
        near = index.search(asked[None], k, ranking=by, allowed=inside)
        within = np.ones(near.ids.shape[1], bool)
    return near.ids[0][within][:k].tolist(), near.distances[0][within][:k].tolist()
