"""One JSON line for every request and event, on standard error; never a payload, a query or a token."""

import contextlib
import errno
import json
import logging
import sys
import threading
import traceback
import warnings
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
    """An error that nobody expected: its kind and where it came from; its text could hold what a client sent."""
    _write(event=name, **_origin(error))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Have everything said in this way that Python and other packages would say in theirs: logs, warnings, errors."""
    root, own = logging.getLogger(), logging.getLogger("gphash")
    shown, fallen, handlers, level = warnings.showwarning, threading.excepthook, own.handlers, own.level
    handler = _Handler()
    root.addHandler(handler)
    own.handlers = []
    own.setLevel(logging.INFO)  # of others, the root takes warnings
    warnings.showwarning = _warned
    threading.excepthook = lambda args: crash("thread", args.exc_value or SystemExit())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.handlers = handlers
        own.setLevel(level)
        warnings.showwarning, threading.excepthook = shown, fallen


class _Handler(logging.Handler):
    """Messages of other packages, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the first line of a record; asyncio's others hold texts of errors."""
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage().strip().partition("\n")[0]
        event("server", level=record.levelname.lower(), message=message, **(_origin(error) if error else {}))


def _warned(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    event("warning", kind=category.__name__, message=str(message))


def _origin(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    # The system's number has a name, and says more than the kind: a full disk is an OSError like any other.
    number = error.errno if isinstance(error, OSError) else None
    named = {} if number is None else {"errno": errno.errorcode.get(number, str(number))}
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, **named, "frames": places}


def _write(**fields: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # A log on a disk that is full costs the line, not the request. One call a line, so that threads do not mix.
    with contextlib.suppress(OSError):
        sys.stderr.write(json.dumps({"time": now, **fields}) + "\n")
        sys.stderr.flush()
