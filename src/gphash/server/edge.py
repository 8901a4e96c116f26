"""The outermost layer: who may come in, how many at once, and a line and a count for every request.

A request takes a place in work when its body has come; bodies on their way are bounded apart from that.
"""

import asyncio
import contextlib
import hmac
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gphash.server import failures, logs
from gphash.server.failures import GoneError, Refusal, busy
from gphash.server.metrics import Metrics
from gphash.server.settings import ServiceSettings, allowed_hosts

SIGNS_OF_LIFE = frozenset({"/healthz", "/readyz"})
PAGES, STATIC = frozenset({"/", "/docs"}), "/static/"
READING_POSTS = frozenset({"/search", "/encode"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
GONE = 499
LARGEST_BODIES = 32  # that there is memory for, of requests on their way and in work
DRAIN_SECONDS = 2.0
CLOSE = (b"connection", b"close")
PAGE_POLICY = b"default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'none'; "
PAGE_POLICY += b"form-action 'none'"
# Of every answer that does not say otherwise.
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": PAGE_POLICY,
}


class Edge:
    """Middleware around the application: tokens, limits, logs and metrics."""

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, metrics: Metrics, is_stopping: Callable[[], bool]
    ) -> None:
        self._app = app
        self.settings, self.metrics, self.is_stopping = settings, metrics, is_stopping
        self._hosts = allowed_hosts(settings)
        self._read, self._write = (
            None if token is None else token.encode() for token in (settings.read_token, settings.write_token)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, method = time.perf_counter(), scope["method"]
        visit = Visit(self, method, receive, send)
        # Routes know GET; its answer without the body is that to HEAD.
        inner = {**scope, "method": "GET"} if method == "HEAD" else scope
        try:
            if self._admit(scope):
                visit.enter()
            await self._app(inner, visit.receive, visit.send)
        except GoneError:
            visit.status = GONE
        except Exception as error:
            with contextlib.suppress(GoneError):
                await visit.fail(error)
        finally:
            visit.leave()
            seconds, status = time.perf_counter() - began, visit.status or GONE
            self.metrics.request(getattr(inner.get("route"), "path_format", "other"), method, status, seconds)
            if self.settings.log_requests:
                logs.request(method, scope["path"], status, seconds, (scope.get("client") or [None])[0])

    def _admit(self, scope: Scope) -> bool:
        """Raise a Refusal for a request that is not to be answered; else, whether answering it is work."""
        headers = dict(scope["headers"])
        # The path as routes see it: without that of an application that this one is mounted in.
        method, path, root = scope["method"], str(scope["path"]), str(scope.get("root_path", ""))
        path = path.removeprefix(root) if path.startswith(f"{root}/") else path
        # The pattern of a route would match a path with a line break at its end.
        if CONTROL.search(path):
            raise Refusal(400, "bad_path", "the path has control characters.")
        # A proxy in front may believe the other length, and take the rest for somebody else's request.
        if b"transfer-encoding" in headers and b"content-length" in headers:
            message = "the body has two lengths (Content-Length and Transfer-Encoding); give one of them."
            raise Refusal(400, "two_lengths", message, headers={"Connection": "close"})
        _check_site(method, path, headers)
        if path in SIGNS_OF_LIFE:
            return False
        host = re.sub(r"(?<=.):\d+$", "", headers.get(b"host", b"").decode("latin-1").lower())
        if self._hosts is not None and host not in self._hosts:
            raise Refusal(403, "unknown_host", "the service does not go by this name (the header Host).")
        work = method not in SAFE or (path not in PAGES and not path.startswith(STATIC))
        if work:
            self._check_token(method, path, headers.get(b"authorization", b""))
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.settings.max_body_bytes:
            raise failures.too_large(self.settings.max_body_bytes)
        return work

    def _check_token(self, method: str, path: str, authorization: bytes) -> None:
        reading = method in SAFE or (method == "POST" and path in READING_POSTS)
        # A request that is not known to be reading needs the strongest token there is.
        if (self._read if reading else self._write or self._read) is None:
            return
        scheme, _, given = authorization.partition(b" ")
        given = given.strip() if scheme.lower() == b"bearer" else b""
        # Both are always compared, so that the time it takes tells nothing.
        may_read = self._read is not None and hmac.compare_digest(given, self._read)
        may_write = self._write is not None and hmac.compare_digest(given, self._write)
        if may_write or (may_read and (reading or self._write is None)):
            return
        if may_read:
            raise Refusal(403, "forbidden", "the token may read, but not change anything.")
        headers = {"WWW-Authenticate": 'Bearer realm="gphash"'}
        raise Refusal(401, "unauthorised", "a token is needed: Authorization: Bearer ….", headers=headers)


def _check_site(method: str, path: str, headers: dict[bytes, bytes]) -> None:
    """Refuse requests by pages of other sites, whether or not they could read the answer; links to the pages work."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        own = site in (b"none", b"same-origin")
    else:
        # The scheme is not compared: behind a proxy with TLS the browser's differs from ours.
        own = origin is None or origin.lower().partition(b"://")[1:] == (b"://", headers.get(b"host", b"").lower())
    following = method == "GET" and path in PAGES and headers.get(b"sec-fetch-mode") == b"navigate"
    if not own and not following:
        raise Refusal(403, "cross_site", "pages of other sites may not use the service.")


class Visit:
    """One request between the server and the application; `status` is that of its answer, 0 before it."""

    def __init__(self, edge: Edge, method: str, receive: Receive, send: Send) -> None:
        self.status = 0
        self._receive, self._send = receive, send
        self._settings, self._metrics, self._is_stopping = edge.settings, edge.metrics, edge.is_stopping
        self._bodiless = method == "HEAD"
        self._has_come = method != "POST"  # other bodies are not read
        self._deadline = asyncio.get_running_loop().time() + edge.settings.body_seconds
        self._n_bytes = 0
        self._arriving = self._working = False

    def enter(self) -> None:
        """Take a place among the bodies on their way, or, without a body, among the requests in work."""
        if self._has_come:
            self._begin()
            return
        most = self._settings.max_unread
        self._check_room("bodies", self._metrics.arriving < most, f"{most} bodies are on their way")
        self._count(arriving=True)

    def _begin(self) -> None:
        most = self._settings.max_in_work
        self._check_room("in_work", self._metrics.in_work < most, f"{most} requests are being worked on")
        self._count(working=True)

    def _count(self, arriving: bool = False, working: bool = False) -> None:
        """Take the places that are said, and give back all others."""
        self._metrics.arriving += arriving - self._arriving
        self._metrics.in_work += working - self._working
        self._arriving, self._working = arriving, working

    def _check_room(self, reason: str, is_room: bool, message: str) -> None:
        if not is_room:
            self._metrics.refused.labels(reason).inc()
            raise busy("busy", 503, message)

    def leave(self) -> None:
        """Give back what was taken."""
        self._count()
        self._metrics.body_bytes -= self._n_bytes
        self._n_bytes = 0

    async def receive(self) -> Message:
        """The next message of the client."""
        if self._has_come:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            seconds = self._settings.body_seconds
            raise Refusal(408, "timeout", f"the body did not come within {seconds:g} seconds.") from None
        n_bytes = len(message.get("body", b""))
        self._n_bytes += n_bytes
        self._metrics.body_bytes += n_bytes
        most = LARGEST_BODIES * self._settings.max_body_bytes
        self._check_room("bodies", self._metrics.body_bytes <= most, f"there are more than {most} bytes of bodies")
        if not message.get("more_body", False):
            self._has_come = True
            self._count()
            if message["type"] == "http.request":
                self._begin()
        return message

    async def send(self, message: Message) -> None:
        """Send a message to the client; when the service is stopping, with the word not to ask again."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # What is left is up to the client, who may never read.
            self._count()
            given = {name.lower() for name, _ in message["headers"]}
            closing = [CLOSE] if self._is_stopping() and CLOSE[0] not in given else []
            defaults = [header for header in HEADERS.items() if header[0] not in given]
            message["headers"] = [*message["headers"], *defaults, *closing]
        elif self._bodiless:
            message["body"] = b""
        # A client that asks on and on and never reads would otherwise be kept for ever.
        try:
            async with asyncio.timeout(self._settings.send_seconds):
                await self._send(message)
        except TimeoutError:
            self.status = GONE
            raise GoneError from None

    async def fail(self, error: Exception) -> None:
        """Answer an error, unless an answer has begun.

        Of a body that there is no room for, some more is read and dropped for a moment: a connection that is closed
        while the client sends is reset, and the client would never see the answer.
        """
        refusal = failures.of(error)
        if refusal.status in (500, 507):
            logs.crash("error", error)
        if self.status:
            return
        self.leave()
        content = refusal.content()
        coming = refusal.status in (413, 503) and not self._has_come
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **refusal.headers}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        if coming or refusal.status == 408:
            raw.append(CLOSE)
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": content, "more_body": coming})
        if coming:
            n_bytes = 4 * self._settings.max_body_bytes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    while coming and n_bytes > 0:
                        message = await self._receive()
                        n_bytes -= len(message.get("body", b""))
                        coming = bool(message.get("more_body", False))
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
