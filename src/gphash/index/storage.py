"""An index on disk: a file of buckets, a journal of changes beside it, and a lock for the one writer.

`NAME` is a container file (see `container`) of kind "index". `NAME.journal` holds what was added and removed since it
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

from gphash import container, files, schema
from gphash.codes import packing
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import journal
from gphash.index.buckets import Buckets
from gphash.schema import Array, Digest, FaultError, Maybe, Rule, Schema, Text, Whole

KIND = "index"
META: dict[str, Rule] = {"n_bits": Whole(1, packing.MOST_BITS), "model": Maybe(Text()), "folded": Maybe(Digest())}
AGAIN = "build the index again, or get its files from where they were made"
LARGE = 1 << 22  # bytes of a journal that are worth folding in, if the file itself is not much larger
ATTEMPTS = 20

_held = threading.local()  # paths whose locks this thread holds


class LockedError(RuntimeError):
    """Another process, or another opened index, is writing."""


class Change(NamedTuple):
    """A record of a journal: items added, with their packed codes, or removed."""

    is_added: bool
    ids: NDArray[np.int64]
    packed: NDArray[np.uint8]


class Opened(NamedTuple):
    """Buckets, mapped into memory, and metadata of a file; changes from its journal, and files for those to come."""

    buckets: Buckets
    n_bits: int
    model: str | None
    changes: list[Change]
    files: "IndexFiles"


class IndexFiles:
    """The files of an opened index; without a lock, they are only read."""

    def __init__(self, path: Path, lock: BinaryIO | None) -> None:
        self.path = path
        self._lock = lock
        self._writer: journal.Writer | None = None
        self._mark = b""
        self._closed = False
        self._owner = os.getpid()

    def begin(self, known: journal.Journal | None) -> None:
        """Get ready to write, on from what the journal holds; without one, make it."""
        beside = _beside(self.path, "journal")
        if known is None:
            journal.create(beside, bytes.fromhex(container.describe(self.path).fingerprint), self.path)
            known = journal.read(beside)
        self._mark = known.mark
        self._writer = journal.Writer(beside, known.slot)

    def append(self, ids: NDArray[np.int64], packed: NDArray[np.uint8] | None) -> None:
        """Make a change durable: items added with their codes, or removed if there are none."""
        self.check_writable()
        assert self._writer is not None
        kind, codes = (journal.REMOVE, b"") if packed is None else (journal.ADD, packed.tobytes())
        self._writer.append(kind, len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes() + codes)

    def replace(self, buckets: Buckets, n_bits: int, model: str | None) -> tuple[str, Buckets]:
        """Write all buckets as the new file and begin a new journal; returns the fingerprint and the file's buckets."""
        self.check_writable()
        assert self._writer is not None
        # Should this fail, the file may be the new one or the old; `check_writable` finds out when it is needed.
        self._writer.close()
        self._writer = None
        mark = write(self.path, buckets, n_bits, model, self._mark.hex())
        self.begin(None)
        return mark, _buckets(self.path, container.read(self.path, KIND, mapped=True))

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
            self.begin(_journal_for(self.path, container.describe(self.path).meta.get("folded")))

    def close(self) -> None:
        """Let another writer have it; a journal without changes goes."""
        self._closed = True
        mine = os.getpid() == self._owner
        if self._writer is not None:
            if mine and not self.journalled():
                _beside(self.path, "journal").unlink(missing_ok=True)
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            if mine:  # a child of a fork has the same lock, and must neither keep it nor give it up
                _give_up(self.path, self._lock)
            self._lock.close()
            self._lock = None


@contextlib.contextmanager
def lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the right to write an index; the thread that has it may take it again, as `save_index` does.

    For whoever writes more than the index itself, and lets nobody come in between.
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
    with contextlib.closing(_take_lock(target)) as taken:
        held.add(target)
        try:
            yield
        finally:
            held.remove(target)
            _give_up(target, taken)


def save_index(path: str | os.PathLike[str], buckets: Buckets, n_bits: int, model: str | None) -> str:
    """Write an index; one that is there is replaced, unless somebody is writing to it."""
    target = Path(os.path.realpath(path))
    with lock(path):
        container.check_replaceable(path, KIND)
        files.sweep(target.parent)
        before = _beside(target, "journal")
        folded = None
        if before.exists():
            if not journal.is_ours(before):
                raise FileExistsError(
                    f"{str(before)!r} is no journal of an index; rename it, or give the index another name."
                )
            with contextlib.suppress(FormatError):
                folded = journal.read(before).mark.hex()
        mark = write(target, buckets, n_bits, model, folded)
        before.unlink(missing_ok=True)
    return mark


