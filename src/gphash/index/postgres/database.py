"""The one place that speaks with PostgreSQL: connections, errors in one sentence, and arrays in binary.

A code is a bigint up to 64 bits, the code as a binary number, and a bit string beyond. psycopg would make a Python
object of every element of an array, which takes far longer than numpy does.
"""

import contextlib
import logging
import math
import os
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.files import LockedError
from gphash.index import engines
from gphash.index.engines import WORD

try:
    import psycopg
    from psycopg import Connection as Connection
    from psycopg import IsolationLevel as IsolationLevel
    from psycopg import adapt, errors
    from psycopg import sql as sql
    from psycopg.types.numeric import Int8 as Int8
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise ImportError("a collection in PostgreSQL needs psycopg: pip install 'psycopg[binary,pool]'.") from error

OLDEST = 140000  # the first version with bit_count
PATIENCE = 10  # seconds to connect, unless the connection string says otherwise
MOST = 64  # connections; whoever needs another one waits
# Few look-ups in large tables are no work for a compiler; statements are sent in UTF-8, whatever the user's are.
SETTINGS = {"jit": "off", "client_encoding": "UTF8", "application_name": "gphash"}
BIGINT, BIGINTS, BIT, BITS = 20, 1016, 1560, 1561  # numbers of the types, and of arrays of them
ROWS = 1 << 16  # sent at a time
SIGNATURE, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"  # of rows: no flags, nothing beyond
READING, WRITING = IsolationLevel.REPEATABLE_READ, IsolationLevel.READ_COMMITTED

Octets: TypeAlias = NDArray[np.uint8]

# The pool's remarks on lost connections are for whoever has set up logging; errors tell everybody else.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class StoreError(RuntimeError):
    """The database cannot do what was asked; the message says why."""


class UnknownStoreError(StoreError):
    """There is nothing of that name."""


class KnownError(StoreError):
    """What was to be made is there already; for callers that can say what it is."""


class ConninfoError(ValueError):
    """The connection string cannot be read; the message shows nothing of it."""


class NoServerError(ConnectionError):
    """No server answers, or it lets nobody in."""


LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout)
# What is raised for an error of the database, and its words; the first that fits.
ERRORS: tuple[tuple[Any, type[Exception], str], ...] = (
    (
        errors.LockNotAvailable,
        LockedError,
        "somebody else held a lock for more than lock_timeout={lock_timeout:g} seconds; try again.",
    ),
    ((errors.UniqueViolation, errors.DuplicateTable), KnownError, "{told}"),
    (errors.InsufficientPrivilege, PermissionError, "the database does not allow this: {told}."),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName),
        UnknownStoreError,
        "there is no collection {name!r} in the database: {told}; gphash store copies one into it.",
    ),
    ((psycopg.ProgrammingError, psycopg.DataError), ValueError, "PostgreSQL refuses this: {told}."),
    (LOST, ConnectionError, "the connection to PostgreSQL was lost: {told}."),
    (psycopg.Error, StoreError, "PostgreSQL cannot do this: {told}."),
)
# The same where a condition may be at fault.
CONDITION_ERRORS: tuple[tuple[Any, type[Exception], str], ...] = (
    (psycopg.DataError, ValueError, "where={where!r} is no condition that can be asked: {told}."),
)


class Server:
    """Connections to one database, which wait so many seconds for somebody else's lock.

    A connection string of "" means what the environment says. Errors name the `name` of what is asked for.
    """

    def __init__(self, conninfo: Any, lock_timeout: Any, name: str) -> None:
        if not isinstance(conninfo, str):
            raise ValueError(f"conninfo is of type {type(conninfo).__name__}; give a connection string.")
        if isinstance(lock_timeout, bool) or not isinstance(lock_timeout, int | float) or not 0 < lock_timeout < 1e6:
            raise ValueError(f"lock_timeout={lock_timeout!r}; give seconds, more than 0.")
        self._lock_timeout = float(lock_timeout)
        self._name = name
        self._conninfo = conninfo
        self._pool: ConnectionPool[Any] | None = None
        self._owner = os.getpid()
        self._opening = threading.Lock()
        self._own = threading.local()

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """All that this thread reads meanwhile, on whatever it calls a connection, is of one moment."""
        if getattr(self._own, "connection", None) is not None:
            yield
            return
        with self.connection(READING) as connection:
            self._own.connection = connection
            try:
                yield
            finally:
                self._own.connection = None

    @contextlib.contextmanager
    def connection(self, level: IsolationLevel | None = None, where: str | None = None) -> Iterator[Connection[Any]]:
        """A connection, in a transaction if there is a level; without one, statements take effect one by one.

        Errors of the database come in words of this package; a condition may be at fault.
        """
        shared = None if level is WRITING else getattr(self._own, "connection", None)
        try:
            if shared is not None:
                yield shared
                return
            with self._opened().connection() as connection:
                if level is None:
                    yield connection
                else:
                    connection.isolation_level = level
                    with connection.transaction():
                        yield connection
        except PoolTimeout:
            self._reach()  # which says why, if no server answers
            raise StoreError(f"all {MOST} connections are in use; ask with fewer threads.") from None
        except psycopg.Error as error:
            known = ERRORS if where is None else (*CONDITION_ERRORS, *ERRORS)
            # The server's own errors have a class each; this one comes from the client's side of the connection.
            kind = errors.AdminShutdown if type(error) is psycopg.OperationalError else type(error)
            made, text = next((made, text) for kinds, made, text in known if issubclass(kind, kinds))
            told = _first_line(error)
            raise made(text.format(told=told, where=where, lock_timeout=self._lock_timeout, name=self._name)) from error

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
            raise StoreError(f"the server is PostgreSQL {version // 10000}; 14 or newer is needed.")
        return max(patience, 1)

    def _configure(self, connection: Connection[Any]) -> None:
        # Rounded up, as 0 would mean no limit.
        for name, value in (SETTINGS | {"lock_timeout": f"{math.ceil(self._lock_timeout * 1000)}"}).items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.adapters.register_dumper(np.ndarray, _ArrayDumper)
        for number in (BIGINTS, BITS):
            connection.adapters.register_loader(number, _ArrayLoader)


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error).strip().splitlines()[0]).rstrip(".")


