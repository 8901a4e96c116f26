"""What whoever starts the service decides."""

import ipaddress
import os
from typing import NamedTuple


class Settings(NamedTuple):
    """How the service listens, whom it answers, and how much it takes.

    host, port
        Where it listens; port 0 is any free one.
    model
        Where the model is, if not where the index says.
    pictures
        Where the pictures are, if not below the folder of the index.
    writable
        Whether items may be added and removed.
    read_token, write_token
        What `Authorization: Bearer` must say to read and to write; the write token may read, too. None asks for none.
    no_token
        Allow other hosts than this machine although there is no token.
    hosts
        Names by which the service may be called (the header Host, without the port). None is any, but on a loopback
        address without a read token only names of this machine: a page elsewhere could otherwise point its own name
        here and read everything.
    max_k, max_rows
        Most neighbours of a search, and most rows to encode at once.
    max_body_bytes, max_picture_pixels
        Larger bodies and pictures are refused.
    max_in_work
        Requests worked on at once, counted when all of them has come; more are asked to come back.
    max_unread
        Bodies on their way at once, and half as many from one address; beyond that the slowest is given up.
    upload_threads, upload_queue
        Pictures described at once, and those that may wait for it.
    max_connections
        Clients connected at once; beyond that, the one that has kept the service waiting for longest is left, if any.
    body_seconds, head_seconds, send_seconds
        How long a client may take to send its body, to send everything before it, and to go on reading an answer.
    watch_seconds
        How often to see whether others have replaced the files; 0 never. A writable service is the only writer.
    shutdown_seconds
        How long requests may take to finish once the service was told to stop.
    log_requests
        Whether every request is one line on standard error.
    search_removed
        Answer every search with the first one's neighbours: what everything else costs, for benchmarks/serving.py.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    model: str | os.PathLike[str] | None = None
    pictures: str | os.PathLike[str] | None = None
    writable: bool = False
    read_token: str | None = None
    write_token: str | None = None
    no_token: bool = False
    hosts: tuple[str, ...] | None = None
    max_k: int = 1000
    max_rows: int = 1000
    max_body_bytes: int = 16_000_000
    max_picture_pixels: int = 25_000_000
    max_in_work: int = 256
    max_unread: int = 128
    upload_threads: int = 2
    upload_queue: int = 64
    max_connections: int = 512
    body_seconds: float = 30.0
    head_seconds: float = 10.0
    send_seconds: float = 30.0
    watch_seconds: float = 2.0
    shutdown_seconds: int = 30
    log_requests: bool = True
    search_removed: bool = False


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def check(settings: Settings) -> None:
    """Refuse what cannot be meant, with one sentence."""
    if not 0 <= settings.port <= 65535:
        raise ValueError(f"port={settings.port}; give a number from 0 (any free one) to 65535.")
    limits = ("max_k", "max_rows", "max_body_bytes", "max_picture_pixels", "max_in_work", "max_unread")
    for name in (*limits, "max_connections", "upload_threads"):
        if (value := getattr(settings, name)) < 1:
            raise ValueError(f"{name}={value}; give at least 1.")
    for name in ("upload_queue", "watch_seconds", "shutdown_seconds"):
        if (value := getattr(settings, name)) < 0:
            raise ValueError(f"{name}={value}; give at least 0.")
    for name in ("body_seconds", "head_seconds", "send_seconds"):
        if (value := getattr(settings, name)) <= 0:
            raise ValueError(f"{name}={value}; give more than 0.")
    for name in ("read_token", "write_token"):
        token = getattr(settings, name)
        if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise ValueError(f"{name} is empty or has spaces or letters beyond ASCII; give printable characters.")
    if settings.writable and settings.read_token and not settings.write_token:
        raise ValueError(
            "write_token is not given, but read_token is; a writable service that asks for one needs both."
        )
    needed = [settings.read_token, settings.write_token] if settings.writable else [settings.read_token]
    if not is_loopback(settings.host) and not all(needed) and not settings.no_token:
        which = "read_token and write_token" if settings.writable else "read_token"
        raise ValueError(
            f"host={settings.host!r}, which other machines can reach, and there is no {which}; give it, or say that "
            "anybody may come in: no_token=True."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """Names that the header Host may have; None if any."""
    if settings.hosts is not None:
        return frozenset(name.lower() for name in settings.hosts)
    if is_loopback(settings.host) and settings.read_token is None:
        return frozenset({*LOOPBACK_NAMES, settings.host})
    return None
