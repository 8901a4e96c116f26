"""Where data lie, and how they get there.

A loader looks in one folder: the argument ``data_dir``, else the environment variable ``GPHASH_DATA``, else the user's
cache folder. It writes there only when it downloads, so that a folder of whole data may be read-only.

A download goes to ``<file>.part``, which a later attempt takes up where the last one broke off; the file appears under
its name when its checksum is right, and not before. Of several processes that want one file, one downloads it and the
others wait, where the system has locks.
"""

import contextlib
import hashlib
import io
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gphash.datasets import transfer
from gphash.datasets.dataset import DataError
from gphash.datasets.progress import Progress

if sys.platform != "win32":
    import fcntl

VARIABLE = "GPHASH_DATA"
TRIES = 4
PAUSE_SECONDS = 1.0
STEADY_BYTES = 1 << 20
"""A connection that brought this much before it broke is not counted as a failed attempt."""


class DataMissingError(FileNotFoundError):
    """Files are wanted that are neither there nor to be had; the message says what to do by hand.

    files
        Their names.
    folder
        Where they are wanted.
    reason
        Why they could not be downloaded; empty if nobody tried.
    """

    def __init__(self, name: str, files: Sequence[str], folder: Path, where: str, reason: str = ""):
        self.files = tuple(files)
        self.folder = folder
        self.reason = reason
        failed = f"\nThe download failed: {reason}" if reason else ""
        super().__init__(
            f"{name}: {len(files)} file{'s are' if len(files) > 1 else ' is'} missing in {str(folder)!r}: "
            f"{', '.join(files)}.{failed}\nBy hand: {where}, and put what is missing into that folder; "
            f"or name the folder that has it, by data_dir or by the environment variable {VARIABLE}."
        )


class RemoteFile(NamedTuple):
    """A file that can be downloaded.

    filename
        Its name in the data folder.
    urls
        Its addresses, the one to try first in front.
    checksum
        Algorithm and hexadecimal digest, such as ``md5:0123…``.
    size_limit
        More bytes than this are not accepted.
    """

    filename: str
    urls: tuple[str, ...]
    checksum: str
    size_limit: int


def data_dir(given: str | os.PathLike[str] | None = None) -> Path:
    """The data folder; it need not exist.

    Parameters
    ----------
    given
        The folder; if None, that of ``GPHASH_DATA``, else ``gphash`` in the user's cache folder.
    """
    if given is not None:
        return Path(given).expanduser()
    if variable := os.environ.get(VARIABLE):
        return Path(variable).expanduser()
    return cache_dir() / "gphash"


def obtain(
    name: str, files: Iterable[RemoteFile], folder: Path, *, download: bool = True, progress: Progress | None = None
) -> None:
    """Make sure that files are in a folder; what is there is not touched.

    Parameters
    ----------
    name
        What the files belong to, for messages.
    files
        The files wanted.
    folder
        Where they are wanted.
    download
        Whether to download what is missing.
    progress
        Called with the bytes done and in all, file by file.

    Raises
    ------
    DataMissingError
        If a file is missing and cannot be downloaded.
    """
    missing = [file for file in files if not (folder / file.filename).is_file()]
    while missing:
        where = "download " + ", ".join(file.urls[0] for file in missing)
        names = [file.filename for file in missing]
        if not download:
            raise DataMissingError(name, names, folder, where)
        file = missing[0]
        try:
            fetch(
                name,
                file.urls,
                folder / file.filename,
                size_limit=file.size_limit,
                checksum=file.checksum,
                progress=progress,
            )
        except DataMissingError as error:
            raise DataMissingError(name, names, folder, where, error.reason) from error
        missing = missing[1:]


