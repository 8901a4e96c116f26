"""The nearest items of an index, by any ranking, within a radius."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.collection.records import Query
from gphash.index.contents import Filter
from gphash.index.hamming_index import HammingIndex
from gphash.index.rankings import HAMMING, RANKINGS

NEARBY = 8  # times as many as asked for are looked at before a ball is listed


def nearest(
    index: HammingIndex,
    query: Query,
    k: int,
    ranking: str,
    radius: int | None,
    allowed: Filter | None = None,
    **narrowed: Any,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Ids and distances of the k nearest items whose codes differ from the query's in at most `radius` bits."""
    reach = index.n_bits if radius is None else min(radius, index.n_bits)
    by = RANKINGS.find(ranking, "ranking")
    asked: Any = query.code if by.needs == "code" else query.probabilities
    if by is HAMMING:
        found = index.search(asked[None], k, allowed=allowed, **narrowed)
        within = found.distances[0] <= reach
        return found.ids[0][within], found.distances[0][within]
    chosen: Any = allowed
    if reach < index.n_bits:
        # Of a large ball, some of the very nearest are enough; a small one is listed.
        near = index.search(asked[None], NEARBY * k, ranking=by, allowed=allowed, **narrowed)
        apart = np.bitwise_count(index.codes_of(near.ids[0]) ^ query.code).sum(axis=1, dtype=np.int64)
        within = apart <= reach
        if within.sum() >= k or len(within) < NEARBY * k:
            return near.ids[0][within][:k], near.distances[0][within][:k]
        chosen = index.within(query.code[None], reach, allowed=allowed, **narrowed).ids
    likely = index.search(asked[None], k, ranking=by, allowed=chosen, **narrowed)
    return likely.ids[0], likely.distances[0]
