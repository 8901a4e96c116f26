"""Files that are written whole or not at all, and their names as texts."""

import contextlib
import errno
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], like: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and safely on disk.

    After a failure or an interruption `path` is what it was before, and nothing else is left. A link stays a link: what
    it points to is replaced. Who may read and write the file stays as it was; of a new one it is as with `like`.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "wanted is a file, this is a folder", os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(target.parent))
    temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _take_mode(file, target if target.exists() else like)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _take_mode(file: BinaryIO, model: Path | None) -> None:
    if model is not None and os.name == "posix":
        os.fchmod(file.fileno(), stat.S_IMODE(model.stat().st_mode))


def sweep(path: str | os.PathLike[str]) -> None:
    """Remove what killed writers of a file left; for whoever knows that nobody is writing it now."""
    target = Path(os.path.realpath(path))
    for left in target.parent.glob(f"{_prefix(target)}*.tmp"):
        left.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    """How the names of a file's unfinished successors begin."""
    return f".gphash-{zlib.crc32(target.name.encode(errors='surrogateescape')):08x}-"


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text, and hand back where it is."""
    with replacing(path) as file:
        file.write(text.encode())
    return Path(path)


def readable(name: str) -> str:
    r"""A name as a text that can be shown and sent: what is no UTF-8 in it, a lone surrogate in Python, as \udcff."""
    return name.encode(errors="backslashreplace").decode()


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
