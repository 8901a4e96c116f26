"""Files that are written whole or not at all, and their names as texts."""

import contextlib
import errno
import functools
import os
import re
import secrets
import socket
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

locks: Any
try:
    import fcntl as locks
except ImportError:  # Windows
    locks = None

PREFIX = ".gphash-"  # of unfinished files
LONG_PAST = 86_400  # seconds

_swept: set[Path] = set()


class DataError(ValueError):
    """A file is there, but truncated, altered, unsafe or not what it should be; the message names it."""


class LockedError(RuntimeError):
    """Somebody else is writing."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], like: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and safely on disk.

    After a failure or an interruption `path` is what it was, and nothing else is left; what a killed process leaves,
    the next one that writes to the folder removes. What a link points to is replaced. Permissions stay as they were;
    those of a new file are as with `like`.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder; it must be a file", os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(target.parent))
    if target.parent not in _swept:
        _swept.add(target.parent)
        sweep(target.parent)
    temporary, opened = _begin(target)
    try:
        with opened as file:
            model = target if target.exists() else like
            if model is not None and os.name == "posix":
                os.fchmod(file.fileno(), stat.S_IMODE(model.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            if locks is None:  # Windows, where a file that is open stays where it is
                file.close()
            os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)  # a full disk does not say what was written
        raise
    sync_folder(target.parent)


def _begin(target: Path) -> tuple[Path, BinaryIO]:
    """A new file beside a target, locked as long as it is open: without its lock, its writer is gone."""
    while True:
        temporary = target.with_name(f"{PREFIX}{_machine()}-{secrets.token_hex(8)}.tmp")
        file = open(temporary, "xb")  # noqa: SIM115, closed by whoever writes it
        if locks is not None:
            with contextlib.suppress(OSError):  # not every file system has locks
                locks.flock(file, locks.LOCK_EX)
        # Somebody may have come in before the lock, and taken the file for one that was left.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), temporary.stat()):
                return temporary, file
        file.close()


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder."""
    for left in folder.glob(f"{PREFIX}*.tmp"):
        with contextlib.suppress(OSError), open(left, "r+b") as file:
            if locks is not None:
                locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
            # Of other machines, whose locks may not be seen here, only what is long past.
            mine = locks is not None and left.name.startswith(f"{PREFIX}{_machine()}-")
            if mine or time.time() - os.fstat(file.fileno()).st_mtime > LONG_PAST:
                left.unlink()


@functools.cache
def _machine() -> str:
    """What tells this machine, since it was started, from others that may write to the same folder."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = socket.gethostname().encode()
    return f"{zlib.crc32(name):08x}"


def check_replaceable(path: str | os.PathLike[str], kind: str, is_one: Callable[[Path], bool]) -> None:
    """Refuse to write a kind of file over something else; nothing, or an empty file, may be replaced."""
    there = Path(path)
    if not there.exists() or there.is_dir():  # folders are refused by `replacing`
        return
    if not there.is_file() or (there.stat().st_size and not is_one(there)):
        raise FileExistsError(f"{os.fspath(path)!r} already exists and is no {kind}; give another name or remove it.")


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text, and hand back where it is."""
    with replacing(path) as file:
        file.write(text.encode())
    return Path(path)


def readable(name: str) -> str:
    r"""A name as a text that can be shown and sent: what is no UTF-8 in it, a lone surrogate in Python, as \udcff."""
    return name.encode(errors="backslashreplace").decode()


def named(text: str) -> str:
    """The name that `readable` made readable."""
    return re.sub(r"\\udc([89a-f][0-9a-f])", lambda found: chr(0xDC00 + int(found[1], 16)), text)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
