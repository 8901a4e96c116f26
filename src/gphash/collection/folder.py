"""A collection on disk, opened: its items, and an index of its parts with the changes since.

There is one writer at a time. Readers see what is acknowledged, as of the last look: `refresh` looks again.
"""

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.codes import packing
from gphash.collection import manifest as manifests
from gphash.collection import parts, sqlite
from gphash.collection.conditions import Condition
from gphash.collection.items import Items
from gphash.collection.manifest import Manifest, PartFile
from gphash.collection.nearest import nearest
from gphash.collection.parts import PartVectors
from gphash.collection.records import Query
from gphash.collection.rows import NewRow
from gphash.collection.stores import Location, refuse_address
from gphash.collection.vectors import Rows
from gphash.container import FormatError
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index import buckets as bucketing
from gphash.index import storage
from gphash.index.contents import Contents, Extent, Filter, Part, StaleFilterError
from gphash.index.hamming_index import HammingIndex
from gphash.index.rankings import Ranking
from gphash.schema import FaultError

ATTEMPTS = 20
PENDING, SHARE = 1 << 16, 8  # changes are folded into the parts beyond so many, or this part of all items
FILTERS = 16  # kept until something changes
PIECE = 4096  # vectors that are copied at once
SMALL = 1 << 16  # items of a part that is joined with the next one to be written

T = TypeVar("T")


