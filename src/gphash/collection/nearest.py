"""The nearest items of queries in any index, by any ranking, within a radius."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gphash.codes.reading import Reader
from gphash.codes.trust import Trust
from gphash.collection.records import Hit, Hits, Query, code_of
from gphash.index.backends import Index
from gphash.index.rankings import HAMMING, Ranking, Similar

NEARBY = 8  # times as many as asked for are looked at before a ball is listed


def nearest(
    index: Index, queries: list[Query], k: int, by: Ranking, radius: int | None, **narrowed: Any
) -> Iterator[tuple[list[int], list[float]]]:
    """Ids and distances of the k nearest items of every query whose codes differ from it in at most `radius` bits."""
    reach = index.n_bits if radius is None else min(radius, index.n_bits)
    if by is not HAMMING and reach < index.n_bits:
        for query in queries:
            yield _within(index, query, k, by, reach, **narrowed)
        return
    found = index.search(np.stack([_asked(query, by) for query in queries]), k, ranking=by, **narrowed)
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        n = len(ids) if by is not HAMMING else sum(distance <= reach for distance in distances)
        yield ids[:n], distances[:n]


def _within(
    index: Index, query: Query, k: int, by: Ranking, reach: int, **narrowed: Any
) -> tuple[list[int], list[float]]:
    asked = _asked(query, by)
    # Of a large ball, some of the very nearest are enough; a small one is listed.
    near = index.search(asked[None], NEARBY * k, ranking=by, **narrowed)
    apart = np.bitwise_count(index.codes_of(near.ids[0]) ^ query.code).sum(axis=1, dtype=np.int64)
    within = apart <= reach
    if within.sum() < k and len(within) == NEARBY * k:
        inside = index.within(query.code[None], reach, **narrowed).ids
        near = index.search(asked[None], k, ranking=by, allowed=inside)
        within = np.ones(near.ids.shape[1], bool)
    return near.ids[0][within][:k].tolist(), near.distances[0][within][:k].tolist()


def _asked(query: Query, by: Ranking) -> Any:
    """What a ranking needs of a query."""
    if isinstance(by, Similar) and by.reader is not None:
        return query.believed(by.reader)
    return query.code if by.needs == "code" else query.probabilities


def judged(reader: Reader | None, query: Query, hits: list[Hit], by: Ranking) -> list[Hit]:
    """The same with the probabilities that they are similar to the query, if the model knows any.

    What was ranked by them has Hamming distances beside them.
    """
    if reader is None or not hits:
        return hits
    codes = np.stack([code_of(hit.bits) for hit in hits])
    chances = reader.compare(query.believed(reader)[None], reader.read(codes))[0].tolist()
    hits = [hit._replace(probability=chance) for hit, chance in zip(hits, chances, strict=True)]
    if by.needs == "classes":
        apart = np.bitwise_count(codes ^ query.code).sum(axis=1, dtype=np.int64).tolist()
        hits = [hit._replace(distance=bits) for hit, bits in zip(hits, apart, strict=True)]
    return hits


def cut(
    trust: Trust | None,
    query: Query,
    hits: list[Hit],
    k: int,
    min_probability: float | None,
    precision: float | None,
    recall: float | None,
) -> Hits:
    """Those hits that are probable enough, and of these as many as keep a promise."""
    chances, found = [hit.probability or 0.0 for hit in hits], Hits(hits)
    if trust is not None:
        found.nothing_similar = trust.nothing(query.familiarity, max(chances, default=None))
    if min_probability is not None:
        found[:] = [hit for hit, chance in zip(hits, chances, strict=True) if chance >= min_probability]
    n = len(found)
    if precision is not None and trust is not None:
        # The most probable ones come first, so that the mean never rises.
        means = np.cumsum(chances[:n]) / np.arange(1, n + 1)
        n = int(np.cumprod(means >= trust.cut("precision", precision)).sum())
    if recall is not None and trust is not None:
        n = int((np.array(chances[:n]) >= trust.cut("recall", recall) * max(chances, default=0.0)).sum())
    found.complete = (precision is None and recall is None) or n < len(hits) or len(hits) < k
    del found[n:]
    return found
