"""`items.sqlite`: what is known of the items of a collection, and which of them its parts do not have yet.

============  =======================================================================================================
``items``     a row for every item: its number, which the parts know it by, its code, and its columns
``pictures``  the pictures that are kept here: files as they are, or pixels
``tags``      which items have which tag, to find them by it
``classes``   the names of all labels and tags
``changes``   numbers of items that were added or removed, in order; a collection folds them into its parts
``state``     which collection this belongs to, and the last change that its parts have
============  =======================================================================================================

A change is one transaction, and durable when it ends. Keys are texts, or whole numbers, which are then the numbers.
"""

import contextlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.collection.conditions import Condition
from gphash.container import FormatError

Key: TypeAlias = int | str
Value: TypeAlias = str | int | float | None

FORMAT = 1
APPLICATION = 0x67706873  # "gphs", in the head of the file
BATCH = 10_000  # rows that are read at once
PATIENCE = 10.0  # seconds to wait for somebody else's transaction
SAID = ("label", "tags", "title", "text", "link", "picture")  # columns that every collection has, all of them texts
OWN = ("number", "key", "code", "described", "mark")  # columns that nobody else can name
TYPES = {"integer": int, "real": float, "text": str}
AGAIN = "make the collection again, or get its files from where they were made"


class Row(NamedTuple):
    """An item as it is stored.

    The code is packed. `described` says whether it was made from the item's picture. `tags` are separated by ";" and
    begin and end with it. `picture` is the name of a file in the folder of pictures.
    """

    number: int
    key: Key
    code: bytes
    described: bool
    values: dict[str, Value]

    @property
    def labels(self) -> tuple[str, ...]:
        """Its class or its tags."""
        if (tags := self.values.get("tags")) is not None:
            return tuple(str(tags).strip(";").split(";")) if tags != ";" else ()
        label = self.values.get("label")
        return () if label is None else (str(label),)


class NewRow(NamedTuple):
    """An item to be added; a key of None is the next whole number there never was."""

    key: Key | None
    code: bytes
    described: bool
    values: dict[str, Value]

    def numbered(self, number: int) -> Row:
        """The item with its number."""
        return Row(number, number if self.key is None else self.key, *self[1:])


class Layout(NamedTuple):
    """What the table of items looks like: "integer" or "text" keys, and further columns with their types."""

    keys: str
    columns: dict[str, str]

    @property
    def names(self) -> dict[str, str]:
        """Columns that a condition may name, and what they are in a statement."""
        own = {"key": "key" if self.keys == "text" else "number"}
        return own | {name: quoted(name) for name in (*SAID, *self.columns)}

    @property
    def kinds(self) -> dict[str, str]:
        """The types of those columns."""
        return {"key": self.keys, **dict.fromkeys(SAID, "text"), **self.columns}

    @property
    def values(self) -> tuple[str, ...]:
        """Columns that an item has values in."""
        return (*SAID, *self.columns)


class ItemTable(Protocol):
    """What a collection asks of its items, wherever they are kept; see `Items`."""

    layout: Layout
    rows: Callable[[Sequence[int]], dict[int, Row]]
    all_rows: Callable[[], Iterator[Row]]
    all_pictures: Callable[[], Iterator[tuple[int, bytes, str | None]]]
    numbers: Callable[[Sequence[Key]], dict[Key, int]]
    classes: Callable[[], tuple[str, ...]]
    count_labels: Callable[[Sequence[int]], dict[str, int]]
    picture: Callable[[int], bytes | NDArray[np.uint8] | None]
    pictured: Callable[[Sequence[int]], set[int]]
    has_pictures: Callable[[bool], bool]


