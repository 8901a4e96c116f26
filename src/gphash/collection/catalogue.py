"""What is known of the items of a collection, by id: labels, names and pictures.

Pictures are pixels beside the index, files in a folder, or files of items that were added.
"""

import contextlib
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.collection import changes, items
from gphash.collection.changes import AddedItem
from gphash.collection.items import Items
from gphash.collection.records import Item, NoPictureError, Picture
from gphash.data import pictures

REMEMBERED = 32  # pictures that were made into PNG files, of a few megabytes at most
MOST_SIDE = 1024  # pixels of these
# What a browser shows as it is, by the beginning of the file.
SHOWN = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif"}


class Catalogue:
    """The items that an index was built from, and those that were added, by id; threads may share it.

    For the two folders of pictures see `manifest.folders`.
    """

    def __init__(
        self,
        known: Items,
        added: dict[int, AddedItem],
        added_folder: Path,
        folder: Path | None,
        hidden_folder: Path | None,
    ) -> None:
        self.hidden_folder = hidden_folder
        self._known, self._added, self._added_folder, self._folder = known, added, added_folder, folder
        self.classes = known.classes
        for item in added.values():
            self.take_names(item.labels)
        self.next_id = max(changes.next_id(added_folder), int(known.ids.max(initial=-1)) + 1)
        self._rows_have_pictures = known.pixels is not None or (folder is not None and folder.is_dir())
        self._made: dict[bytes, bytes] = {}

    @property
    def has_pictures(self) -> bool:
        """Whether some item may have a picture."""
        return self._rows_have_pictures or any(item.has_picture for item in list(self._added.values()))

    def items(self, ids: NDArray[np.int64], bits: list[str]) -> list[Item]:
        """What is known of some ids with these codes."""
        found = []
        for number, row, text in zip(ids.tolist(), self._known.rows(ids).tolist(), bits, strict=True):
            if (added := self._added.get(number)) is not None:
                found.append(Item(number, added.labels, text, added.has_picture, None))
            elif row >= 0:
                name = None if self._known.names is None else files.readable(self._known.name_of(row))
                found.append(Item(number, self._known.labels_of(row), text, self._rows_have_pictures, name))
            else:
                found.append(Item(number, (), text, False, None))
        return found

    def with_label(self, label: str) -> NDArray[np.int64]:
        """Ids of the items that have a label or tag."""
        ids, added = self._known.with_label(label), list(self._added.items())
        if not added:
            return ids
        ids = np.setdiff1d(ids, np.array([number for number, _ in added], np.int64))
        return np.union1d(ids, np.array([number for number, item in added if label in item.labels], np.int64))

    def count_labels(self, ids: NDArray[np.int64]) -> dict[str, int]:
        """How many of some items have each label, most frequent first."""
        added = self._added.copy()
        later = np.isin(ids, np.array(list(added), np.int64))
        rows = self._known.rows(ids[~later])
        counts = Counter(self._known.count_labels(rows[rows >= 0]))
        counts.update(label for number in ids[later].tolist() for label in added[number].labels)
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    def is_relevant(self, labels: tuple[str, ...], id: int, others: tuple[str, ...]) -> bool | None:
        """Whether the labels of an item have one in common with those of a query; None if that is unknown."""
        if not labels:
            return None
        if not others:
            # Rows of tagged data without any tag are known to have none.
            tagged = self._known.tags is not None and id not in self._added
            return False if tagged and self._known.row(id) >= 0 else None
        return not set(labels).isdisjoint(others)

    def is_described(self, id: int) -> bool:
        """Whether the code of an item was made from its picture, if it has one."""
        return id not in self._added or self._added[id].described

    def stored_picture(self, id: int) -> bytes | NDArray[np.uint8]:
        """The content of an item's file, or pixels; a NoPictureError if there is neither."""
        if id in self._added:
            return changes.picture(self._added_folder, id)
        row = self._known.row(id)
        if row >= 0 and self._known.pixels is not None:
            return np.asarray(self._known.pixels[row])
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

    def picture(self, id: int, max_pixels: int) -> Picture:
        """A picture in a form that browsers show: its file if they show that, else a PNG."""
        stored = self.stored_picture(id)
        if isinstance(stored, np.ndarray):
            return Picture(pictures.to_png(stored, MOST_SIDE), "image/png")
        kind = "webp" if stored[:4] == b"RIFF" and stored[8:12] == b"WEBP" else None
        kind = kind or next((name for start, name in SHOWN.items() if stored.startswith(start)), None)
        if kind is not None:
            return Picture(stored, f"image/{kind}")
        try:
            return Picture(self._as_png(stored, max_pixels), "image/png")
        except pictures.PictureError as error:
            raise NoPictureError(f"the picture of item {id} cannot be read: {error}") from error

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

    def add(self, id: int, item: AddedItem, picture: bytes | None) -> None:
        """Note an item; its file is on disk when this returns."""
        changes.write(self._added_folder, self._known.fingerprint, id, item, picture)
        self._added[id] = item

    def take_back(self, id: int) -> None:
        """Forget an item that may not have got into the index.

        Its file stays: if the change reached the disk, it is needed, and if not, the next writer removes it.
        """
        del self._added[id]

    def remove(self, id: int) -> None:
        """Forget an item that is gone from the index."""
        if self._added.pop(id, None) is not None:
            # The item is gone, whatever becomes of its file; the next writer removes it.
            with contextlib.suppress(OSError):
                changes.delete(self._added_folder, id)

    def note_next_id(self, number: int) -> None:
        """Note that ids below this one were used, before the largest is removed: no other item may ever get its id."""
        if number > self.next_id:
            changes.note_next_id(self._added_folder, number)
            self.next_id = number

    def take_names(self, labels: tuple[str, ...]) -> None:
        """Note names of labels, of which some may be new."""
        self.classes = tuple(dict.fromkeys((*self.classes, *labels)))
