"""The outermost layer: who may come in, how many at once, and a line and a count for everyone who left."""

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from gphash.server import logs
from gphash.server.failures import Failure, GoneError, busy, forbidden, too_large, unauthorised
from gphash.server.metrics import Metrics
from gphash.server.settings import Settings, allowed_hosts

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SIGNS_OF_LIFE = frozenset({"/healthz", "/readyz"})
PAGE, STATIC = "/", "/static/"
READING_POSTS = frozenset({"/search", "/encode"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
OWN_SITE = (b"none", b"same-origin")
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]
GONE = 499
DRAIN_SECONDS = 2.0


class Edge:
    """A layer of ASGI around the application.

    Parameters
    ----------
    app
        What answers.
    settings
        Tokens and limits.
    metrics
        Where requests are counted.
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._hosts = allowed_hosts(settings)
        self._read = _encoded(settings.read_token)
        self._write = _encoded(settings.write_token)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0
        working = False

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            # A client that asks on and on and never reads would otherwise keep its place for ever.
            try:
                async with asyncio.timeout(self._settings.send_seconds):
                    await send(message)
            except TimeoutError:
                raise GoneError from None

        try:
            try:
                if self._admit(scope):
                    working = self._begin()
                await self._app(scope, receive, noting)
            except Failure as failure:
                await _answer(failure, receive, noting, 4 * self._settings.max_body_bytes)
            except GoneError:
                raise
            except Exception as error:
                logs.crash("error", error)
                if not status:
                    internal = Failure(500, "internal", "something went wrong in the service; its log says where.")
                    await _answer(internal, receive, noting, 0)
        except GoneError:
            status = GONE
        finally:
            self._metrics.in_work -= working
            self._note(scope, status or GONE, time.perf_counter() - began)

    def _admit(self, scope: Scope) -> bool:
        """Raise a Failure for a request that is not to be answered; else, whether answering it is work."""
        headers = dict(scope["headers"])
        method, path = scope["method"], _path(scope)
        # Routes are matched by patterns, for which a line may end before its last character.
        if CONTROL.search(path):
            raise Failure(400, "bad_path", "the path has control characters.")
        _check_site(method, path, headers)
        if path in SIGNS_OF_LIFE:
            return False
        if self._hosts is not None and _name(headers.get(b"host", b"")) not in self._hosts:
            raise Failure(403, "unknown_host", "the service is not called by this name (the header Host).", None)
        work = method not in SAFE or (path != PAGE and not path.startswith(STATIC))
        if work:
            self._check_token(method, path, headers.get(b"authorization", b""))
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self._settings.max_body_bytes:
            raise too_large(self._settings.max_body_bytes)
        return work

    def _check_token(self, method: str, path: str, authorization: bytes) -> None:
        reading = method in SAFE or (method == "POST" and path in READING_POSTS)
        # Whatever does not read as we know it needs the strongest token that there is.
        if (self._read if reading else self._write or self._read) is None:
            return
        scheme, _, given = authorization.partition(b" ")
        given = given.strip() if scheme.lower() == b"bearer" else b""
        # All are compared, always, so that time tells nothing.
        may_read = self._read is not None and hmac.compare_digest(given, self._read)
        may_write = self._write is not None and hmac.compare_digest(given, self._write)
        if may_write or (may_read and (reading or self._write is None)):
            return
        raise forbidden() if may_read else unauthorised()

    def _begin(self) -> bool:
        """Take a place among the requests that are worked on."""
        if self._metrics.in_work >= self._settings.max_in_work:
            self._metrics.busy("in_work")
            raise busy(
                "busy", 503, f"{self._settings.max_in_work} requests are being worked on; try again in a moment."
            )
        self._metrics.in_work += 1
        return True

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(route, scope["method"], status, seconds)
        if self._settings.log_requests:
            client = scope.get("client")
            logs.request(scope["method"], scope["path"], status, seconds, client[0] if client else None)


async def _answer(failure: Failure, receive: Receive, send: Send, drain: int) -> None:
    """Send a failure. A body that is still on its way is read and dropped for a moment, up to `drain` bytes.

    A connection that is closed while the client sends is reset, and the client would never see the answer.
    """
    content = failure.content()
    closing = failure.status in (408, 413)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **failure.headers}
    if closing:
        headers["Connection"] = "close"
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": failure.status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": closing})
    if not closing:
        return
    if failure.status == 413:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while drain > 0:
                    message = await receive()
                    drain -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        break
        except TimeoutError:
            pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _path(scope: Scope) -> str:
    """The path as routes see it: without that of an application which this one is mounted in."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _check_site(method: str, path: str, headers: dict[bytes, bytes]) -> None:
    """Refuse what pages of other sites send here, whether or not they could read the answer; links to the page work."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        own = site in OWN_SITE
    else:
        # The scheme is not compared: behind a proxy with TLS the browser's is another than ours.
        own = origin is None or origin.lower().partition(b"://")[1:] == (b"://", headers.get(b"host", b"").lower())
    following = method == "GET" and path == PAGE and headers.get(b"sec-fetch-mode") == b"navigate"
    if not own and not following:
        raise Failure(403, "cross_site", "pages of other sites may not use the service.")


def _encoded(token: str | None) -> bytes | None:
    return None if token is None else token.encode()


def _name(host: bytes) -> str:
    """The header Host without its port."""
    name, _, port = host.decode("latin-1").lower().rpartition(":")
    return name if name and port.isdigit() else host.decode("latin-1").lower()
