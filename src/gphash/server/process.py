"""The service as a process: uvicorn around the application."""

import asyncio
import heapq
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gphash.server import logs
from gphash.server.app import Service, create_app
from gphash.server.settings import Settings, check

BACKLOG = 2048
INTERRUPTED = 130  # the exit code of a process that Ctrl-C has ended
TICKS = 10  # of uvicorn between two looks at all connections: a second
ROOM = 16  # a connection in so many is left when there are too many
READ_BYTES = 1 << 14  # that a client reads within `Settings.send_seconds`, if as many wait for it


class _Connection(H11Protocol):
    """A client, who is left if the service waits for nothing but him for too long, or for others to have his place."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        application: Any = config.app
        self._service: Service = application.state.service
        self._since = self.loop.time()
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        most = self._service.settings.max_connections
        if len(self.connections) > most:
            self._service.metrics.busy("connections")
            # Some more at once: looking at all of them for everyone who comes would itself be a way to keep it busy.
            for one in _longest_waited_for(self.connections - {self}, 1 + most // ROOM) or [self]:
                one.transport.abort()
                self.connections.discard(one)  # it says so itself only after all who are at the door have come in

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    @property
    def host(self) -> str:
        """Whose it is."""
        return self.client[0] if self.client else ""

    def waited_for(self) -> tuple[bool, float] | None:
        """Whether it is an answer that is not read, else a request that does not come, and since when; None if none."""
        unread = self.transport.get_write_buffer_size() > 0
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        at_work = not unread and cycle is not None and not cycle.response_complete
        return None if at_work else (unread, self._since)

    def leave_if_late(self) -> None:
        """Close the connection if no head of a request comes, or the answer is not read."""
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        at_work = self.waited_for() is None
        has_read = self._unread > 0 and unread <= max(0, self._unread - READ_BYTES)
        if at_work or has_read or unread > self._unread:
            self._since, self._unread = now, unread
        settings = self._service.settings
        if now - self._since > (settings.send_seconds if unread else settings.head_seconds):
            # Closing it would wait until all is read.
            self.transport.abort()


def _longest_waited_for(connections: Iterable[Any], n: int) -> list[_Connection]:
    """Of clients who keep the service waiting, the first of the address that has the most of them, up to so many.

    Those who do not read are last: an answer would be lost.
    """
    waiting = {one: since for one in connections if isinstance(one, _Connection) and (since := one.waited_for())}
    n_waiting = Counter(one.host for one in waiting)
    return heapq.nsmallest(n, waiting, lambda one: (waiting[one][0], -n_waiting[one.host], waiting[one][1]))


class _Server(uvicorn.Server):
    """Says that it is stopping as soon as it is told to."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. uvicorn would raise the signal again afterwards, and be ended by it before it is through."""
        self._service.state = "stopping"
        self.interrupted = sig == signal.SIGINT
        self.force_exit = self.should_exit and self.interrupted
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % TICKS == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Connection):
                    connection.leave_if_late()
        return await super().on_tick(counter)


def run(gallery_path: str | os.PathLike[str], settings: Settings, tell: Callable[[str, str], None]) -> None:
    """Serve until told to stop; see `service.run`."""
    check(settings)
    app = create_app(gallery_path, settings)
    service: Service = app.state.service
    with logs.alone(), _listen(settings.host, settings.port) as listener:
        config = uvicorn.Config(
            app,
            http=_Connection,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            backlog=BACKLOG,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        host, port = listener.getsockname()[:2]
        if (folder := service.shelf.gallery.hidden_folder) is not None:
            advice = f"they are not below the folder of the index; to show them, give --pictures {str(folder)!r}"
            logs.event("pictures not shown", folder=str(folder), advice=advice)
        logs.event("listening", host=host, port=port, process=os.getpid())
        address = f"http://{_reachable(host)}:{port}/"
        tell("listening", address)
        service.when_ready = lambda: tell("ready", address)
        server = _Server(config, service)
        server.run(sockets=[listener])
    logs.event("stopped", unfinished=service.n_unfinished)
    if service.n_unfinished or service.is_compiling:
        # Python would wait for these threads, however long they take.
        sys.stdout.flush()
        os._exit(INTERRUPTED if server.interrupted else 0)
    if server.interrupted:
        raise KeyboardInterrupt


def _reachable(host: str) -> str:
    """How a browser on this machine names the address."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; give another host or port."
        ) from error
    return listener