class FolderStore:
    """The files of a collection; threads may share it."""

    def __init__(self, place: Path, writable: bool) -> None:
        self.place, self.path, self.writable = place, Path(os.path.realpath(place)), writable
        self.items: Items
        self.changing = threading.RLock()
        self.n_changes = 0
        self.condition_seconds: float | None = None
        self._behind = False
        self._refused: tuple[int, ...] = ()
        path = self.path
        self._lock = manifests.take_lock(path) if writable else None
        self._owner = os.getpid()
        try:
            self._open()
            if writable:
                manifests.sweep(path, self.manifest)
        except BaseException:
            self._unlock()
            raise

    @classmethod
    def open(cls, place: Location, writable: bool) -> "FolderStore":
        """Open a collection; a FormatError names a file of it that is missing or damaged."""
        refuse_address(place)
        path = Path(place).expanduser().absolute()
        if not manifests.is_collection(path):
            manifests.read(path)  # which says what is missing
        return cls(path, writable)

    def _open(self) -> None:
        """Read what is there; again if a writer has folded changes into the parts meanwhile."""
        for _ in range(ATTEMPTS):
            stamp, manifest = manifests.mark(self.path), manifests.read(self.path)
            try:
                items = Items.open(self.path / manifest.items, manifest.id, self.writable)
                items.n_bits = manifest.n_bits
                try:
                    if self._read(manifest, items):
                        self._stamp = stamp
                        return
                except BaseException:
                    items.close()
                    raise
                items.close()
            except (FormatError, FileNotFoundError):
                if self.writable or manifests.mark(self.path) == stamp:
                    raise
            if manifests.mark(self.path) == stamp:
                raise FormatError(
                    f"{str(self.path / manifest.items)!r} is ahead of {manifests.NAME}; {manifests.AGAIN}"
                )
        raise FormatError(f"the files of {str(self.path)!r} change faster than they can be read.")

    def _read(self, manifest: Manifest, items: Items) -> bool:
        """Take over what a manifest names; False if it was replaced meanwhile."""
        version, folded = items.version(), items.folded()
        place, changed, there, codes = items.changes(manifest.folded)
        if folded > manifest.folded:
            return False
        model, descriptor = self._load_model(manifest)
        index = HammingIndex(self._held(manifest), manifest.n_bits, manifest.fingerprint)
        kept = PartVectors.map(self.path, manifest, index.contents, items.layout.vectors, model.n_features)
        index.replace(changed, _packed(codes, manifest.n_bits, items.path), there)
        self.manifest, self.items, self.index, self._vectors = manifest, items, index, kept
        self.model, self.descriptor, self.name = model, descriptor, manifest.name
        self.pictures = None if manifest.pictures is None else (str(self.path), manifest.pictures)
        self._version, self._place, self._n_pending = version, place, len(changed)
        self._inode = items.path.stat().st_ino
        self._forget_filters()
        return True

    def _load_model(self, manifest: Manifest) -> tuple[Model, Descriptor | None]:
        path = self.path / manifest.model
        if not path.is_file():
            raise FormatError(f"{str(path)!r} is missing; {manifests.AGAIN}")
        model = models.load(path)
        with schema.reading(self.path / manifests.NAME, manifests.AGAIN):
            descriptor = Descriptor.from_meta(manifest.descriptor)
            right = descriptor is None or descriptor.n_features == model.n_features
            if (model.fingerprint, model.n_bits) != (manifest.fingerprint, manifest.n_bits) or not right:
                raise FaultError(f"{manifest.model!r} is not the model that made its codes")
        return model, descriptor

    def _held(self, manifest: Manifest) -> Contents:
        held = tuple(self._part(one, manifest) for one in manifest.parts)
        return Contents(held or (Part(bucketing.empty(manifest.n_bits)),), max(1, len(held)))

    def _part(self, one: PartFile, manifest: Manifest) -> Part:
        path = self.path / one.file
        if not path.is_file():
            raise FormatError(f"{str(path)!r} is missing; {manifests.AGAIN}")

        def load() -> bucketing.Buckets:
            found = storage.read_index(path)
            told = (found.fingerprint, found.n_bits, found.model, found.buckets.n_items, *Part(found.buckets).ends)
            if told != (one.fingerprint, manifest.n_bits, manifest.fingerprint, one.n_items, one.first, one.last):
                raise FormatError(f"{str(path)!r} is not the file that {manifests.NAME} names; {manifests.AGAIN}")
            return found.buckets

        return Part(load, file=one.file, extent=Extent(one.n_items, one.first, one.last))

    def vectors_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Stored vectors of items, in that order; a KeyError names one that is not there."""
        return self._vectors.read(numbers, self.items.vectors(numbers.tolist()), self.items.path)

    def _apply(self, changed: NDArray[np.int64], there: NDArray[np.int64], codes: list[bytes]) -> None:
        """Show changes of items in the index."""
        self.index.replace(changed, _packed(codes, self.manifest.n_bits, self.items.path), there)
        self._forget_filters()

    def nearest(
        self,
        queries: list[Query],
        k: int,
        ranking: Ranking,
        radius: int | None,
        condition: Condition | None,
        label: str | None,
    ) -> list[tuple[list[int], list[float]]]:
        """Numbers and distances of the k nearest items of every query."""
        kinds = () if condition is None else tuple(map(type, condition.values))  # 1, 1.0 and True are equal
        allowed = None if condition is None and label is None else self._filter(condition, label, kinds)
        return [*nearest(self.index, queries, k, ranking, radius, allowed=allowed)]

    def _forget_filters(self) -> None:
        # A new cache: what another thread is making for the old state of the index must not get into it.
        self._filter = lru_cache(FILTERS)(self._make_filter)

    def _make_filter(self, condition: Condition | None, label: str | None, kinds: tuple[type, ...]) -> Filter:
        every = [] if condition is None else [self.items.matching(condition, self.condition_seconds)]
        every += [] if label is None else [self.items.labelled(label)]
        return self.index.filter(reduce(np.intersect1d, every))

    def refresh(self) -> None:
        """For a reader: see what a writer has acknowledged since."""
        if self.writable:
            if self._behind:
                with self.changing:
                    self._apply(*self.items.changes(self.manifest.folded)[1:])
                    self._behind = False
            return
        with self.changing:
            stamp, version = manifests.mark(self.path), self.items.version()
            # If all of it is gone, what is open is still there.
            if not stamp or (stamp, version) == (self._stamp, self._version):
                return
            if stamp == self._refused:
                return
            self.n_changes += 1
            if stamp != self._stamp:  # other parts, or all of it made anew
                before = self.items
                try:
                    self._open()
                except FormatError:
                    # What is there now cannot be used. What is open goes on, if all of it has been read.
                    if not all("buckets" in vars(part) for part in self.index.contents.parts):
                        raise
                    self._refused = stamp
                    return
                before.close()
                return
            self._place, changed, there, codes = self.items.changes(self._place)
            try:
                self._apply(changed, there, codes)
            except (FormatError, FileNotFoundError):
                if manifests.mark(self.path) == stamp:
                    raise
                self._version = -1  # the parts went meanwhile
                self.refresh()
                return
            self._version = version

    @contextlib.contextmanager
    def _still(self) -> Iterator[None]:
        """Hold changes back, or, for a reader, look at one moment, with all parts read."""
        with self.changing:
            for _ in range(1 if self.writable else ATTEMPTS):
                items = self.items
                with contextlib.nullcontext() if self.writable else items.moment():
                    self.refresh()
                    if items is self.items and self._is_whole():
                        yield
                        return
            raise FormatError(f"the files of {str(self.path)!r} change faster than they can be read.")

    def _is_whole(self) -> bool:
        """Read all parts; False if they were replaced meanwhile."""
        try:
            for part in self.index.contents.parts:
                _ = part.buckets
        except (FormatError, FileNotFoundError):
            if manifests.mark(self.path) == self._stamp or self.writable:
                raise
            return False
        return True

    def steady(self, read: Callable[[], T]) -> T:
        """What `read` gives of one moment; again, with changes held back, if something changed meanwhile."""
        self.refresh()
        before = self.n_changes
        # Items, and parts, may be gone by the time they are looked up, and a filter is for one state of the index.
        with contextlib.suppress(KeyError, StaleFilterError, FileNotFoundError):
            found = read()
            self.refresh()
            if self.n_changes == before:
                return found
        with self._still():
            try:
                return read()
            except KeyError as error:
                raise FormatError(
                    f"{str(self.items.path)!r} is damaged: it has no item {error}, and the codes do; {manifests.AGAIN}"
                ) from error

    def add(self, rows: list[NewRow], pictures: list[bytes | None]) -> list[int]:
        """Add items, all of them or none, and return their numbers; on return they are on disk."""
        with self.changing:
            self._check_writable()
            numbers = self.items.add(rows, pictures)
            self._changed(np.array(numbers, np.int64), [row.code for row in rows])
        return numbers

    def remove(self, numbers: list[int]) -> None:
        """Remove items that are there; on return, that is on disk."""
        with self.changing:
            self._check_writable()
            self.items.remove(numbers)
            self._changed(np.array(sorted(numbers), np.int64), [])

    def _changed(self, numbers: NDArray[np.int64], codes: list[bytes]) -> None:
        self.n_changes += 1
        order = np.argsort(numbers, kind="stable")
        self._behind = True  # until it is applied, whatever happens
        self._apply(
            numbers[order], numbers[order] if codes else numbers[:0], [codes[place] for place in order] if codes else []
        )
        self._behind = False
        self.n_changes += 1
        self._n_pending += len(numbers)
        if self._n_pending > max(PENDING, len(self.index) // SHARE):
            try:
                self.compact()
            except (OSError, FormatError) as error:  # the change itself is on disk
                self._n_pending = 0
                warnings.warn(f"changes could not be folded into the parts ({error}); nothing is lost", stacklevel=4)

    def compact(self) -> None:
        """Fold all changes into the parts.

        Parts without removed items stay as they are, unless they are small. Readers keep the files that they have open.
        """
        with self.changing:
            self._check_writable()
            # What is on disk counts, even if an error kept it from being applied here.
            place, changed, there, codes = self.items.changes(self.manifest.folded)
            self._apply(changed, there, codes)
            self._behind = False
            manifest = self.manifest._replace(parts=self._folded(), folded=place)
            if manifest.parts == self.manifest.parts and place == self.manifest.folded:
                return
            manifests.write(self.path, manifest)
            self.manifest, self._n_pending = manifest, 0
            self.items.forget(place)
            self._place = place
            manifests.sweep(self.path, manifest)
            held = self._held(manifest)
            kind, width = self.items.layout.vectors, self.model.n_features
            self._vectors = PartVectors.map(self.path, manifest, held, kind, width)
            self.index.contents = held
            self._forget_filters()
            self.n_changes += 1

    def _folded(self) -> tuple[PartFile, ...]:
        """Write parts that have all changes; those that stay are not written."""
        kept: list[PartFile] = []
        small: list[Part] = []
        known = {one.file: one for one in self.manifest.parts}
        for part in self.index.contents.parts:
            stays = part.file in known and part.n_items == known[part.file].n_items
            if part.n_items < SMALL or part.file not in known:
                small += [part] if part.n_items else []
            else:
                kept.append(known[part.file] if stays else self._write(part.living, known[part.file]))
        if len(small) == 1 and small[0].file in known and small[0].n_items == known[small[0].file].n_items:
            kept.append(known[small[0].file])
        elif small:
            kept.append(self._write(bucketing.merge(*(part.living for part in small))))
        return tuple(kept)

    def _write(self, buckets: bucketing.Buckets, before: PartFile | None = None) -> PartFile:
        """Write a part; if it has most items of one that was there before, and no others, it shares its vectors."""
        name = manifests.free_part(self.path)
        own = parts.NO_VECTORS if before is None else before[-2:]
        if self._vectors.is_kept and (before is None or self._vectors.wastes(before, buckets.n_items)):
            numbers = np.sort(buckets.ids)
            pieces = (numbers[at : at + PIECE] for at in range(0, len(numbers), PIECE))
            found = ((piece, self.vectors_of(piece)) for piece in pieces)
            own = parts.write_vectors(self.path, name, found, len(numbers), *self._vectors.shape)
        return parts.write_part(self.path, name, buckets, self.manifest.n_bits, self.manifest.fingerprint, *own)

    def is_replaced(self) -> bool:
        """Whether other files were put in its place; an error if what is there now is no collection."""
        there = manifests.read(self.place)
        return (there.id, (self.place / there.items).stat().st_ino) != (self.manifest.id, self._inode)

    def close(self) -> None:
        """Let another writer have the files."""
        if os.getpid() != self._owner:  # what a fork has copied is not ours
            return
        with self.changing:
            self.items.close()
            self._unlock()

    def __enter__(self) -> "FolderStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unlock(self) -> None:
        if self._lock is not None and os.getpid() == self._owner:
            manifests.give_lock(self._lock)
            self._lock = None

    def _check_writable(self) -> None:
        if not self.writable:
            raise ValueError(
                f"the collection {str(self.path)!r} was opened read-only; create or open it with writable=True."
            )
        if self._lock is None or os.getpid() != self._owner:
            raise ValueError(
                f"the collection {str(self.path)!r} is closed, or another process opened it; open it again."
            )


def _packed(codes: list[bytes], n_bits: int, file: Path) -> NDArray[np.uint8]:
    """Codes of a file, which the compiled search is going to trust."""
    packed = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -(-n_bits // 8))
    with sqlite.telling(file):
        return packing.check_packed(packed, n_bits, "a code") if len(codes) else packed
