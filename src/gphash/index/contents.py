"""What an index holds at one moment, and which of it a search may return.

A change makes new contents; whoever reads the old ones is not disturbed.
"""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.index import buckets as bucketing
from gphash.index import checks
from gphash.index.buckets import Buckets, Words

SMALL, SHARE = 1024, 8  # recent items are folded in beyond so many, or this part of all
FEW = 8  # a filter that leaves fewer than one item in so many makes buckets of its own

ALL = np.empty(0, bool)


Piece: TypeAlias = tuple[Any, int]
"""Arrays as a search takes them, and how many items count.

The arrays are codes, starts and ids; a mark for every place in `ids` that counts, and how many of every bucket, both
empty if all count; same and value.
"""


def piece(buckets: Buckets, kept: NDArray[np.bool_] = ALL) -> Piece:
    """Buckets of which some places in `ids` count; all if `kept` is empty."""
    counts = bucketing.counts(buckets, kept) if len(kept) else np.empty(0, np.int64)
    total = int(counts.sum()) if len(kept) else buckets.n_items
    return (buckets.codes, buckets.starts, buckets.ids, kept, counts, buckets.same, buckets.value), total


class Extent(NamedTuple):
    """How many items there are, and their least and largest id."""

    n_items: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Part:
    """Buckets, and a mark for every place in their ids whose item has not been removed.

    held
        The buckets, or what reads them when they are needed for the first time.
    alive
        The marks; empty if all items are there.
    file
        Name of the file that has the buckets, if there is one.
    extent
        Of the buckets, if it is known without reading them.
    """

    held: Buckets | Callable[[], Buckets]
    alive: NDArray[np.bool_] = field(default_factory=lambda: ALL)
    file: str | None = None
    extent: Extent | None = None

    @cached_property
    def buckets(self) -> Buckets:
        """The buckets, read if need be."""
        return self.held if isinstance(self.held, Buckets) else self.held()

    @property
    def n_items(self) -> int:
        """Items that have not been removed."""
        return self.extent.n_items if self.extent is not None and not len(self.alive) else self.piece[1]

    @cached_property
    def piece(self) -> Piece:
        """Items that have not been removed."""
        return piece(self.buckets, self.alive)

    @cached_property
    def living(self) -> Buckets:
        """The buckets without what was removed."""
        return bucketing.keep(self.buckets, self.alive) if len(self.alive) else self.buckets

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest id; the former is larger if there are none."""
        if self.extent is not None:
            return self.extent[1:]
        ids = self.buckets.ids
        return (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)

    @cached_property
    def _by_id(self) -> NDArray[np.int64]:
        """Places in `buckets.ids` in the order of the ids."""
        return np.argsort(self.buckets.ids, kind="stable")

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `buckets.ids` some ids are; −1 if they are not there, or were removed."""
        # Only a part that may have any of them is put in order.
        if not ((numbers >= self.ends[0]) & (numbers <= self.ends[1])).any():
            return np.full(len(numbers), -1, np.int64)
        found = np.searchsorted(self.buckets.ids, numbers, sorter=self._by_id)
        places = self._by_id[np.minimum(found, self.buckets.n_items - 1)]
        there = self.buckets.ids[places] == numbers
        if len(self.alive):
            there &= self.alive[places]
        return np.where(there, places, -1)

    def without(self, numbers: NDArray[np.int64]) -> "Part":
        """The same without some items; itself if it has none of them."""
        places = self.places(numbers)
        if not len(gone := places[places >= 0]):
            return self
        alive = self.alive.copy() if len(self.alive) else np.ones(self.buckets.n_items, bool)
        alive[gone] = False
        after = Part(self.buckets, alive, self.file)
        after.__dict__.update(ends=self.ends, _by_id=self._by_id)
        return after


