"""`HammingIndex`: an index in memory, or mapped from a file."""

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.index import buckets as bucketing
from gphash.index import checks, contents, search, storage
from gphash.index.backends import Ball, Index, Neighbours, Stats
from gphash.index.buckets import Buckets
from gphash.index.contents import Allowed, Contents, Filter, Part
from gphash.index.rankings import Ranking

if TYPE_CHECKING:
    from gphash.index.joining import CodePairs


class NearPairs(NamedTuple):
    """Pairs of items, first < second, in the order of both, [p], and the bits in which their codes differ."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distances: NDArray[np.int64]


class HammingIndex(Index):
    """Exact search among packed codes; made by `build` or `open`.

    Distinct codes are stored once, in ascending order, with the ids that have them. Threads may share an index: a
    search sees the items of one moment, and changes wait for each other.
    """

    def __init__(self, held: Contents, n_bits: int, model: str | None = None) -> None:
        super().__init__(n_bits, model)
        self.contents = held
        self._changing = threading.RLock()

    @classmethod
    def build(
        cls, packed: ArrayLike, ids: ArrayLike | None = None, *, n_bits: int | None = None, model: Any = None
    ) -> Self:
        """Index packed codes.

        Parameters
        ----------
        packed : uint8 array of shape [n, ⌈n_bits/8⌉]
            Codes, as `encode` gives them.
        ids : integers [n]
            Distinct; 0, 1, … if None.
        n_bits : int
            Length of a code; all bits of the bytes if None.
        model : hasher or str
            What made the codes, or its fingerprint; codes of another one are then refused.
        """
        octets = np.asarray(packed)
        if n_bits is None:
            n_bits = 8 * octets.shape[1] if octets.ndim == 2 else 0
        words = checks.words(octets, n_bits)
        numbers = checks.distinct_ids(ids, len(words)) if ids is not None else np.arange(len(words))
        return cls(Contents((Part(bucketing.group(words, numbers)),)), int(n_bits), checks.fingerprint_of(model))

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Self:
        """Open an index that `save` wrote; codes and ids stay in the file until they are used.

        What is added or removed stays in memory: `save` writes it. An index that is replaced by `save`, or by renaming
        another one, leaves those who have it open undisturbed; a file that is overwritten in place does not.
        """
        found = storage.read_index(place)
        return cls(Contents((Part(found.buckets),)), found.n_bits, found.model)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the index to one file, whole or not at all, and return the file's fingerprint."""
        return storage.write_index(path, self.contents.whole(), self.n_bits, self.model)

    def close(self) -> None:
        """Nothing needs to be closed."""

    def __len__(self) -> int:
        return self.contents.n_items

    def __repr__(self) -> str:
        stats = self.stats()
        return f"{type(self).__name__}({stats.n_items:,} items, {stats.n_codes:,} distinct codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        return self.contents.ids

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ⌈n_bits/8⌉], and ids, [n]."""
        whole = self.contents.whole()
        order = np.argsort(whole.ids)
        return bucketing.to_packed(bucketing.spread(whole)[order], self.n_bits), whole.ids[order]

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ⌈n_bits/8⌉]; a KeyError names an id that is not there."""
        numbers = checks.distinct_ids(ids, None)
        packed = np.zeros((len(numbers), -(-self.n_bits // 8)), np.uint8)
        missing = np.ones(len(numbers), bool)
        for part in self.contents.parts:
            places = part.places(numbers)
            here = places >= 0
            # Of one type, else all starts would be converted.
            starts = part.buckets.starts
            rows = np.searchsorted(starts, places[here].astype(starts.dtype), side="right") - 1
            packed[here] = bucketing.to_packed(part.buckets.codes[rows], self.n_bits)
            missing &= ~here
        if missing.any():
            raise KeyError(int(numbers[missing][0]))
        return packed

    def _fullest(self, n: int) -> NDArray[np.uint8]:
        codes, sizes = self.contents.sizes()
        return bucketing.to_packed(codes[np.argsort(-sizes, kind="stable")[:n]], self.n_bits)

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets are, and how much memory they take."""
        held = self.contents
        _, sizes = held.sizes()
        largest, mean = (int(sizes.max()), float(sizes.mean())) if len(sizes) else (0, 0.0)
        return Stats(int(sizes.sum()), len(sizes), largest, mean, held.n_bytes)

    def filter(self, allowed: Allowed) -> Filter:
        """Work out a filter once, for many searches; it holds until items are added or removed."""
        return contents.resolve(allowed, self.contents.ids, self.contents.state)

    def warm(self) -> None:
        """Get the compiled search ready now; otherwise it is when there is enough to search for.

        It takes seconds after an installation, and a moment later on. Threads may search meanwhile.
        """
        search.warm(search.pieces_of(self.contents, None), self.n_bits)

    def pairs(self, radius: int = 0) -> NearPairs:
        """All pairs of items whose codes differ in at most `radius` bits; a ValueError if they are too many to list."""
        from gphash.index import joining  # compiled, which a search need not wait for

        whole, near = self._near(radius)
        if joining.count_items(near, whole) > joining.MOST:
            raise joining.TooManyPairsError("items")
        places = [np.stack(pair) for pair in joining.items_of(near, whole)]
        left, right = np.concatenate([np.empty((2, 0), np.int64), *places], axis=1)
        codes = bucketing.to_packed(bucketing.spread(whole), self.n_bits)
        apart = np.bitwise_count(codes[left] ^ codes[right]).sum(axis=1, dtype=np.int64)
        first, second = np.sort(whole.ids[np.stack([left, right])], axis=0)
        order = np.lexsort((second, first))
        return NearPairs(first[order], second[order], apart[order])

    def clusters(self, radius: int = 0) -> list[NDArray[np.int64]]:
        """Ids of items that are connected by such pairs, ascending; the largest cluster first, then by the first id."""
        from gphash.index import joining

        whole, near = self._near(radius)
        return joining.clusters(near, whole)

    def _near(self, radius: int) -> "tuple[Buckets, CodePairs]":
        from gphash.index import joining

        whole, reach = self.contents.whole(), min(checks.whole("radius", radius, 0), self.n_bits)
        return whole, joining.near(bucketing.to_packed(whole.codes, self.n_bits), self.n_bits, reach)

    def _search(
        self, ranking: Ranking, queries: NDArray[Any], k: int, allowed: Allowed | None, n_jobs: int | None
    ) -> Neighbours:
        pieces = search.pieces_of(self.contents, allowed)
        return Neighbours(*search.nearest(ranking, pieces, queries, k, self.n_bits, n_jobs))

    def _within(self, packed: NDArray[np.uint8], radius: int, allowed: Allowed | None, n_jobs: int | None) -> Ball:
        return Ball(*search.balls(search.pieces_of(self.contents, allowed), packed, radius, self.n_bits, n_jobs))

    def _snapshot(self) -> "HammingIndex":
        return HammingIndex(self.contents, self.n_bits, self.model)

    def _add(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
        with self._changing:
            checks.refuse_known(ids, self.contents.has(ids))
            self.contents = self.contents.inserted(bucketing.to_words(packed, self.n_bits), ids)

    def _remove(self, ids: NDArray[np.int64]) -> int:
        with self._changing:
            ids = ids[self.contents.has(ids)]
            self.contents = self.contents.without(ids)
        return len(ids)

    def replace(self, gone: NDArray[np.int64], packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
        """Remove items, if they are there, and add others, at once; arguments are trusted."""
        with self._changing:
            words = bucketing.to_words(packed, self.n_bits)
            self.contents = self.contents.without(gone).inserted(words, ids)