class Items:
    """The file, opened to be read or written; threads may share it."""

    def __init__(self, path: Path, layout: Layout, connection: sqlite3.Connection, writable: bool = False) -> None:
        self.path, self.layout, self._writable = path, layout, writable
        self._connection = connection
        self._lock = threading.RLock()
        key = ("key",) if layout.keys == "text" else ()
        self._names = ("number", "code", "described", *key, *map(quoted, layout.values), "mark")

    @classmethod
    def create(cls, path: Path, layout: Layout, belongs: str) -> "Items":
        """Make a new file; nothing in it is durable before `finish`."""
        with telling(path):
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            key = ", key TEXT NOT NULL UNIQUE" if layout.keys == "text" else ""
            columns = "".join(f", {quoted(name)} {layout.columns.get(name, 'text').upper()}" for name in layout.values)
            for statement in (
                *(f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}"),
                *("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "BEGIN"),
                "CREATE TABLE items (number INTEGER PRIMARY KEY AUTOINCREMENT, code BLOB NOT NULL, "
                f"described INTEGER NOT NULL{key}{columns}, mark INTEGER NOT NULL)",
                "CREATE TABLE pictures (number INTEGER PRIMARY KEY, content BLOB NOT NULL, shape TEXT)",
                "CREATE TABLE tags (tag TEXT, number INTEGER, PRIMARY KEY (tag, number)) WITHOUT ROWID",
                "CREATE TABLE classes (place INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
                "CREATE TABLE changes (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL)",
                "CREATE TABLE state (belongs TEXT NOT NULL, folded INTEGER NOT NULL, layout TEXT NOT NULL)",
            ):
                connection.execute(statement)
            told = json.dumps({"keys": layout.keys, "columns": layout.columns})
            connection.execute("INSERT INTO state VALUES (?, 0, ?)", (belongs, told))
            return cls(path, layout, connection)

    def fill(
        self,
        numbers: Sequence[int],
        packed: NDArray[np.uint8],
        described: bool | Sequence[bool],
        keys: Sequence[Key] | None,
        columns: Mapping[str, Sequence[Value]],
    ) -> None:
        """Write items into a new file: numbers, packed codes [n, bytes], keys if they are texts, and columns."""
        width, octets = packed.shape[1], np.ascontiguousarray(packed).tobytes()
        codes = (octets[place : place + width] for place in range(0, len(octets), width))
        texts = () if keys is None else (keys,)
        values = (columns.get(name) or repeat(None) for name in self.layout.values)
        made = repeat(int(described)) if isinstance(described, bool) else map(int, described)
        rows = zip(numbers, codes, made, *texts, *values, strict=False)  # what is repeated has no end
        with telling(self.path, self.layout):
            self._connection.executemany(self._insert(), ((*row, _mark(row)) for row in rows))

    def fill_pictures(self, pictures: Iterable[tuple[int, bytes, str | None]]) -> None:
        """Write pictures into a new file: numbers, content, and the shape of pixels, such as "32,32,3"."""
        with telling(self.path, self.layout):
            self._connection.executemany("INSERT INTO pictures VALUES (?, ?, ?)", pictures)

    def fill_tags(self, tagged: Iterable[tuple[str, int]]) -> None:
        """Write into a new file which items have which tag."""
        with telling(self.path, self.layout):
            self._connection.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", tagged)

    def finish(self, classes: Sequence[str], next_number: int = 0) -> None:
        """Write the names of classes, make what was written durable, and close the file.

        Numbers below `next_number` will not be given to new items.
        """
        with telling(self.path, self.layout):
            if next_number > self.next_number():
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'items'")
                self._connection.execute("INSERT INTO sqlite_sequence VALUES ('items', ?)", (next_number - 1,))
            self._connection.executemany("INSERT INTO classes (name) VALUES (?)", ((name,) for name in classes))
            self._connection.execute("CREATE INDEX items_label ON items (label) WHERE label IS NOT NULL")
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA journal_mode = DELETE")
            self.close()
            with open(self.path, "rb+") as file:
                os.fsync(file.fileno())

    @classmethod
    def open(cls, path: Path, belongs: str, writable: bool) -> "Items":
        """Open the file of a collection."""
        if not path.is_file():
            raise FormatError(f"{str(path)!r} is missing; {AGAIN}")
        with telling(path):
            connection = _connect(path, writable)
            try:
                (application,), (version,) = (
                    connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
                )
                if application != APPLICATION or version != FORMAT:
                    newer = "use a newer gphash" if application == APPLICATION and version > FORMAT else AGAIN
                    raise FormatError(f"{str(path)!r} is no file of items of format {FORMAT}; {newer}")
                ((owner, told),) = connection.execute("SELECT belongs, layout FROM state").fetchall()
                if owner != belongs:
                    raise FormatError(f"{str(path)!r} belongs to another collection; {AGAIN}")
                layout = Layout(**json.loads(told))
            except BaseException:
                connection.close()
                raise
        return cls(path, layout, connection, writable)

    def close(self) -> None:
        """Close the file; the last one to leave leaves one file."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                if self._writable:
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._connection.execute("PRAGMA journal_mode = DELETE")
            self._connection.close()

    def version(self) -> int:
        """What differs when another process has changed something."""
        with self._reading() as ask:
            return int(ask("PRAGMA data_version").fetchone()[0])

    def folded(self) -> int:
        """The last change that the parts of the collection have, as far as this file knows."""
        with self._reading() as ask:
            return int(ask("SELECT folded FROM state").fetchone()[0])

    def changes(self, after: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64], list[bytes]]:
        """Changes after some place: the last place, numbers that changed, those that are there now, and their codes.

        Numbers are ascending.
        """
        with self._reading() as ask:
            last = ask("SELECT coalesce(max(place), ?) FROM changes", (after,)).fetchone()[0]
            found = ask(
                "SELECT number, code FROM (SELECT DISTINCT number FROM changes WHERE place > ?) "
                "LEFT JOIN items USING (number) ORDER BY number",
                (after,),
            ).fetchall()
        there = [(number, code) for number, code in found if code is not None]
        numbers = np.array([number for number, _ in found], np.int64)
        return max(last, after), numbers, np.array([number for number, _ in there], np.int64), [one for _, one in there]

    def forget(self, folded: int) -> None:
        """Forget changes up to some place, which the parts have now."""
        with self._writing() as ask:
            ask("UPDATE state SET folded = ?", (folded,))
            ask("DELETE FROM changes WHERE place <= ?", (folded,))

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read meanwhile is of one moment, whatever a writer does."""
        with self._lock:
            with telling(self.path, self.layout):
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def next_number(self) -> int:
        """The next number that was never used."""
        with self._reading() as ask:
            found = ask("SELECT seq FROM sqlite_sequence WHERE name = 'items'").fetchone()
        return 1 if found is None else int(found[0]) + 1

    def count(self) -> int:
        """How many items there are."""
        with self._reading() as ask:
            return int(ask("SELECT count(*) FROM items").fetchone()[0])

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Items by their numbers; those that are not there are left out."""
        with self._reading() as ask:
            names = ", ".join(self._names)
            found = ask(f"SELECT {names} FROM items WHERE number IN (SELECT value FROM json_each(?))", _list(numbers))
            return {row[0]: self._row(row) for row in found}

    def all_stored(self) -> Iterator[list[tuple[Any, ...]]]:
        """All items by their numbers, many at a time, as they are stored: number, code, described, key, and values."""
        names, last = ", ".join(self._names), -(2**63)
        while True:
            with self._reading() as ask:
                statement = f"SELECT {names} FROM items WHERE number >= ? ORDER BY number LIMIT {BATCH}"
                found = [self._checked(row) for row in ask(statement, (last,))]
            yield found
            if len(found) < BATCH:
                return
            last = found[-1][0] + 1

    def all_rows(self) -> Iterator[Row]:
        """All items, by their numbers."""
        return (self._made(row) for batch in self.all_stored() for row in batch)

    def all_pictures(self) -> Iterator[tuple[int, bytes, str | None]]:
        """All pictures that are kept here, by their numbers: number, content, and the shape of pixels."""
        with self._reading() as ask:
            numbers = [number for (number,) in ask("SELECT number FROM pictures ORDER BY number")]
        for number in numbers:
            with self._reading() as ask:
                yield ask("SELECT number, content, shape FROM pictures WHERE number = ?", (number,)).fetchone()

    def numbers(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Numbers of keys; those that are not there are left out."""
        key = self.layout.names["key"]
        with self._reading() as ask:
            statement = f"SELECT {key}, number FROM items WHERE {key} IN (SELECT value FROM json_each(?))"
            return dict(ask(statement, _list(keys)).fetchall())

    def matching(self, condition: Condition) -> NDArray[np.int64]:
        """Numbers of the items for which a condition holds, ascending."""
        statement = f"SELECT number FROM items WHERE ({condition.sqlite}) ORDER BY number"
        try:
            with self._reading() as ask:
                return np.array([number for (number,) in ask(statement, condition.values)], np.int64)
        except (sqlite3.Error, OverflowError) as error:
            raise ValueError(f"where={condition.where!r} is no condition that can be asked: {error}.") from error

    def labelled(self, name: str) -> NDArray[np.int64]:
        """Numbers of the items with a label or tag, ascending."""
        statement = (
            "SELECT number FROM items WHERE label = ? UNION SELECT number FROM tags WHERE tag = ? ORDER BY number"
        )
        with self._reading() as ask:
            return np.array([number for (number,) in ask(statement, (name, name))], np.int64)

    def classes(self) -> tuple[str, ...]:
        """Names of all labels and tags, in the order in which they came."""
        with self._reading() as ask:
            return tuple(name for (name,) in ask("SELECT name FROM classes ORDER BY place"))

    def count_labels(self, numbers: Sequence[int]) -> dict[str, int]:
        """How many of some items have each label or tag, most frequent first."""
        among = "number IN (SELECT value FROM json_each(?))"
        statement = (
            f"SELECT name, count(*) FROM (SELECT label AS name FROM items WHERE {among} AND label IS NOT NULL "
            f"UNION ALL SELECT tag AS name FROM tags WHERE {among}) GROUP BY name ORDER BY 2 DESC, 1"
        )
        with self._reading() as ask:
            return dict(ask(statement, (*_list(numbers), *_list(numbers))).fetchall())

    def picture(self, number: int) -> bytes | NDArray[np.uint8] | None:
        """The picture of an item that is kept here: the content of its file, or pixels."""
        with self._reading() as ask:
            found = ask("SELECT content, shape FROM pictures WHERE number = ?", (number,)).fetchone()
        if found is None or found[1] is None:
            return None if found is None else bytes(found[0])
        with telling(self.path):
            return np.frombuffer(found[0], np.uint8).reshape([int(side) for side in found[1].split(",")])

    def pictured(self, numbers: Sequence[int]) -> set[int]:
        """Those of some items whose pictures are kept here."""
        with self._reading() as ask:
            statement = "SELECT number FROM pictures WHERE number IN (SELECT value FROM json_each(?))"
            return {number for (number,) in ask(statement, _list(numbers))}

    def has_pictures(self, named: bool) -> bool:
        """Whether some item has a picture: one that is kept here, or, if they count, one in the folder of pictures."""
        with self._reading() as ask:
            if ask("SELECT EXISTS (SELECT 1 FROM pictures)").fetchone()[0]:
                return True
            return named and ask("SELECT 1 FROM items WHERE picture IS NOT NULL LIMIT 1").fetchone() is not None

    def add(self, rows: Sequence[NewRow], pictures: Sequence[bytes | None]) -> list[int]:
        """Add items, all of them or none, and return their numbers; on return they are on disk."""
        numbers = []
        with self._writing() as ask:
            for new, picture in zip(rows, pictures, strict=True):
                row = new.numbered(0)
                number = ask(
                    self._insert(), (new.key if isinstance(new.key, int) else None, *self._stored(row)[1:])
                ).lastrowid
                numbers.append(number)
                ask("INSERT INTO changes (number) VALUES (?)", (number,))
                if picture is not None:
                    ask("INSERT INTO pictures VALUES (?, ?, NULL)", (number, picture))
                for name in row.labels:
                    ask("INSERT OR IGNORE INTO classes (name) VALUES (?)", (name,))
                    if row.values.get("tags") is not None:
                        ask("INSERT OR IGNORE INTO tags VALUES (?, ?)", (name, number))
        return numbers

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove items, all of them or none; on return, that is on disk."""
        with self._writing() as ask:
            for table in ("items", "pictures", "tags"):
                ask(f"DELETE FROM {table} WHERE number IN (SELECT value FROM json_each(?))", _list(numbers))
            ask("INSERT INTO changes (number) SELECT value FROM json_each(?)", _list(numbers))

    def check(self) -> None:
        """Read the whole file; a FormatError says that it is damaged."""
        with self._reading() as ask:
            if (found := ask("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise FormatError(f"{str(self.path)!r} is damaged: {found}; {AGAIN}")

    def _insert(self) -> str:
        return f"INSERT INTO items ({', '.join(self._names)}) VALUES ({', '.join('?' * len(self._names))})"

    def _stored(self, row: Row) -> tuple[Any, ...]:
        key = (row.key,) if self.layout.keys == "text" else ()
        stored = (row.number, row.code, int(row.described), *key, *map(row.values.get, self.layout.values))
        return (*stored, _mark(stored))

    def _row(self, found: tuple[Any, ...]) -> Row:
        return self._made(self._checked(found))

    def _checked(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        row = found[:-1]
        if _mark(row) != found[-1]:
            raise FormatError(f"{str(self.path)!r} is damaged: the item {found[0]} is not as it was written; {AGAIN}")
        return row

    def _made(self, stored: tuple[Any, ...]) -> Row:
        number, code, described, *values = stored
        key = values.pop(0) if self.layout.keys == "text" else number
        pairs = zip(self.layout.values, values, strict=True)
        return Row(number, key, code, bool(described), {name: value for name, value in pairs if value is not None})

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._lock, telling(self.path, self.layout):
            yield self._connection.execute

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._lock, telling(self.path, self.layout):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise


def _mark(row: tuple[Any, ...]) -> int:
    """What tells that a row is as it was written, but for its number: a new item gets that later."""
    return zlib.crc32(repr(row[1:]).encode())


def quoted(name: str) -> str:
    """A name as a statement has it."""
    return '"' + name.replace('"', '""') + '"'


def _list(values: Sequence[Any]) -> tuple[str]:
    return (json.dumps(list(values)),)


def _connect(path: Path, writable: bool) -> sqlite3.Connection:
    """Open the file; of a folder that nobody can write to, as it is."""
    mode = "mode=rw" if writable else "mode=ro"
    if not writable and not os.access(path.parent, os.W_OK):
        # SQLite keeps notes about readers beside the file; what cannot be written to does not change, and needs none.
        waiting = path.with_name(f"{path.name}-wal")
        if waiting.exists() and waiting.stat().st_size:
            raise FormatError(
                f"{str(path)!r} has changes in {waiting.name!r} that a writer did not finish; open it once in a folder "
                "that can be written to"
            )
        mode = "immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if writable:
        # Readers and the writer do not wait for each other, and a change takes one write. Where nobody writes, there is
        # one file, which can be copied, and read where nothing can be written.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    else:
        connection.execute("PRAGMA query_only = ON")
    return connection


@contextlib.contextmanager
def telling(path: Path, layout: Layout | None = None) -> Iterator[None]:
    """Errors of SQLite as what they mean here."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise KnownKeyError(
            "a key is in the collection already, or given twice; remove it first, or give another."
        ) from error
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise OSError(28, f"no space left for {str(path)!r}; nothing was changed") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TimeoutError(f"{str(path)!r} has been locked for {PATIENCE:g} seconds; try again.") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
            raise OSError(f"{str(path)!r} cannot be read or written: {error}; nothing was changed") from error
        if layout is not None:
            raise
        raise FormatError(f"{str(path)!r} cannot be used: {error}; {AGAIN}") from error
    except (sqlite3.DatabaseError, json.JSONDecodeError, TypeError) as error:
        raise FormatError(f"{str(path)!r} is damaged: {error}; {AGAIN}") from error


class KnownKeyError(ValueError):
    """A key is in the collection already."""
