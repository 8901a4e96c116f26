"""What an index holds at one moment. A change makes new contents; whoever reads the old ones is not disturbed."""

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.index import buckets as bucketing
from gphash.index.buckets import Buckets, Words

SMALL, SHARE = 1024, 8  # recent items are folded in beyond so many, or this part of all

ALL = np.empty(0, bool)


class Stats(NamedTuple):
    """What an index holds.

    n_items, n_codes
        Items, and distinct codes among them.
    largest_bucket, mean_bucket
        Items that share a code.
    bytes
        Memory, or mapped file, that codes and ids take.
    """

    n_items: int
    n_codes: int
    largest_bucket: int
    mean_bucket: float
    bytes: int


class Marks(NamedTuple):
    """Items of buckets that count.

    kept
        A mark for every place in `ids`; empty if all do.
    counts
        How many of every bucket, [u]; empty if all do.
    total
        How many in all.
    """

    kept: NDArray[np.bool_]
    counts: NDArray[np.int64]
    total: int


def mark(buckets: Buckets, kept: NDArray[np.bool_]) -> Marks:
    """Marks of some places in `ids`; of all if `kept` is empty."""
    if not len(kept):
        return Marks(ALL, np.empty(0, np.int64), buckets.n_items)
    counts = bucketing.counts(buckets, kept)
    return Marks(kept, counts, int(counts.sum()))


@dataclass(frozen=True, eq=False)
class Part:
    """Buckets, and which of their items have not been removed.

    buckets
        As built.
    alive
        A mark for every place in `buckets.ids`; empty if none was removed.
    """

    buckets: Buckets
    alive: NDArray[np.bool_] = field(default_factory=lambda: ALL)

    @cached_property
    def marks(self) -> Marks:
        """Items that have not been removed."""
        return mark(self.buckets, self.alive)

    @cached_property
    def living(self) -> Buckets:
        """The buckets without what was removed."""
        return bucketing.keep(self.buckets, self.alive) if len(self.alive) else self.buckets

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids that have not been removed, in no order."""
        return (self.buckets.ids[self.alive] if len(self.alive) else self.buckets.ids).astype(np.int64)

    @cached_property
    def _by_id(self) -> NDArray[np.int64]:
        """Places in `buckets.ids` in the order of the ids."""
        return np.argsort(self.buckets.ids, kind="stable")

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `buckets.ids` some ids are; −1 if they are not, or were removed."""
        if not self.buckets.n_items:
            return np.full(len(numbers), -1, np.int64)
        found = np.searchsorted(self.buckets.ids, numbers, sorter=self._by_id)
        places = self._by_id[np.minimum(found, self.buckets.n_items - 1)]
        there = self.buckets.ids[places] == numbers
        if len(self.alive):
            there &= self.alive[places]
        return np.where(there, places, -1)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Items of every bucket, [u]."""
        return self.marks.counts if len(self.alive) else bucketing.sizes(self.buckets)


@dataclass(frozen=True, eq=False)
class Contents:
    """All items of an index at one moment.

    parts
        A large base, and what was added lately beside it.
    state
        The same object as long as the items are the same, however they are stored.
    """

    parts: tuple[Part, ...]
    state: object = field(default_factory=object)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; not to be written to."""
        return _settled(np.sort(np.concatenate([part.ids for part in self.parts])))

    @cached_property
    def n_items(self) -> int:
        """Number of items."""
        return sum(part.marks.total for part in self.parts)

    def inserted(self, words: Words, numbers: NDArray[np.int64]) -> "Contents":
        """With new items."""
        if not len(numbers):
            return self
        base, recent = self.parts[0], self.parts[1:]
        fresh = bucketing.group(words, numbers)
        for part in recent:
            fresh = bucketing.merge(part.living, fresh)
        if fresh.n_items > max(SMALL, base.buckets.n_items // SHARE):
            after = Contents((Part(bucketing.merge(base.living, fresh)),))
        else:
            after = Contents((base, Part(fresh)))
        if "ids" in self.__dict__:
            new = np.sort(numbers)
            after.__dict__["ids"] = _settled(np.insert(self.ids, np.searchsorted(self.ids, new), new))
        return after

    def without(self, numbers: NDArray[np.int64]) -> "Contents":
        """Without some items, if they are there."""
        parts = tuple(_without(part, numbers) for part in self.parts)
        if all(after is before for after, before in zip(parts, self.parts, strict=True)):
            return self
        after = Contents(parts)
        if "ids" in self.__dict__:
            after.__dict__["ids"] = _settled(self.ids[~np.isin(self.ids, numbers)])
        return after

    def whole(self) -> Buckets:
        """All items as one set of buckets."""
        merged = self.parts[0].living
        for part in self.parts[1:]:
            merged = bucketing.merge(merged, part.living)
        return merged

    def stored_as(self, buckets: Buckets) -> "Contents":
        """The same items in other buckets."""
        after = Contents((Part(buckets),), self.state)
        if "ids" in self.__dict__:
            after.__dict__["ids"] = self.ids
        return after

    def bucket_sizes(self) -> tuple[Words, NDArray[np.int64]]:
        """Distinct codes, [u] or [u, w], and how many items have each, [u]."""
        base = self.parts[0]
        codes, sizes = base.buckets.codes, base.sizes
        for part in self.parts[1:]:
            places = bucketing.find(base.buckets, part.buckets.codes)
            known = places >= 0
            sizes = sizes.copy()
            sizes[places[known]] += part.sizes[known]
            codes = np.concatenate([codes, part.buckets.codes[~known]])
            sizes = np.concatenate([sizes, part.sizes[~known]])
        return codes[sizes > 0], sizes[sizes > 0]

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets, and how much memory they take."""
        _, sizes = self.bucket_sizes()
        arrays: list[NDArray[Any]] = [array for part in self.parts for array in (*part.buckets, part.alive)]
        if "ids" in self.__dict__:
            arrays.append(self.ids)
        largest, mean = (int(sizes.max()), float(sizes.mean())) if len(sizes) else (0, 0.0)
        return Stats(int(sizes.sum()), len(sizes), largest, mean, sum(array.nbytes for array in arrays))


class Filter:
    """Items that a search may return, worked out once for many searches.

    Parameters
    ----------
    ids
        Ascending, int64 [a].
    state
        Of the contents that it was made for; others have other items.
    """

    def __init__(self, ids: NDArray[np.int64], state: object) -> None:
        self.ids = _settled(ids)
        self.state = state
        self._marks: weakref.WeakKeyDictionary[Part, Marks] = weakref.WeakKeyDictionary()

    def marks(self, part: Part) -> Marks:
        """Items of a part that are allowed and have not been removed."""
        found = self._marks.get(part)
        if found is None:
            kept = np.isin(part.buckets.ids, self.ids)
            found = self._marks[part] = mark(part.buckets, kept & part.alive if len(part.alive) else kept)
        return found


def _settled(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array


def _without(part: Part, numbers: NDArray[np.int64]) -> Part:
    hit = np.isin(part.buckets.ids, numbers)
    if len(part.alive):
        hit &= part.alive
    if not hit.any():
        return part
    after = Part(part.buckets, part.alive & ~hit if len(part.alive) else ~hit)
    if "_by_id" in part.__dict__:
        after.__dict__["_by_id"] = part._by_id
    return after
