"""The one place that speaks with PostgreSQL: a pool of connections, transactions, and errors in one sentence."""

import contextlib
import logging
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from gphash.files import LockedError
from gphash.index.postgres import wire

try:
    import psycopg
    from psycopg import Connection as Connection
    from psycopg import IsolationLevel as IsolationLevel
    from psycopg import adapt, errors
    from psycopg import sql as sql
    from psycopg.types.numeric import Int8 as Int8
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise ImportError("a store in PostgreSQL needs psycopg: pip install 'psycopg[binary,pool]'.") from error

OLDEST = 140000  # the first version with bit_count
PATIENCE = 10  # seconds to connect, unless the connection string says otherwise
MOST = 64  # connections; whoever needs another one waits
# Few look-ups in large tables are no work for a compiler; statements are sent in UTF-8, whatever the user's are.
SETTINGS = {"jit": "off", "client_encoding": "UTF8", "application_name": "gphash"}
READING, WRITING = IsolationLevel.REPEATABLE_READ, IsolationLevel.READ_COMMITTED

# The pool's remarks on lost connections are for whoever has set up logging; errors tell everybody else.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class StoreError(RuntimeError):
    """The database cannot do what was asked; the message says why."""


class UnknownStoreError(StoreError):
    """There is no store of that name."""


class KnownError(StoreError):
    """What was to be made is there already; for callers that can say what it is."""


class ConninfoError(ValueError):
    """The connection string cannot be read; the message shows nothing of it."""


class NoServerError(ConnectionError):
    """No server answers, or it lets nobody in."""


LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout)
REFUSED = (psycopg.ProgrammingError, psycopg.DataError)
# What is raised for an error of the database, and its words; the first that fits.
ERRORS: tuple[tuple[Any, type[Exception], str], ...] = (
    (
        errors.LockNotAvailable,
        LockedError,
        "somebody else held a lock for more than lock_timeout={lock_timeout:g} seconds; try again.",
    ),
    ((errors.UniqueViolation, errors.DuplicateTable), KnownError, "{told}"),
    (errors.InsufficientPrivilege, PermissionError, "the database does not allow this: {told}."),
    (errors.UndefinedTable, UnknownStoreError, "there is no store {name!r}: {told}; gphash store load makes one."),
    (REFUSED, ValueError, "{told}"),
    (LOST, ConnectionError, "the connection to PostgreSQL was lost: {told}."),
    (psycopg.Error, StoreError, "PostgreSQL cannot do this: {told}."),
)
# The same where a condition may be at fault.
CONDITION_ERRORS: tuple[tuple[Any, type[Exception], str], ...] = (
    (
        errors.UndefinedTable,
        StoreError,
        "there is no store {name!r}, or no table {table!r} for where={where!r}: {told}.",
    ),
    (REFUSED, ValueError, "where={where!r}, on table={table!r} with key={key!r}, is refused: {told}."),
)


class Server:
    """Connections to one database, which wait so many seconds for somebody else's lock.

    A connection string of "" means what the environment says. Errors say what they are `about`.
    """

    def __init__(self, conninfo: Any, lock_timeout: Any, **about: str) -> None:
        if not isinstance(conninfo, str):
            raise ValueError(f"conninfo is of type {type(conninfo).__name__}; give a connection string.")
        if isinstance(lock_timeout, bool) or not isinstance(lock_timeout, int | float) or not 0 < lock_timeout < 1e6:
            raise ValueError(f"lock_timeout={lock_timeout!r}; give seconds, more than 0.")
        self._lock_timeout = float(lock_timeout)
        self._about = about
        self._conninfo = conninfo
        self._pool: ConnectionPool[Any] | None = None
        self._owner = os.getpid()
        self._opening = threading.Lock()

    @contextlib.contextmanager
    def connection(self, level: IsolationLevel | None = None, where: str | None = None) -> Iterator[Connection[Any]]:
        """A connection, in a transaction if there is a level; without one, statements take effect one by one.

        Errors of the database come in words of this package; a condition may be at fault.
        """
        try:
            with self._opened().connection() as connection:
                if level is None:
                    yield connection
                else:
                    connection.isolation_level = level
                    with connection.transaction():
                        yield connection
        except PoolTimeout:
            self._reach()  # which says why, if no server answers
            raise StoreError(f"all {MOST} connections of this store are in use; ask with fewer threads.") from None
        except psycopg.Error as error:
            known = ERRORS if where is None else (*CONDITION_ERRORS, *ERRORS)
            # The server's own errors have a class each; this one comes from the client's side of the connection.
            kind = errors.AdminShutdown if type(error) is psycopg.OperationalError else type(error)
            made, text = next((made, text) for kinds, made, text in known if issubclass(kind, kinds))
            told = text.format(told=_first_line(error), where=where, lock_timeout=self._lock_timeout, **self._about)
            raise made(told) from error

    def close(self) -> None:
        """Close all connections; the next one that is asked for is opened again."""
        with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None and os.getpid() == self._owner:
            pool.close()

    def _opened(self) -> ConnectionPool[Any]:
        with self._opening:
            # After a fork, the connections are the other process's, and the pool has no threads.
            if self._pool is None or os.getpid() != self._owner:
                patience = self._reach()
                self._owner = os.getpid()
                self._pool = ConnectionPool(
                    self._conninfo,
                    min_size=0,
                    max_size=MOST,
                    timeout=patience,
                    num_workers=1,
                    kwargs={"autocommit": True, "connect_timeout": patience},
                    configure=self._configure,
                    check=ConnectionPool.check_connection,
                    open=True,
                )
            return self._pool

    def _reach(self) -> int:
        """Connect once, for an error that says at once what is wrong; returns the seconds that connecting may take."""
        try:
            known = psycopg.conninfo.conninfo_to_dict(self._conninfo)
        except psycopg.ProgrammingError:  # whose message would show a part of the text, which may be a password
            raise ConninfoError(
                "conninfo is no connection string; give one such as 'host=localhost dbname=shop user=me', or a URL "
                "postgresql://…"
            ) from None
        patience = int(known.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT") or PATIENCE)
        try:
            with psycopg.connect(self._conninfo, connect_timeout=patience) as connection:
                version = connection.info.server_version
        except psycopg.OperationalError as error:
            raise NoServerError(f"PostgreSQL cannot be reached: {_first_line(error)}.") from None
        if version < OLDEST:
            raise StoreError(f"the server is PostgreSQL {version // 10000}; a store needs 14 or newer.")
        return max(patience, 1)

    def _configure(self, connection: Connection[Any]) -> None:
        # Nothing is for ever, which is what 0 milliseconds would mean.
        for name, value in (SETTINGS | {"lock_timeout": f"{math.ceil(self._lock_timeout * 1000)}"}).items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.adapters.register_dumper(np.ndarray, _ArrayDumper)
        for number in (wire.BIGINTS, wire.BITS):
            connection.adapters.register_loader(number, _ArrayLoader)


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error).strip().splitlines()[0]).rstrip(".")


class _ArrayDumper(adapt.Dumper):
    format = psycopg.pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return wire.dump(obj)


class _ArrayLoader(adapt.Loader):
    format = psycopg.pq.Format.BINARY

    def load(self, data: Any) -> Any:
        return wire.load(data)
