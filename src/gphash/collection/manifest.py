"""A collection as a folder that can be copied as a whole.

======================  =============================================================================================
``collection.json``     what is here: format, model, descriptor, parts; written last, and replaced whole
``model.gph``           the model that made the codes
``items.sqlite``        the items, and changes that the parts do not have yet; see `items`
``parts/0000.index`` …  codes and numbers of items, never changed; written by one process, or by workers of a cluster
``parts/0000.vectors``  vectors of the items of a part, if the collection keeps them; see `vectors`
======================  =============================================================================================

Files that ``collection.json`` does not name belong to nobody: a writer that was killed left them, and the next one
removes them.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gphash import files, schema
from gphash.codes.packing import MOST_BITS
from gphash.container import FormatError
from gphash.files import LockedError
from gphash.schema import Digest, Each, FaultError, Maybe, Name, Named, Record, Text, Whole
from gphash.version import __version__

NAME = "collection.json"
FORMAT = 1
PARTS = "parts"
UNFINISHED = ".gphash-unfinished"  # in a folder that is to be a collection, and is none yet
ENDING = ".gphash"  # by custom
AGAIN = "make the collection again, or get it from where it was made"
REMOTE = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "sshfs", "9p", "ceph", "ceph-fuse", "glusterfs", "lustre"),
    *("beegfs", "gpfs", "s3fs", "rclone", "virtiofs", "vboxsf"),
)

OURS = re.compile(
    r"items(-[0-9a-f]{8})?\.sqlite(-wal|-shm|-journal)?|model(-[0-9a-f]{8})?\.gph"
    r"|parts/([0-9]{4,}|[0-9a-f]{8}-.+)\.(index|vectors)|parts/plan\.json|parts/model\.gph"
)
"""Names of files that only a collection makes, and may remove."""

PART = Record(
    {
        **{"file": Name(), "fingerprint": Digest(), "n_items": Whole()},
        **dict.fromkeys(("first", "last"), Whole(-(2**63), 2**63 - 1)),
        **{"vectors": Name(), "vectors_mark": Digest()},
    },
    ("vectors", "vectors_mark"),
)
TOLD = Record(
    {
        **{"format": Whole(1), "gphash": Text(), "id": Digest(16), "name": Text(), "n_bits": Whole(1, MOST_BITS)},
        **{"model": Name(), "fingerprint": Digest(), "descriptor": Maybe(Named()), "pictures": Maybe(Name())},
        **{"items": Name(), "folded": Whole(), "parts": Each(PART), "checksum": Digest()},
    }
)


class PartFile(NamedTuple):
    """A file of codes: its place in the folder, its mark, how many items it has, and their least and largest number.

    `vectors` is the file with the vectors of these items, and perhaps of some that are gone, and `vectors_mark` its
    mark; None if the collection keeps none.
    """

    file: str
    fingerprint: str
    n_items: int
    first: int
    last: int
    vectors: str | None = None
    vectors_mark: str | None = None


class Manifest(NamedTuple):
    """What a folder holds.

    `model`, `items` and the parts are files in the folder, `fingerprint` is the model's. `pictures` is the folder of
    the items' pictures, relative to this one. `folded` is the last change of the items that the parts have.
    """

    id: str
    name: str
    n_bits: int
    model: str
    fingerprint: str
    descriptor: dict[str, Any] | None
    pictures: str | None
    items: str
    folded: int
    parts: tuple[PartFile, ...]

    @property
    def files(self) -> set[str]:
        """All files that it names, and itself."""
        kept = (part.vectors for part in self.parts if part.vectors is not None)
        return {NAME, self.model, self.items, *(part.file for part in self.parts), *kept}


def is_collection(path: str | os.PathLike[str]) -> bool:
    """Whether there is a collection at a path."""
    return (Path(path) / NAME).is_file()


def read(folder: Path) -> Manifest:
    """What a folder holds."""
    path = folder / NAME
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise FileNotFoundError(f"{str(folder)!r} {what}; give the folder of a collection.")
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} has no {NAME}; give the folder of a collection, or make it again if it was interrupted."
        )
    with schema.reading(path, AGAIN):
        told = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(told, dict) and isinstance(version := told.get("format"), int) and version > FORMAT:
            raise FormatError(f"{str(path)!r} has format {version}, newer than {FORMAT}: use a newer gphash")
        TOLD.check(told, "")
        checksum = told.pop("checksum")
        if checksum != _checksum(told):
            raise FaultError("it does not match its checksum")
        del told["format"], told["gphash"]
        manifest = Manifest(**told | {"parts": tuple(PartFile(**part) for part in told["parts"])})
        for name in manifest.files:
            if not _is_inside(name) or (folder / name).is_symlink() or (folder / PARTS).is_symlink():
                raise FaultError(f"it names the file {name!r}, which leads out of the folder")
        if manifest.pictures is not None and os.path.isabs(manifest.pictures):
            raise FaultError(f"its folder of pictures is {manifest.pictures!r}; it must be relative to this one")
        return manifest


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest; whatever it names is on disk already."""
    told = {"format": FORMAT, "gphash": __version__, **manifest._asdict()}
    told["parts"] = [
        {name: value for name, value in part._asdict().items() if value is not None} for part in manifest.parts
    ]
    files.write_text(folder / NAME, json.dumps(told | {"checksum": _checksum(told)}, indent=1) + "\n")


