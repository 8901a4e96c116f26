"""`NAME.added`: a folder with a file for every item that was added after an index was built.

A file is a container of kind "added": labels and code in its meta, and the bytes of the picture. It is written before
the journal of the index names the item, and removed after. So a file without an item in the index was left by a writer
that was killed: readers ignore it, and the next writer removes it. An empty file `N.next` says that ids below N were
used, so that the id of a removed item is never given out again.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import container, files, schema
from gphash.collection.records import NoPictureError
from gphash.container import FormatError

KIND = "added"
FIELDS = schema.Record(
    {
        "belongs": schema.Text(),
        "id": schema.Whole(-(2**63), 2**63 - 1),
        "labels": schema.Each(schema.Text()),
        "code": schema.Digest(None),
        "described": schema.Flag(),
    }
)


class AddedItem(NamedTuple):
    """An item that was added; the code is packed, and `described` says whether it was made from the picture."""

    labels: tuple[str, ...]
    code: bytes
    has_picture: bool
    described: bool


class Additions(NamedTuple):
    """What a folder holds: items by id, ids of files that belong to another index, and ids of damaged files."""

    items: dict[int, AddedItem]
    foreign: set[int]
    unreadable: set[int]


def read(folder: Path, belongs: str) -> Additions:
    """All items that were added to those of a file, named by its fingerprint; pictures stay in their files."""
    found = Additions({}, set(), set())
    for id, path in _numbered(folder, "item"):
        # A file that cannot be read costs its item the labels, not the collection its other items.
        try:
            if (item := _read(id, path, belongs)) is None:
                found.foreign.add(id)
            else:
                found.items[id] = item
        except FileNotFoundError:
            continue
        except (FormatError, OSError):
            found.unreadable.add(id)
    return found


def _read(id: int, path: Path, belongs: str) -> AddedItem | None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return None
    described = container.describe(path)
    meta = described.meta
    if described.kind != KIND or meta.get("id") != id or meta.get("belongs") != belongs:
        return None
    with schema.reading(path, "remove it, or get it from where it was made"):
        FIELDS.check(meta, "")
        code = bytes.fromhex(meta["code"])
        return AddedItem(tuple(meta["labels"]), code, "picture" in described.arrays, meta["described"])


def write(folder: Path, belongs: str, id: int, item: AddedItem, picture: bytes | None) -> None:
    """Write an item; it is on disk when this returns."""
    _make(folder)
    meta: dict[str, container.JSON] = {"belongs": belongs, "id": id, "labels": list(item.labels)}
    meta |= {"code": item.code.hex(), "described": item.described}
    arrays: dict[str, NDArray[Any]] = {} if picture is None else {"picture": np.frombuffer(picture, np.uint8)}
    container.write(_place(folder, id), KIND, meta, arrays)


def picture(folder: Path, id: int) -> bytes:
    """The picture of an item; a NoPictureError if it has none."""
    try:
        stored = container.read(_place(folder, id), KIND).arrays.get("picture")
    except (FileNotFoundError, FormatError) as error:
        raise NoPictureError(f"the picture of item {id} cannot be read: {error}") from error
    if stored is None or stored.dtype != np.uint8:
        raise NoPictureError(f"item {id} has no picture.")
    return stored.tobytes()


def delete(folder: Path, id: int) -> None:
    """Remove the file of an item, if there is one."""
    _place(folder, id).unlink(missing_ok=True)


def count(folder: Path) -> int:
    """How many items were added."""
    return sum(1 for _ in _numbered(folder, "item"))


def sweep(folder: Path, strays: Iterable[int]) -> None:
    """Remove the files of some ids, and what killed writers left."""
    for id in strays:
        delete(folder, id)
    files.sweep(folder)


def next_id(folder: Path) -> int:
    """The least id above those of removed items that were the largest; 0 if there were none."""
    return max((number for number, _ in _numbered(folder, "next")), default=0)


def note_next_id(folder: Path, number: int) -> None:
    """Note that ids below this one were used; it is on disk when this returns."""
    _make(folder)
    (folder / f"{number}.next").touch()
    files.sync_folder(folder)
    forget_next_id(folder, number)


def forget_next_id(folder: Path, least: int = 2**64) -> None:
    """Remove notes of ids below some number."""
    for number, path in _numbered(folder, "next"):
        if number < least:
            path.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir()
        files.sync_folder(folder.parent)


def _numbered(folder: Path, ending: str) -> Iterator[tuple[int, Path]]:
    for path in sorted(folder.glob(f"*.{ending}")):
        if re.fullmatch("-?[0-9]{1,19}", path.stem):
            yield int(path.stem), path


def _place(folder: Path, id: int) -> Path:
    return folder / f"{id}.item"
