"""The one place that speaks with PostgreSQL: connections, transactions, and errors in one sentence."""

import contextlib
import math
import os
import selectors
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gphash.index.storage import LockedError
from gphash.stores import wire

try:
    import psycopg
    from psycopg import adapt, errors, sql
    from psycopg.types.numeric import Int8
except ImportError as error:
    raise ImportError("A store in PostgreSQL needs psycopg: pip install 'gphash[postgres]'.") from error

OLDEST = 140000  # the first version with bit_count
PATIENCE = 10  # seconds to connect, unless the connection string says otherwise
# Few look-ups in large tables are no work for a compiler; statements are sent in UTF-8, whatever the user's are.
SETTINGS = {"jit": "off", "client_encoding": "UTF8", "application_name": "gphash"}


class StoreError(RuntimeError):
    """The database cannot do what was asked; the message says why."""


class UnknownStoreError(StoreError):
    """There is no store of that name."""


class KnownError(StoreError):
    """What was to be made is there already; for callers that can say what it is."""


class ConninfoError(ValueError):
    """The connection string cannot be read; the message shows nothing of it."""


class UnreachableError(ConnectionError):
    """No server answers, or it lets nobody in."""


class RefusedError(ValueError):
    """The server does not take a statement, or a value in it."""


class Database:
    """Connections to one database, as many as are in use at a time; one that was lost meanwhile is replaced.

    Parameters
    ----------
    conninfo
        A connection string, or "" for what the environment says.
    lock_timeout
        Seconds that a statement waits for somebody else's lock.
    """

    def __init__(self, conninfo: Any, lock_timeout: Any) -> None:
        if not isinstance(conninfo, str):
            raise ValueError(f"conninfo is of type {type(conninfo).__name__}; give a connection string.")
        if isinstance(lock_timeout, bool) or not isinstance(lock_timeout, int | float) or not 0 < lock_timeout < 1e6:
            raise ValueError(f"lock_timeout={lock_timeout!r}; give seconds, more than 0.")
        self._conninfo = conninfo
        self._lock_timeout = float(lock_timeout)
        self._idle: list[psycopg.Connection[Any]] = []
        self._owner = os.getpid()
        self._taking = threading.Lock()

    @contextlib.contextmanager
    def session(self) -> Iterator["Session"]:
        """Statements that take effect one by one."""
        with _told(self._lock_timeout):
            connection = self._take()
            try:
                yield Session(connection)
            finally:
                self._give_back(connection)

    @contextlib.contextmanager
    def reading(self) -> Iterator["Session"]:
        """Statements that all see the data of one moment."""
        with self._transaction(psycopg.IsolationLevel.REPEATABLE_READ) as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator["Session"]:
        """Statements that take effect together or not at all."""
        with self._transaction(psycopg.IsolationLevel.READ_COMMITTED) as session:
            yield session

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._taking:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self, level: psycopg.IsolationLevel) -> Iterator["Session"]:
        with self.session() as session:
            session.connection.isolation_level = level
            with session.connection.transaction():
                yield session

    def _take(self) -> psycopg.Connection[Any]:
        with self._taking:
            if os.getpid() != self._owner:  # a fork: the connections are the other process's
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if _is_silent(connection):
                    return connection
                connection.close()
        return self._connect()

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            return
        with self._taking:
            self._idle.append(connection)

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            known = psycopg.conninfo.conninfo_to_dict(self._conninfo)
        except psycopg.ProgrammingError:  # whose message would show a part of the text, which may be a password
            raise ConninfoError(
                "conninfo is no connection string; give one such as 'host=localhost dbname=shop user=me', or a URL "
                "postgresql://…"
            ) from None
        patience = known.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT") or PATIENCE
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True, connect_timeout=patience)
        except psycopg.OperationalError as error:
            raise UnreachableError(f"PostgreSQL cannot be reached: {_first_line(error)}.") from None
        try:
            if connection.info.server_version < OLDEST:
                version = connection.info.parameter_status("server_version")
                raise StoreError(f"the server is PostgreSQL {version}; a store needs 14 or newer.")
            # Nothing is for ever, which is what 0 milliseconds would mean.
            for name, value in (SETTINGS | {"lock_timeout": f"{math.ceil(self._lock_timeout * 1000)}"}).items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        except BaseException:
            connection.close()
            raise
        connection.adapters.register_dumper(wire.Bigints, _BigintsDumper)
        connection.adapters.register_dumper(wire.Bits, _BitsDumper)
        connection.adapters.register_dumper(wire.Bit, _BitDumper)
        for number in (wire.BIGINTS, wire.BITS):
            connection.adapters.register_loader(number, _ArrayLoader)
        return connection