def fetch(
    name: str,
    urls: Sequence[str],
    path: Path,
    *,
    size_limit: int,
    checksum: str,
    progress: Progress | None = None,
) -> Path:
    """Download one file, whole and verified or not at all.

    Parameters
    ----------
    name
        What the file belongs to, for messages.
    urls
        Addresses of the same file, tried in turn. They begin with https; http is for this machine itself only.
    path
        Where the file is to be.
    size_limit
        More bytes than this are not accepted.
    checksum
        Algorithm and hexadecimal digest, such as ``md5:0123…``.
    progress
        Called with the bytes done and in all.

    Raises
    ------
    DataMissingError
        If no address can be reached, or the folder cannot be written.
    DataError
        If what came from the last address is something else.
    """
    part = path.with_name(path.name + ".part")
    is_new = not path.parent.exists()
    with contextlib.ExitStack() as stack:
        if is_new:
            # A folder whose name was mistyped is not left behind; one that something was stored in cannot be removed.
            stack.callback(_remove_if_empty, path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_alone(part))
        except OSError as error:
            reason = f"the folder cannot be written ({error})"
            raise DataMissingError(name, [path.name], path.parent, f"download {urls[0]}", reason) from error
        if path.is_file():  # Another process has brought it while this one waited.
            if not part.stat().st_size:
                part.unlink()
            return path
        return _fetch(name, urls, path, part, size_limit, checksum, progress)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _fetch(
    name: str,
    urls: Sequence[str],
    path: Path,
    part: Path,
    size_limit: int,
    checksum: str,
    progress: Progress | None,
) -> Path:
    """Try the addresses in turn."""
    reasons: list[str] = []
    wrong: DataError | None = None
    for url in urls:
        try:
            _fetch_from(url, part, size_limit, checksum, progress)
        except DataError as error:
            wrong = error
            reasons.append(str(error))
        except (transfer.UnreachableError, transfer.BrokenError) as error:
            reasons.append(f"{url}: {error}")
        else:
            os.replace(part, path)
            return path
    if not part.stat().st_size:
        part.unlink()
    if wrong is not None:
        raise DataError(
            f"{name}: {path.name} could not be downloaded: {'; '.join(reasons)}\nBy hand: download {urls[0]}, and put "
            f"it into {str(path.parent)!r}; or name the folder that has it, by data_dir or by the environment variable "
            f"{VARIABLE}."
        ) from wrong
    raise DataMissingError(name, [path.name], path.parent, f"download {urls[0]}", "; ".join(reasons))


def verify(label: str, content: bytes, checksum: str) -> None:
    """Compare bytes with their checksum, ``algorithm:digest``; a difference is a DataError that names them by label."""
    if fault := _difference(io.BytesIO(content), checksum):
        raise DataError(
            f"{label} is damaged or another file: of its content {fault}. Remove it, and it will be downloaded anew "
            "if it has an address."
        )


def cache_dir() -> Path:
    """The user's cache folder, as the system has it."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    # The XDG specification: a relative path is invalid and to be ignored.
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Make the part if need be, and hold it against other processes and threads."""
    if sys.platform == "win32":  # It has no such locks, and moves no file that is open.
        with open(part, "ab"):
            pass
        yield
        return
    while True:
        with open(part, "ab") as file:
            # Some network file systems have no locks; the download goes on without.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it before may have moved it to its place, or removed it: then this is the part no more.
            try:
                current = os.path.samestat(os.fstat(file.fileno()), part.stat())
            except FileNotFoundError:
                current = False
            if current:
                yield
                return


def _fetch_from(url: str, part: Path, size_limit: int, checksum: str, progress: Progress | None) -> None:
    """Complete the part from one address and verify it."""
    old = part.stat().st_size > 0
    tries = 0
    while True:
        before = part.stat().st_size
        try:
            transfer.complete(url, part, size_limit, progress)
        except transfer.BrokenError:
            if part.stat().st_size - before < STEADY_BYTES:
                tries += 1
            if tries == TRIES:
                raise
            time.sleep(PAUSE_SECONDS * tries)
            continue
        except DataError:
            _empty(part)
            raise
        with open(part, "rb") as file:
            fault = _difference(file, checksum)
        if not fault:
            return
        _empty(part)
        if not old:
            raise DataError(f"{url} holds something else: {fault}")
        old = False  # The old part was of something else: begin anew, once.


def _difference(file: io.BufferedReader | io.BytesIO, checksum: str) -> str:
    """What is wrong with a content, or nothing."""
    algorithm, _, wanted = checksum.partition(":")
    found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    return "" if found == wanted else f"the {algorithm} is {found}, wanted is {wanted}"


def _empty(part: Path) -> None:
    with open(part, "wb"):
        pass
