"""The outermost layer: who may come in, how many at once, and a line and a count for everyone who left."""

import hmac
import re
import time
from collections.abc import Callable

from gphash.server import failures, logs
from gphash.server.failures import Failure, GoneError, forbidden, too_large, unauthorised
from gphash.server.metrics import Metrics
from gphash.server.places import Places
from gphash.server.settings import Settings, allowed_hosts
from gphash.server.visit import App, Receive, Scope, Send, Visit

SIGNS_OF_LIFE = frozenset({"/healthz", "/readyz"})
PAGE, STATIC = "/", "/static/"
READING_POSTS = frozenset({"/search", "/encode"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
OWN_SITE = (b"none", b"same-origin")
GONE = 499


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
    is_stopping
        Whether the service is about to end.
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics, is_stopping: Callable[[], bool]) -> None:
        self._app = app
        self._settings = settings
        self._hosts = allowed_hosts(settings)
        self._read = _encoded(settings.read_token)
        self._write = _encoded(settings.write_token)
        self._metrics = metrics
        self._places = Places(settings, metrics)
        self._is_stopping = is_stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        visit = Visit(scope, receive, send, self._places, self._settings.send_seconds, self._is_stopping)
        # Routes know GET; its answer without the body is that to HEAD.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._answer(scope, inner, visit)
        except GoneError:
            visit.status = GONE
        finally:
            visit.leave()
            route = getattr(inner.get("route"), "path", "other")
            self._note(scope, route, visit.status or GONE, time.perf_counter() - began)

    async def _answer(self, scope: Scope, inner: Scope, visit: Visit) -> None:
        try:
            if self._admit(scope):
                # Only what is posted has a body that anybody reads.
                if scope["method"] == "POST":
                    visit.expect()
                else:
                    visit.begin()
            await self._app(inner, visit.receive, visit.send)
        except Failure as failure:
            await visit.refuse(failure, 4 * self._settings.max_body_bytes)
        except GoneError:
            raise
        except Exception as error:
            logs.crash("error", error)
            if not visit.status:
                await visit.refuse(failures.unforeseen(error), 0)

    def _admit(self, scope: Scope) -> bool:
        """Raise a Failure for a request that is not to be answered; else, whether answering it is work."""
        headers = dict(scope["headers"])
        method, path = scope["method"], _path(scope)
        # Routes are matched by patterns, for which a line may end before its last character.
        if CONTROL.search(path):
            raise Failure(400, "bad_path", "the path has control characters.")
        # A proxy before us may believe the other one, and take the rest for somebody else's request.
        if b"transfer-encoding" in headers and b"content-length" in headers:
            message = "the body has two lengths (Content-Length and Transfer-Encoding); give one of them."
            raise Failure(400, "two_lengths", message, headers={"Connection": "close"})
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

    def _note(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        self._metrics.request(route, scope["method"], status, seconds)
        if self._settings.log_requests:
            client = scope.get("client")
            logs.request(scope["method"], scope["path"], status, seconds, client[0] if client else None)


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
