"""Candidates that codes have found, ordered by the vectors that the collection keeps of them."""

from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.collection import vectors
from gphash.collection.records import Hit, Query
from gphash.collection.rows import Key
from gphash.collection.showing import Shown
from gphash.collection.stores import Store


class Ordered(NamedTuple):
    """The best of a query's candidates, best first: their numbers, what they cost by their codes, and their scores."""

    numbers: list[int]
    costs: list[float]
    scores: list[float | None]


def ordered(store: Store, query: Query, found: tuple[list[int], list[float]], k: int | None) -> Ordered:
    """The k candidates that are nearest by their vectors, and those that are as near as the last of them.

    If k is None, all candidates as they were found.
    """
    if k is None:
        return Ordered(*found, [None] * len(found[0]))
    kind = store.items.layout.vectors
    assert kind is not None
    if query.features is None:
        raise ValueError("rerank needs the features of the query, which has a code alone; give features or a key.")
    numbers, costs = np.array(found[0], np.int64), np.array(found[1])
    scores = vectors.scores(query.features, store.vectors_of(numbers), kind)
    order = np.lexsort((numbers, -scores))
    best = order[scores[order] >= scores[order[min(k, len(order)) - 1]]] if len(order) else order
    return Ordered(numbers[best].tolist(), costs[best].tolist(), scores[best].tolist())


def by_score(hits: list[Hit]) -> list[Hit]:
    """The best first; of equal ones, that with the lesser key."""
    return sorted(hits, key=lambda hit: (-(hit.score or 0.0), hit.key))


def kept(store: Store, shown: Shown, key: Key) -> Floats:
    """The vector of an item, [d]; an UnknownItemError if it is gone."""

    def read() -> Floats:
        kind = store.items.layout.vectors
        assert kind is not None
        return np.asarray(vectors.unpack(store.vectors_of(np.array(shown.numbers([key]))), kind.form)[0])

    return store.steady(read)
