"""The files of the page, held in memory; names that are not among them do not exist."""

import hashlib
from importlib import resources
from typing import NamedTuple

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class Asset(NamedTuple):
    """A file.

    content, media_type
        As it is sent.
    etag
        Of its content.
    """

    content: bytes
    media_type: str
    etag: str


def load() -> dict[str, Asset]:
    """All files of the page by name."""
    folder = resources.files("gphash.server") / "page"
    found = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_file() and (media_type := MEDIA_TYPES.get(entry.name.rpartition(".")[2])):
            content = entry.read_bytes()
            found[entry.name] = Asset(content, media_type, etag(content))
    return found


def etag(content: bytes) -> str:
    """A mark that changes with the content."""
    return f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'


def is_known(if_none_match: str | None, mark: str) -> bool:
    """Whether the client says that it has this content already."""
    if if_none_match is None:
        return False
    return any(part.strip().removeprefix("W/") in ("*", mark) for part in if_none_match.split(","))
