"""`items.sqlite`: what is known of the items of a collection, and which of them its parts do not have yet.

============  =======================================================================================================
``items``     a row for every item: its number, which the parts know it by, its code, and its columns
``pictures``  the pictures that are kept here: files as they are, or pixels
``tags``      which items have which tag, to find them by it
``classes``   the names of all labels and tags
``changes``   numbers of items that were added or removed, in order; a collection folds them into its parts
``vectors``   vectors of items that no part has yet, if the collection keeps any; see `vectors`
``state``     which collection this belongs to, and the last change that its parts have
============  =======================================================================================================

A change is one transaction, and durable when it ends. Keys are texts, or whole numbers, which are then the numbers.
SQLite notices damage to the order of its file, not to what is in it: so every row that is handed out has a mark.
"""

import contextlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.collection import sqlite
from gphash.collection.conditions import Condition
from gphash.collection.rows import TYPES, Key, KnownKeyError, Layout, NewRow, Row, Value, quoted
from gphash.collection.sqlite import AGAIN
from gphash.container import FormatError

FORMAT = 1
APPLICATION = 0x67706873  # "gphs", in the head of the file
BATCH = 10_000  # rows that are read at once
LAST = 2**63 - 1  # the last number that an item can have
TAKEN = "a key is in the collection already, or given twice; remove it first, or give another."


