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
def named(name: str, condition: Condition | None = None, place: Place | None = None) -> Iterator[None]:
    """Errors that say which store, or which condition, they are about; with a place, also which table or key."""
    try:
        yield
    except UnknownStoreError as error:
        if condition is not None and place is not None and place.table and f'"{".".join(place.table)}"' in str(error):
            raise StoreError(
                f"there is no table {'.'.join(place.table)!r}: {error}; table names the one that where is about."
            ) from error
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
        if place is not None and place.table and f"{place.table[-1]}.{place.key} " in str(error):
            raise ValueError(
                f"key={place.key!r} is no column of the table {'.'.join(place.table)!r}: {error}; key names the one "
                "that has the ids."
            ) from error
        # Ids are of this type, which a column of the user's may not go with.
        key = f", key={place.key!r}" if place is not None and "= bigint" in str(error) else ""
        raise ValueError(f"where={condition.where!r}{key} with these params is refused: {error}.") from error