def _checksum(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _is_inside(name: str) -> bool:
    parts = Path(name).parts
    return not os.path.isabs(name) and len(parts) == (2 if parts[:1] == (PARTS,) else 1) and ".." not in parts


def mark(folder: Path) -> tuple[int, ...]:
    """What differs when the manifest was replaced; it never is changed in place."""
    with contextlib.suppress(OSError):
        status = (folder / NAME).stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return ()


def sweep(folder: Path, manifest: Manifest | None) -> None:
    """Remove what killed writers left."""
    named = set() if manifest is None else manifest.files
    inside = [] if (folder / PARTS).is_symlink() else (folder / PARTS).glob("*")
    for path in (*folder.glob("*"), *inside):
        name = path.relative_to(folder).as_posix()
        ours = OURS.fullmatch(name) and path.is_file() and not path.is_symlink()
        if ours and re.sub("-(wal|shm|journal)$", "", name) not in named:
            path.unlink(missing_ok=True)
    for place in (folder, folder / PARTS):
        files.sweep(place)
    if manifest is not None:
        (folder / UNFINISHED).unlink(missing_ok=True)


def free_name(before: Manifest | None, stem: str, ending: str) -> str:
    """A name of a file that never was there: the plain one, or, where something is replaced, another.

    A name must not come back: SQLite finds the files beside its own by their names, and a reader may still have the
    old one.
    """
    return f"{stem}{ending}" if before is None else f"{stem}-{secrets.token_hex(4)}{ending}"


def free_part(folder: Path) -> str:
    """A name of a part that is not there; its vectors get the same."""
    numbers = [int(path.stem) for path in (folder / PARTS).glob("*.*") if path.stem.isdecimal()]
    return f"{PARTS}/{max(numbers, default=-1) + 1:04d}.index"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the right to write to a collection, until it is left or the process ends.

    A new one may lie on a network file system, as the workers of a cluster have to see it; nobody else knows of it yet.
    """
    if not is_collection(folder) and file_system(folder) in REMOTE:
        yield
        return
    descriptor = take_lock(folder)
    try:
        yield
    finally:
        give_lock(descriptor)


def give_lock(descriptor: int) -> None:
    """Give up the right to write, also for children that a fork has made."""
    files.locks.flock(descriptor, files.locks.LOCK_UN)
    os.close(descriptor)


def take_lock(folder: Path) -> int:
    """Take the right to write; see `give_lock`."""
    if files.locks is None:
        raise OSError("collections can be written on systems with file locks (fcntl) only.")
    if (kind := file_system(folder)) in REMOTE:
        raise OSError(
            f"{str(folder)!r} is on a network file system ({kind}), where locks cannot be trusted; write to a local "
            "folder, and copy it, or store it in PostgreSQL (docs/questions.md#a-network-drive)."
        )
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        files.locks.flock(descriptor, files.locks.LOCK_EX | files.locks.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockedError(
            f"{str(folder)!r} is being written to by somebody else; there can be one writer "
            "(docs/questions.md#another-process-writes)."
        ) from error
    return descriptor


def file_system(path: Path) -> str:
    """The kind of file system that a path is on, where that can be known; otherwise nothing."""
    real, best, kind = os.path.realpath(path), "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text(errors="replace").splitlines():
            _, place, found, *_ = line.split(" ")
            place = place.replace("\\040", " ")
            inside = real == place or real.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, kind = place, found.removeprefix("fuse.")
    return kind
