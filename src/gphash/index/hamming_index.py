"""`HammingIndex`: an index in memory, or in a file and its journal."""

import os
import threading
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import schema
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import checks, contents, search, storage
from gphash.index.backends import Ball, Index, Neighbours, Stats
from gphash.index.contents import Allowed, Contents, Filter, Part
from gphash.index.rankings import Ranking
from gphash.schema import FaultError


class HammingIndex(Index):
    """Exact search among packed codes; made by `build` or `open`.

    Distinct codes are stored once, in ascending order, with the ids that have them. Threads may share an index: a
    search sees the items of one moment, and changes wait for each other. A process that was forked may search in it,
    but not change its file.
    """

    def __init__(
        self, held: Contents, n_bits: int, model: str | None = None, files: storage.IndexFiles | None = None
    ) -> None:
        super().__init__(n_bits, model)
        self._contents = held
        self._files = files
        self._changing = threading.RLock()
        self._patience = 0

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
    def open(cls, place: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open an index that `save` wrote; codes and ids stay in the file until they are used.

        A reader keeps what it has opened, whatever a writer does meanwhile; open again to see more. While a writer has
        the index open, and after one was killed, `NAME.journal` beside the file is part of it. To put another index in
        its place, `save` it or rename it there: a file that is overwritten in place takes its readers down.

        Parameters
        ----------
        place
            The file; its journal is beside it.
        writable
            Whether items may be added and removed. There can be one writer at a time.
        """
        opened = storage.open_files(place, writable)
        try:
            with schema.reading(f"{opened.files.path}.journal", storage.AGAIN):
                held = _replayed(Contents((Part(opened.buckets),)), opened.changes, opened.n_bits)
            return cls(held, opened.n_bits, opened.model, opened.files)
        except BaseException:
            opened.files.close()
            raise

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the index to one file, whole or not at all, and return the file's fingerprint."""
        with self._changing:
            if self._files is not None and Path(os.path.realpath(path)) == self._files.path:
                return self.compact()
        return storage.save_index(path, self._contents.whole(), self.n_bits, self.model)

    def compact(self) -> str:
        """Fold what was added and removed into one set of buckets, and the journal into the file.

        The file is replaced by a complete one. Returns its fingerprint; an empty text if the index has no file.
        """
        with self._changing:
            mark, whole = "", self._contents.whole()
            if self._files is not None:
                mark, whole = self._files.replace(whole, self.n_bits, self.model)
            self._contents = Contents((Part(whole),), self._contents.state)
            return mark

    def close(self) -> None:
        """Fold the journal into the file, and release it for another writer; the index can still be searched."""
        if self._files is None:
            return
        with self._changing:
            try:
                if self._files.journalled() and self._files.is_mine():
                    self._try_to_compact()
            finally:
                self._files.close()

    def __len__(self) -> int:
        return self._contents.n_items

    def __repr__(self) -> str:
        stats = self.stats()
        return f"{type(self).__name__}({stats.n_items:,} items, {stats.n_codes:,} distinct codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        return self._contents.ids

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ⌈n_bits/8⌉], and ids, [n]."""
        whole = self._contents.whole()
        order = np.argsort(whole.ids)
        return bucketing.to_packed(bucketing.spread(whole)[order], self.n_bits), whole.ids[order]

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ⌈n_bits/8⌉]; a KeyError names an id that is not there."""
        numbers = checks.distinct_ids(ids, None)
        packed = np.zeros((len(numbers), -(-self.n_bits // 8)), np.uint8)
        missing = np.ones(len(numbers), bool)
        for part in self._contents.parts:
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

    def fullest(self, n: int = 10) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The n codes that most items have, fullest first: the packed code and its ids, ascending."""
        checks.whole("n", n, 0)
        frozen = self._snapshot()
        codes, sizes = frozen._contents.sizes()
        packed = bucketing.to_packed(codes[np.argsort(-sizes, kind="stable")[:n]], self.n_bits)
        found = frozen.within(packed, 0)
        return list(zip(packed, np.split(found.ids, found.offsets[1:-1]), strict=False))

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets are, and how much memory they take."""
        held = self._contents
        _, sizes = held.sizes()
        largest, mean = (int(sizes.max()), float(sizes.mean())) if len(sizes) else (0, 0.0)
        return Stats(int(sizes.sum()), len(sizes), largest, mean, held.n_bytes)

    def filter(self, allowed: Allowed) -> Filter:
        """Work out a filter once, for many searches; it holds until items are added or removed."""
        return contents.resolve(allowed, self._contents.ids, self._contents.state)

    def warm(self) -> None:
        """Get the compiled search ready now; otherwise it is when there is enough to search for.

        It takes seconds after an installation, and a moment later on. Threads may search meanwhile.
        """
        search.warm(search.pieces_of(self._contents, None), self.n_bits)

    def _search(
        self, ranking: Ranking, queries: NDArray[Any], k: int, allowed: Allowed | None, n_jobs: int | None
    ) -> Neighbours:
        pieces = search.pieces_of(self._contents, allowed)
        return Neighbours(*search.nearest(ranking, pieces, queries, k, self.n_bits, n_jobs))

    def _within(self, packed: NDArray[np.uint8], radius: int, allowed: Allowed | None, n_jobs: int | None) -> Ball:
        return Ball(*search.balls(search.pieces_of(self._contents, allowed), packed, radius, self.n_bits, n_jobs))

    def _snapshot(self) -> "HammingIndex":
        return HammingIndex(self._contents, self.n_bits, self.model)

    def _add(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
        with self._changing:
            self._check_writable()
            checks.refuse_known(ids, self._contents.has(ids))
            self._change(self._contents.inserted(bucketing.to_words(packed, self.n_bits), ids), ids, packed)

    def _remove(self, ids: NDArray[np.int64]) -> int:
        with self._changing:
            self._check_writable()
            ids = ids[self._contents.has(ids)]
            self._change(self._contents.without(ids), ids, None)
        return len(ids)

    def _check_writable(self) -> None:
        if self._files is not None:
            self._files.check_writable()

    def _change(self, after: Contents, ids: NDArray[np.int64], packed: NDArray[np.uint8] | None) -> None:
        """Make a change durable, then visible; compact the file when its journal has grown large beside it."""
        if self._files is not None and len(ids):
            self._files.append(ids, packed)
        self._contents = after
        if self._files is not None and self._files.journalled() > self._patience and self._files.is_overgrown():
            self._try_to_compact()

    def _try_to_compact(self) -> None:
        """Compact; every change is on disk already, and must not look as if it had failed because of this."""
        assert self._files is not None
        size = self._files.journalled()
        try:
            self.compact()
            self._patience = 0
        except (OSError, FormatError) as error:
            self._patience = 2 * size
            warnings.warn(
                f"the journal could not be folded into the index ({error}); nothing is lost, and it will be tried "
                "again when the journal has doubled",
                RuntimeWarning,
                stacklevel=5,
            )


def _replayed(held: Contents, changes: list[storage.Change], n_bits: int) -> Contents:
    """Make the changes of a journal, all at once: of every id, only the last change counts."""
    if not changes:
        return held
    numbers = np.concatenate([change.ids for change in changes])
    added = np.concatenate([np.full(len(change.ids), change.is_added) for change in changes])
    packed = np.concatenate([change.packed for change in changes])
    _check_turns(held.parts[0], numbers, added)
    _, last = np.unique(numbers[::-1], return_index=True)
    last = len(numbers) - 1 - last
    last = last[added[last]]
    rows = np.cumsum(added)[last] - 1
    return held.without(numbers[~added]).inserted(bucketing.to_words(packed[rows], n_bits), numbers[last])


def _check_turns(base: Part, numbers: NDArray[np.int64], added: NDArray[np.bool_]) -> None:
    """Refuse changes that nobody can have made: whatever is added is not there, and whatever is removed is."""
    order = np.argsort(numbers, kind="stable")
    ids, adds = numbers[order], added[order]
    first = np.ones(len(ids), bool)
    first[1:] = ids[1:] != ids[:-1]
    there = np.empty(len(ids), bool)
    there[first] = base.places(ids[first]) >= 0
    there[~first] = adds[:-1][~first[1:]]
    if (wrong := there == adds).any():
        place = int(np.flatnonzero(wrong)[0])
        what = "adds an item that is there" if adds[place] else "removes an item that is not there"
        raise FaultError(f"it {what} (id {ids[place]})")
