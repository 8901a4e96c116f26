"""Tables of a store, and the statements on them.

`NAME_items` has the code of every number, `NAME_codes` every distinct code and how many items have it, `NAME_meta` one
row on the store itself. Items may have further columns, and a store further tables: those of a collection. Distances
are computed on distinct codes only. Statements have names in braces and values as named parameters; those that search
give, for every distance or cost, ascending, the numbers in no order.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gphash.container import FormatError
from gphash.index.engines import WORD
from gphash.index.postgres import database
from gphash.index.postgres.database import Connection, Int8, sql

VERSION = 3
PARTS = ("items", "codes", "meta", "collection", "pictures", "tags", "classes", "vectors")  # endings of tables
LONGEST = 62 - max(map(len, PARTS))  # of a name; PostgreSQL cuts names of tables at 63
STATEMENTS = 1024  # that are kept ready
PART = 16  # bits of a code that have an index of their own

CREATE = (
    "CREATE TABLE {meta} (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, "
    "n_bits integer NOT NULL, model text, created timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE {codes} (code {column} NOT NULL, n bigint NOT NULL CHECK (n >= 0))",
)
CREATE_ITEMS = "CREATE TABLE {items} (number bigint NOT NULL, code {column} NOT NULL"
# Rows of tables that nobody else can see yet; keys and indexes are made when the rows are there.
LOAD_ITEMS = "COPY {items} (number, code) FROM STDIN (FORMAT binary, FREEZE)"
LOAD_CODES = "COPY {codes} (code, n) FROM STDIN (FORMAT binary, FREEZE)"
INDEXES = (
    "ALTER TABLE {codes} ADD PRIMARY KEY (code)",
    "ALTER TABLE {items} ADD PRIMARY KEY (number)",
    "CREATE INDEX ON {items} (code, number)",
)
DROP = "DROP TABLE {items}, {codes}, {meta}"
WRITE_META = "INSERT INTO {meta} (version, n_bits, model) VALUES (%(version)s, %(n_bits)s, %(model)s)"
READ_META = "SELECT to_jsonb(told) FROM {meta} AS told"  # all columns, of which another version has others
TIDY = ("VACUUM (ANALYZE) {items}", "VACUUM (ANALYZE) {codes}")

COPY = "COPY {items} (number, code) FROM STDIN (FORMAT binary)"
KNOWN = "SELECT array_agg(number) FROM {items} WHERE number = ANY(%(ids)s)"
# Rows are locked in the order of ids, then of codes, by whoever writes: nobody waits for somebody who waits for them.
COUNT_UP = (
    "INSERT INTO {codes} AS known (code, n) SELECT code, n "
    "FROM unnest(%(codes)s::{column}[], %(sizes)s::bigint[]) AS fresh (code, n) "
    "ORDER BY code ON CONFLICT (code) DO UPDATE SET n = known.n + excluded.n"
)
LOCK_ITEMS = (
    "SELECT array_agg(number), array_agg(code) FROM "
    "(SELECT number, code FROM {items} WHERE number = ANY(%(ids)s) ORDER BY number FOR UPDATE) AS locked"
)
DELETE_ITEMS = "DELETE FROM {items} WHERE number = ANY(%(ids)s)"
LOCK_CODES = (
    "SELECT count(*) FROM (SELECT 1 FROM {codes} WHERE code = ANY(%(codes)s) ORDER BY code FOR UPDATE) AS locked"
)
COUNT_DOWN = (
    "UPDATE {codes} AS known SET n = known.n - gone.n "
    "FROM unnest(%(codes)s::{column}[], %(sizes)s::bigint[]) AS gone (code, n) WHERE known.code = gone.code"
)
DELETE_CODES = "DELETE FROM {codes} WHERE code = ANY(%(codes)s) AND n = 0"

SIZE = "SELECT coalesce(sum(n), 0)::bigint FROM {codes}"
STATS = (
    "SELECT coalesce(sum(n), 0)::bigint, count(*), coalesce(max(n), 0), (SELECT sum(pg_total_relation_size(t) + "
    "(SELECT coalesce(sum(pg_total_relation_size(relid)), 0) FROM pg_partition_tree(t) WHERE relid <> t))::bigint "
    "FROM unnest(ARRAY[{items_name}, {codes_name}]::regclass[]) AS t) FROM {codes}"
)
# What the server believes; it decides how to search, never what is found.
ESTIMATE = (
    "SELECT (SELECT coalesce(sum(reltuples) FILTER (WHERE reltuples > 0), 0)::bigint FROM pg_class WHERE relkind = 'r' "
    "AND (oid = t OR oid IN (SELECT relid FROM pg_partition_tree(t)))) "
    "FROM unnest(ARRAY[{codes_name}, {items_name}]::regclass[]) WITH ORDINALITY AS named (t, place) ORDER BY place"
)
# Codes of 64 bits that begin with 1 are negative.
FULLEST = "SELECT array_agg(code) FROM (SELECT code FROM {codes} ORDER BY n DESC, {order} LIMIT %(n)s) AS fullest"
READ_CODES = (
    "SELECT array_agg(code), array_agg(n) FROM "
    "(SELECT code, n FROM {codes} WHERE code >= %(first)s ORDER BY code LIMIT %(rows)s) AS page"
)
READ_ITEMS = (
    "SELECT array_agg(number), array_agg(code) FROM (SELECT number, code FROM {items} "
    "WHERE number >= %(first)s AND {filter} ORDER BY number LIMIT %(rows)s) AS page"
)
READ_SOME = "SELECT array_agg(number), array_agg(code) FROM {items} WHERE number = ANY(%(ids)s) AND {filter}"
READ_FEW = (
    "SELECT array_agg(number), array_agg(code) FROM "
    "(SELECT number, code FROM {items} WHERE {filter} LIMIT %(most)s) AS few"
)
COUNT = "SELECT count(*) FROM {items} WHERE {filter}"
EXPLAIN = "EXPLAIN (FORMAT JSON) SELECT FROM {items} WHERE {filter}"

# OFFSET 0 and LIMIT keep the planner from turning few look-ups into a pass over a table.
HIT_NEAR = "SELECT code, {distance} AS cost, n FROM {codes} WHERE {near} AND {distance} <= %(radius)s"
HIT_ALL = (
    "SELECT code, {distance} AS cost, n FROM {codes} WHERE {distance} <= "
    "(SELECT max(cost) FROM (SELECT {distance} AS cost FROM {codes} ORDER BY 1 LIMIT %(k)s) AS nearest)"
)
HIT_BALL = "SELECT code, {distance} AS cost, n FROM {codes} WHERE {distance} <= %(radius)s"
HIT_PROBED = (
    "SELECT probe.code, probe.cost, known.n "
    "FROM unnest(%(codes)s::{column}[], %(costs)s::bigint[]) AS probe (code, cost) "
    "CROSS JOIN LATERAL (SELECT n FROM {codes} WHERE code = probe.code OFFSET 0) AS known"
)
# The nearest codes that hold k items by their counts, and of each no more than its k first.
NEAREST = (
    "WITH hit AS MATERIALIZED ({hit}), "
    "level AS (SELECT cost, sum(sum(n)) OVER (ORDER BY cost) AS upto FROM hit GROUP BY cost), "
    "reach AS (SELECT coalesce(min(cost) FILTER (WHERE upto >= %(k)s), %(otherwise)s) AS cost FROM level) "
    "SELECT hit.cost::bigint, array_agg(item.number) FROM hit CROSS JOIN reach CROSS JOIN LATERAL "
    "(SELECT number FROM {items} WHERE code = hit.code ORDER BY number LIMIT %(k)s) AS item "
    "WHERE hit.cost <= reach.cost GROUP BY hit.cost ORDER BY hit.cost"
)
# All items of codes, or the k first of each, that pass a filter. Items of a code are read in order until there are k;
# CASE keeps the planner from looking first for those that pass.
ALL_OF = (
    "SELECT hit.cost::bigint, array_agg(item.number) FROM ({hit}) AS hit (code, cost, n) "
    "CROSS JOIN LATERAL (SELECT number FROM {items} WHERE code = hit.code AND CASE WHEN {filter} THEN true END "
    "ORDER BY number LIMIT %(k)s) AS item GROUP BY hit.cost ORDER BY hit.cost"
)
# All items at once: for a filter that lets few pass, and where most items have a code of their own.
SCAN = (
    "SELECT cost::bigint, array_agg(number) FROM (SELECT number, {distance} AS cost FROM {items} "
    "WHERE {filter} ORDER BY 2, 1 LIMIT %(k)s) AS nearest GROUP BY cost ORDER BY cost"
)
SCAN_BALL = (
    "SELECT cost::bigint, array_agg(number) FROM (SELECT number, {distance} AS cost FROM {items} "
    "WHERE {filter}) AS scanned WHERE cost <= %(radius)s GROUP BY cost ORDER BY cost"
)


class Tables(NamedTuple):
    """The name of a store, and the schema of its tables if it is given."""

    name: str
    schema: str | None


class Meta(NamedTuple):
    """What a store says of itself: the version of its tables, and length, model and time of its codes."""

    version: int
    n_bits: int
    model: str | None
    created: datetime

    @property
    def column(self) -> str:
        """Type of the column of codes."""
        return database.column(self.n_bits)


class Restriction(NamedTuple):
    """Which items may be found: as the user said it, as a part of a statement, and the values of its parameters."""

    where: str
    text: str
    values: dict[str, Any]

    @classmethod
    def of(cls, where: str, text: str, values: Sequence[Any]) -> "Restriction":
        """A condition on the columns of items with "%s" for values; the text is trusted."""
        names = (f"value_{number}" for number in range(len(values)))
        named = re.sub("%([%s])", lambda found: "%%" if found[1] == "%" else f"%({next(names)})s", text)
        return cls(where, named, {f"value_{number}": value for number, value in enumerate(values)})


class View(NamedTuple):
    """A store as one connection sees it, narrowed to a condition if there is one."""

    connection: Connection[Any]
    tables: Tables
    n_bits: int
    condition: Restriction | None = None

    def rows(self, template: str, *, hit: str = "", **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return what it gives; `hit` is the template of its part that finds codes."""
        # Our own whole numbers are bigint, for a statement is prepared once for every set of types.
        given = {name: Int8(one) if type(one) is int else one for name, one in values.items()}
        where = None
        if self.condition is not None and "{filter}" in template:
            where, given = self.condition.text, given | self.condition.values
        statement = _composed(self.tables, self.n_bits, template, hit, where)
        # How many items pass a condition depends on its values, and so does the best plan.
        cursor = self.connection.execute(statement, given, prepare=bool(given) and where is None, binary=True)
        return cursor.fetchall() if cursor.description else []

    def copy(self, template: str, chunks: Iterator[bytes]) -> None:
        """Send rows as they are on the wire."""
        with self.connection.cursor() as cursor, cursor.copy(self._plain(template)) as copy:
            for chunk in chunks:
                copy.write(chunk)

    def copy_rows(self, template: str, rows: Iterator[Sequence[Any]]) -> None:
        """Send rows of Python's values."""
        with self.connection.cursor() as cursor, cursor.copy(self._plain(template)) as copy:
            for row in rows:
                copy.write_row(row)

    def _plain(self, template: str) -> bytes:
        # Without values, nobody undoubles per cent signs.
        return _composed(self.tables, self.n_bits, template, "", None).replace(b"%%", b"%")


