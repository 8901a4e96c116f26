"""Descriptors kept on disk, so that the same picture is described once: one SQLite file of keys and bytes.

A cache is a convenience. An entry that is damaged counts as missing, a file that is damaged is removed and made anew,
and where nothing can be written the results are computed every time, after one warning for each file. Several processes
may use the file at once. When it has grown too large, entries that were used least recently go.
"""

import hashlib
import sqlite3
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from gphash.data import downloads

R = TypeVar("R")

FILE = "descriptors.sqlite"
MOST_BYTES = 4 << 30
WAIT_SECONDS = 60.0

_DIGEST_BYTES = 16
_AT_ONCE = 500  # keys of a query
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SCHEMA = """
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS kept_used ON kept (used);
"""

_warned: set[Path] = set()


def default_path() -> Path:
    """Where descriptors are kept: in the user's cache folder, as the data folder itself may be read-only."""
    return downloads.cache_dir() / "gphash" / FILE


def read(path: Path, keys: Collection[bytes]) -> dict[bytes, bytes]:
    """What the cache has of some keys, whole and undamaged."""

    def work(base: sqlite3.Connection) -> dict[bytes, bytes]:
        found = {}
        wanted = list(keys)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            places = ",".join("?" * len(some))
            for key, value in base.execute(f"SELECT key, value FROM kept WHERE key IN ({places})", some):
                content = value[_DIGEST_BYTES:]
                if value[:_DIGEST_BYTES] == _digest(key, content):
                    found[key] = content
            base.execute(f"UPDATE kept SET used = ? WHERE used < ? AND key IN ({places})", (_today(), _today(), *some))
        return found

    return _using(path, work, {})


def write(path: Path, entries: Mapping[bytes, bytes]) -> None:
    """Keep bytes by their keys."""

    def work(base: sqlite3.Connection) -> None:
        rows = ((key, _digest(key, content) + content, _today()) for key, content in entries.items())
        base.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
        about = ("page_count", "freelist_count", "page_size")
        pages, free, size = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in about)
        if (pages - free) * size > MOST_BYTES:
            (count,) = base.execute("SELECT COUNT(*) FROM kept").fetchone()
            oldest = "SELECT rowid FROM kept ORDER BY used, rowid LIMIT ?"
            base.execute(f"DELETE FROM kept WHERE rowid IN ({oldest})", (1 + count // 4,))
            base.execute("PRAGMA incremental_vacuum")

    _using(path, work, None)


def _using(path: Path, work: Callable[[sqlite3.Connection], R], otherwise: R) -> R:
    """Do something with the file in one transaction; if that cannot be done, warn once and hand back what was given."""
    for is_last in (False, True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as base:
                base.executescript(_SCHEMA)
                with base:
                    return work(base)
        except (OSError, sqlite3.Error) as error:
            fault: Exception = error
            if is_last or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
                break
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
    if path not in _warned:
        _warned.add(path)
        told = f"{str(path)!r} cannot keep descriptors ({fault}); they are computed every time."
        warnings.warn(told, RuntimeWarning, stacklevel=4)
    return otherwise


def _digest(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()[:_DIGEST_BYTES]


def _today() -> int:
    return int(time.time() // 86_400)  # a day: reading should seldom write
