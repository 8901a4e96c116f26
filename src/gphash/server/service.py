"""The way in: an application for any ASGI server, and the service as a process.

Everything that needs a package of the extra ``serve`` is imported here, when it is wanted.
"""

import importlib.util
import os
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


def run(gallery_path: str | os.PathLike[str], settings: Settings | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP opens the files again.

    Parameters
    ----------
    gallery_path
        The index to search in.
    settings
        Where to listen, limits and tokens.
    """
    require()
    from gphash.server.process import run as serve

    serve(gallery_path, settings or Settings())


def require() -> None:
    """Say early, and helpfully, which packages are missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"the service needs {', '.join(missing)}: pip install 'gphash[serve]'")
