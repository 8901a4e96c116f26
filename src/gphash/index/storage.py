"""An index on disk: a file of buckets, a journal of changes beside it, and a lock for the one writer.

`NAME` is a container file (see `persistence`) of kind "index". `NAME.journal` holds what was added and removed since it
was written, and names that file by its fingerprint. Compaction writes a new file, which names the journal that went
into it, over the old one, and then a new, empty journal. A crash in between leaves a journal that the file says it has
taken in already; it is ignored.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files, persistence, schema
from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index import journal
from gphash.index.buckets import Buckets
from gphash.persistence import FormatError
from gphash.schema import Array, Digest, FaultError, Maybe, Rule, Schema, Text, Whole

KIND = "index"
META: dict[str, Rule] = {
    "n_bits": Whole(1, packing.MOST_BITS),
    "model": Maybe(Text()),
    "folded": Maybe(Digest()),
}
AGAIN = "build the index again, or get its files from where they were made"
LARGE = 1 << 22  # bytes of a journal that are worth folding in, if the file itself is not much larger
ATTEMPTS = 20

_held = threading.local()  # paths whose locks this thread holds


class LockedError(RuntimeError):
    """Another process, or another opened index, is writing."""


class Opened(NamedTuple):
    """What the files of an index hold.

    buckets
        Of the file, mapped into memory.
    n_bits, model
        Length of a code, and fingerprint of the model that made the codes.
    changes
        From the journal: kind, ids, and packed codes if added.
    place
        The files, for changes to come.
    """

    buckets: Buckets
    n_bits: int
    model: str | None
    changes: list[tuple[int, NDArray[np.int64], NDArray[np.uint8]]]
    place: "Place"


class Place:
    """Where an opened index lives.

    Parameters
    ----------
    path
        The file of buckets.
    lock
        Held by a writer; None for a reader.
    """

    def __init__(self, path: Path, lock: BinaryIO | None) -> None:
        self.path = path
        self._lock = lock
        self._writer: journal.Writer | None = None
        self._mark = b""
        self._closed = False
        self._owner = os.getpid()

    def begin(self, contents: journal.Contents | None) -> None:
        """Get ready to write, on from what the journal holds; without one, make it."""
        if contents is None:
            base = bytes.fromhex(persistence.describe(self.path).fingerprint)
            journal.create(_journal_of(self.path), base, self.path)
            contents = journal.read(_journal_of(self.path))
        self._mark = contents.mark
        self._writer = journal.Writer(_journal_of(self.path), contents.slot)

    def append(self, kind: int, ids: NDArray[np.int64], packed: NDArray[np.uint8] | None) -> None:
        """Make a change durable."""
        self.check_writable()
        assert self._writer is not None
        codes = b"" if packed is None else packed.tobytes()
        self._writer.append(kind, len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes() + codes)

    def replace(self, buckets: Buckets, n_bits: int, model: str | None) -> str:
        """Write all buckets as the new file, and begin a new journal."""
        assert self._writer is not None
        # Should this fail, it may be before or after the file took its place, with a journal to go on with or one that
        # went into the file: `check_writable` finds out when it is wanted.
        self._writer.close()
        self._writer = None
        mark = write(self.path, buckets, n_bits, model, self._mark.hex())
        self.begin(None)
        return mark

    def buckets(self) -> Buckets:
        """The buckets of the file."""
        return _buckets(self.path, persistence.read(self.path, KIND, mapped=True))

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Whether this is that file."""
        return Path(os.path.realpath(path)) == self.path

    def is_overgrown(self) -> bool:
        """Whether the journal should be folded in."""
        return self.journalled() > max(LARGE, self.path.stat().st_size // 2)

    def is_mine(self) -> bool:
        """Whether this process may write, and is the one that opened the files."""
        return self._lock is not None and os.getpid() == self._owner

    def journalled(self) -> int:
        """Bytes of changes in the journal."""
        return 0 if self._writer is None else self._writer.slot.length - journal.START

    def check_writable(self) -> None:
        """Refuse a reader, or what is closed."""
        if self._lock is None:
            state = "has been closed" if self._closed else "was opened to be read"
            raise ValueError(f"the index {str(self.path)!r} {state}; open it with writable=True.")
        if os.getpid() != self._owner:
            raise ValueError(f"the index {str(self.path)!r} was opened by another process; open it again in this one.")
        if self._writer is None:
            self.begin(_journal_for(self.path, persistence.describe(self.path).meta.get("folded")))

    def close(self) -> None:
        """Let another writer have it; a journal without changes goes."""
        self._closed = True
        mine = os.getpid() == self._owner
        if self._writer is not None:
            if mine and not self.journalled():
                _journal_of(self.path).unlink(missing_ok=True)
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            if mine:  # a child of a fork has the same lock, and must neither keep it nor give it up
                _forget_lock(self.path)
                _unlock(self._lock)
            self._lock.close()
            self._lock = None


@contextlib.contextmanager
def lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the right to write an index; the thread that has it may take it again, as `save_index` does.

    For whoever writes more than the index itself, and wants nobody to come in between.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a folder; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist.")
    held: set[Path] = _held.__dict__.setdefault("paths", set())
    if target in held:
        yield
        return
    with contextlib.closing(_take_lock(target)):
        held.add(target)
        try:
            yield
        finally:
            held.remove(target)
            _forget_lock(target)


def save_index(path: str | os.PathLike[str], buckets: Buckets, n_bits: int, model: str | None) -> str:
    """Write an index; one that is there is replaced, unless somebody is writing to it."""
    target = Path(os.path.realpath(path))
    with lock(path):
        persistence.check_replaceable(path, KIND)
        files.sweep(target.parent)
        before = _journal_of(target)
        folded = None
        if before.exists():
            if not journal.is_ours(before):
                raise FileExistsError(f"{str(before)!r} is no journal of an index, and would be in the way of one.")
            with contextlib.suppress(FormatError):
                folded = journal.read(before).mark.hex()
        mark = write(target, buckets, n_bits, model, folded)
        before.unlink(missing_ok=True)
    return mark


def open_index(path: str | os.PathLike[str], writable: bool) -> Opened:
    """Read and verify the files of an index."""
    target = Path(os.path.realpath(path))
    if not target.exists():
        raise FileNotFoundError(f"{os.fspath(path)!r} does not exist; give the file of an index.")
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a folder; give the file of an index.")
    place = Place(target, _take_lock(target) if writable else None)
    try:
        for _ in range(ATTEMPTS):
            stored = persistence.read(target, KIND, mapped=True)
            beside = _journal_of(target)
            contents = _journal_for(target, stored.meta.get("folded"))
            base = persistence.describe(target).fingerprint if contents is None else contents.base.hex()
            if base == stored.fingerprint:
                break
            # A writer may have replaced the file between our looks at the two; then the next look agrees.
        else:
            raise FormatError(f"{str(beside)!r} belongs to another index file than {str(target)!r}")
        buckets = _buckets(target, stored)
        n_bits = stored.meta["n_bits"]
        changes = [_change(kind, payload, n_bits, beside) for kind, payload in (contents.records if contents else [])]
        if writable:
            files.sweep(target.parent)
            place.begin(contents)
    except BaseException:
        place.close()
        raise
    return Opened(buckets, n_bits, stored.meta["model"], changes, place)


def _journal_for(path: Path, folded: object) -> journal.Contents | None:
    """The journal beside a file; None if there is none, or one that went into the file."""
    try:
        contents = journal.read(_journal_of(path))
    except FileNotFoundError:
        return None
    return None if contents.mark.hex() == folded else contents


def write(path: Path, buckets: Buckets, n_bits: int, model: str | None, folded: str | None) -> str:
    """Write an index whole, without a lock, and return its fingerprint; `folded` is the journal that it replaces."""
    meta: dict[str, Any] = {"n_bits": n_bits, "model": model, "folded": folded}
    arrays: dict[str, NDArray[Any]] = {"codes": buckets.codes, "starts": buckets.starts, "ids": buckets.ids}
    return persistence.write(path, KIND, meta, arrays)


def _buckets(path: Path, stored: persistence.Container) -> Buckets:
    """The buckets of a file; compiled code relies on what is checked here."""
    with schema.reading(path, AGAIN):
        schema.Record(META).check(stored.meta, "")
        n_bits = stored.meta["n_bits"]
        n_words = -(-n_bits // 64)
        word = np.dtype(bucketing.word_type(n_bits)).newbyteorder("<").str
        small, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        arrays = {
            "codes": Array(word, ("codes",) if n_words == 1 else ("codes", n_words), 0, np.iinfo(np.uint64).max),
            "starts": Array(("<u4", "<i8"), ("starts",), 0, most),
            "ids": Array("<i8", ("items",), small, most),
        }
        sizes = schema.check(Schema(META, arrays), stored.meta, stored.arrays)
        if sizes["starts"] != sizes["codes"] + 1:
            raise FaultError(f"it has {sizes['starts']} starts for {sizes['codes']} codes")
        codes, starts, ids = (np.asarray(stored.arrays[name]) for name in ("codes", "starts", "ids"))
        if fault := bucketing.fault(codes, starts, ids, n_bits):
            raise FaultError(fault)
        return bucketing.build(codes, starts, ids)


def _change(kind: int, payload: bytes, n_bits: int, path: Path) -> tuple[int, NDArray[np.int64], NDArray[np.uint8]]:
    count, width = int.from_bytes(payload[:8], "little"), -(-n_bits // 8)
    if kind not in (journal.ADD, journal.REMOVE) or len(payload) != 8 + count * (
        8 + (width if kind == journal.ADD else 0)
    ):
        raise FormatError(f"{str(path)!r} holds a record that this version of gphash does not know")
    ids = np.frombuffer(payload, "<i8", count, 8).astype(np.int64)
    packed = np.frombuffer(payload, np.uint8, offset=8 + 8 * count).reshape(-1, width)
    with schema.reading(path, AGAIN):
        packing.check_packed(packed, n_bits, "a record")
    return kind, ids, packed


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _take_lock(path: Path) -> BinaryIO:
    """Hold the right to write, until the file that comes back is closed."""
    try:
        import fcntl
    except ImportError as error:
        raise OSError("indexes can be written on systems with file locks (fcntl) only.") from error
    beside = _lock_of(path)
    while True:
        file = open(beside, "ab")  # noqa: SIM115, closed by whoever holds it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have deleted the file meanwhile, and locked another one of the same name.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), beside.stat()):
                    return file
            file.close()
        except BlockingIOError as error:
            file.close()
            raise LockedError(
                f"{str(path)!r} is being written to by somebody else; there can be one writer."
            ) from error
        except BaseException:
            file.close()
            raise


def _forget_lock(path: Path) -> None:
    """Remove the file of a lock that is held; whoever has it open finds out that it is gone."""
    with contextlib.suppress(OSError):
        _lock_of(path).unlink()


def _unlock(file: BinaryIO) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)