# Arrays and rows


def column(n_bits: int) -> str:
    """Type of the column of codes."""
    return "bigint" if n_bits <= WORD else f"bit({n_bits})"


def elements(packed: Octets, n_bits: int) -> NDArray[Any]:
    """Packed codes, [n, bytes], as elements of an array or of a column, [n]."""
    return engines.as_bigint(packed, n_bits) if n_bits <= WORD else bit_strings(packed, n_bits)


def bit_strings(packed: Octets, n_bits: int) -> NDArray[Any]:
    """Packed codes, [n, bytes], as bit strings, however short they are, [n]."""
    found = np.empty(len(packed), [("length", ">i4"), ("octets", "u1", packed.shape[1:])])
    found["length"], found["octets"] = n_bits, packed
    return found


def code(packed: Octets, n_bits: int) -> int | str:
    """One packed code, [bytes], as a parameter."""
    if n_bits <= WORD:
        return int(engines.as_bigint(packed[None], n_bits)[0])
    return engines.as_text(packed[None], n_bits)[0]


def packed_of(found: NDArray[Any] | None, n_bits: int) -> Octets:
    """Packed codes, [n, bytes], from an array that was read; an aggregate of no rows gives None."""
    if found is None or not len(found):
        return np.empty((0, -(-n_bits // 8)), np.uint8)
    return engines.from_bigint(found, n_bits) if n_bits <= WORD else np.ascontiguousarray(found)


def rows(columns: tuple[NDArray[Any], ...]) -> Iterator[bytes]:
    """Rows of COPY from elements of their columns."""
    yield SIGNATURE
    for start in range(0, len(columns[0]), ROWS):
        yield _sized([column[start : start + ROWS] for column in columns], [("count", ">i2")])
    yield END


def _sized(columns: list[NDArray[Any]], fields: list[Any]) -> bytes:
    """Elements, each behind its size, in rows that begin with other fields, all of them the number of columns."""
    for number, one in enumerate(columns):
        fields = [*fields, (f"size_{number}", ">i4"), (f"value_{number}", one.dtype.newbyteorder(">"))]
    table = np.full(len(columns[0]), len(columns), fields)
    for number, one in enumerate(columns):
        table[f"size_{number}"], table[f"value_{number}"] = one.itemsize, one
    return table.tobytes()


class _ArrayDumper(adapt.Dumper):
    """Elements as an array of one dimension, or of none if it is empty; the statement says of what type it is."""

    format = psycopg.pq.Format.BINARY

    def dump(self, obj: NDArray[Any]) -> bytes:
        kind = BIGINT if obj.dtype.kind == "i" else BIT
        head = [1, 0, kind, len(obj), 1] if len(obj) else [0, 0, kind]
        return np.array(head, ">i4").tobytes() + _sized([obj], [])


class _ArrayLoader(adapt.Loader):
    """Elements of one size that are not null: numbers, [n], or packed codes, [n, bytes]."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: Any) -> NDArray[Any]:
        octets = bytes(data)
        if len(octets) <= 20:  # five numbers come first, three if it is empty
            return np.empty(0, np.int64)
        kind, _, _, size = np.frombuffer(octets, ">i4", 4, 8)
        if kind == BIGINT:
            return np.frombuffer(octets, [("size", ">i4"), ("value", ">i8")], offset=20)["value"].astype(np.int64)
        bits = [("size", ">i4"), ("length", ">i4"), ("octets", "u1", (int(size) - 4,))]
        return np.frombuffer(octets, bits, offset=20)["octets"]
