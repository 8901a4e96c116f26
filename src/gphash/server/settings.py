"""The settings of the service, and their checks."""

import ipaddress
import os
from typing import NamedTuple


class ServiceSettings(NamedTuple):
    """Where the service listens, whom it answers, and how much it takes.

    Tokens are what `Authorization: Bearer` must say; the write token may read, too, and None needs no token. On a
    loopback address without a read token, only names of this machine are answered unless `hosts` are given: a page
    elsewhere could otherwise point its own name here and read everything. Requests beyond a limit of how many there may
    be at once are refused for the moment. Clients that are slow before the body are left to a proxy in front.
    """

    host: str = "127.0.0.1"
    port: int = 8080  # 0 is any free one
    pictures: str | os.PathLike[str] | None = None  # if they are neither in the collection nor beside it
    encoder: str | os.PathLike[str] | None = None  # the collection's, if it is not where it was
    writable: bool = False  # whether items may be added and removed
    read_token: str | None = None
    write_token: str | None = None
    no_token: bool = False  # listen at an address that other machines can reach although there is no token
    hosts: tuple[str, ...] | None = None  # names that the header Host may give, without the port
    max_k: int = 1000  # neighbours of a search
    max_rerank: int = 10_000  # candidates of a search that are ordered by their vectors
    max_rows: int = 1000  # to encode at once
    max_body_bytes: int = 16_000_000
    max_picture_pixels: int = 25_000_000
    max_in_work: int = 256  # requests, counted when they have arrived completely
    max_unread: int = 128  # bodies on their way
    upload_threads: int = 2  # pictures described at once
    upload_queue: int = 64  # pictures that may wait for it
    max_connections: int = 512
    body_seconds: float = 30.0  # that a client may take to send its body
    send_seconds: float = 30.0  # and to go on reading an answer
    watch_seconds: float = 2.0  # between looks whether others have replaced the collection; 0 for never
    shutdown_seconds: int = 30  # for requests to finish once the service was told to stop
    log_requests: bool = True  # one line each on standard error


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def check(settings: ServiceSettings) -> None:
    """Refuse settings that make no sense."""
    if not 0 <= settings.port <= 65535:
        raise ValueError(f"port={settings.port}; give a number from 0 (any free one) to 65535.")
    least = dict.fromkeys(("max_k", "max_rows", "max_body_bytes", "max_picture_pixels", "max_in_work", "max_unread"), 1)
    least |= {
        "max_rerank": 1,
        "max_connections": 1,
        "upload_threads": 1,
        "upload_queue": 0,
        "watch_seconds": 0,
        "shutdown_seconds": 0,
    }
    for name, bound in least.items():
        if (value := getattr(settings, name)) < bound:
            raise ValueError(f"{name}={value}; give at least {bound}.")
    for name in ("body_seconds", "send_seconds"):
        if (value := getattr(settings, name)) <= 0:
            raise ValueError(f"{name}={value}; give more than 0.")
    for name in ("read_token", "write_token"):
        token = getattr(settings, name)
        if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise ValueError(f"{name} is empty or has spaces or other characters than ASCII; give printable ones.")
    if settings.writable and settings.read_token and not settings.write_token:
        raise ValueError("read_token is given, but write_token is not; a writable service needs both or none.")
    needed = ("read_token", "write_token") if settings.writable else ("read_token",)
    if not is_loopback(settings.host) and not settings.no_token and not all(getattr(settings, one) for one in needed):
        raise ValueError(
            f"host={settings.host!r}, which other machines can reach, and there is no {' and '.join(needed)}; give it, "
            "or let anybody in: no_token=True."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(settings: ServiceSettings) -> frozenset[str] | None:
    """Names that the header Host may have; None if any."""
    if settings.hosts is not None:
        return frozenset(name.lower() for name in settings.hosts)
    if is_loopback(settings.host) and settings.read_token is None:
        return frozenset({*LOOPBACK_NAMES, settings.host})
    return None
