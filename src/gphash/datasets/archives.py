"""Reading archives that nobody has reason to trust.

An archive is refused as a whole, before or while it is read, if a member would lie outside its folder, is a link, a
device or encrypted, occurs twice, or if there are more members or bytes than its reader allows. Truncated and altered
archives are refused, too. Every refusal is a DataError that names the file.
"""

import contextlib
import gzip
import io
import os
import secrets
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from gphash.datasets.dataset import DataError

CHUNK_BYTES = 1 << 20


class Limits(NamedTuple):
    """What an archive may hold.

    total_bytes
        Size of all members together, unpacked.
    members
        Their number, folders included.
    """

    total_bytes: int
    members: int


class Member(NamedTuple):
    """A file in an archive.

    name
        Its path, relative and with forward slashes.
    size
        Its size in bytes.
    read
        Reads its content whole; to be called before the next member is asked for.
    copy
        Writes its content to an open file; likewise.
    """

    name: str
    size: int
    read: Callable[[], bytes]
    copy: Callable[[IO[bytes]], None]


def read_gzip(path: Path, max_bytes: int) -> bytes:
    """The content of a ``.gz`` file, of at most so many bytes."""
    with _named(path), gzip.open(path, "rb") as file:
        content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise DataError(f"{str(path)!r} unpacks to more than the {max_bytes} bytes that it should hold")
        return content


def members(path: Path, limits: Limits) -> Iterator[Member]:
    """The files of a tar archive, compressed or not, or of a zip archive, one after the other.

    Folders are checked and left out. Whoever iterates to the end knows that the archive is whole.
    """
    with open(path, "rb") as file:
        zipped = file.read(2) == b"PK"
    return _zip_members(path, limits) if zipped else _tar_members(path, limits)


