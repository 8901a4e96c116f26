"""`Gallery`: what the command line and the service search in.

Beside the index `NAME` there are `NAME.items`, what is known of the items that it was built from, and `NAME.added`,
what was added later; see `items` and `added`. A new index takes the place of an old one at the moment its file does:
its items wait in `NAME.items.next` until then.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import files, persistence
from gphash.arrays import Floats
from gphash.datasets import pictures
from gphash.datasets.progress import Progress
from gphash.features import descriptor as descriptors
from gphash.features.descriptor import Descriptor
from gphash.functions.model import Model
from gphash.gallery import added, arguments, items, opening, png
from gphash.gallery.added import Record
from gphash.gallery.items import Items
from gphash.gallery.opening import Location
from gphash.gallery.recent import Recent
from gphash.gallery.records import (
    Bucket,
    Item,
    KnownItemError,
    Neighbour,
    NoPictureError,
    Picture,
    Query,
    UnknownItemError,
)
from gphash.hamming import packing
from gphash.index import storage
from gphash.index.contents import Filter
from gphash.index.hamming_index import HammingIndex

if TYPE_CHECKING:
    from gphash.datasets.sources import Source

Ranking: TypeAlias = Literal["hamming", "expected"]
T = TypeVar("T")

ROWS = 4096  # encoded between two reports of progress
FILTERS = 16  # of labels, kept until something changes
ENCODED = 32  # pictures that were made into PNG files, of a few megabytes at most
MOST_SIDE = 1024  # pixels of these
NEARBY = 8  # times as many as wanted are looked at before a ball is listed


class Gallery:
    """A model, an index of codes, and what is known of the items; made by `build` or `open`.

    Threads may share a gallery: any number may search at once, and changes wait for each other. A search sees every
    item as it was before a change, or after it.
    """

    def __init__(
        self,
        path: Path,
        index: HammingIndex,
        model: Model,
        known: Items,
        records: dict[int, Record],
        writable: bool,
        folders: tuple[Path | None, Path | None],
    ) -> None:
        self.path = path
        self.index = index
        self.model = model
        self.descriptor: Descriptor | None = known.descriptor
        self.writable = writable
        self.name = known.name
        self._known = known
        self._records = records
        self._classes = _with_names(known.classes, (name for record in records.values() for name in record.labels))
        self._folder, self.hidden_folder = folders
        self._folder_is_there = self._folder is not None and self._folder.is_dir()
        self._added = opening.beside(path, ".added")
        noted = added.next_id(self._added)
        built = int(known.ids.max()) + 1 if len(known.ids) else None
        self._next_id = max((number for number in (noted, built) if number is not None), default=None)
        self._filters: Recent[str, Filter] = Recent(FILTERS)
        self._encoded: Recent[int | bytes, bytes] = Recent(ENCODED)
        self._changing = threading.RLock()
        # How many changes there were, and the last one that befell an item.
        self._changes = 0
        self._changed: dict[int, int] = {}

    @classmethod
    def build(
        cls,
        path: Location,
        model: Location,
        source: "Source",
        *,
        progress: Progress | None = None,
        discard_added: bool = False,
        n_jobs: int | None = -1,
    ) -> Self:
        """Encode rows, write an index of them and what is known of them, and open it for reading.

        Parameters
        ----------
        path
            The file of the index; one that is there is replaced, unless somebody is writing to it.
        model
            The file of the model.
        source
            Rows, labels and pictures.
        progress
            Called with the rows done and in all.
        discard_added
            Whether items that were added to an index that is there may be lost.
        n_jobs
            Threads that encode; −1 for all cores.

        Raises
        ------
        LockedError
            If somebody is writing to the index.
        ValueError
            If items would be lost that may not be, or if pictures are described in another way than those the model
            was trained with.
        """
        persistence.check_replaceable(path, storage.KIND)
        for suffix in (".items", ".items.next"):
            persistence.check_replaceable(opening.beside(path, suffix), items.KIND)
        _check_added(path, discard_added)
        loaded = opening.load(model, n_jobs)
        n_rows = len(source.X)
        if not n_rows:
            raise ValueError(f"{source.name!r} has no rows; give some to search in.")
        if source.X.shape[1] != loaded.n_features:
            raise ValueError(
                f"{source.name!r} has {source.X.shape[1]} features, and the model {os.fspath(model)!r} takes "
                f"{loaded.n_features}; give data of the kind that it was trained with."
            )
        descriptors.check_same(loaded.descriptor, source.descriptor, os.fspath(model), source.name)
        ids = np.arange(n_rows, dtype=np.int64) if source.ids is None else np.asarray(source.ids, np.int64)
        codes = np.empty((n_rows, -(-loaded.n_bits // 8)), np.uint8)
        for start in range(0, n_rows, ROWS):
            codes[start : start + ROWS] = loaded.encode(source.X[start : start + ROWS])
            if progress is not None:
                progress(min(start + ROWS, n_rows), n_rows)
        index = HammingIndex.build(codes, ids, n_bits=loaded.n_bits, model=loaded.fingerprint)
        target, waiting = opening.beside(path, ""), opening.beside(path, ".items.next")
        with storage.lock(path):
            _check_added(path, discard_added)  # again: somebody may have added some meanwhile
            opening.finish(path)
            before = opening.stamp(target)
            try:
                belongs = items.write(waiting, target, source, ids, codes, model, loaded.fingerprint)
                index.save(path)
            except BaseException:
                if opening.stamp(target) == before:
                    waiting.unlink(missing_ok=True)
                raise
            opening.settle(path)
            folder = opening.beside(path, ".added")
            added.sweep(folder, added.read(folder, belongs).foreign)
            added.forget_next_id(folder)
        return cls.open(path, model=model, pictures=source.folder)

    @classmethod
    def open(
        cls,
        path: Location,
        *,
        model: Location | None = None,
        writable: bool = False,
        pictures: Location | None = None,
    ) -> Self:
        """Open what `build` wrote, or an index that was made in Python.

        Parameters
        ----------
        path
            The file of the index.
        model
            The file of its model; if None, where it was when the index was built, relative to the index.
        writable
            Whether items may be added and removed. There can be one writer at a time.
        pictures
            The folder of the pictures. If None, the one that the index names, but only if that is below the index's
            own folder: an index may come from anywhere, and name any. One that is not followed is `hidden_folder`.

        Raises
        ------
        ValueError
            If the model is not the one that made the codes.
        FormatError
            If a file is damaged, or if `NAME.items` belongs to another index, or, for a writer, if it is missing
            although items were added to it.
        LockedError
            If somebody else is writing to the index.
        """
        index, known, records = opening.open_together(path, writable)
        try:
            if model is None and not known.model:
                raise ValueError(
                    f"model=None, and beside {os.fspath(path)!r} there is no file of items that names it; "
                    "give the file of the model that made the codes."
                )
            place = opening.beside(path, "").parent / known.model if model is None else Path(model)
            loaded = opening.load(place)
            opening.check_model(loaded, index, known, place, path)
            return cls(Path(path), index, loaded, known, records, writable, opening.folders(path, known, pictures))
        except BaseException:
            index.close()
            raise

    def close(self) -> None:
        """Give the index free for another writer."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Gallery({self.name!r}, {len(self):,} items, {self.n_bits} bits)"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.index.n_bits

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all labels or tags: those it was built with, then those that came with added items."""
        return self._classes

    @property
    def has_labels(self) -> bool:
        """Whether some item may have a label or a tag."""
        return bool(self._classes)

    @property
    def has_pictures(self) -> bool:
        """Whether some item may have a picture."""
        stored = self._known.pixels is not None or self._folder_is_there
        return stored or any(record.has_picture for record in list(self._records.values()))

    @property
    def has_probabilities(self) -> bool:
        """Whether the method knows how certain bits are."""
        return self.model.has_probabilities

    def encode(self, features: ArrayLike) -> tuple[NDArray[np.uint8], Floats | None]:
        """Codes of rows.

        Parameters
        ----------
        features
            Rows as the model was trained with, [n, d].

        Returns
        -------
        packed
            uint8 [n, ceil(n_bits / 8)].
        probabilities
            P(bit = 1), float64 [n, n_bits]; None if the method has none.
        """
        rows = self._checked_features(features)
        if not self.has_probabilities:
            return self.model.encode(rows), None
        chances = self.model.bit_probabilities(rows)
        return packing.pack(chances >= 0.5), chances

    def describe(self, picture: bytes | Location, *, max_pixels: int = pictures.MAX_PIXELS) -> NDArray[np.float32]:
        """A picture as a row that the model takes, [d].

        Parameters
        ----------
        picture
            The content of a picture's file, or where the file is.
        max_pixels
            A picture of more is refused.

        Raises
        ------
        PictureError
            If it is none that can be described.
        """
        if self.descriptor is None:
            raise ValueError(
                "picture given, but the gallery was built from features that no picture can be described by; "
                "give features."
            )
        return self.descriptor.describe(pictures.open_picture(picture, max_pixels, self.descriptor.spare))

    def query(
        self,
        *,
        features: ArrayLike | None = None,
        picture: bytes | Location | None = None,
        id: int | None = None,
        code: ArrayLike | str | None = None,
        certainty: bool = True,
    ) -> Query:
        """What to search for; give exactly one of the first four.

        Parameters
        ----------
        features
            One row, [d].
        picture
            The content of a picture's file, or where the file is.
        id
            Of an item of the gallery. It keeps its stored code; its probabilities are those of its picture, if there
            is one.
        code
            Packed, uint8 [bytes], or zeros and ones as a text.
        certainty
            Whether the probabilities of its bits are to be known, too; ranking by Hamming distance can do without.
        """
        given = {"features": features, "picture": picture, "id": id, "code": code}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise ValueError(
                f"{' and '.join(names) or 'nothing'} given; give exactly one of features, picture, id and code."
            )
        if id is not None:
            return self._query_by_id(id, certainty)
        if code is not None:
            return Query(self._checked_code(code), None)
        row = self.describe(picture) if picture is not None else self._single(features)
        if not certainty:
            return Query(self.model.encode(self._checked_features(row[None]))[0], None)
        packed, chances = self.encode(row[None])
        return Query(packed[0], None if chances is None else chances[0])

    def search(
        self,
        query: Query,
        k: int = 10,
        *,
        ranking: Ranking = "hamming",
        radius: int | None = None,
        allowed: str | None = None,
        others: bool = False,
    ) -> list[Neighbour]:
        """The k nearest items, ordered by (distance, id).

        Parameters
        ----------
        query
            What `query` gave.
        k
            How many at most.
        ranking
            "hamming", or "expected" for a query with probabilities.
        radius
            Only items whose codes differ from the query's in at most so many bits.
        allowed
            Only items with this label or tag.
        others
            Whether the query itself, if it is an item, is left out.
        """
        arguments.whole("k", k, 1)
        if radius is not None:
            arguments.whole("radius", radius, 0)
        if ranking not in get_args(Ranking):
            raise ValueError(f"ranking={ranking!r}; give 'hamming' or 'expected'.")
        if ranking == "expected" and query.probabilities is None:
            untold = "its picture cannot be described again"
            if self.hidden_folder is not None:
                untold += f": give pictures={str(self.hidden_folder)!r}"
            why = untold if self.has_probabilities else f"{self.model.method} gives none"
            raise ValueError(f"ranking='expected', but the query has no probabilities ({why}); give 'hamming'.")
        if allowed is not None and allowed not in self._classes:
            raise ValueError(f"allowed={allowed!r} is no label of the gallery; {arguments.some(self._classes)}.")
        left_out = query.id if others else None

        def read() -> list[Neighbour]:
            ids, distances = self._nearest(query, int(k) + (left_out is not None), ranking, radius, allowed)
            kept = ids != left_out if left_out is not None else np.ones(len(ids), bool)
            ids, distances = ids[kept][: int(k)], distances[kept][: int(k)]
            found = zip(self._look_up(ids), distances.tolist(), strict=True)
            return [self._neighbour(query, item, distance) for item, distance in found]

        return self._steady(read, lambda found: [neighbour.id for neighbour in found])

    def item(self, id: int) -> Item:
        """An item by its id; an UnknownItemError if there is none."""
        number = arguments.number(id)
        if not arguments.fits(number):
            raise UnknownItemError(f"there is no item {id}.")

        def read() -> Item:
            try:
                return self._look_up(np.array([number], np.int64))[0]
            except KeyError as error:
                # Whatever is being changed meanwhile, at this moment it was not there.
                raise UnknownItemError(f"there is no item {id}.") from error

        return self._steady(read, lambda _: [number])

    def picture(self, id: int, *, max_pixels: int = pictures.MAX_PIXELS) -> Picture:
        """The picture of an item, as a browser takes it.

        JPEG, PNG, WebP and GIF come as they are; pixels and other formats as PNG of at most 1,024 pixels on each side.

        Parameters
        ----------
        id
            Of the item.
        max_pixels
            A file of more is not made into a PNG.

        Raises
        ------
        UnknownItemError
            If there is no such item.
        NoPictureError
            If it has no picture, or the file is no longer there.
        """
        pixels = self._stored_pixels(id)
        if pixels is not None:
            return Picture(self._encoded.get(int(id), lambda: _as_png(pixels)), png.MEDIA_TYPE)
        content = self._picture_file(id)
        if (media_type := _media_type(content)) is not None:
            return Picture(content, media_type)

        def encode() -> bytes:
            return _as_png(pictures.open_picture(content, max_pixels, _spare))

        try:
            # By the content, as the file may be another one the next time.
            return Picture(self._encoded.get(hashlib.sha256(content).digest(), encode), png.MEDIA_TYPE)
        except pictures.PictureError as error:
            raise NoPictureError(f"the picture of item {id} cannot be read: {error}") from error

    def add(
        self,
        *,
        features: ArrayLike | None = None,
        picture: bytes | None = None,
        label: str | None = None,
        tags: Sequence[str] | None = None,
        id: int | None = None,
        max_pixels: int = pictures.MAX_PIXELS,
    ) -> Item:
        """Add an item; when this returns, it is on disk.

        Parameters
        ----------
        features
            One row, [d]; if None, the picture is described.
        picture
            The content of a picture's file.
        label
            Name of its class, known or new.
        tags
            Names of its tags, known or new, in place of a label.
        id
            Its number; if None, one more than the largest there ever was.
        max_pixels
            A picture of more is refused.

        Raises
        ------
        KnownItemError
            If there is an item with that id.
        PictureError
            If the picture is none.
        """
        if not self.writable:
            raise ValueError(f"the gallery {str(self.path)!r} was opened to be read; open it with writable=True.")
        if features is None and picture is None:
            raise ValueError("neither features nor picture given; give one of them, or both.")
        labels = arguments.labels(label, tags)
        if features is None:
            assert picture is not None
            row = self.describe(picture, max_pixels=max_pixels)
        else:
            row = self._single(features)
            if picture is not None:
                pictures.check(picture, max_pixels)
        packed, _ = self.encode(row[None])
        record = Record(labels, packed[0].tobytes(), picture is not None, features is None)
        with self._changing:
            number = self._free_id(id)
            added.write(self._added, self._known.fingerprint, number, record, picture)
            self._note(number)
            self._records[number] = record
            try:
                self.index.add(packed, [number])
            except BaseException:
                # The file stays: if the change is on disk after all, it is wanted, and if not, the next writer sweeps.
                del self._records[number]
                raise
            self._classes = _with_names(self._classes, labels)
            self._filters = Recent(FILTERS)
        return Item(number, labels, _bits(packed, self.n_bits)[0], record.has_picture)

    def remove(self, id: int) -> None:
        """Remove an item, from the index first; an UnknownItemError if there is none."""
        if not self.writable:
            raise ValueError(f"the gallery {str(self.path)!r} was opened to be read; open it with writable=True.")
        number = arguments.number(id)
        with self._changing:
            self._keep_next_id(number)
            self._note(number)
            if not arguments.fits(number) or not self.index.remove([number]):
                raise UnknownItemError(f"there is no item {id}.")
            # Noted again before the record goes: whoever misses it knows that something has changed.
            self._note(number)
            self._filters = Recent(FILTERS)
            if self._records.pop(number, None) is not None:
                # The item is gone, whatever becomes of its file; the next writer sweeps.
                with contextlib.suppress(OSError):
                    added.delete(self._added, number)

    def buckets(self, n: int = 12, samples: int = 8) -> list[Bucket]:
        """The codes that most items share, fullest first.

        Parameters
        ----------
        n
            How many.
        samples
            How many ids of each.
        """
        arguments.whole("n", n, 1)
        arguments.whole("samples", samples, 0)
        return [self._bucket(code, ids, int(samples)) for code, ids in self.index.fullest(int(n))]

    def random_id(self, seed: int | None = None) -> int:
        """The id of some item; an UnknownItemError if there is none at all."""
        ids = self.index.ids
        if not len(ids):
            raise UnknownItemError("the gallery is empty.")
        return int(ids[np.random.default_rng(seed).integers(len(ids))])

    def is_relevant(self, query: Query, neighbour: Neighbour | Item) -> bool | None:
        """Whether an item has the query's class, or a tag in common with it; None if that is unknown."""
        if not query.labels:
            return None
        if not neighbour.labels:
            # Of rows with tags, those that have none are known to have none.
            tagged = self._known.tags is not None and neighbour.id not in self._records
            return False if tagged and self._known.row(neighbour.id) >= 0 else None
        return not set(query.labels).isdisjoint(neighbour.labels)

    def _steady(self, read: Callable[[], T], ids_of: Callable[[T], Iterable[int]]) -> T:
        """What `read` gives; again, with changes held back, if one of its items changed meanwhile."""
        before = self._changes
        # Items may be gone by the time they are looked up, and filters are for one state of the index.
        with contextlib.suppress(KeyError, ValueError):
            found = read()
            if all(self._changed.get(number, 0) <= before for number in ids_of(found)):
                return found
        with self._changing:
            return read()

    def _note(self, number: int) -> None:
        self._changes += 1
        self._changed[number] = self._changes

    def _nearest(
        self, query: Query, k: int, ranking: Ranking, radius: int | None, allowed: str | None
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        chosen: Any = None if allowed is None else self._filter(allowed)
        reach = self.n_bits if radius is None else min(int(radius), self.n_bits)
        if ranking == "expected":
            return self._nearest_expected(query, k, reach, chosen)
        found = self.index.search(query.code[None], k, allowed=chosen)
        ids, distances = found.ids[0], found.distances[0]
        # The nearest come first, so those within a radius are the first of them.
        return ids[distances <= reach], distances[distances <= reach]

    def _nearest_expected(
        self, query: Query, k: int, reach: int, chosen: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest by expected distance among those within a Hamming distance."""
        assert query.probabilities is not None
        chances = query.probabilities[None]
        if reach < self.n_bits:
            # Of a large ball, some of the very nearest are enough; a small one is listed.
            found = self.index.search_expected(chances, NEARBY * k, allowed=chosen)
            within = _distances(query.code, self.index.codes_of(found.ids[0])) <= reach
            if within.sum() >= k or len(within) < NEARBY * k:
                return found.ids[0][within][:k], found.distances[0][within][:k]
            chosen = self.index.within(query.code[None], reach, allowed=chosen).ids
        found = self.index.search_expected(chances, k, allowed=chosen)
        return found.ids[0], found.distances[0]

    def _filter(self, label: str) -> Filter:
        def make() -> Filter:
            ids = self._known.with_label(label)
            records = list(self._records.items())
            if records:
                ids = np.setdiff1d(ids, np.array([number for number, _ in records], np.int64))
                ids = np.union1d(ids, np.array([number for number, record in records if label in record.labels], int))
            return self.index.filter(ids.astype(np.int64))

        return self._filters.get(label, make)

    def _look_up(self, ids: NDArray[np.int64]) -> list[Item]:
        """Items of some ids; a KeyError if one is not in the index."""
        if not len(ids):
            return []
        bits = _bits(self.index.codes_of(ids), self.n_bits)
        rows = self._known.rows(ids).tolist()
        found = []
        for number, row, text in zip(ids.tolist(), rows, bits, strict=True):
            record = self._records.get(number)
            if record is not None:
                found.append(Item(number, record.labels, text, record.has_picture))
            elif row >= 0:
                name = None if self._known.names is None else files.readable(self._known.name_of(row))
                found.append(Item(number, self._known.labels_of(row), text, self._row_has_picture(), name))
            else:
                found.append(Item(number, (), text, False))
        return found

    def _row_has_picture(self) -> bool:
        return self._known.pixels is not None or (self._known.names is not None and self._folder_is_there)

    def _neighbour(self, query: Query, item: Item, distance: float) -> Neighbour:
        relevant = self.is_relevant(query, item)
        return Neighbour(item.id, distance, item.labels, item.bits, relevant, item.has_picture, item.name)

    def _query_by_id(self, id: int, certainty: bool) -> Query:
        item = self.item(id)
        code = _code(item.bits)
        record = self._records.get(item.id)
        told = self.has_probabilities and certainty and (record is None or record.described)
        if self.descriptor is None or not told:
            return Query(code, None, item.labels, item.id)
        try:
            pixels = self._stored_pixels(id)
            if pixels is None:
                pixels = pictures.open_picture(self._picture_file(id), reduction=self.descriptor.spare)
        except (NoPictureError, pictures.PictureError):
            return Query(code, None, item.labels, item.id)
        _, chances = self.encode(self.descriptor.describe(pixels)[None])
        return Query(code, None if chances is None else chances[0], item.labels, item.id)

    def _stored_pixels(self, id: int) -> NDArray[np.uint8] | None:
        """The pixels of an item, if that is what its picture is."""
        item = self.item(id)
        if self._known.pixels is None or item.id in self._records:
            return None
        row = self._known.row(item.id)
        return None if row < 0 else np.asarray(self._known.pixels[row])

    def _picture_file(self, id: int) -> bytes:
        """The content of an item's file."""
        item = self.item(id)
        if item.id in self._records:
            return added.picture(self._added, item.id)
        row = self._known.row(item.id)
        if row >= 0 and self.hidden_folder is not None:
            raise NoPictureError(
                f"the picture of item {id} is in {str(self.hidden_folder)!r}, which is not below the index's folder; "
                f"give pictures={str(self.hidden_folder)!r} to see it."
            )
        if row < 0 or self._known.names is None or self._folder is None:
            raise NoPictureError(f"item {id} has no picture.")
        file = items.file_of(self._folder, self._known.name_of(row))
        try:
            if (size := file.stat().st_size) > pictures.MAX_BYTES:
                raise NoPictureError(f"the picture of item {id} has {size} bytes, more than {pictures.MAX_BYTES}.")
            return file.read_bytes()
        except OSError as error:
            raise NoPictureError(f"the picture of item {id} cannot be read: {error}") from error

    def _checked_features(self, features: ArrayLike | None) -> NDArray[Any]:
        rows = np.asarray(features)
        width = self.model.n_features
        if rows.dtype.kind not in "fiub":
            raise ValueError(f"features has dtype {rows.dtype}; give numbers, [n, {width}].")
        if rows.ndim != 2 or rows.shape[1] != width:
            given = f"{rows.shape[1]} columns" if rows.ndim == 2 else f"shape {rows.shape}"
            raise ValueError(f"features has {given}; the model takes rows of {width}, [n, {width}].")
        if not np.isfinite(rows).all():
            raise ValueError("features holds NaN or infinity; give finite numbers.")
        return rows

    def _single(self, features: ArrayLike | None) -> NDArray[Any]:
        row, width = np.asarray(features), self.model.n_features
        if row.shape not in ((width,), (1, width)):
            raise ValueError(f"features has shape {row.shape}; give one row of {width} numbers, [{width}].")
        return row.reshape(width)

    def _checked_code(self, code: ArrayLike | str) -> NDArray[np.uint8]:
        if isinstance(code, str):
            if len(code) != self.n_bits or set(code) - {"0", "1"}:
                raise ValueError(f"code={code[:80]!r}; give {self.n_bits} zeros and ones.")
            return _code(code)
        packed = np.asarray(code)
        checked = packing.check_packed(packed[None] if packed.ndim == 1 else packed, self.n_bits, "code")
        if len(checked) != 1:
            raise ValueError(f"code has {len(checked)} rows; give one code.")
        return checked.reshape(-1)

    def _free_id(self, id: int | None) -> int:
        ids = self.index.ids
        if id is None:
            free = [int(ids[-1]) + 1] if len(ids) else []
            if self._next_id is not None:
                free.append(self._next_id)
            number = max(free, default=0)
            if number > arguments.LARGEST_ID:
                raise ValueError(
                    f"id=None, but {arguments.LARGEST_ID} was given out, the largest there can be; give a free one."
                )
            return number
        number = arguments.number(id)
        if not arguments.fits(number):
            raise ValueError(f"id={id}; give a number that fits in 64 bits with a sign.")
        place = int(np.searchsorted(ids, number))
        if place < len(ids) and int(ids[place]) == number:
            raise KnownItemError(f"id={id} is in the gallery already; remove it first, or give another.")
        return number

    def _keep_next_id(self, number: int) -> None:
        """Note the largest id before it goes: whoever remembers the item must not meet another one in its place."""
        ids = self.index.ids
        if len(ids) and int(ids[-1]) == number and (self._next_id is None or number >= self._next_id):
            added.note_next_id(self._added, number + 1)
            self._next_id = number + 1

    def _bucket(self, code: NDArray[np.uint8], ids: NDArray[np.int64], samples: int) -> Bucket:
        rows = self._known.rows(ids)
        names: list[str] = []
        if self._records:
            later = np.isin(ids, np.array(list(self._records), np.int64))
            rows = rows[~later]
            records = [self._records.get(number) for number in ids[later].tolist()]
            names = [name for record in records if record is not None for name in record.labels]
        counts = self._known.count_labels(rows[rows >= 0])
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        labels = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
        places = np.unique(np.linspace(0, len(ids) - 1, min(samples, len(ids))).astype(np.int64))
        return Bucket(_bits(code[None], self.n_bits)[0], len(ids), ids[places].tolist(), labels)


def _bits(packed: NDArray[np.uint8], n_bits: int) -> list[str]:
    """Codes as zeros and ones."""
    digits = packing.unpack(packed, n_bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def _check_added(path: Location, discard_added: bool) -> None:
    """Refuse to lose items that were added to an index that is to be replaced."""
    if not discard_added and (n_added := added.count(opening.beside(path, ".added"))):
        raise ValueError(
            f"{os.fspath(path)!r} has {n_added} item(s) that were added to it, which a new index would lose; give "
            "another name, or say that they may go: discard_added=True."
        )


def _with_names(classes: tuple[str, ...], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*classes, *names)))


def _spare(height: int, width: int) -> int:
    """How much larger than what is shown a picture is."""
    return max(height, width) // (2 * MOST_SIDE)


def _as_png(pixels: NDArray[np.uint8]) -> bytes:
    return png.encode(png.reduced(pixels, MOST_SIDE))


def _media_type(content: bytes) -> str | None:
    """What a browser would show a file as; None if it would not."""
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return png.MEDIA_TYPE
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def _code(bits: str) -> NDArray[np.uint8]:
    """Undo `_bits`, for one code."""
    return packing.pack(np.array([[bit == "1" for bit in bits]])).reshape(-1)


def _distances(code: NDArray[np.uint8], packed: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Hamming distances of one code from others, [n]."""
    distances: NDArray[np.int64] = np.bitwise_count(packed ^ code).sum(axis=1, dtype=np.int64)
    return distances
