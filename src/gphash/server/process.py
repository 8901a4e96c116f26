"""The service as a process: uvicorn around the application."""

import logging
import os
import socket
from types import FrameType

import uvicorn

from gphash.server import logs
from gphash.server.app import Service, create_app
from gphash.server.settings import Settings, check

BACKLOG = 2048


class _Server(uvicorn.Server):
    """Says that it is stopping as soon as it is told to."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self._service.state = "stopping"
        super().handle_exit(sig, frame)


def run(gallery_path: str | os.PathLike[str], settings: Settings) -> None:
    """Serve until told to stop; see `service.run`."""
    check(settings)
    app = create_app(gallery_path, settings)
    with _listen(settings.host, settings.port) as listener:
        logger = logging.getLogger("uvicorn")
        logger.handlers, logger.propagate = [logs.Handler(logging.WARNING)], False
        config = uvicorn.Config(
            app,
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
        logs.event("listening", host=host, port=port, process=os.getpid())
        _Server(config, app.state.service).run(sockets=[listener])
    logs.event("stopped")


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