class Items:
    """The file, opened to be read or written; threads may share it."""

    def __init__(self, path: Path, layout: Layout, connection: sqlite3.Connection, writable: bool = False) -> None:
        self.path, self.layout, self._writable = path, layout, writable
        self._connection = connection
        self._lock = threading.RLock()
        key = ("key",) if layout.keys == "text" else ()
        self._names = ("number", "code", "described", *key, *map(quoted, layout.values), "mark")
        self._kinds = [str for _ in key] + [TYPES[layout.columns.get(name, "text")] for name in layout.values]
        self.n_bits: int | None = None  # of a code, if it is known

    @classmethod
    def create(cls, path: Path, layout: Layout, belongs: str) -> "Items":
        """Make a new file; nothing in it is durable before `finish`."""
        with sqlite.telling(path):
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            settings = (f"application_id = {APPLICATION}", f"user_version = {FORMAT}")
            for setting in (*settings, "journal_mode = OFF", "synchronous = OFF", "cache_size = -262144"):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("BEGIN")
            for statement in sqlite.tables(layout).values():
                connection.execute(statement)
            told = json.dumps(layout.told())
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
        with sqlite.telling(self.path):
            self._connection.executemany(self._insert(), ((*row, _mark(row)) for row in rows))

    def fill_pictures(self, pictures: Iterable[tuple[int, bytes, str | None]]) -> None:
        """Write pictures into a new file: numbers, content, and the shape of pixels, such as "32,32,3"."""
        marked = ((*one, _mark(one)) for one in pictures)
        with sqlite.telling(self.path):
            self._connection.executemany("INSERT INTO pictures VALUES (?, ?, ?, ?)", marked)

    def fill_tags(self, tagged: Iterable[tuple[str, int]]) -> None:
        """Write into a new file which items have which tag."""
        with sqlite.telling(self.path):
            self._connection.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", tagged)

    def finish(self, classes: Sequence[str], next_number: int = 0) -> None:
        """Write the names of classes, make what was written durable, and close the file.

        Numbers below `next_number` will not be given to new items.
        """
        with sqlite.telling(self.path):
            if next_number > self.next_number():
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'items'")
                self._connection.execute("INSERT INTO sqlite_sequence VALUES ('items', ?)", (next_number - 1,))
            named = ((name, _mark((name,))) for name in classes)
            self._connection.executemany("INSERT INTO classes (name, mark) VALUES (?, ?)", named)
            for statement in sqlite.indexes(self.layout).values():
                self._connection.execute(statement)
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self.close()
            with open(self.path, "rb+") as file:
                os.fsync(file.fileno())

    @classmethod
    def open(cls, path: Path, belongs: str, writable: bool) -> "Items":
        """Open the file of a collection."""
        if not path.is_file():
            raise FormatError(f"{str(path)!r} is missing; {AGAIN}")
        with sqlite.telling(path):
            sqlite.check_whole(path)
            connection = sqlite.connect(path, writable)
            try:
                layout = cls._layout(connection, path, belongs)
            except BaseException:
                connection.close()
                raise
        return cls(path, layout, connection, writable)

    @staticmethod
    def _layout(connection: sqlite3.Connection, path: Path, belongs: str) -> Layout:
        """The layout of a file that is what it should be; compared with all that it holds beside rows."""
        (application,), (version,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application != APPLICATION or version != FORMAT:
            newer = "use a newer gphash" if application == APPLICATION and version > FORMAT else AGAIN
            raise FormatError(f"{str(path)!r} is no file of items of format {FORMAT}; {newer}")
        ((owner, told),) = connection.execute("SELECT belongs, layout FROM state LIMIT 2").fetchall()
        if owner != belongs:
            raise FormatError(f"{str(path)!r} belongs to another collection; {AGAIN}")
        layout = Layout.read(json.loads(told))
        if layout.keys not in ("integer", "text") or not set(layout.columns.values()) <= set(TYPES):
            raise FormatError(f"{str(path)!r} is damaged: it has columns of no known kind; {AGAIN}")
        sqlite.check_schema(connection, path, sqlite.tables(layout) | sqlite.indexes(layout))
        return layout

    def close(self) -> None:
        """Close the file; the last one to leave leaves one file."""
        with self._lock:
            sqlite.disconnect(self._connection, self._writable)

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
        names = ", ".join(f"items.{name}" for name in self._names)
        with self._reading() as ask:
            last = ask("SELECT coalesce(max(place), ?) FROM changes", (after,)).fetchone()[0]
            found = ask(
                f"SELECT changed.number, changed.mark, {names} FROM (SELECT DISTINCT number, mark FROM changes "
                "WHERE place > ?) AS changed LEFT JOIN items USING (number) ORDER BY changed.number",
                (after,),
            ).fetchall()
            for number, mark, *_ in found:
                self._check(number, (number,), mark)
            there = [self._row(tuple(row)) for _, _, *row in found if row[0] is not None]
            numbers = np.array([row[0] for row in found], np.int64)
            present = np.array([row.number for row in there], np.int64)
        return max(last, after), numbers, present, [row.code for row in there]

    def forget(self, folded: int) -> None:
        """Forget changes up to some place, the last one, and all vectors: the parts have them now."""
        with self._writing() as ask:
            ask("UPDATE state SET folded = ?", (folded,))
            ask("DELETE FROM changes WHERE place <= ?", (folded,))
            if self.layout.vectors is not None:
                ask("DELETE FROM vectors")

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read meanwhile is of one moment, whatever a writer does."""
        with self._lock:
            with sqlite.telling(self.path):
                self._connection.execute("BEGIN")
            try:
                self.folded()  # from here on
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
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
            if (found := self._picture(number)) is not None:
                yield number, *found

    def numbers(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Numbers of keys; those that are not there are left out."""
        key = self.layout.names["key"]
        with self._reading() as ask:
            statement = f"SELECT {key}, number FROM items WHERE {key} IN (SELECT value FROM json_each(?))"
            return dict(ask(statement, _list(keys)).fetchall())

    def matching(self, condition: Condition, seconds: float | None = None) -> NDArray[np.int64]:
        """Numbers of the items for which a condition holds, ascending; a ValueError if that takes too many seconds."""
        statement = f"SELECT number FROM items WHERE ({condition.sqlite}) ORDER BY number"
        try:
            with self._lock, sqlite.only_reading(self._connection, self._writable, seconds):
                found = self._connection.execute(statement, condition.values).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code == sqlite3.SQLITE_INTERRUPT:
                raise ValueError(
                    f"where={condition.where!r} takes more than {seconds:g} s; give a simpler one."
                ) from error
            with sqlite.telling(self.path):
                if code not in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM):
                    raise
            raise ValueError(f"where={condition.where!r} is no condition that can be asked: {error}.") from error
        return np.array([number for (number,) in found], np.int64)

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
            found = ask("SELECT name, mark FROM classes ORDER BY place").fetchall()
            for name, mark in found:
                self._check(name, (name,), mark)
        return tuple(name for name, _ in found)

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
        if (found := self._picture(number)) is None or found[1] is None:
            return None if found is None else found[0]
        with sqlite.telling(self.path):
            return np.frombuffer(found[0], np.uint8).reshape([int(side) for side in found[1].split(",")])

    def _picture(self, number: int) -> tuple[bytes, str | None] | None:
        with self._reading() as ask:
            found = ask("SELECT content, shape, mark FROM pictures WHERE number = ?", (number,)).fetchone()
            if found is not None:
                self._check(number, (number, *found[:2]), found[2])
        return None if found is None else found[:2]

    def pictured(self, numbers: Sequence[int]) -> set[int]:
        """Those of some items whose pictures are kept here."""
        with self._reading() as ask:
            statement = "SELECT number FROM pictures WHERE number IN (SELECT value FROM json_each(?))"
            return {number for (number,) in ask(statement, _list(numbers))}

    def vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Vectors of some items that no part has yet, as they are stored; see `vectors.check`."""
        with self._reading() as ask:
            return dict(ask("SELECT * FROM vectors WHERE number IN (SELECT value FROM json_each(?))", _list(numbers)))

    def has_pictures(self, named: bool) -> bool:
        """Whether some item has a picture: one that is kept here, or, if they count, one in the folder of pictures."""
        with self._reading() as ask:
            if ask("SELECT EXISTS (SELECT 1 FROM pictures)").fetchone()[0]:
                return True
            return named and ask("SELECT 1 FROM items WHERE picture IS NOT NULL LIMIT 1").fetchone() is not None

    def add(self, rows: Sequence[NewRow], pictures: Sequence[bytes | None]) -> list[int]:
        """Add items, all of them or none, and return their numbers; on return they are on disk."""
        last = self.next_number() - 1  # nobody else writes
        if last >= LAST and any(not isinstance(row.key, int) for row in rows):
            raise ValueError(f"items has no keys, and {LAST} was the last whole number there is; give keys.")
        try:
            with self._writing() as ask:
                made = [
                    new.numbered(new.key if isinstance(new.key, int) else last + 1 + n) for n, new in enumerate(rows)
                ]
                for row, new, picture in zip(made, rows, pictures, strict=True):
                    self._add(ask, row, picture, new.sealed(row.number))
        except sqlite3.IntegrityError as error:
            keys = [row.key for row in rows if row.key is not None]
            known = self.numbers(keys)
            twice = next((key for key in keys if key in known or keys.count(key) > 1), None)
            raise KnownKeyError(f"key {twice!r}: {TAKEN}") from error
        return [row.number for row in made]

    def _add(self, ask: Any, row: Row, picture: bytes | None, vector: bytes | None) -> None:
        ask(self._insert(), self._stored(row))
        ask("INSERT INTO changes (number, mark) VALUES (?, ?)", (row.number, _mark((row.number,))))
        if picture is not None:
            stored = (row.number, picture, None)
            ask("INSERT INTO pictures VALUES (?, ?, ?, ?)", (*stored, _mark(stored)))
        if vector is not None:
            ask("INSERT INTO vectors VALUES (?, ?)", (row.number, vector))
        for name in row.labels:
            ask("INSERT OR IGNORE INTO classes (name, mark) VALUES (?, ?)", (name, _mark((name,))))
            if row.values.get("tags") is not None:
                ask("INSERT OR IGNORE INTO tags VALUES (?, ?)", (name, row.number))

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove items, all of them or none; on return, that is on disk."""
        with self._writing() as ask:
            for table in ("items", "pictures", "tags", *(("vectors",) if self.layout.vectors else ())):
                ask(f"DELETE FROM {table} WHERE number IN (SELECT value FROM json_each(?))", _list(numbers))
            for number in numbers:
                ask("INSERT INTO changes (number, mark) VALUES (?, ?)", (number, _mark((number,))))

    def check(self) -> None:
        """Read the whole file; a FormatError says that it is damaged."""
        with self._reading() as ask:
            if (found := ask("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise FormatError(f"{str(self.path)!r} is damaged: {found}; {AGAIN}")
        for _ in (*self.all_rows(), *self.all_pictures()):
            pass
        self.classes(), self.changes(-1)

    def _insert(self) -> str:
        return f"INSERT INTO items ({', '.join(self._names)}) VALUES ({', '.join('?' * len(self._names))})"

    def _stored(self, row: Row) -> tuple[Any, ...]:
        key = (row.key,) if self.layout.keys == "text" else ()
        stored = (row.number, row.code, int(row.described), *key, *map(row.values.get, self.layout.values))
        return (*stored, _mark(stored))

    def _row(self, found: tuple[Any, ...]) -> Row:
        return self._made(self._checked(found))

    def _checked(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        self._check(found[0], found[:-1], found[-1])
        number, code, _, *values = found[:-1]
        right = (value is None or type(value) is kind for value, kind in zip(values, self._kinds, strict=True))
        if not _is_code(code, self.n_bits) or not all(right):
            raise FormatError(f"{str(self.path)!r} is damaged: {number!r} has values of other types; {AGAIN}")
        return found[:-1]

    def _made(self, stored: tuple[Any, ...]) -> Row:
        number, code, described, *values = stored
        key = values.pop(0) if self.layout.keys == "text" else number
        pairs = zip(self.layout.values, values, strict=True)
        return Row(number, key, code, bool(described), {name: value for name, value in pairs if value is not None})

    def _check(self, name: Any, row: tuple[Any, ...], mark: int) -> None:
        if _mark(row) != mark:
            raise FormatError(f"{str(self.path)!r} is damaged: {name!r} is not as it was written; {AGAIN}")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._lock, sqlite.telling(self.path):
            yield self._connection.execute

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._lock, sqlite.telling(self.path, decoding=False):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise


def _is_code(code: Any, n_bits: int | None) -> bool:
    if type(code) is not bytes or n_bits is None:
        return type(code) is bytes
    return len(code) == -(-n_bits // 8) and code[-1] % (1 << -n_bits % 8) == 0


def _mark(row: tuple[Any, ...]) -> int:
    """What tells that values are as they were written; `ascii` is the same in every version of Python."""
    return zlib.crc32(ascii(row).encode())


def _list(values: Sequence[Any]) -> tuple[str]:
    return (json.dumps(list(values)),)
