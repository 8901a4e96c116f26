"""A collection in PostgreSQL: the tables of a `PostgresIndex`, whose items have further columns, and some beside them.

===================  ================================================================================================
``NAME_items``       a row for every item: its number, its code, and the columns that `items.sqlite` has
``NAME_codes``       the distinct codes, and how many items have each
``NAME_meta``        version of the tables, length of the codes, fingerprint of the model
``NAME_collection``  one row: what `collection.json` says of a folder, the model, and the next number
``NAME_pictures``    pictures that are kept here
``NAME_tags``        which items have which tag
``NAME_classes``     names of all labels and tags
``NAME_vectors``     vectors of the items, each as `vectors` stores a row, if the collection keeps them
===================  ================================================================================================

Every change is one transaction. Several clients may change a collection at the same time. Whoever writes locks items
by their keys or numbers, then codes, then classes, each in ascending order, so that nobody waits in a circle.
"""

import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import schema as schemas
from gphash.codes.packing import MOST_BITS
from gphash.collection import vectors
from gphash.collection.conditions import Condition
from gphash.collection.nearest import nearest
from gphash.collection.postgres_items import PostgresItems, array_of, columns_of, escaped, named
from gphash.collection.records import Query, UnknownItemError
from gphash.collection.rows import KnownKeyError, Layout, NewRow, Row, quoted
from gphash.collection.stores import address
from gphash.collection.vectors import Rows
from gphash.container import FormatError
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index import engines
from gphash.index.postgres import queries as statements
from gphash.index.postgres import relations
from gphash.index.postgres.database import WRITING, KnownError
from gphash.index.postgres.postgres_index import PostgresIndex, creating
from gphash.index.postgres.relations import View
from gphash.index.rankings import Ranking
from gphash.schema import Digest, Maybe, Named, Record, Text, Whole

FORMAT = 1
AGAIN = "copy the collection again"

CREATE = (
    "CREATE TABLE {collection} (told jsonb NOT NULL, model bytea NOT NULL, next bigint NOT NULL)",
    "CREATE TABLE {pictures} (number bigint PRIMARY KEY, content bytea NOT NULL, shape text)",
    "CREATE TABLE {tags} (tag text, number bigint)",
    "CREATE TABLE {classes} (place bigint GENERATED ALWAYS AS IDENTITY, name text PRIMARY KEY)",
)
FILL = "INSERT INTO {collection} VALUES (%(told)s, %(model)s, %(next)s)"
INDEXES = (
    "CREATE INDEX ON {items} (label) WHERE label IS NOT NULL",
    "ALTER TABLE {tags} ADD PRIMARY KEY (tag, number)",
    "CREATE INDEX ON {tags} (number)",
)
# Numbers in no order are no use to compress.
CREATE_VECTORS = (
    "CREATE TABLE {vectors} (number bigint PRIMARY KEY, content bytea NOT NULL)",
    "ALTER TABLE {vectors} ALTER content SET STORAGE EXTERNAL",
)
DROP = "DROP TABLE {collection}, {pictures}, {tags}, {classes}, {items}, {codes}, {meta}"
VECTORS = "COPY {vectors} (number, content) FROM STDIN"
READ_VECTORS = "SELECT number, content FROM {vectors} WHERE number = ANY(%(numbers)s)"
# Numbers are taken in a transaction of their own, so that nobody waits for the next one until somebody commits. It need
# not be on disk before what uses them is.
TAKE = (
    "UPDATE {collection} SET next = greatest(next, %(least)s) + %(n)s "
    "FROM (SELECT set_config('synchronous_commit', 'off', true)) AS unhurried RETURNING next"
)
PICTURES = "COPY {pictures} (number, content, shape) FROM STDIN"
TAGS = "COPY {tags} (tag, number) FROM STDIN"
NEW_CLASSES = "SELECT name FROM unnest(%(names)s::text[]) AS given (name) EXCEPT SELECT name FROM {classes}"
ALONE = "SELECT 1 FROM {collection} FOR UPDATE"
ADD_CLASSES = (
    "INSERT INTO {classes} (name) SELECT name FROM unnest(%(names)s::text[]) WITH ORDINALITY AS given (name, place) "
    "ORDER BY given.place ON CONFLICT DO NOTHING"
)
HAS_TAGS = "SELECT EXISTS (SELECT FROM {tags})"
LABELLED = (
    "SELECT number FROM {items} WHERE label = %(name)s UNION ALL SELECT number FROM {tags} WHERE tag = %(name)s "
    "LIMIT %(most)s"
)
TYPES = {"integer": "bigint", "real": "double precision", "text": 'text COLLATE "C"'}  # compared as SQLite compares
TOLD = Record(
    {
        **{"format": Whole(1), "name": Text(), "n_bits": Whole(1, MOST_BITS), "fingerprint": Digest()},
        **{"descriptor": Maybe(Named()), "keys": Text(("integer", "text"))},
        **{"columns": Named(Text(tuple(TYPES))), "vectors": vectors.TOLD},
    },
    ("vectors",),
)

