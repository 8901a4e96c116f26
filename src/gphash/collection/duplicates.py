"""Items of a collection that are near each other: pairs of them, and clusters."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.collection import arguments, vectors
from gphash.collection.rows import Key
from gphash.collection.stores import Store
from gphash.index import buckets as bucketing
from gphash.index import joining
from gphash.index.buckets import Buckets
from gphash.index.joining import CodePairs, TooManyPairsError

PIECE = 4096  # pairs whose vectors are compared at once
BATCH = 10_000  # keys that are read at once
ROUNDING = 1e-9  # by which a cosine may be too small: that of a vector and itself need not be 1


class Duplicate(NamedTuple):
    """Two items, the bits in which their codes differ, P(similar) if the model knows it, and the cosine if asked for.

    The probability is what both codes say, and the cosine is that of the vectors which the collection keeps.
    """

    first: Key
    second: Key
    distance: int
    probability: float | None
    cosine: float | None


class Found(NamedTuple):
    """Pairs of places in the ids of buckets, and their cosines if they were asked for."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    cosines: Floats | None


class Duplicates:
    """What is near by all that was asked for; nothing is computed before it is needed."""

    def __init__(
        self, store: Store, radius: int | None, min_probability: float | None, min_cosine: float | None
    ) -> None:
        if radius is None and min_probability is None:
            raise ValueError("radius=None and min_probability=None; give one of them, or both.")
        self._radius = None if radius is None else arguments.whole("radius", radius, 0)
        arguments.check_promise(min_probability, None, None, "hamming", store.model)
        arguments.check_cosine(min_cosine, store.items.layout)
        self._store, self._chance, self._cosine = store, min_probability, min_cosine

    def clusters(self) -> list[list[Key]]:
        """Keys of items that pairs connect, directly or by way of others; the largest cluster first."""

        def read() -> list[list[Key]]:
            buckets, pairs = self._codes()
            if self._cosine is None:
                groups = joining.clusters(pairs, buckets)
            else:
                found = self._items(buckets, pairs)
                part = joining.components(buckets.n_items, found.left, found.right)
                groups = joining.grouped(part, buckets.ids)
            keys = self._keys(np.concatenate([np.empty(0, np.int64), *groups]))
            return [[keys[number] for number in group.tolist()] for group in groups]

        return self._store.steady(read)

    def pairs(self) -> list[Duplicate]:
        """All pairs, in the order of the items' numbers; a ValueError if there are too many to list."""

        def read() -> list[Duplicate]:
            buckets, pairs = self._codes()
            if self._cosine is None and joining.count_items(pairs, buckets) > joining.MOST:
                raise TooManyPairsError("items")
            return [*self._told(buckets, self._items(buckets, pairs))]

        return self._store.steady(read)

    def _codes(self) -> tuple[Buckets, CodePairs]:
        """Distinct codes with their items, and the pairs of codes that are near."""
        n_bits, reader = self._store.model.n_bits, self._store.model.reader_
        packed, numbers = self._store.index.items()
        buckets = bucketing.group(bucketing.to_words(packed, n_bits), numbers)
        codes = bucketing.to_packed(buckets.codes, n_bits)
        if self._radius is None:
            assert reader is not None
            assert self._chance is not None
            return buckets, joining.similar(reader, codes, self._chance)
        pairs = joining.near(codes, n_bits, min(self._radius, n_bits))
        if self._chance is not None:
            assert reader is not None
            pairs = pairs.only(joining.probabilities(reader, codes[pairs.first], codes[pairs.second]) >= self._chance)
        return buckets, pairs

    def _items(self, buckets: Buckets, pairs: CodePairs) -> Found:
        """Pairs of items, in the order of their numbers; if a cosine is asked for, only those that have it."""
        found, total = [np.empty((3, 0))], 0
        for left, right in joining.items_of(pairs, buckets):
            some = np.stack([left, right, np.zeros(len(left))])
            if self._cosine is not None:
                some[2] = self._cosines(buckets.ids[left], buckets.ids[right])
                some = some[:, some[2] >= self._cosine - ROUNDING]
            found.append(some)
            total += some.shape[1]
            if total > joining.MOST:
                raise TooManyPairsError("items")
        *ends, cosines = np.concatenate(found, axis=1)
        left, right = (end.astype(np.int64) for end in ends)
        swapped = buckets.ids[left] > buckets.ids[right]
        left, right = np.where(swapped, right, left), np.where(swapped, left, right)
        order = np.lexsort((buckets.ids[right], buckets.ids[left]))
        return Found(left[order], right[order], None if self._cosine is None else cosines[order])

    def _cosines(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
        kind = self._store.items.layout.vectors
        assert kind is not None
        found = np.empty(len(first))
        for start in range(0, len(first), PIECE):
            here = slice(start, start + PIECE)
            needed, places = np.unique(np.stack([first[here], second[here]]), return_inverse=True)
            rows = vectors.directions(vectors.unpack(self._store.vectors_of(needed), kind.form))
            left, right = places.reshape(2, -1)
            found[here] = np.clip((rows[left] * rows[right]).sum(axis=1), -1, 1)
        return found

    def _told(self, buckets: Buckets, found: Found) -> Iterator[Duplicate]:
        n_bits, reader = self._store.model.n_bits, self._store.model.reader_
        keys = self._keys(buckets.ids[np.unique(np.concatenate([found.left, found.right]))])
        packed = bucketing.to_packed(bucketing.spread(buckets), n_bits)
        for start in range(0, len(found.left), BATCH):
            left, right = (end[start : start + BATCH] for end in found[:2])
            apart = np.bitwise_count(packed[left] ^ packed[right]).sum(axis=1, dtype=np.int64).tolist()
            chances: Any = [None] * len(left)
            if reader is not None:
                chances = joining.probabilities(reader, packed[left], packed[right]).tolist()
            cosines: Any = [None] * len(left)
            if found.cosines is not None:
                cosines = found.cosines[start : start + BATCH].tolist()
            ends = ([keys[number] for number in buckets.ids[end].tolist()] for end in (left, right))
            yield from map(Duplicate, *ends, apart, chances, cosines)

    def _keys(self, numbers: NDArray[np.int64]) -> dict[int, Key]:
        """Keys of items; a KeyError if one was removed meanwhile."""
        if self._store.items.layout.keys == "integer":
            return dict(zip(numbers.tolist(), numbers.tolist(), strict=True))
        keys: dict[int, Key] = {}
        for start in range(0, len(numbers), BATCH):
            asked = numbers[start : start + BATCH].tolist()
            rows = self._store.items.rows(asked)
            keys |= {number: rows[number].key for number in asked}
        return keys
