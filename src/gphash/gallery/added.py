"""`NAME.added`: a folder with a file for every item that was added after an index was built.

A file is a container of kind "added": labels and code in its meta, and the bytes of the picture. It is written before
the journal of the index names the item, and removed after. So a file without an item in the index is one of a writer
that was killed: readers pass it over, and the next writer removes it.

An empty file `N.next` says that ids below N have been given out, so that no id of a removed item is given out again.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files, persistence, schema
from gphash.gallery.records import NoPictureError
from gphash.persistence import FormatError

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

_NAME = re.compile(r"(-?[0-9]{1,19})\.item")
_NEXT = re.compile(r"(-?[0-9]{1,19})\.next")


class Record(NamedTuple):
    """An added item.

    labels
        Names of its class, or of its tags.
    code
        Packed.
    has_picture
        Whether the file has one.
    described
        Whether the code was made from that picture.
    """

    labels: tuple[str, ...]
    code: bytes
    has_picture: bool
    described: bool


class Found(NamedTuple):
    """What a folder holds.

    records
        By id.
    foreign
        Ids of files that belong to other items.
    unreadable
        Ids of files that are damaged.
    """

    records: dict[int, Record]
    foreign: set[int]
    unreadable: set[int]


def read(folder: Path, belongs: str) -> Found:
    """All records that belong to a file of items, by its fingerprint; pictures stay in their files."""
    found = Found({}, set(), set())
    for id, path in _files(folder):
        # A record that cannot be read costs its item the labels, not the gallery its other items.
        try:
            record = _record(id, path, belongs)
        except FileNotFoundError:
            continue
        except (FormatError, OSError):
            found.unreadable.add(id)
            continue
        if record is None:
            found.foreign.add(id)
        else:
            found.records[id] = record
    return found


def write(folder: Path, belongs: str, id: int, record: Record, picture: bytes | None) -> None:
    """Write a record; it is on disk when this returns."""
    _make(folder)
    meta: dict[str, persistence.JSON] = {
        "belongs": belongs,
        "id": id,
        "labels": list(record.labels),
        "code": record.code.hex(),
        "described": record.described,
    }
    arrays: dict[str, NDArray[Any]] = {} if picture is None else {"picture": np.frombuffer(picture, np.uint8)}
    persistence.write(_place(folder, id), KIND, meta, arrays)


def picture(folder: Path, id: int) -> bytes:
    """The picture of an item; a NoPictureError if it has none."""
    try:
        stored = persistence.read(_place(folder, id), KIND)
    except (FileNotFoundError, FormatError) as error:
        raise NoPictureError(f"the picture of item {id} cannot be read: {error}") from error
    if "picture" not in stored.arrays or stored.arrays["picture"].dtype != np.uint8:
        raise NoPictureError(f"item {id} has no picture.")
    return stored.arrays["picture"].tobytes()


def delete(folder: Path, id: int) -> None:
    """Remove a record, if it is there."""
    _place(folder, id).unlink(missing_ok=True)


def count(folder: Path) -> int:
    """How many items there are records of."""
    return sum(1 for _ in _files(folder))


def sweep(folder: Path, strays: Iterable[int]) -> None:
    """Remove records of some ids, and what killed writers left."""
    for id in strays:
        delete(folder, id)
    files.sweep(folder)


def next_id(folder: Path) -> int | None:
    """The least id that was never given out, as far as removed items are concerned; None if nobody has noted any."""
    return max((number for number, _ in _marks(folder)), default=None)


def note_next_id(folder: Path, number: int) -> None:
    """Note that ids below this one have been given out; it is on disk when this returns."""
    _make(folder)
    (folder / f"{number}.next").touch()
    files.sync_folder(folder)
    for other, path in _marks(folder):
        if other < number:
            path.unlink(missing_ok=True)


def forget_next_id(folder: Path) -> None:
    """Begin anew with ids, for other items."""
    for _, path in _marks(folder):
        path.unlink(missing_ok=True)


def _record(id: int, path: Path, belongs: str) -> Record | None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return None
    described = persistence.describe(path)
    meta = described.meta
    if described.kind != KIND or meta.get("id") != id or meta.get("belongs") != belongs:
        return None
    with schema.reading(path, "remove it, or get it from where it was made"):
        FIELDS.check(meta, "")
        code = bytes.fromhex(meta["code"])
        return Record(tuple(meta["labels"]), code, "picture" in described.arrays, meta["described"])


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir()
        files.sync_folder(folder.parent)


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    return _numbered(folder, _NAME)


def _marks(folder: Path) -> Iterator[tuple[int, Path]]:
    return _numbered(folder, _NEXT)


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for name in _names(folder):
        if match := pattern.fullmatch(name):
            yield int(match[1]), folder / name


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _place(folder: Path, id: int) -> Path:
    return folder / f"{id}.item"