def unpack(path: Path, folder: Path, limits: Limits) -> Path:
    """Unpack an archive into a new folder, whole or not at all.

    Parameters
    ----------
    path
        A tar archive, compressed or not, or a zip archive.
    folder
        Where to; it must not exist yet.
    limits
        What the archive may hold.

    Returns
    -------
    folder
        The same.
    """
    if os.path.lexists(folder):
        raise FileExistsError(f"folder={str(folder)!r} exists already; name a new one.")
    temporary = folder.with_name(f".gphash-{secrets.token_hex(8)}.tmp")
    temporary.mkdir(parents=True)
    try:
        for member in members(path, limits):
            target = temporary.joinpath(*PurePosixPath(member.name).parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch(exist_ok=False)
            except (FileExistsError, NotADirectoryError) as error:
                raise DataError(f"{str(path)!r} is refused: its member {member.name!r} is in the way") from error
            with open(target, "wb") as file:
                member.copy(file)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def safe_name(name: str) -> str | None:
    """A member's path, relative and tidied, or None if it leads or might lead outside; the folder itself is ``.``."""
    # A backslash and a colon separate folders and drives on Windows; no archive of ours has them.
    if not name or name.startswith("/") or any(character in name for character in "\\:\0"):
        return None
    tidy = PurePosixPath(name)
    return None if ".." in tidy.parts else str(tidy)


class _Budget:
    """Counts members and bytes, and refuses what is too much."""

    def __init__(self, path: Path, limits: Limits):
        self.path = path
        self.limits = limits
        self.names: set[str] = set()
        self.total = 0

    def admit(self, given: str, size: int, is_folder: bool) -> str:
        """The member's tidied name, if it may be read."""
        name = safe_name(given)
        if name is None:
            raise self.refusal(f"its member {given!r} would lie outside the folder")
        if size < 0:
            raise self.refusal(f"its member {given!r} claims a size of {size} bytes")
        if name in self.names and not is_folder:
            raise self.refusal(f"its member {given!r} occurs twice")
        self.names.add(name)
        self.total += size
        if len(self.names) > self.limits.members:
            raise self.refusal(f"it has more than the {self.limits.members} members that it should hold")
        if self.total > self.limits.total_bytes:
            raise self.refusal(f"it unpacks to more than the {self.limits.total_bytes} bytes that it should hold")
        return name

    def refusal(self, why: str) -> DataError:
        return DataError(f"{str(self.path)!r} is refused: {why}")


class _Bounded:
    """A stream that ends with an error after so many bytes: what tarfile reads on its own account counts as well."""

    def __init__(self, stream: gzip.GzipFile | io.BufferedReader, budget: _Budget, limit: int):
        self.stream = stream
        self.budget = budget
        self.left = limit

    def read(self, size: int) -> bytes:
        """At most so many bytes more."""
        content = self.stream.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise self.budget.refusal(f"it unpacks to more than the {self.budget.limits.total_bytes} bytes allowed")
        return content


def _tar_members(path: Path, limits: Limits) -> Iterator[Member]:
    budget = _Budget(path, limits)
    # A header of 512 bytes and up to 511 of padding for every member, long names, and the end: two blocks, padded.
    allowance = limits.total_bytes + 4096 * limits.members + (1 << 16)
    with _named(path), contextlib.ExitStack() as stack:
        raw = stack.enter_context(open(path, "rb"))
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        content = gzip.GzipFile(fileobj=raw) if packed else raw
        stream = _Bounded(content, budget, allowance)
        archive = stack.enter_context(tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", bufsize=CHUNK_BYTES))
        for entry in archive:
            name = budget.admit(entry.name, entry.size, entry.isdir())
            if not entry.isdir() and not (entry.isreg() and not entry.issparse()):
                raise budget.refusal(f"its member {entry.name!r} is a link or a device, not a file")
            if entry.isreg():
                file = archive.extractfile(entry)
                assert file is not None  # it is a regular file
                yield _member(path, name, entry.size, file)
        # The checksum of a compressed stream comes last.
        while stream.read(CHUNK_BYTES):
            pass


def _zip_members(path: Path, limits: Limits) -> Iterator[Member]:
    budget = _Budget(path, limits)
    with _named(path), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > limits.members:
            raise budget.refusal(f"it has more than the {limits.members} members that it should hold")
        names = {}
        for entry in entries:
            names[entry.filename] = budget.admit(entry.filename, entry.file_size, entry.is_dir())
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise budget.refusal(f"its member {entry.filename!r} is a link or a device, not a file")
            if entry.flag_bits & 1:
                raise budget.refusal(f"its member {entry.filename!r} is encrypted")
            if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise budget.refusal(f"its member {entry.filename!r} is compressed in an unusual way")
        for entry in entries:
            if not entry.is_dir():
                with archive.open(entry) as file:
                    yield _member(path, names[entry.filename], entry.file_size, file)


def _member(path: Path, name: str, size: int, file: IO[bytes]) -> Member:
    def copy(target: IO[bytes]) -> None:
        with _named(path):
            left = size
            while left and (chunk := file.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                target.write(chunk)
            # One more read makes zipfile compare its checksum; a tar stream is checked at its end.
            if left or file.read(1):
                raise DataError(f"{str(path)!r} is truncated: {name!r} should have {size} bytes")

    def read() -> bytes:
        buffer = io.BytesIO()
        copy(buffer)
        return buffer.getvalue()

    return Member(name, size, read, copy)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Whatever the libraries say about a bad archive becomes a DataError that names it."""
    faults: tuple[type[Exception], ...] = (
        tarfile.TarError,
        zipfile.BadZipFile,
        gzip.BadGzipFile,
        zlib.error,
        EOFError,
        ValueError,  # UnicodeDecodeError is one of them
        OverflowError,
        NotImplementedError,  # a version of the format that zipfile does not know
    )
    try:
        yield
    except DataError:
        raise
    except faults as error:
        raise DataError(
            f"{str(path)!r} is truncated, altered or no archive: {str(error) or type(error).__name__}"
        ) from error
