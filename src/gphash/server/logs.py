"""One JSON line for every request and event, on standard error; never a payload, a query or a token."""

import contextlib
import errno
import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

PATH_LENGTH = 200


def request(method: str, path: str, status: int, seconds: float, client: str | None) -> None:
    """A request that was answered; status 499 if the client had gone."""
    milliseconds = round(1e3 * seconds, 3)
    _write(method=method[:16], path=path[:PATH_LENGTH], status=status, milliseconds=milliseconds, client=client)


def event(name: str, **details: Any) -> None:
    """Something else that happened."""
    _write(event=name, **details)


def crash(name: str, error: BaseException) -> None:
    """An unexpected error: its kind and where it came from, not its text, which could hold what a client sent."""
    _write(event=name, **_origin(error))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Write logs, warnings and errors of Python and other packages in this way, too."""
    root, own = logging.getLogger(), logging.getLogger("gphash")
    fallen, handlers, level, handler = threading.excepthook, own.handlers, own.level, _Handler()
    root.addHandler(handler)
    own.handlers = []
    own.setLevel(logging.INFO)  # of others, the root takes warnings
    logging.captureWarnings(True)
    threading.excepthook = lambda args: crash("thread", args.exc_value or SystemExit())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.handlers, threading.excepthook = handlers, fallen
        own.setLevel(level)
        logging.captureWarnings(False)


class _Handler(logging.Handler):
    """Messages and warnings of other packages, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the first line of a record; asyncio's others hold texts of errors."""
        error = record.exc_info[1] if record.exc_info else None
        name, message = record.name, record.getMessage().strip().partition("\n")[0]
        kind = "warning" if name == "py.warnings" else "server"
        event(kind, level=record.levelname.lower(), message=message, **(_origin(error) if error else {}))


def _origin(error: BaseException) -> dict[str, Any]:
    # The system's number has a name, and says more than the kind: a full disk is an OSError like any other.
    number = error.errno if isinstance(error, OSError) else None
    named = {} if number is None else {"errno": errno.errorcode.get(number, str(number))}
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, **named, "frames": places}


def _write(**fields: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # A log on a disk that is full costs the line, not the request. One call a line, so that threads do not mix.
    with contextlib.suppress(OSError):
        sys.stderr.write(json.dumps({"time": now, **fields}) + "\n")
        sys.stderr.flush()
