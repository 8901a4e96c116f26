"""`Collection`: what the command line and the service search in."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.collection import arguments, manifest
from gphash.collection.catalogue import Catalogue
from gphash.collection.changes import AddedItem
from gphash.collection.items import Items
from gphash.collection.manifest import ADDED, Location
from gphash.collection.nearest import nearest
from gphash.collection.records import (
    Bucket,
    Item,
    Neighbour,
    NoPictureError,
    Picture,
    Query,
    UnknownItemError,
    bits_of,
    code_of,
)
from gphash.data import pictures
from gphash.data.dataset import Progress
from gphash.functions.model import Model
from gphash.index.hamming_index import HammingIndex

if TYPE_CHECKING:
    from gphash.data.sources import Source

T = TypeVar("T")

FILTERS = 16  # of labels, kept until something changes


class Collection:
    """A model, an index of codes, and what is known of the items; made by `build` or `open`.

    Threads may share a collection: any number may search at once, and changes wait for each other. A search sees every
    item as it was before a change, or after it.
    """

    def __init__(
        self, path: Path, index: HammingIndex, model: Model, known: Items, catalogue: Catalogue, writable: bool
    ) -> None:
        self.path, self.index, self.model, self.writable = path, index, model, writable
        self.descriptor, self.name = known.descriptor, known.name
        self._catalogue = catalogue
        self._changing = threading.RLock()
        self._n_changes = 0
        self._forget_filters()

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
        """Encode rows, write an index of them and what is known of them, and open it read-only.

        Parameters
        ----------
        path
            The file of the index; one that is there is replaced, unless somebody is writing to it (LockedError).
        model
            The file of the model.
        source
            Rows, labels and pictures, which must be described in the way that the model knows.
        progress
            Called with the rows done and in all.
        discard_added
            Whether items that were added to an index that is there may be lost.
        n_jobs
            Threads that encode; −1 for all cores.
        """
        manifest.build(path, model, source, progress, discard_added, n_jobs)
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

        A FormatError says that a file is damaged, that `NAME.items` belongs to another index, or, to a writer, that it
        is missing although items were added to it.

        Parameters
        ----------
        path
            The file of the index.
        model
            The file of the model that made its codes; if None, where it was, relative to the index, when that was
            built.
        writable
            Whether items may be added and removed. There is one writer at a time; a second gets a LockedError.
        pictures
            The folder of the pictures. If None, the one that the index names, but only if that is below the index's
            own folder: an index may come from anywhere, and name any. A folder that is not used is `hidden_folder`.
        """
        index, known, added = manifest.open_together(path, writable)
        try:
            loaded = manifest.load_for(path, index, known, model)
            folders = manifest.folders(path, known, pictures)
            catalogue = Catalogue(known, added, manifest.beside(path, ADDED), *folders)
            return cls(Path(path), index, loaded, known, catalogue, writable)
        except BaseException:
            index.close()
            raise

    def close(self) -> None:
        """Let another writer open the index."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Collection({self.name!r}, {len(self):,} items, {self.n_bits} bits)"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.index.n_bits

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all labels or tags: those it was built with, then those that came with added items."""
        return self._catalogue.classes

    @property
    def has_pictures(self) -> bool:
        """Whether some item may have a picture."""
        return self._catalogue.has_pictures

    @property
    def hidden_folder(self) -> Path | None:
        """A folder of pictures that the index names, but that is not shown as nobody gave it to `open`."""
        return self._catalogue.hidden_folder

    def encode(self, features: ArrayLike) -> tuple[NDArray[np.uint8], Floats | None]:
        """Codes of rows [n, d], packed uint8 [n, ceil(n_bits / 8)], and P(bit = 1), float64 [n, n_bits].

        The probabilities are None if the method has none.
        """
        rows = self.model.check_rows(features, "features")
        if not self.model.has_probabilities:
            return self.model.encode(rows), None
        chances = self.model.bit_probabilities(rows)
        return packing.pack(chances >= 0.5), chances

    def describe(self, picture: bytes | Location, *, max_pixels: int = pictures.MAX_PIXELS) -> NDArray[np.float32]:
        """A picture, the content of its file or its path, as a row that the model takes, [d].

        A PictureError says why it cannot be described, or has too many pixels.
        """
        if self.descriptor is None:
            raise ValueError("picture given, but the collection holds plain features; give features.")
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
            The content of a picture's file, or its path.
        id
            Of an item of the collection. It keeps its stored code; its probabilities are those of its picture, if
            there is one.
        code
            Packed, uint8 [bytes], or zeros and ones as a text.
        certainty
            Whether to compute the probabilities of its bits; ranking by Hamming distance needs none.
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
            return Query(arguments.code(code, self.n_bits), None)
        rows = arguments.row(features, self.model) if picture is None else self.describe(picture)[None]
        if not certainty:
            return Query(self.model.encode(rows)[0], None)
        packed, chances = self.encode(rows)
        return Query(packed[0], None if chances is None else chances[0])

    def _query_by_id(self, id: int, certainty: bool) -> Query:
        item = self.item(id)
        query = Query(code_of(item.bits), None, item.labels, item.id)
        told = self.model.has_probabilities and certainty
        if self.descriptor is None or not told or not self._catalogue.is_described(item.id):
            return query
        try:
            stored = self._catalogue.stored_picture(item.id)
            if isinstance(stored, bytes):
                stored = pictures.open_picture(stored, reduction=self.descriptor.spare)
        except (NoPictureError, pictures.PictureError):
            return query
        return query._replace(probabilities=self.model.bit_probabilities(self.descriptor.describe(stored)[None])[0])

    def search(
        self,
        query: Query,
        k: int = 10,
        *,
        ranking: str = "hamming",
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
            One of `RANKINGS`: "hamming", or "expected" for a query with probabilities.
        radius
            Only items whose codes differ from the query's in at most so many bits.
        allowed
            Only items with this label or tag.
        others
            Whether the query itself, if it is an item, is left out.
        """
        k = arguments.whole("k", k, 1)
        radius = None if radius is None else arguments.whole("radius", radius, 0)
        arguments.check_ranking(ranking, query, self.model, self.hidden_folder)
        if allowed is not None:
            arguments.check_label(allowed, self.classes)
        left_out = query.id if others else None

        def read() -> list[Neighbour]:
            chosen = None if allowed is None else self._filter(allowed)
            ids, distances = nearest(self.index, query, k + (left_out is not None), ranking, radius, chosen)
            if left_out is not None:
                ids, distances = ids[ids != left_out], distances[ids != left_out]
            found = zip(self._look_up(ids[:k]), distances[:k].tolist(), strict=True)
            is_relevant = self._catalogue.is_relevant
            return [
                Neighbour(*item, distance, is_relevant(query.labels, item.id, item.labels)) for item, distance in found
            ]

        return self._steady(read)

    def _forget_filters(self) -> None:
        # A new cache: what another thread is making for the old state of the index must not get into it.
        self._filter = lru_cache(FILTERS)(lambda label: self.index.filter(self._catalogue.with_label(label)))

    def item(self, id: int) -> Item:
        """An item by its id; an UnknownItemError if there is none."""
        number = arguments.whole("id", id)

        def read() -> Item:
            try:
                return self._look_up(np.array([number], np.int64))[0]
            # Whatever changes meanwhile, it was not there at this moment.
            except (KeyError, OverflowError) as error:
                raise UnknownItemError(f"there is no item {id}.") from error

        return self._steady(read)

    def picture(self, id: int, *, max_pixels: int = pictures.MAX_PIXELS) -> Picture:
        """The picture of an item, in a form that browsers show.

        JPEG, PNG, WebP and GIF come as they are; pixels and other formats as PNG of at most 1,024 pixels on each side.
        A NoPictureError says that the item has no picture, that its file is gone, or has too many pixels for a PNG.
        """
        return self._catalogue.picture(self.item(id).id, max_pixels)

    def buckets(self, n: int = 12, samples: int = 8) -> list[Bucket]:
        """The n codes that most items share, fullest first, with some ids of each."""
        n, samples = arguments.whole("n", n, 1), arguments.whole("samples", samples, 0)
        found = []
        for code, ids in self.index.fullest(n):
            places = np.unique(np.linspace(0, len(ids) - 1, min(samples, len(ids))).astype(np.int64))
            bits = bits_of(code[None], self.n_bits)[0]
            found.append(Bucket(bits, len(ids), ids[places].tolist(), self._catalogue.count_labels(ids)))
        return found

    def random_id(self, seed: int | None = None) -> int:
        """The id of some item; an UnknownItemError if there are none."""
        ids = self.index.ids
        if not len(ids):
            raise UnknownItemError("the collection is empty.")
        return int(ids[np.random.default_rng(seed).integers(len(ids))])

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
        label, tags
            Name of its class, or names of its tags, known or new.
        id
            Its number, which must be free (KnownItemError). If None, one more than the largest there ever was, and at
            least 0.
        max_pixels
            A larger picture is refused.
        """
        self._check_writable()
        if features is None and picture is None:
            raise ValueError("neither features nor picture given; give one of them, or both.")
        labels = arguments.labels(label, tags)
        if picture is not None and features is None:
            rows = self.describe(picture, max_pixels=max_pixels)[None]
        else:
            rows = arguments.row(features, self.model)
            if picture is not None:
                pictures.check(picture, max_pixels)
        packed, _ = self.encode(rows)
        item = AddedItem(labels, packed[0].tobytes(), picture is not None, features is None)
        with self._changing:
            number = arguments.free_id(id, self.index.ids, self._catalogue.next_id)
            self._n_changes += 1
            self._catalogue.add(number, item, picture)
            try:
                self.index.add(packed, [number])
            except BaseException:
                self._catalogue.take_back(number)
                raise
            self._catalogue.take_names(labels)
            self._forget_filters()
        return Item(number, labels, bits_of(packed, self.n_bits)[0], item.has_picture, None)

    def remove(self, id: int) -> None:
        """Remove an item, from the index first; an UnknownItemError if there is none."""
        self._check_writable()
        number = arguments.whole("id", id)
        with self._changing:
            if len(self.index) and int(self.index.ids[-1]) == number:
                self._catalogue.note_next_id(number + 1)
            self._n_changes += 1
            if not arguments.fits(number) or not self.index.remove([number]):
                raise UnknownItemError(f"there is no item {id}.")
            # Counted again before the item is forgotten: whoever misses it knows that something changed.
            self._n_changes += 1
            self._forget_filters()
            self._catalogue.remove(number)

    def _check_writable(self) -> None:
        if not self.writable:
            raise ValueError(f"the collection {str(self.path)!r} was opened read-only; open it with writable=True.")

    def _steady(self, read: Callable[[], T]) -> T:
        """What `read` gives; once more, with changes held back, if something changed meanwhile."""
        before = self._n_changes
        # Items may be gone by the time they are looked up, and a filter is for one state of the index.
        with contextlib.suppress(KeyError, ValueError):
            found = read()
            if self._n_changes == before:
                return found
        with self._changing:
            return read()

    def _look_up(self, ids: NDArray[np.int64]) -> list[Item]:
        """Items of some ids; a KeyError if one is not in the index."""
        if not len(ids):
            return []
        return self._catalogue.items(ids, bits_of(self.index.codes_of(ids), self.n_bits))
