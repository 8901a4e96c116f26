"""Where data sets lie, and how they get there: pooch downloads them (the extra ``datasets``).

A loader looks in one folder: the argument ``data_dir``, else the environment variable ``GPHASH_DATA``, else the user's
cache folder. It writes there only when it downloads, so a folder that has everything may be read-only. A file appears
under its name when its checksum is right, and not before.
"""

import gzip
import hashlib
import io
import itertools
import os
import sys
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.data.dataset import Progress
from gphash.files import DataError
from gphash.version import __version__

VARIABLE = "GPHASH_DATA"
RETRIES = 2
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 18


class DataMissingError(FileNotFoundError):
    """Files are missing in a folder and could not be downloaded; the message says what to do by hand."""

    def __init__(self, name: str, files: Sequence[str], folder: Path, where: str, reason: str = ""):
        self.files = tuple(files)
        self.folder = folder
        failed = f"\nThe download failed: {reason}" if reason else ""
        super().__init__(
            f"{name}: {len(files)} file{'s are' if len(files) > 1 else ' is'} missing in {str(folder)!r}: "
            f"{', '.join(files)}.{failed}\nBy hand: {where}, and put what is missing into that folder; "
            f"or name the folder that has it, by data_dir or by the environment variable {VARIABLE}."
        )


class RemoteFile(NamedTuple):
    """A file that can be downloaded: addresses are tried in turn, and a checksum is such as ``sha256:0123…``."""

    filename: str
    urls: tuple[str, ...]
    checksum: str
    size_limit: int


def cache_dir() -> Path:
    """The user's cache folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    # The XDG specification says to ignore a relative path.
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def data_dir(given: str | os.PathLike[str] | None = None) -> Path:
    """The data folder, which need not exist: the one given, that of ``GPHASH_DATA``, or one in the user's cache."""
    if given is not None:
        return Path(given).expanduser()
    if variable := os.environ.get(VARIABLE):
        return Path(variable).expanduser()
    return cache_dir() / "gphash"


def obtain(
    name: str, files: Iterable[RemoteFile], folder: Path, *, download: bool = True, progress: Progress | None = None
) -> None:
    """Make sure that the files of a data set are in a folder; what is there is not touched.

    `progress` is called with the bytes done and in all, file by file. A DataMissingError names what is missing if it
    may not or cannot be downloaded.
    """
    missing = [file for file in files if not (folder / file.filename).is_file()]
    while missing:
        reason = _download(missing[0], folder, progress) if download else ""
        if reason or not download:
            where = "download " + ", ".join(file.urls[0] for file in missing)
            raise DataMissingError(name, [file.filename for file in missing], folder, where, reason)
        del missing[0]


def content(path: Path, most: int, checksum: str) -> bytes:
    """What a file holds, unpacked if its name ends in ``.gz``; at most so many bytes, and verified."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            found = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{str(path)!r} is truncated, altered or no archive: {error}") from error
    if len(found) > most:
        raise DataError(f"{str(path)!r} holds more than {most} bytes; it should hold at most that many")
    verify(repr(str(path)), found, checksum)
    return found


def own_arrays(name: str, filename: str, folder: Path, most: int, checksum: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, verified, that has no address to download from."""
    if not (folder / filename).is_file():
        where = f"there is no public address: ask gphash's authors for {filename}"
        raise DataMissingError(name, [filename], folder, where)
    # Verified first: from here on nothing in it can surprise.
    with np.load(io.BytesIO(content(folder / filename, most, checksum)), allow_pickle=False) as file:
        return dict(file)


def verify(label: str, content: bytes, checksum: str) -> None:
    """Refuse bytes with another checksum than ``algorithm:digest``; the label names them in the error."""
    algorithm, _, right = checksum.partition(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != right:
        raise DataError(
            f"{label} is damaged or another file: its {algorithm} is {found}, and should be {right}. Remove it; it is "
            "downloaded again if it has an address."
        )


def _download(file: RemoteFile, folder: Path, progress: Progress | None) -> str:
    """Download a file from the first address that has it; why that failed, or nothing."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise ImportError("downloading data sets needs pooch: pip install pooch") from error
    pooch.get_logger().setLevel("WARNING")
    headers = {"User-Agent": f"gphash/{__version__}", "Accept-Encoding": "identity"}

    def fetch(url: str, target: str, _: Any) -> None:
        answer = requests.get(url, stream=True, timeout=TIMEOUT_SECONDS, headers=headers)
        with answer, open(target, "wb") as out:
            answer.raise_for_status()
            done, total = 0, int(answer.headers.get("Content-Length", 0))
            for chunk in itertools.chain([b""], answer.iter_content(CHUNK_BYTES)):
                out.write(chunk)
                done += len(chunk)
                if max(done, total) > file.size_limit:
                    raise ValueError(f"there are more than {file.size_limit} bytes")
                if progress is not None:
                    progress(done, total or None)

    reasons = []
    is_new = not folder.exists()
    for url in file.urls:
        name = file.filename
        registry = pooch.create(folder, "", registry={name: file.checksum}, urls={name: url}, retry_if_failed=RETRIES)
        try:
            registry.fetch(name, downloader=fetch)
            return ""
        except (OSError, ValueError) as error:  # no connection, no such file, no place to write; another checksum
            reasons.append(f"{url}: {error}")
    if is_new:  # its name may be mistyped
        with suppress(OSError):
            folder.rmdir()
    return "; ".join(reasons)
