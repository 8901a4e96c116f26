"""A collection in PostgreSQL: the tables of a `PostgresIndex`, and beside them what is known of the items.

===================  ================================================================================================
``NAME_collection``  one row: what `collection.json` says of a folder, the model, and the next number
``NAME_rows``        a row for every item, with the columns of `items.sqlite`
``NAME_pictures``    pictures that are kept here
``NAME_tags``        which items have which tag
``NAME_classes``     names of all labels and tags
===================  ================================================================================================

Every change is one transaction. Several clients may change a collection at the same time.
"""

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from gphash.collection.conditions import Condition
from gphash.collection.items import SAID, Key, KnownKeyError, Layout, NewRow, Row, quoted
from gphash.collection.nearest import nearest
from gphash.collection.records import Query
from gphash.container import FormatError
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index.postgres import queries as statements
from gphash.index.postgres import relations
from gphash.index.postgres.database import WRITING, KnownError, sql
from gphash.index.postgres.postgres_index import PostgresIndex

FORMAT = 1
TYPES = {"integer": "bigint", "real": "double precision", "text": "text"}
BATCH = 10_000  # rows in one statement
PARTS = ("collection", "rows", "pictures", "tags", "classes")


class DatabaseItems:
    """What is known of the items, with the methods of `items.Items`."""

    def __init__(self, index: PostgresIndex, layout: Layout, schema: str | None) -> None:
        self.layout, self._index, self._schema = layout, index, schema
        key = ("key",) if layout.keys == "text" else ()
        self._names = ("number", "code", "described", *key, *layout.values)

    def ask(self, statement: str, values: Sequence[Any] = (), connection: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement, in which {rows} and the like are tables."""
        space = () if self._schema is None else (self._schema,)
        names = {part: sql.Identifier(*space, f"{self._index.name}_{part}") for part in PARTS}
        composed = sql.SQL(statement).format(**names)
        if connection is None:
            with self._index.connection() as own:
                return self.ask(statement, values, own)
        cursor = connection.execute(composed, values)
        return cursor.fetchall() if cursor.description else []

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Items by their numbers; those that are not there are left out."""
        names = ", ".join(map(quoted, self._names))
        found = self.ask(f"SELECT {names} FROM {{rows}} WHERE number = ANY(%s)", (list(numbers),))
        return {one[0]: self._row(one) for one in found}

    def all_rows(self) -> Iterator[Row]:
        """All items, by their numbers."""
        names, last = ", ".join(map(quoted, self._names)), -(2**63)
        while found := self.ask(
            f"SELECT {names} FROM {{rows}} WHERE number >= %s ORDER BY number LIMIT %s", (last, BATCH)
        ):
            yield from map(self._row, found)
            if (last := found[-1][0] + 1) == 2**63:
                return

    def all_pictures(self) -> Iterator[tuple[int, bytes, str | None]]:
        """All pictures that are kept here, by their numbers."""
        for (number,) in self.ask("SELECT number FROM {pictures} ORDER BY number"):
            yield from self.ask("SELECT number, content, shape FROM {pictures} WHERE number = %s", (number,))

    def _row(self, found: tuple[Any, ...]) -> Row:
        number, code, described, *values = found
        key = values.pop(0) if self.layout.keys == "text" else number
        pairs = zip(self.layout.values, values, strict=True)
        return Row(number, key, bytes(code), described, {name: value for name, value in pairs if value is not None})

    def numbers(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Numbers of keys; those that are not there are left out."""
        key = self.layout.names["key"]
        return dict(self.ask(f"SELECT {key}, number FROM {{rows}} WHERE {key} = ANY(%s)", (list(keys),)))

    def classes(self) -> tuple[str, ...]:
        """Names of all labels and tags, in the order in which they came."""
        return tuple(name for (name,) in self.ask("SELECT name FROM {classes} ORDER BY place"))

    def count_labels(self, numbers: Sequence[int]) -> dict[str, int]:
        """How many of some items have each label or tag, most frequent first."""
        statement = (
            "SELECT name, count(*) FROM (SELECT label AS name FROM {rows} WHERE number = ANY(%s) AND label IS NOT NULL "
            "UNION ALL SELECT tag FROM {tags} WHERE number = ANY(%s)) AS named GROUP BY name ORDER BY 2 DESC, 1"
        )
        return dict(self.ask(statement, (list(numbers), list(numbers))))

    def picture(self, number: int) -> bytes | NDArray[np.uint8] | None:
        """The picture of an item that is kept here: the content of its file, or pixels."""
        found = self.ask("SELECT content, shape FROM {pictures} WHERE number = %s", (number,))
        if not found or found[0][1] is None:
            return None if not found else bytes(found[0][0])
        return np.frombuffer(found[0][0], np.uint8).reshape([int(side) for side in found[0][1].split(",")])

    def pictured(self, numbers: Sequence[int]) -> set[int]:
        """Those of some items whose pictures are kept here."""
        return {one for (one,) in self.ask("SELECT number FROM {pictures} WHERE number = ANY(%s)", (list(numbers),))}

    def has_pictures(self, named: bool) -> bool:
        """Whether some item has a picture: one that is kept here, or, if they count, one in the folder of pictures."""
        statement = (
            "SELECT EXISTS (SELECT FROM {pictures}) OR (%s AND EXISTS (SELECT FROM {rows} WHERE picture IS NOT NULL))"
        )
        return bool(self.ask(statement, (named,))[0][0])

    def insert(self, connection: Any, rows: Iterable[Row], pictures: Iterable[tuple[int, bytes, str | None]]) -> None:
        """Write items that have their numbers."""
        for batch in _batches(rows):
            names = ", ".join(map(quoted, self._names))
            places = ", ".join(["%s"] * len(self._names))
            stored = [self._stored(row) for row in batch]
            tagged = [(tag, row.number) for row in batch if "tags" in row.values for tag in row.labels]
            named = [(name,) for name in dict.fromkeys(name for row in batch for name in row.labels)]
            self._many(connection, f"INSERT INTO {{rows}} ({names}) VALUES ({places})", stored)
            self._many(connection, "INSERT INTO {tags} VALUES (%s, %s) ON CONFLICT DO NOTHING", tagged)
            self._many(connection, "INSERT INTO {classes} (name) VALUES (%s) ON CONFLICT DO NOTHING", named)
        for picture in pictures:
            self._many(connection, "INSERT INTO {pictures} VALUES (%s, %s, %s)", [picture])

    def _stored(self, row: Row) -> tuple[Any, ...]:
        key = (row.key,) if self.layout.keys == "text" else ()
        return (row.number, row.code, row.described, *key, *map(row.values.get, self.layout.values))

    def _many(self, connection: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        space = () if self._schema is None else (self._schema,)
        names = {part: sql.Identifier(*space, f"{self._index.name}_{part}") for part in PARTS}
        if rows:
            with connection.cursor() as cursor:
                cursor.executemany(sql.SQL(statement).format(**names), rows)


class Database:
    """A collection in tables; see `stores.Store`."""

    def __init__(self, index: PostgresIndex, schema: str | None, writable: bool) -> None:
        self.index, self.writable = index, writable
        self.changing, self.n_changes = threading.RLock(), 0
        bare = DatabaseItems(index, Layout("integer", {}), schema)
        ((told, content),) = bare.ask("SELECT told, model FROM {collection}")
        if told["format"] != FORMAT:
            newer = "use a newer gphash" if told["format"] > FORMAT else "copy the collection again"
            raise FormatError(f"the collection {index.name!r} has format {told['format']}, not {FORMAT}; {newer}.")
        self.name, self.pictures = told["name"], None
        self.model = _model(bytes(content), told["fingerprint"])
        self.descriptor = Descriptor.from_meta(told["descriptor"])
        self.items = DatabaseItems(index, Layout(told["keys"], told["columns"]), schema)

    @classmethod
    def open(cls, place: Any, writable: bool) -> "Database":
        """Open "postgresql://…?collection=NAME"."""
        conninfo, name, schema = address(place)
        table = f"{name}_rows" if schema is None else (schema, f"{name}_rows")
        index = PostgresIndex.open(conninfo, name, schema=schema, table=table, key="number")
        try:
            return cls(index, schema, writable)
        except BaseException:
            index.close()
            raise

    def nearest(
        self,
        queries: list[Query],
        k: int,
        ranking: str,
        radius: int | None,
        condition: Condition | None,
        label: str | None,
    ) -> list[tuple[list[int], list[float]]]:
        """Numbers and distances of the k nearest items of every query, of those that pass a condition."""
        texts: list[str] = []
        values: list[Any] = []
        if condition is not None:
            texts.append(f"({condition.postgres()})")
            values += condition.values
        if label is not None:
            texts.append("(label = %s OR strpos(tags, %s) > 0)")
            values += [label, f";{label};"]
        narrowed: dict[str, Any] = {"where": " AND ".join(texts), "params": values} if texts else {}
        return [*nearest(self.index, queries, k, ranking, radius, **narrowed)]

    def add(self, rows: list[NewRow], pictures: list[bytes | None]) -> list[int]:
        """Add items, all of them or none; on return they are committed."""
        self._check_writable()
        try:
            with self.index.view(WRITING) as view:
                free = self._next(view.connection, rows)
                made = [row.numbered(row.key if isinstance(row.key, int) else next(free)) for row in rows]
                numbers = np.array([row.number for row in made], np.int64)
                order = np.argsort(numbers, kind="stable")
                packed = np.stack([np.frombuffer(row.code, np.uint8) for row in made])
                statements.refuse_known(view, numbers[order])
                statements.add(view, packed[order], numbers[order])
                kept = zip(numbers.tolist(), pictures, strict=True)
                self.items.insert(view.connection, made, [(n, one, None) for n, one in kept if one is not None])
        except (KnownError, ValueError) as error:
            if isinstance(error, KnownError) or "already" in str(error):
                raise KnownKeyError(
                    "a key is in the collection already, or given twice; remove it first, or give another."
                ) from error
            raise
        self.n_changes += 1
        return [row.number for row in made]

    def _next(self, connection: Any, rows: list[NewRow]) -> Iterator[int]:
        """Numbers for new items, which nobody else gets."""
        own = [row.key for row in rows if isinstance(row.key, int)]
        missing = len(rows) - len(own)
        statement = "UPDATE {collection} SET next = greatest(next, %s) + %s RETURNING next"
        ((after,),) = self.items.ask(statement, (max(own, default=-1) + 1, missing), connection)
        return iter(range(after - missing, after))

    def remove(self, numbers: list[int]) -> None:
        """Remove items, all of them or none; on return that is committed."""
        self._check_writable()
        with self.index.view(WRITING) as view:
            packed, there = statements.some(view, np.array(sorted(numbers), np.int64), relations.LOCK_ITEMS)
            statements.remove(view, packed, there)
            for table in ("rows", "pictures", "tags"):
                self.items.ask(f"DELETE FROM {{{table}}} WHERE number = ANY(%s)", (list(numbers),), view.connection)
        self.n_changes += 1

    def compact(self) -> None:
        """Let the server tidy up."""
        self.index.tidy()

    def refresh(self) -> None:
        """Every statement sees what is committed."""

    def is_replaced(self) -> bool:
        """Whether another collection was put in its place."""
        with self.index.view() as view:
            return relations.read_meta(view) != self.index.meta

    def drop(self) -> None:
        """Remove the collection from the database."""
        self.items.ask("DROP TABLE {collection}, {rows}, {pictures}, {tags}, {classes}")
        self.index.drop()

    def close(self) -> None:
        """Close the connections."""
        self.index.close()

    def _check_writable(self) -> None:
        if not self.writable:
            raise ValueError(f"the collection {self.name!r} was opened read-only; open it with writable=True.")


def address(place: Any) -> tuple[str, str, str | None]:
    """Connection string, name and schema from "postgresql://…?collection=NAME&schema=SPACE"."""
    found = urlsplit(str(place))
    options = dict(parse_qsl(found.query))
    name, schema = options.pop("collection", None), options.pop("schema", None)
    if not name:
        raise ValueError("path is an address without a collection; give postgresql://…/DATABASE?collection=NAME.")
    return urlunsplit(found._replace(query=urlencode(options))), name, schema


def create(place: Any, told: dict[str, Any], model: bytes, layout: Layout, source: Any, progress: Any = None) -> None:
    """Copy a collection into new tables, as a whole or not at all; `source` has items, pictures, codes and numbers."""
    conninfo, name, schema = address(place)
    rows, pictures, packed, numbers, classes = source
    table = f"{name}_rows" if schema is None else (schema, f"{name}_rows")
    columns = "".join(f", {quoted(one)} {TYPES[layout.columns.get(one, 'text')]}" for one in (*SAID, *layout.columns))
    key = ", key text NOT NULL UNIQUE" if layout.keys == "text" else ""
    made = (
        "CREATE TABLE {collection} (told jsonb NOT NULL, model bytea NOT NULL, next bigint NOT NULL)",
        "CREATE TABLE {rows} (number bigint PRIMARY KEY, code bytea NOT NULL, described boolean NOT NULL"
        f"{key}{columns})",
        "CREATE TABLE {pictures} (number bigint PRIMARY KEY, content bytea NOT NULL, shape text)",
        "CREATE TABLE {tags} (tag text, number bigint, PRIMARY KEY (tag, number))",
        "CREATE TABLE {classes} (place bigint GENERATED ALWAYS AS IDENTITY, name text PRIMARY KEY)",
        "CREATE INDEX ON {rows} (label)",
    )
    options: dict[str, Any] = {"schema": schema, "table": table, "key": "number"}
    with contextlib.ExitStack() as failing:
        index = PostgresIndex.build(
            conninfo,
            name,
            packed,
            numbers,
            n_bits=told["n_bits"],
            model=told["fingerprint"],
            progress=progress,
            **options,
        )
        failing.callback(index.close)
        failing.callback(index.drop)
        items = DatabaseItems(index, layout, schema)
        with index.connection(WRITING) as connection:
            for statement in made:
                items.ask(statement, (), connection)
            meta = told | {"format": FORMAT, "keys": layout.keys, "columns": layout.columns}
            first = max(int(numbers.max()) + 1 if len(numbers) else 0, 0)
            items.ask("INSERT INTO {collection} VALUES (%s, %s, %s)", (json.dumps(meta), model, first), connection)
            items._many(connection, "INSERT INTO {classes} (name) VALUES (%s)", [(one,) for one in classes])
            items.insert(connection, rows, pictures)
        failing.pop_all()
        index.close()


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _model(content: bytes, fingerprint: str) -> Model:
    """The model that a database keeps, read as from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gph"
        path.write_bytes(content)
        model = models.load(path)
    if model.fingerprint != fingerprint:
        raise FormatError("the model in the database is not the one that made the codes; copy the collection again.")
    return model