class Session:
    """A connection in use.

    Parameters
    ----------
    connection
        Its connection; statements come from `compose`.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def rows(self, statement: bytes, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, and return what it gives."""
        # Our own whole numbers are bigint, for a statement is prepared once for every set of types.
        typed = {
            name: Int8(value) if type(value) is int and not name.startswith("value_") else value
            for name, value in (values or {}).items()
        }
        cursor = self.connection.execute(statement, typed, prepare=bool(typed), binary=True)
        return cursor.fetchall() if cursor.description else []

    def copy(self, statement: bytes, chunks: Iterable[bytes]) -> None:
        """Send rows."""
        # Without values, nobody undoubles per cent signs.
        with self.connection.cursor() as cursor, cursor.copy(statement.replace(b"%%", b"%")) as copy:
            for chunk in chunks:
                copy.write(chunk)


def compose(template: str, names: Mapping[str, str | tuple[str, ...]], texts: Mapping[str, str]) -> bytes:
    """A statement with its names, quoted, and texts in place of braces.

    Parameters
    ----------
    template
        From `schema`.
    names
        Tables and columns; several parts are joined by dots. "{x_name}" is the name of table "{x}" as a text.
    texts
        Parts of statements; they may have braces in turn, which are replaced as well.
    """
    known: dict[str, sql.Composable] = {}
    for key, name in names.items():
        # A per cent sign would be taken for a value's place.
        parts = [part.replace("%", "%%") for part in ((name,) if isinstance(name, str) else name)]
        quoted = sql.Identifier(*parts)
        known |= {key: quoted, f"{key}_name": sql.Literal(quoted.as_string(None))}
    for key, text in texts.items():
        known[key] = sql.SQL(text).format(**known)
    return sql.SQL(template).format(**known).as_bytes(None)


@contextlib.contextmanager
def _told(lock_timeout: float) -> Iterator[None]:
    """Errors of the database in words of this package."""
    try:
        yield
    except errors.LockNotAvailable as error:
        raise LockedError(
            f"somebody else has locked what this needs for more than lock_timeout={lock_timeout:g} seconds; try again."
        ) from error
    except (errors.UniqueViolation, errors.DuplicateTable) as error:
        raise KnownError(_first_line(error)) from error
    except errors.UndefinedTable as error:
        raise UnknownStoreError(_first_line(error)) from error
    except errors.InsufficientPrivilege as error:
        raise PermissionError(f"the database does not allow this: {_first_line(error)}.") from error
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        raise RefusedError(_first_line(error)) from error
    except (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout) as error:
        raise ConnectionError(f"the connection to PostgreSQL was lost: {_first_line(error)}.") from error
    except psycopg.OperationalError as error:
        if error.sqlstate is None:  # it comes from the client's side of the connection
            raise ConnectionError(f"the connection to PostgreSQL was lost: {_first_line(error)}.") from error
        raise StoreError(f"PostgreSQL cannot do this: {_first_line(error)}.") from error
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL cannot do this: {_first_line(error)}.") from error


def _is_silent(connection: psycopg.Connection[Any]) -> bool:
    """Whether nothing has come from the server since the last answer, such as word that it has shut down."""
    if connection.closed:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(0)


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error).strip().splitlines()[0]).rstrip(".")


class _Dumper(adapt.Dumper):
    """What `wire` made is sent as it is."""

    format = psycopg.pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


class _BigintsDumper(_Dumper):
    oid = wire.BIGINTS


class _BitsDumper(_Dumper):
    oid = wire.BITS


class _BitDumper(_Dumper):
    oid = wire.BIT


class _ArrayLoader(adapt.Loader):
    format = psycopg.pq.Format.BINARY

    def load(self, data: Any) -> wire.Octets:
        return wire.read_array(bytes(data))