@dataclass(frozen=True, eq=False)
class Contents:
    """All items of an index at one moment.

    parts
        Those that are settled, and, last, what was added lately.
    settled
        How many are.
    state
        The same object as long as the items are the same, however they are stored.
    """

    parts: tuple[Part, ...]
    settled: int = 1
    state: object = field(default_factory=object)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; not to be written to."""
        return _settled(np.sort(np.concatenate([part.living.ids for part in self.parts])))

    @cached_property
    def n_items(self) -> int:
        """Number of items."""
        return sum(part.n_items for part in self.parts)

    def has(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some ids are there."""
        there: NDArray[np.bool_] = np.any([part.places(numbers) >= 0 for part in self.parts], axis=0)
        return there

    def inserted(self, words: Words, numbers: NDArray[np.int64]) -> "Contents":
        """With new items."""
        if not len(numbers):
            return self
        settled, recent = self.parts[: self.settled], self.parts[self.settled :]
        fresh = bucketing.merge(*(part.living for part in recent), bucketing.group(words, numbers))
        if fresh.n_items <= max(SMALL, sum(part.n_items for part in settled) // SHARE):
            return Contents((*settled, Part(fresh)), self.settled)
        if len(settled) == 1:
            return Contents((Part(bucketing.merge(settled[0].living, fresh)),))
        return Contents((*settled, Part(fresh)), self.settled + 1)

    def without(self, numbers: NDArray[np.int64]) -> "Contents":
        """Without some items, if they are there."""
        parts = tuple(part.without(numbers) for part in self.parts)
        return self if parts == self.parts else Contents(parts, self.settled)

    def whole(self) -> Buckets:
        """All items as one set of buckets."""
        return bucketing.merge(*(part.living for part in self.parts))

    def sizes(self) -> tuple[Words, NDArray[np.int64]]:
        """Distinct codes, [u] or [u, w], and how many items have each, [u]."""
        parts = [part.living for part in self.parts]
        if len(parts) == 1:
            return parts[0].codes, bucketing.sizes(parts[0])
        codes = np.concatenate([part.codes for part in parts])
        sizes = np.concatenate([bucketing.sizes(part) for part in parts])
        distinct = bucketing.group(codes, np.arange(len(codes)))
        return distinct.codes, bucketing.sums(distinct, sizes)

    @property
    def n_bytes(self) -> int:
        """Memory, or mapped files, that codes and ids take."""
        arrays: list[NDArray[Any]] = [array for part in self.parts for array in (*part.buckets, part.alive)]
        return sum(array.nbytes for array in arrays) + (self.ids.nbytes if "ids" in self.__dict__ else 0)


class Where(NamedTuple):
    """Items whose label, of `labels` in the order of `HammingIndex.ids`, [n], is a certain value."""

    labels: ArrayLike
    value: Any


class StaleFilterError(ValueError):
    """The filter was made before items were added or removed."""


class Filter:
    """Ids, ascending, that a search may return, worked out once for many searches in contents of one state."""

    def __init__(self, ids: NDArray[np.int64], state: object) -> None:
        self.ids = _settled(ids)
        self.state = state
        self._pieces: weakref.WeakKeyDictionary[Part, Piece] = weakref.WeakKeyDictionary()

    def piece(self, part: Part) -> Piece:
        """Items of a part that are allowed and have not been removed."""
        if part not in self._pieces:
            kept = np.isin(part.buckets.ids, self.ids)
            if len(part.alive):
                kept &= part.alive
            # Few items are found faster among themselves than among all.
            few = FEW * int(np.count_nonzero(kept)) < len(kept)
            self._pieces[part] = piece(bucketing.keep(part.buckets, kept)) if few else piece(part.buckets, kept)
        return self._pieces[part]


Allowed: TypeAlias = Filter | Where | Iterable[int] | ArrayLike


def resolve(allowed: Allowed, known: NDArray[np.int64], state: object) -> Filter:
    """Work out which of the known ids, ascending, are allowed."""
    if isinstance(allowed, Filter):
        if allowed.state is not state:
            raise StaleFilterError(
                "allowed is a filter of another state of the index; make it again with index.filter(…)."
            )
        return allowed
    if isinstance(allowed, Where):
        if np.ndim(allowed.value):
            raise ValueError(f"allowed.value is {allowed.value!r}; give one label, or a mask for several.")
        labels = np.asarray(allowed.labels)
        if labels.shape != (len(known),):
            raise ValueError(f"allowed.labels has shape {labels.shape}; give one label per item, [{len(known)}].")
        return Filter(known[labels == allowed.value], state)
    given: NDArray[Any] = np.asarray(checks.as_sequence(allowed))
    if given.dtype == bool:
        if given.shape != (len(known),):
            n = len(known)
            raise ValueError(
                f"allowed is a mask of shape {given.shape}; give one mark per item as index.ids has them, [{n}]."
            )
        return Filter(known[given], state)
    if given.size == 0:
        return Filter(known[:0], state)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"allowed is {given.dtype} of shape {given.shape}; give a mask, a set of ids or Where(…).")
    # Numbers beyond 64 bits with a sign are nobody's, and must not become somebody's.
    numbers = given[given <= checks.LAST].astype(np.int64)
    chosen = np.unique(numbers)
    if len(numbers) == len(known) > 2 and np.isin(chosen, [0, 1]).all():
        raise ValueError("allowed looks like a mask of numbers; give one of dtype bool, or ids.")
    return Filter(chosen[np.isin(chosen, known, assume_unique=True)], state)


def _settled(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array
