"""The way in: an application for any ASGI server, and the service as a process.

Everything that needs a package of the extra ``serve`` is imported here, when it is wanted.
"""

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gphash.server.settings import Settings

if TYPE_CHECKING:
    from gphash.server.app import Application

PACKAGES = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")


def create_app(gallery_path: str | os.PathLike[str], settings: Settings | None = None) -> "Application":
    """The service as an ASGI application.

    Parameters
    ----------
    gallery_path
        The index to search in; it is opened at once, so that what is wrong with it is said here.
    settings
        Limits and tokens; where to listen is up to whoever runs the application.
    """
    require()
    from gphash.server import app

    return app.create_app(gallery_path, settings or Settings())


def run(
    gallery_path: str | os.PathLike[str],
    settings: Settings | None = None,
    tell: Callable[[str, str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, the latter a KeyboardInterrupt in the end; SIGHUP opens the files again.

    Requests may finish for `Settings.shutdown_seconds`. If one of them is still at work then, the process ends here.

    Parameters
    ----------
    gallery_path
        The index to search in.
    settings
        Where to listen, limits and tokens.
    tell
        Called with "listening" and with "ready", as it comes to that, and the address.
    """
    require()
    with _deaf_to_hangups():
        from gphash.server.process import run as serve

        serve(gallery_path, settings or Settings(), tell or (lambda *_: None))


@contextlib.contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """Not be ended by a SIGHUP that comes while nobody listens for it yet: what it asks to be read is being read."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def require() -> None:
    """Say early, and helpfully, which packages are missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"the service needs {', '.join(missing)}: pip install 'gphash[serve]'")
