"""One attempt to download one file with urllib, from where the last attempt broke off."""

import http.client
import ipaddress
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, NoReturn

from gphash.datasets.dataset import DataError
from gphash.datasets.progress import Progress
from gphash.version import __version__

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0

# Faults of a moment; another answer is the server's last word.
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class UnreachableError(Exception):
    """The address has nothing for us; another attempt would change nothing."""


class BrokenError(Exception):
    """The connection broke; another attempt may succeed, and resumes."""


def complete(url: str, part: Path, size_limit: int, progress: Progress | None = None) -> None:
    """Append to a part what is missing of it, or write it anew where the server cannot resume.

    Parameters
    ----------
    url
        The address. It begins with https; http is for this machine itself only.
    part
        A file that exists; it may be empty.
    size_limit
        More bytes than this are not accepted.
    progress
        Called with the bytes done and in all.

    Raises
    ------
    UnreachableError, BrokenError
        If nothing came, or not all of it.
    DataError
        If there is more at the address than the limit.
    """
    _check_address(url)
    done = part.stat().st_size
    headers = {"User-Agent": f"gphash/{__version__}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = _opener.open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and done:  # Nothing after what we have: the checksum tells whether that is all.
            return
        _give_up(error, error.code in _PASSING)
    except urllib.error.URLError as error:
        _give_up(error.reason, isinstance(error.reason, ConnectionResetError))
    except (http.client.HTTPException, OSError) as error:
        _give_up(error, True)

    with response:
        start, total = _extent(response, done)
        if start != done:
            done = 0
        if total is not None and total > size_limit:
            raise DataError(f"{url} holds {total} bytes; wanted are at most {size_limit}")
        with open(part, "r+b") as file:
            file.truncate(done)
            file.seek(done)
            done = _receive(response, file, url, done, total, size_limit, progress)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise BrokenError(f"the connection broke after {done} of {total} bytes")


def _receive(
    response: http.client.HTTPResponse,
    file: IO[bytes],
    url: str,
    done: int,
    total: int | None,
    size_limit: int,
    progress: Progress | None,
) -> int:
    if progress is not None:
        progress(done, total)
    while True:
        # Only the network's faults may be mended by another attempt; a full disk is not caught here.
        try:
            chunk = response.read(CHUNK_BYTES)
        except (http.client.HTTPException, OSError) as error:
            raise BrokenError(f"the connection broke after {done} bytes ({_words(error)})") from error
        if not chunk:
            return done
        done += len(chunk)
        if done > size_limit:
            raise DataError(f"{url} holds more than {size_limit} bytes")
        file.write(chunk)
        if progress is not None:
            progress(done, total)


def _extent(response: http.client.HTTPResponse, done: int) -> tuple[int, int | None]:
    """First byte of an answer, and the length of the whole file if the server tells."""
    length = response.headers.get("Content-Length", "")
    if response.status == 206:
        # Content-Range: bytes 100-999/1000
        extent, _, whole = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        first = extent.partition("-")[0]
        if not first.isdigit() or int(first) != done:
            raise UnreachableError(f"the server answers a wish for bytes from {done} with {extent or 'others'}")
        if whole.isdigit():
            return done, int(whole)
        return done, done + int(length) if length.isdigit() else None
    return 0, int(length) if length.isdigit() else None


def _give_up(error: object, passing: bool) -> NoReturn:
    raise (BrokenError if passing else UnreachableError)(_words(error))


def _words(error: object) -> str:
    return str(error) or type(error).__name__


def _check_address(url: str) -> None:
    address = urllib.parse.urlsplit(url)
    here = address.hostname in {"localhost", "127.0.0.1", "::1"}
    if address.scheme != "https" and not (here and address.scheme == "http"):
        raise UnreachableError("only addresses that begin with https are followed")


def _is_this_machine(url: str) -> bool:
    host = (urllib.parse.urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection to where an address may not lead either."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _check_address(newurl)
        if _is_this_machine(newurl) and not _is_this_machine(req.full_url):
            raise UnreachableError("a redirection from elsewhere to this machine is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_SafeRedirects)
