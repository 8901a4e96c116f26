"""How items are looked up and shown: their values, and their pictures in a form that browsers take.

Pictures are kept in the collection, or they are files in a folder that the collection names.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.collection.records import Bucket, Item, NoPictureError, Picture, UnknownItemError, bits_of
from gphash.collection.rows import Key, Row, Value
from gphash.collection.stores import Store
from gphash.data import pictures

CACHED = 100_000  # items that are kept at hand
REMEMBERED = 32  # pictures that were made into PNG files, of a few megabytes at most
MOST_SIDE = 1024  # pixels of these
# What a browser shows as it is, by the beginning of the file.
FORMATS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif"}


class Shown:
    """Items of a store, and their pictures."""

    def __init__(self, store: Store, given: Path | None) -> None:
        self._store, self._given = store, given
        self._named, self._places = store.pictures, _folders(store, given)
        self._made: dict[bytes, bytes] = {}
        self._cache: tuple[int, dict[int, tuple[Row, Item]]] = -1, {}

    @property
    def folder(self) -> Path | None:
        """The folder that pictures are shown from."""
        return self._folders()[0]

    @property
    def hidden(self) -> Path | None:
        """A folder that the collection names, and that is not shown."""
        return self._folders()[1]

    def _folders(self) -> tuple[Path | None, Path | None]:
        if self._named != self._store.pictures:  # made anew since
            self._named, self._places = self._store.pictures, _folders(self._store, self._given)
        return self._places

    def has_pictures(self) -> bool:
        """Whether some item may have a picture."""
        return self._store.items.has_pictures(self.folder is not None)

    def items(self, numbers: Iterable[int]) -> dict[int, tuple[Row, Item]]:
        """Items as they are stored, and as they are handed out; those that are often found are kept at hand."""
        # A new dict after every change: what another thread has read before it must not get into it.
        at, cache = self._cache
        if at != self._store.n_changes or len(cache) > CACHED:
            at, cache = self._cache = self._store.n_changes, {}
        if missing := [number for number in numbers if number not in cache]:
            rows = self._store.items.rows(missing)
            packed = np.frombuffer(b"".join(row.code for row in rows.values()), np.uint8)
            bits = bits_of(packed.reshape(len(rows), -1), self._store.model.n_bits) if rows else []
            pictured = self.pictured(rows)
            for (number, row), text in zip(rows.items(), bits, strict=True):
                cache[number] = row, Item(row.key, row.labels, text, number in pictured, values(row))
        return cache

    def numbers(self, keys: list[Key]) -> list[int]:
        """Numbers of keys; an UnknownItemError names one that is not there."""
        numbers = self._store.items.numbers(keys)
        for key in keys:
            if key not in numbers:
                raise UnknownItemError(f"there is no item {key!r}.")
        return [numbers[key] for key in keys]

    def row(self, key: Key) -> Row:
        """An item as it is stored, by its key."""

        def read() -> Row:
            number = self.numbers([key])[0]
            row = self._store.items.rows([number])[number]
            if row.key != key:
                raise KeyError(key)
            return row

        return self._store.steady(read)

    def by_keys(self, keys: list[Key]) -> list[Item]:
        """Items by their keys, in that order."""

        def read() -> list[Item]:
            numbers = self.numbers(keys)
            seen = self.items(numbers)
            found = [seen[number][1] for number in numbers]
            if [item.key for item in found] != keys:
                raise KeyError(keys)
            return found

        return self._store.steady(read)

    def fullest(self, n: int, samples: int) -> list[Bucket]:
        """The n codes that most items share, fullest first, with some keys of each."""

        def read() -> list[Bucket]:
            found, items = [], self._store.items
            for code, numbers in self._store.index.fullest(n):
                places = np.unique(np.linspace(0, len(numbers) - 1, min(samples, len(numbers))).astype(np.int64))
                rows, chosen = items.rows(numbers[places].tolist()), numbers[places].tolist()
                (bits,), labels = bits_of(code[None], self._store.model.n_bits), items.count_labels(numbers.tolist())
                found.append(Bucket(bits, len(numbers), [rows[number].key for number in chosen], labels))
            return found

        return self._store.steady(read)

    def random_key(self, seed: int | None) -> Key:
        """The key of some item."""

        def read() -> Key:
            if not len(ids := self._store.index.ids):
                raise UnknownItemError("the collection is empty.")
            number = int(ids[np.random.default_rng(seed).integers(len(ids))])
            return self._store.items.rows([number])[number].key

        return self._store.steady(read)

    def pictured(self, rows: Mapping[int, Row]) -> set[int]:
        """Numbers of those items that have a picture."""
        named = {number for number, row in rows.items() if "picture" in row.values and self.folder is not None}
        return named | self._store.items.pictured([number for number in rows if number not in named])

    def pixels(self, row: Row, spare: Callable[[int, int], int]) -> NDArray[np.uint8] | None:
        """The pixels of an item's picture, to be described; None if there are none."""
        try:
            stored = self._stored(row)
            return pictures.open_picture(stored, reduction=spare) if isinstance(stored, bytes) else stored
        except (NoPictureError, pictures.PictureError):
            return None

    def picture(self, row: Row, max_pixels: int) -> Picture:
        """A picture in a form that browsers show: its file if they show that, else a PNG."""
        stored = self._stored(row)
        if isinstance(stored, np.ndarray):
            return Picture(pictures.to_png(stored, MOST_SIDE), "image/png")
        kind = "webp" if stored[:4] == b"RIFF" and stored[8:12] == b"WEBP" else None
        kind = kind or next((name for start, name in FORMATS.items() if stored.startswith(start)), None)
        if kind is not None:
            return Picture(stored, f"image/{kind}")
        try:
            return Picture(self._as_png(stored, max_pixels), "image/png")
        except pictures.PictureError as error:
            raise NoPictureError(f"the picture of item {row.key!r} cannot be read: {error}") from error

    def _stored(self, row: Row) -> bytes | NDArray[np.uint8]:
        """The content of an item's file, or pixels; a NoPictureError if there is neither."""
        if (kept := self._store.items.picture(row.number)) is not None:
            return kept
        if (name := row.values.get("picture")) is None:
            raise NoPictureError(f"item {row.key!r} has no picture.")
        if self.folder is None:
            where = "" if self.hidden is None else f"; give pictures={str(self.hidden)!r} to see it"
            raise NoPictureError(f"the picture of item {row.key!r} is not in the collection's own folder{where}.")
        file = _file_of(self.folder, str(name))
        try:
            if (size := file.stat().st_size) > pictures.MAX_BYTES:
                raise NoPictureError(
                    f"the picture of item {row.key!r} has {size} bytes, more than {pictures.MAX_BYTES}."
                )
            return file.read_bytes()
        except OSError as error:
            raise NoPictureError(f"the picture of item {row.key!r} cannot be read: {error}") from error

    def _as_png(self, content: bytes, max_pixels: int) -> bytes:
        # By the content, as the file may be another one the next time.
        key = hashlib.sha256(content).digest()
        if (made := self._made.get(key)) is None:
            pixels = pictures.open_picture(content, max_pixels, lambda high, wide: max(high, wide) // (2 * MOST_SIDE))
            made = pictures.to_png(pixels, MOST_SIDE)
            if len(self._made) >= REMEMBERED:
                self._made.clear()
            self._made[key] = made
        return made


def values(row: Row) -> dict[str, Value]:
    """What is known of an item beside its labels; `name` is that of its picture's file."""
    shown = {name: value for name, value in row.values.items() if name not in ("label", "tags", "picture")}
    if "picture" in row.values:
        shown["name"] = files.readable(str(row.values["picture"]))
    return shown


def _folders(store: Store, given: Path | None) -> tuple[Path | None, Path | None]:
    """The folder that pictures are shown from, and one that the collection names and that is not shown.

    A collection may come from anywhere, and could name anybody's folder. One inside of it, or right beside it, is
    followed if no link leads out; any other only if whoever opens the collection gives it.
    """
    if given is not None:
        if not given.is_dir():
            raise ValueError(f"pictures={str(given)!r} is no folder; give the one that the pictures are in.")
        return Path(os.path.realpath(given)), None
    if store.pictures is None:
        return None, None
    home = Path(os.path.realpath(store.pictures[0]))
    named = Path(os.path.realpath(home / store.pictures[1]))
    near = named.is_relative_to(home) or (named.parent == home.parent and named != home)
    return (named, None) if near else (None, named)


def _file_of(root: Path, name: str) -> Path:
    """The file of that name in a folder that is no link; a NoPictureError if there is none, or it leads out."""
    if "\0" in name or os.path.isabs(name):
        raise NoPictureError(f"{name!r} is not the name of a file in {str(root)!r}.")
    target = Path(os.path.realpath(os.path.join(root, name)))
    if not target.exists():  # its name may be no UTF-8
        target = Path(os.path.realpath(os.path.join(root, files.named(name))))
    if not target.is_relative_to(root):
        raise NoPictureError(f"{name!r} leads out of {str(root)!r}.")
    if not target.is_file():
        raise NoPictureError(f"there is no file {name!r} in {str(root)!r} any more.")
    return target