@lru_cache(STATEMENTS)
def _composed(tables: Tables, n_bits: int, template: str, hit: str, where: str | None) -> bytes:
    """A statement with quoted names and texts in place of braces; "{x_name}" is the name of table "{x}" as a text."""
    space = () if tables.schema is None else (tables.schema,)
    known: dict[str, sql.Composable] = {}
    for part in PARTS:
        # A per cent sign would be taken for a value's place.
        quoted = sql.Identifier(*(one.replace("%", "%%") for one in (*space, f"{tables.name}_{part}")))
        known |= {part: quoted, f"{part}_name": sql.Literal(quoted.as_string(None))}
    near = " OR ".join(f"({_part(n_bits, number)}) = ANY(%(part_{number})s)" for number in range(len(parts(n_bits))))
    texts = {"column": database.column(n_bits), "distance": _distance(n_bits), "near": f"({near})"}
    texts["order"] = "code < 0, code" if n_bits == WORD else "code"
    for key, text in (texts | {"filter": f"({where or 'true'})", "hit": hit}).items():
        known[key] = sql.SQL(text).format(**known)
    return sql.SQL(template).format(**known).as_bytes(None)


def find(name: Any, schema: Any) -> Tables:
    """Checked names."""
    for argument, given, longest in (("name", name, LONGEST), ("schema", "public" if schema is None else schema, 63)):
        if not isinstance(given, str) or not 1 <= len(given.encode()) <= longest or "\0" in given:
            raise ValueError(f"{argument}={given!r}; give a name of 1 to {longest} bytes.")
    return Tables(name, schema)