T = TypeVar("T")


class PostgresStore:
    """A collection in tables; see `stores.Store`."""

    def __init__(self, index: PostgresIndex, writable: bool) -> None:
        self.index, self.writable = index, writable
        self.changing = threading.RLock()
        self.condition_seconds: float | None = None
        self._count = itertools.count()
        with index.view() as view:
            ((told, self.content),) = view.rows("SELECT told, model FROM {collection}")
        place = f"the collection {index.name!r}"
        if isinstance(told, dict) and isinstance(version := told.get("format"), int) and version > FORMAT:
            raise FormatError(f"{place} has format {version}, newer than {FORMAT}: use a newer gphash")
        with schemas.reading(place, AGAIN):
            TOLD.check(told, "")
            self.descriptor = Descriptor.from_meta(told["descriptor"])
        self.name, self.pictures = told["name"], None
        self.model = _model(self.content, told["fingerprint"])
        self.items = PostgresItems(index, Layout.read(told))

    @classmethod
    def open(cls, place: Any, writable: bool) -> "PostgresStore":
        """Open "postgresql://…?collection=NAME"."""
        conninfo, name, schema = address(place)
        index = PostgresIndex.open(conninfo, name, schema=schema)
        try:
            return cls(index, writable)
        except BaseException:
            index.close()
            raise

    @property
    def n_changes(self) -> int:
        """Another number every time, for others may have changed something."""
        return next(self._count)

    def nearest(
        self,
        queries: list[Query],
        k: int,
        ranking: Ranking,
        radius: int | None,
        condition: Condition | None,
        label: str | None,
    ) -> list[tuple[list[int], list[float]]]:
        """Numbers and distances of the k nearest items of every query, of those that pass a condition."""
        texts: list[str] = []
        values: list[Any] = []
        if condition is not None:
            texts.append(escaped(condition.postgres))
            values += condition.values
        if label is not None:
            text, own = self._labelled(label)
            texts.append(text)
            values += own
        narrowed = {}
        if texts:
            where = "" if condition is None else condition.where
            narrowed["condition"] = relations.Restriction.of(where, " AND ".join(texts), values)
        return [*nearest(self.index, queries, k, ranking, radius, **narrowed)]

    def _labelled(self, label: str) -> tuple[str, list[Any]]:
        """A condition for items with a label or tag, which the server knows best how to look for."""
        if not self.items.ask(HAS_TAGS)[0][0]:
            return "label = %s", [label]
        found = self.items.ask(LABELLED, name=label, most=statements.FEW + 1)
        if len(found) <= statements.FEW:
            return "number = ANY(%s)", [array_of(number for (number,) in found)]
        return "(label = %s OR strpos(tags, %s) > 0)", [label, f";{label};"]

    def steady(self, read: Callable[[], T]) -> T:
        """What `read` gives, all of it of one moment."""
        with self.index.moment():
            if self.condition_seconds is not None:
                limit = f"{1000 * self.condition_seconds:.0f}"
                self.items.ask("SELECT set_config('statement_timeout', %(limit)s, true)", limit=limit)
            return read()

    def vectors_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Stored vectors of items, in that order."""
        kind = self.items.layout.vectors
        assert kind is not None
        found = dict(self.items.ask(READ_VECTORS, numbers=numbers))
        place, width = f"the collection {self.name!r}", kind.n_bytes(self.model.n_features)
        if len(found) < len(numbers) or any(len(content) != width for content in found.values()):
            raise FormatError(f"{place} lacks vectors, or has some of another length; {AGAIN}")
        rows = np.frombuffer(b"".join(found[number] for number in numbers.tolist()), np.uint8)
        return vectors.check(rows.reshape(len(numbers), width), numbers, kind.form, place)

    def add(self, rows: list[NewRow], pictures: list[bytes | None]) -> list[int]:
        """Add items, all of them or none; on return they are committed."""
        self._check_writable()
        if not rows:
            return []
        free = self._take(rows)
        made = [row.numbered(row.key if isinstance(row.key, int) else next(free)) for row in rows]
        kept = [(row.number, one, None) for row, one in zip(made, pictures, strict=True) if one is not None]
        try:
            with self.index.view(WRITING) as view:
                layout = self.items.layout
                key = itemgetter(3 if layout.keys == "text" else 0)
                _send(view, layout, sorted((_stored(row, layout) for row in made), key=key))
                self.index.check_unchanged(view)
                statements.count(view, _octets([row.code for row in made], self.index.n_bits))
                self._name(view, list(dict.fromkeys(name for row in made for name in row.labels)))
                if kept:
                    view.copy_rows(PICTURES, iter(kept))
                if layout.vectors is not None:
                    pairs = zip(made, rows, strict=True)
                    view.copy_rows(VECTORS, ((row.number, new.sealed(row.number)) for row, new in pairs))
        except KnownError as error:
            raise KnownKeyError(
                "a key is in the collection already, or given twice; remove it first, or give another."
            ) from error
        return [row.number for row in made]

    def _take(self, rows: list[NewRow]) -> Iterator[int]:
        """Numbers for new items, which nobody else gets."""
        own = [row.key for row in rows if isinstance(row.key, int)]
        n = len(rows) - len(own)
        ((after,),) = self.items.ask(TAKE, least=min(max(own, default=-1) + 1, 2**63 - 1), n=n)
        return iter(range(after - n, after))

    def _name(self, view: View, names: list[str]) -> None:
        """Note names of classes that are new, in their order; this is seldom, and nobody else does it meanwhile."""
        new = {name for (name,) in view.rows(NEW_CLASSES, names=names)} if names else set()
        if new:
            view.rows(ALONE)
            view.rows(ADD_CLASSES, names=[name for name in names if name in new])

    def remove(self, numbers: list[int]) -> None:
        """Remove items, all of them or none; on return that is committed."""
        self._check_writable()
        with self.index.view(WRITING) as view:
            packed, there = statements.some(view, np.unique(array_of(numbers)), relations.LOCK_ITEMS)
            self.index.check_unchanged(view)
            if len(there) < len(set(numbers)):
                raise UnknownItemError("somebody else has removed one of the items meanwhile; nothing was removed.")
            statements.remove(view, packed, there)
            for table in ("pictures", "tags", *(("vectors",) if self.items.layout.vectors else ())):
                view.rows(f"DELETE FROM {{{table}}} WHERE number = ANY(%(numbers)s)", numbers=there)

    def compact(self) -> None:
        """Let the server tidy up."""
        self._check_writable()
        self.index.tidy()

    def refresh(self) -> None:
        """Every statement sees what is committed."""

    def is_replaced(self) -> bool:
        """Whether another collection was put in its place."""
        with self.index.view() as view:
            return relations.read_meta(view) != self.index.meta

    def next_number(self) -> int:
        """The next number that was never used."""
        return int(self.items.ask("SELECT next FROM {collection}")[0][0])

    def drop(self) -> None:
        """Remove the collection from the database."""
        with self.index.view(WRITING) as view:
            view.rows(DROP)
            if self.items.layout.vectors is not None:
                view.rows("DROP TABLE {vectors}")
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.index.close()

    def _check_writable(self) -> None:
        if not self.writable:
            raise ValueError(
                f"the collection {self.name!r} was opened read-only; create or open it with writable=True."
            )


class Given(NamedTuple):
    """What is copied: the layout, items as they are stored, pictures, classes, the next number, and vectors."""

    layout: Layout
    rows: Iterable[list[tuple[Any, ...]]]
    pictures: Iterable[tuple[int, bytes, str | None]]
    classes: Sequence[str]
    next_number: int
    vectors: Iterable[tuple[int, bytes]] = ()


def create(
    place: Any, told: dict[str, Any], model: bytes, given: Given, tell: Callable[[int], None] | None = None
) -> int:
    """Copy a collection into new tables, as a whole or not at all, and return how many items it has.

    `told` has its name, its descriptor, and length and fingerprint of its codes; `tell` hears how many items have gone.
    """
    conninfo, name, schema = address(place)
    layout, n_bits, mark = given.layout, told["n_bits"], told["fingerprint"]
    meta = told | {"format": FORMAT} | layout.told()
    codes: list[bytes] = []
    with creating(conninfo, name, n_bits, mark, columns=_definitions(layout), schema=schema) as view:
        for template in CREATE if layout.vectors is None else CREATE + CREATE_VECTORS:
            view.rows(template)
        view.rows(FILL, told=json.dumps(meta), model=model, next=given.next_number)
        view.rows(ADD_CLASSES, names=list(given.classes))
        for batch in given.rows:
            _send(view, layout, batch, " (FREEZE)")
            codes += [row[1] for row in batch]
            if tell is not None:
                tell(len(codes))
        view.copy_rows(PICTURES, iter(given.pictures))
        if layout.vectors is not None:
            view.copy_rows(VECTORS, iter(given.vectors))
        statements.finish(view, _octets(codes, n_bits))
        key = ("ALTER TABLE {items} ADD UNIQUE (key)",) if layout.keys == "text" else ()
        numbers = [named(one) for one, kind in layout.columns.items() if kind != "text"]
        for template in (*key, *INDEXES, *(f"CREATE INDEX ON {{items}} ({one})" for one in numbers)):
            view.rows(template)
    with PostgresIndex.open(conninfo, name, schema=schema) as index:
        index.settle()
    return len(codes)


def _definitions(layout: Layout) -> str:
    """Columns of items beside number and code."""
    key = f", key {TYPES['text']} NOT NULL" if layout.keys == "text" else ""
    others = (f", {named(one)} {TYPES[layout.columns.get(one, 'text')]}" for one in layout.values)
    return f", described boolean NOT NULL{key}{''.join(others)}"


def _stored(row: Row, layout: Layout) -> tuple[Any, ...]:
    key = (row.key,) if layout.keys == "text" else ()
    return (row.number, row.code, row.described, *key, *map(row.values.get, layout.values))


def _send(view: View, layout: Layout, rows: Sequence[tuple[Any, ...]], how: str = "") -> None:
    """Send items as they are stored, and their tags."""
    codes, n_bits = _octets([row[1] for row in rows], view.n_bits), view.n_bits
    forms = engines.as_bigint(codes, n_bits).tolist() if n_bits <= engines.WORD else engines.as_text(codes, n_bits)
    cells = ((row[0], form, *row[2:]) for row, form in zip(rows, forms, strict=True))
    view.copy_rows(f"COPY {{items}} ({', '.join(columns_of(layout))}) FROM STDIN{how}", cells)
    place = columns_of(layout).index(quoted("tags"))
    tagged = {(tag, row[0]) for row in rows if row[place] for tag in row[place].split(";") if tag}
    if tagged:
        view.copy_rows(f"{TAGS}{how}", iter(sorted(tagged)))


def _octets(codes: list[bytes], n_bits: int) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -(-n_bits // 8))


def _model(content: bytes, fingerprint: str) -> Model:
    """The model that a database keeps, read as from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gph"
        path.write_bytes(content)
        model = models.load(path)
    if model.fingerprint != fingerprint:
        raise FormatError(f"the model in the database is not the one that made the codes; {AGAIN}.")
    return model
