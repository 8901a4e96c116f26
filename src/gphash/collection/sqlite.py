"""Files of SQLite, opened so that a condition can do nothing but read, and so that no file is believed."""

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gphash.collection.rows import Layout, quoted
from gphash.container import FormatError

INSTRUCTIONS = 10_000  # of SQLite's machine between two looks at the clock
PATIENCE = 10.0  # seconds to wait for somebody else's transaction
AGAIN = "make the collection again, or get its files from where they were made"
BY_LABEL = "CREATE INDEX items_label ON items (label) WHERE label IS NOT NULL"
READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
FAILED = {
    name: f"SQLITE_{name}" for name in ("BUSY", "LOCKED", "FULL", "READONLY", "IOERR", "CANTOPEN", "PERM", "AUTH")
}


def connect(path: Path, writable: bool) -> sqlite3.Connection:
    """Open a file that is there."""
    if writable or os.access(path.parent, os.W_OK):
        # A reader, too, must be able to finish what a killed writer left; nothing else: see below.
        return _connect(path, "mode=rw", writable)
    try:
        return _connect(path, "mode=ro", False)
    except sqlite3.OperationalError as error:
        # SQLite keeps notes about readers beside the file, and can make none here. Without a writer, none are needed.
        waiting = path.with_name(f"{path.name}-wal")
        if waiting.exists() and waiting.stat().st_size:
            raise FormatError(
                f"{str(path)!r} has changes in {waiting.name!r} that a writer did not finish; open it once in a folder "
                "that can be written to"
            ) from error
        return _connect(path, "immutable=1", False)


def _connect(path: Path, mode: str, writable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for setting in ("case_sensitive_like = ON", "trusted_schema = OFF", "cell_size_check = ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute(f"PRAGMA {'synchronous = FULL' if writable else 'query_only = ON'}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def check_whole(path: Path) -> None:
    """Refuse a file that is shorter than it says; SQLite notices when it comes to what is missing."""
    with open(path, "rb") as file:
        head = file.read(32)
    size, n_pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    if not head.startswith(b"SQLite format 3\0"):
        return
    there, waiting = path.stat().st_size, path.with_name(f"{path.name}-wal")
    # What waits beside the file may be the rest of it.
    if there < (65536 if size == 1 else size) * n_pages and not (waiting.exists() and waiting.stat().st_size):
        raise FormatError(f"{str(path)!r} is truncated: it has {there} bytes of {size * n_pages}; {AGAIN}")


@contextlib.contextmanager
def only_reading(connection: sqlite3.Connection, writable: bool, seconds: float | None = None) -> Iterator[None]:
    """Whatever is asked, it can do nothing but read rows and call functions, for so many seconds."""
    deadline = None if seconds is None else time.monotonic() + seconds
    if deadline is not None:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, INSTRUCTIONS)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
    try:
        yield
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        if writable:
            connection.execute("PRAGMA query_only = OFF")


def disconnect(connection: sqlite3.Connection, writable: bool) -> None:
    """Close a connection; a writer first brings all changes into the one file."""
    if writable:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def check_schema(connection: sqlite3.Connection, path: Path, wanted: Mapping[str, str]) -> None:
    """Refuse a file with any other table, view or trigger than these, by their names and statements."""
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    if (there := dict(found.fetchall())) != dict(wanted):
        odd = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
        raise FormatError(f"{str(path)!r} is damaged: it does not have the table {odd[0]!r} as it was made; {AGAIN}")


@contextlib.contextmanager
def telling(path: Path, decoding: bool = True) -> Iterator[None]:
    """Errors of SQLite as what they mean here, all with the name of the file; and of what it holds, when decoding."""
    shown = repr(str(path))
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.ProgrammingError as error:
        what = "is closed; open the collection again" if "closed" in str(error) else f"cannot be asked: {error}"
        raise ValueError(f"{shown} {what}.") from error
    except sqlite3.OperationalError as error:
        failed = _failed(error)
        if failed == "FULL":
            raise OSError(errno.ENOSPC, f"no space left for {shown}; nothing was changed") from error
        if failed in ("BUSY", "LOCKED"):
            raise TimeoutError(f"{shown} has been locked for {PATIENCE:g} seconds; try again.") from error
        if failed in FAILED:
            raise OSError(f"{shown} cannot be read or written: {error}; open it again to see what it holds") from error
        raise FormatError(f"{shown} cannot be used: {error}; {AGAIN}") from error
    except sqlite3.DatabaseError as error:
        raise FormatError(f"{shown} is damaged: {error}; {AGAIN}") from error
    except (FormatError, OSError):
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        if not decoding:
            raise
        raise FormatError(f"{shown} is damaged: what it holds makes no sense ({error!r}); {AGAIN}") from error


def _failed(error: Any) -> str | None:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return next((name for name, told in FAILED.items() if getattr(sqlite3, told) == code), None)


def tables(layout: Layout) -> dict[str, str]:
    """The tables of a file, and what makes them."""
    key = ", key TEXT NOT NULL UNIQUE" if layout.keys == "text" else ""
    columns = "".join(f", {quoted(name)} {layout.columns.get(name, 'text').upper()}" for name in layout.values)
    made = {
        "items": "number INTEGER PRIMARY KEY AUTOINCREMENT, code BLOB NOT NULL, described INTEGER NOT NULL"
        f"{key}{columns}, mark INTEGER NOT NULL",
        "pictures": "number INTEGER PRIMARY KEY, content BLOB NOT NULL, shape TEXT, mark INTEGER NOT NULL",
        "tags": "tag TEXT, number INTEGER, PRIMARY KEY (tag, number)",
        "classes": "place INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, mark INTEGER NOT NULL",
        "changes": "place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, mark INTEGER NOT NULL",
        "state": "belongs TEXT NOT NULL, folded INTEGER NOT NULL, layout TEXT NOT NULL",
    }
    if layout.vectors is not None:
        made["vectors"] = "number INTEGER PRIMARY KEY, content BLOB NOT NULL"
    return {
        name: f"CREATE TABLE {name} ({has})" + (" WITHOUT ROWID" if name == "tags" else "")
        for name, has in made.items()
    }


def indexes(layout: Layout) -> dict[str, str]:
    """The indexes of a file, for labels and for further columns of numbers, and what makes them."""
    made = {"items_label": BY_LABEL}
    for place, (name, kind) in enumerate(layout.columns.items()):
        if kind != "text":
            made[f"items_{place}"] = f"CREATE INDEX items_{place} ON items ({quoted(name)})"
    return made
