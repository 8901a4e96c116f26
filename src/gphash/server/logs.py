"""One JSON line for every request and event, on standard error; never a payload, a query or a token."""

import json
import logging
import sys
import traceback
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
    frames = traceback.extract_tb(error.__traceback__)
    _write(event=name, error=type(error).__name__, frames=[f"{f.filename}:{f.lineno} {f.name}" for f in frames])


class Handler(logging.Handler):
    """Messages of the server below, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        event("server", level=record.levelname.lower(), message=record.getMessage())


def _write(**fields: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # One call a line, so that lines of threads do not mix.
    sys.stderr.write(json.dumps({"time": now, **fields}) + "\n")
    sys.stderr.flush()