def open_files(path: str | os.PathLike[str], writable: bool) -> Opened:
    """Read and verify the files of an index."""
    target = Path(os.path.realpath(path))
    if not target.is_file():
        kind, what = (IsADirectoryError, "is a folder") if target.is_dir() else (FileNotFoundError, "does not exist")
        raise kind(f"{os.fspath(path)!r} {what}; give the file of an index.")
    opened = IndexFiles(target, _take_lock(target) if writable else None)
    beside = _beside(target, "journal")
    try:
        for _ in range(ATTEMPTS):
            stored = container.read(target, KIND, mapped=True)
            known = _journal_for(target, stored.meta.get("folded"))
            base = container.describe(target).fingerprint if known is None else known.base.hex()
            if base == stored.fingerprint:
                break
            # A writer may have replaced the file between our looks at the two; then the next look agrees.
        else:
            raise FormatError(f"{str(beside)!r} belongs to another index file than {str(target)!r}")
        buckets = _buckets(target, stored)
        n_bits = stored.meta["n_bits"]
        changes = [_change(kind, payload, n_bits, beside) for kind, payload in (known.records if known else [])]
        if writable:
            files.sweep(target.parent)
            opened.begin(known)
    except BaseException:
        opened.close()
        raise
    return Opened(buckets, n_bits, stored.meta["model"], changes, opened)


def _journal_for(path: Path, folded: object) -> journal.Journal | None:
    """The journal beside a file; None if there is none, or one that went into the file."""
    try:
        known = journal.read(_beside(path, "journal"))
    except FileNotFoundError:
        return None
    return None if known.mark.hex() == folded else known


def write(path: Path, buckets: Buckets, n_bits: int, model: str | None, folded: str | None) -> str:
    """Write an index whole, without a lock, and return its fingerprint; `folded` is the journal that it replaces."""
    meta: dict[str, Any] = {"n_bits": n_bits, "model": model, "folded": folded}
    return container.write(path, KIND, meta, {"codes": buckets.codes, "starts": buckets.starts, "ids": buckets.ids})


def _buckets(path: Path, stored: container.Container) -> Buckets:
    """The buckets of a file; compiled code relies on what is checked here."""
    with schema.reading(path, AGAIN):
        schema.Record(META).check(stored.meta, "")
        n_bits = stored.meta["n_bits"]
        n_words = -(-n_bits // 64)
        word = np.dtype(bucketing.word_type(n_bits)).newbyteorder("<").str
        arrays = {
            "codes": Array(word, ("codes",) if n_words == 1 else ("codes", n_words), 0, 2**64 - 1),
            "starts": Array(("<u4", "<i8"), ("starts",), 0, 2**63 - 1),
            "ids": Array("<i8", ("items",), -(2**63), 2**63 - 1),
        }
        sizes = schema.check(Schema(META, arrays), stored.meta, stored.arrays)
        if sizes["starts"] != sizes["codes"] + 1:
            raise FaultError(f"it has {sizes['starts']} starts for {sizes['codes']} codes")
        codes, starts, ids = (np.asarray(stored.arrays[name]) for name in arrays)
        if fault := bucketing.fault(codes, starts, ids, n_bits):
            raise FaultError(fault)
        return bucketing.build(codes, starts, ids)


def _change(kind: int, payload: bytes, n_bits: int, path: Path) -> Change:
    count, width, added = int.from_bytes(payload[:8], "little"), -(-n_bits // 8), kind == journal.ADD
    if kind not in (journal.ADD, journal.REMOVE) or len(payload) != 8 + count * (8 + width * added):
        raise FormatError(f"{str(path)!r} holds a record that this version of gphash does not know")
    ids = np.frombuffer(payload, "<i8", count, 8).astype(np.int64)
    packed = np.frombuffer(payload, np.uint8, offset=8 + 8 * count).reshape(-1, width)
    with schema.reading(path, AGAIN):
        packing.check_packed(packed, n_bits, "a record")
    return Change(added, ids, packed)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _take_lock(path: Path) -> BinaryIO:
    """Hold the right to write, until the file that comes back is closed."""
    try:
        import fcntl
    except ImportError as error:
        raise OSError("indexes can be written on systems with file locks (fcntl) only.") from error
    while True:
        with contextlib.ExitStack() as failing:
            file = failing.enter_context(open(_beside(path, "lock"), "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockedError(
                    f"{str(path)!r} is being written to by somebody else; there can be one writer."
                ) from error
            # Somebody may have deleted the file meanwhile, and locked another one of the same name.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), _beside(path, "lock").stat()):
                    failing.pop_all()
                    return file


def _give_up(path: Path, file: BinaryIO) -> None:
    """Remove the file of a lock that is held, and unlock; whoever has it open finds out that it is gone."""
    import fcntl

    with contextlib.suppress(OSError):
        _beside(path, "lock").unlink()
    fcntl.flock(file, fcntl.LOCK_UN)
