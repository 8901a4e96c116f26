"""Where a store is said to be, and errors that say which store, or which condition, they are about."""

import contextlib
from collections.abc import Iterator

from gphash.stores import tables
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Database, RefusedError, StoreError, UnknownStoreError
from gphash.stores.tables import Options, Place


@contextlib.contextmanager
def placed(conninfo: str, name: str, options: Options) -> Iterator[tuple[Database, Place]]:
    """Where a store is; should anything fail, connections are closed."""
    where = tables.place(name, options)
    database = Database(conninfo, options.get("lock_timeout", 10.0))
    try:
        yield database, where
    except BaseException:
        database.close()
        raise


@contextlib.contextmanager
def named(name: str, condition: Condition | None = None) -> Iterator[None]:
    """Errors that say which store, or which condition, they are about."""
    try:
        yield
    except UnknownStoreError as error:
        if condition is not None:
            raise StoreError(
                f"the store {name!r}, or the table of where={condition.where!r}, is gone: {error}."
            ) from error
        raise UnknownStoreError(
            f"there is no store {name!r}: {error}; build, or gphash store load, makes one."
        ) from error
    except RefusedError as error:
        if condition is None:
            raise
        raise ValueError(f"where={condition.where!r} with these params is refused: {error}.") from error