def read_meta(view: View) -> Meta:
    """What a store says of itself, if it is of the version that this package knows."""
    name, found = view.tables.name, view.rows(READ_META)
    if len(found) != 1:
        raise FormatError(f"{name!r} has {len(found)} rows about itself; it must have one.")
    ((told,),) = found
    if (version := told["version"]) != VERSION:
        instead = "update it" if version > VERSION else "drop it, and copy it again"
        raise FormatError(f"{name!r} has tables of version {version}; this gphash knows {VERSION}, {instead}.")
    return Meta(version, told["n_bits"], told["model"], datetime.fromisoformat(told["created"]))


def parts(n_bits: int) -> list[tuple[int, int]]:
    """Parts of a code, as equal in length as can be: the first bit, and how many."""
    ends = np.linspace(0, n_bits, -(-n_bits // PART) + 1).astype(int).tolist()
    return [(first, last - first) for first, last in itertools.pairwise(ends)]


def indexes(n_bits: int) -> list[str]:
    """Statements that make keys and indexes."""
    n_parts = len(parts(n_bits))
    by_part = [f"CREATE INDEX ON {{codes}} (({_part(n_bits, number)}))" for number in range(n_parts)]
    return [*INDEXES, *(by_part if n_parts > 1 else [])]


def _part(n_bits: int, number: int) -> str:
    """A part of the column `code`."""
    start, length = parts(n_bits)[number]
    if length == n_bits:
        return "code"
    if n_bits <= WORD:
        return f"(code >> {n_bits - start - length}) & {2**length - 1}"
    return f"substring(code FROM {start + 1} FOR {length})"


def _distance(n_bits: int) -> str:
    """Hamming distance of the code from the parameter `wanted`."""
    return "bit_count((code # %(wanted)s)::bit(64))" if n_bits <= WORD else "bit_count(code # %(wanted)s)"
