"""The way in: an application for any ASGI server, and the service as a process with uvicorn.

Packages that only the service needs are imported here when it starts.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from gphash.server import logs
from gphash.server.settings import ServiceSettings

if TYPE_CHECKING:
    from gphash.server.app import Application

PACKAGES = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")
BACKLOG = 2048
INTERRUPTED = 130  # the exit code of a process that Ctrl-C has ended
# Of uvicorn; a request may have so many bytes before its body.
OPTIONS: dict[str, Any] = {"http": "h11", "ws": "none", "lifespan": "on", "h11_max_incomplete_event_size": 1 << 16}
OPTIONS |= {"log_config": None, "log_level": "warning", "access_log": False, "backlog": BACKLOG}
OPTIONS |= {"server_header": False, "proxy_headers": False}


def create_app(path: str | os.PathLike[str], settings: ServiceSettings | None = None) -> "Application":
    """The service as an ASGI application.

    Parameters
    ----------
    path
        The collection to search in, a folder or an address as for `Collection.open`; it is opened at once, so that an
        error about it comes here.
    settings
        Limits and tokens; where to listen is up to whoever runs the application.
    """
    require()
    from gphash.server import app

    return app.create_app(path, settings or ServiceSettings())


def run(
    path: str | os.PathLike[str],
    settings: ServiceSettings | None = None,
    tell: Callable[[str, str], None] = lambda state, address: None,
) -> None:
    """Serve until SIGTERM or SIGINT, the latter a KeyboardInterrupt in the end; SIGHUP opens the collection again.

    Requests may finish for `ServiceSettings.shutdown_seconds`. If one is still at work then, the process ends here.

    Parameters
    ----------
    path
        The collection to search in.
    settings
        Where to listen, limits and tokens.
    tell
        Called with "listening", and later with "ready", and the address.
    """
    require()
    import uvicorn

    settings = settings or ServiceSettings()
    received: list[int] = []
    with _deaf_to_hangups():
        app = create_app(path, settings)
        service = app.state.service

        def stop(number: int, _: FrameType | None) -> None:
            """Begin to stop. uvicorn's own would raise the signal again afterwards, and be ended by it too early."""
            service.state = "stopping"
            received.append(number)
            server.force_exit = server.should_exit and number == signal.SIGINT
            server.should_exit = True

        options = OPTIONS | {
            "limit_concurrency": settings.max_connections,
            "timeout_graceful_shutdown": settings.shutdown_seconds,
        }
        server = uvicorn.Server(uvicorn.Config(app, **options))
        server.handle_exit = stop  # type: ignore[method-assign, assignment]
        with logs.alone(), _listen(settings.host, settings.port) as listener:
            address = _announce(listener, service.shelf.collection.hidden_folder)
            tell("listening", address)
            service.when_ready = lambda: tell("ready", address)
            server.run(sockets=[listener])
        logs.event("stopped", unfinished=len(service.unfinished))
    interrupted = received[-1:] == [signal.SIGINT]
    if service.unfinished or service.is_compiling:
        # Python would wait for these threads, however long they take.
        sys.stdout.flush()
        os._exit(INTERRUPTED if interrupted else 0)
    if interrupted:
        raise KeyboardInterrupt


def require() -> None:
    """Name the packages that are missing."""
    missing = [name.replace("_", "-") for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"the service needs {', '.join(missing)}: pip install {' '.join(missing)}")


@contextlib.contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """Survive a SIGHUP that comes while nobody listens for it yet: the files that it is about are being read."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections have it from here; asyncio would not set it. A body must not wait for its headers to be confirmed.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror or error}; give another host or port."
        raise OSError(message) from error


def _announce(listener: socket.socket, hidden_folder: object) -> str:
    """Log where the service listens, and the folder of pictures that it does not show; its address for a browser."""
    host, port = listener.getsockname()[:2]
    if hidden_folder is not None:
        advice = f"they are not beside the collection; to show them, give --pictures {str(hidden_folder)!r}"
        logs.event("pictures not shown", folder=str(hidden_folder), advice=advice)
    logs.event("listening", host=host, port=port, process=os.getpid())
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"
