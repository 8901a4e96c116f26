"""Tables of a store, the statements on them, and conditions on tables of the user's.

`NAME_items` has the code of every id, `NAME_codes` every distinct code and how many items have it, `NAME_meta` one row
on the store itself. Distances are computed on distinct codes only. Statements have names in braces and values as named
parameters; those that search give, for every distance or cost, ascending, the ids in no order.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

import numpy as np

from gphash.container import FormatError
from gphash.index.engines import WORD
from gphash.index.postgres import database
from gphash.index.postgres.database import Connection, Int8, sql

VERSION = 2
LONGEST = 57  # of a name, which the names of tables add six to; PostgreSQL cuts at 63
STATEMENTS = 1024  # that are kept ready
PART = 16  # bits of a code that have an index of their own
PLACEHOLDER = re.compile("%(.?)", re.DOTALL)
TOKEN = re.compile(r"""'[^'\\]*' | "[^"]*" | -- | /\* | \*/ | \$\w*\$ | [()\[\];'"]""", re.VERBOSE)
CLOSING = {")": "(", "]": "["}

CREATE = (
    "CREATE TABLE {meta} (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, "
    "n_bits integer NOT NULL, model text, created timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE {codes} (code {column} NOT NULL, n bigint NOT NULL CHECK (n >= 0))",
    "CREATE TABLE {items} (id bigint NOT NULL, code {column} NOT NULL)",
)
# Rows of tables that nobody else can see yet; keys and indexes are made when the rows are there.
LOAD_ITEMS = "COPY {items} (id, code) FROM STDIN (FORMAT binary, FREEZE)"
LOAD_CODES = "COPY {codes} (code, n) FROM STDIN (FORMAT binary, FREEZE)"
INDEXES = (
    "ALTER TABLE {codes} ADD PRIMARY KEY (code)",
    "ALTER TABLE {items} ADD PRIMARY KEY (id)",
    "CREATE INDEX ON {items} (code, id)",
)
DROP = "DROP TABLE {items}, {codes}, {meta}"
WRITE_META = "INSERT INTO {meta} (version, n_bits, model) VALUES (%(version)s, %(n_bits)s, %(model)s)"
READ_META = "SELECT to_jsonb(told) FROM {meta} AS told"  # all columns, of which another version has others
TIDY = ("VACUUM (ANALYZE) {items}", "VACUUM (ANALYZE) {codes}")

COPY = "COPY {items} (id, code) FROM STDIN (FORMAT binary)"
KNOWN = "SELECT array_agg(id) FROM {items} WHERE id = ANY(%(ids)s)"
# Rows are locked in the order of ids, then of codes, by whoever writes: nobody waits for somebody who waits for them.
COUNT_UP = (
    "INSERT INTO {codes} AS known (code, n) SELECT code, n "
    "FROM unnest(%(codes)s::{column}[], %(sizes)s::bigint[]) AS fresh (code, n) "
    "ORDER BY code ON CONFLICT (code) DO UPDATE SET n = known.n + excluded.n"
)
LOCK_ITEMS = (
    "SELECT array_agg(id), array_agg(code) FROM "
    "(SELECT id, code FROM {items} WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE) AS locked"
)
DELETE_ITEMS = "DELETE FROM {items} WHERE id = ANY(%(ids)s)"
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
MISCOUNTED = (
    "SELECT count(*) FROM (SELECT code, count(*) AS n FROM {items} GROUP BY code) AS counted "
    "FULL JOIN {codes} AS noted USING (code) WHERE counted.n IS DISTINCT FROM noted.n"
)
READ_CODES = (
    "SELECT array_agg(code), array_agg(n) FROM "
    "(SELECT code, n FROM {codes} WHERE code >= %(first)s ORDER BY code LIMIT %(rows)s) AS page"
)
READ_ITEMS = (
    "SELECT array_agg(gphash_id), array_agg(gphash_code) FROM (SELECT gphash_id, gphash_code FROM {named_items} "
    "WHERE gphash_id >= %(first)s AND {filter} ORDER BY gphash_id LIMIT %(rows)s) AS page"
)
READ_SOME = (
    "SELECT array_agg(gphash_id), array_agg(gphash_code) FROM {named_items} WHERE gphash_id = ANY(%(ids)s) AND {filter}"
)
COUNT = "SELECT count(*) FROM {named_items} WHERE {filter}"

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
    "SELECT hit.cost::bigint, array_agg(item.id) FROM hit CROSS JOIN reach CROSS JOIN LATERAL "
    "(SELECT id FROM {items} WHERE code = hit.code ORDER BY id LIMIT %(k)s) AS item "
    "WHERE hit.cost <= reach.cost GROUP BY hit.cost ORDER BY hit.cost"
)
# All items of codes, or the k first of each, that pass a filter.
ALL_OF = (
    "SELECT gphash_cost::bigint, array_agg(item.id) FROM ({hit}) AS hit (gphash_hit, gphash_cost, gphash_n) "
    "CROSS JOIN LATERAL (SELECT gphash_id AS id FROM {named_items} WHERE gphash_code = gphash_hit AND {filter} "
    "ORDER BY gphash_id LIMIT %(k)s) AS item GROUP BY gphash_cost ORDER BY gphash_cost"
)
# All items at once: for a filter that lets few pass, and where most items have a code of their own.
SCAN = (
    "SELECT cost::bigint, array_agg(id) FROM (SELECT gphash_id AS id, {scanned} AS cost FROM {named_items} "
    "WHERE {filter} ORDER BY 2, 1 LIMIT %(k)s) AS nearest GROUP BY cost ORDER BY cost"
)
SCAN_BALL = (
    "SELECT cost::bigint, array_agg(id) FROM (SELECT gphash_id AS id, {scanned} AS cost FROM {named_items} "
    "WHERE {filter}) AS scanned WHERE cost <= %(radius)s GROUP BY cost ORDER BY cost"
)
# No condition may take a column of ours for one of its table's.
NAMED_ITEMS = "(SELECT id AS gphash_id, code AS gphash_code FROM {items}) AS gphash_item"
EXISTS = "EXISTS (SELECT FROM {table} WHERE {table}.{key} = gphash_id AND (\n{where}\n))"


class Options(TypedDict, total=False):
    """Where a store is and what it works with.

    schema
        Schema of its tables; the connection's first one if None.
    table, key
        A table of yours, ("schema", "table") if it is in another schema than the connection's, and its column of ids,
        "id" if not given: what `where` is about.
    lock_timeout
        Seconds to wait for somebody else's lock (10).
    """

    schema: str | None
    table: str | tuple[str, str] | None
    key: str
    lock_timeout: float


class Tables(NamedTuple):
    """The name of a store, the schema of its tables if it is given, and the user's table with its column of ids."""

    name: str
    schema: str | None
    table: tuple[str, ...] | None
    key: str


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


class Condition(NamedTuple):
    """Which items may be found: as it was given, as a part of a statement, and the values of its parameters."""

    where: str
    text: str
    values: dict[str, Any]


class View(NamedTuple):
    """A store as one connection sees it, narrowed to a condition if there is one."""

    connection: Connection[Any]
    tables: Tables
    n_bits: int
    condition: Condition | None = None

    def rows(self, template: str, *, hit: str = "", **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return what it gives; `hit` is the template of its part that finds codes."""
        # Our own whole numbers are bigint, for a statement is prepared once for every set of types.
        given = {name: Int8(one) if type(one) is int else one for name, one in values.items()}
        where = None
        if self.condition is not None:
            where, given = self.condition.text, given | self.condition.values
        statement = _composed(self.tables, self.n_bits, template, hit, where)
        cursor = self.connection.execute(statement, given, prepare=bool(given), binary=True)
        return cursor.fetchall() if cursor.description else []

    def copy(self, template: str, chunks: Iterator[bytes]) -> None:
        """Send rows."""
        # Without values, nobody undoubles per cent signs.
        statement = _composed(self.tables, self.n_bits, template, "", None).replace(b"%%", b"%")
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for chunk in chunks:
                copy.write(chunk)


@lru_cache(STATEMENTS)
def _composed(tables: Tables, n_bits: int, template: str, hit: str, where: str | None) -> bytes:
    """A statement with quoted names and texts in place of braces; "{x_name}" is the name of table "{x}" as a text."""
    space = () if tables.schema is None else (tables.schema,)
    names: dict[str, tuple[str, ...]] = {part: (*space, f"{tables.name}_{part}") for part in ("items", "codes", "meta")}
    if tables.table is not None:
        names |= {"table": tables.table, "key": (tables.key,)}
    known: dict[str, sql.Composable] = {}
    for key, name in names.items():
        # A per cent sign would be taken for a value's place.
        quoted = sql.Identifier(*(part.replace("%", "%%") for part in name))
        known |= {key: quoted, f"{key}_name": sql.Literal(quoted.as_string(None))}
    near = " OR ".join(f"({_part(n_bits, number)}) = ANY(%(part_{number})s)" for number in range(len(parts(n_bits))))
    texts = {"column": database.column(n_bits), "named_items": NAMED_ITEMS, "distance": _distance(n_bits, "code")}
    texts |= {"scanned": _distance(n_bits, "gphash_code"), "near": f"({near})"}
    texts |= {"hit": hit, "where": where or "", "filter": "true" if where is None else EXISTS, "all": template}
    for key, text in texts.items():
        known[key] = sql.SQL(text).format(**known)
    return known["all"].as_bytes(None)


def find(name: Any, options: Options) -> Tables:
    """Checked names."""
    for key in options:
        if key not in Options.__annotations__:
            raise TypeError(f"{key!r} is no option of a store; give some of {', '.join(Options.__annotations__)}.")
    table, key = options.get("table"), options.get("key", "id")
    space = options.get("schema")
    whole = None if table is None else table if isinstance(table, tuple) else (table,)
    named = [("name", name, LONGEST), ("schema", "public" if space is None else space, 63), ("key", key, 63)]
    for argument, given, longest in [*named, *(("table", part, 63) for part in whole or ())]:
        if not isinstance(given, str) or not 1 <= len(given.encode()) <= longest or "\0" in given:
            raise ValueError(f"{argument}={given!r}; give a name of 1 to {longest} bytes.")
    return Tables(name, space, whole, key)


def read_meta(view: View) -> Meta:
    """What a store says of itself, if it is of the version that this package knows."""
    name, found = view.tables.name, view.rows(READ_META)
    if len(found) != 1:
        raise FormatError(f"the store {name!r} has {len(found)} rows about itself; it must have one.")
    ((told,),) = found
    if (version := told["version"]) != VERSION:
        instead = "update it" if version > VERSION else "drop the store, and load it again"
        raise FormatError(
            f"the store {name!r} has tables of version {version}; this gphash knows {VERSION}, {instead}."
        )
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


def _distance(n_bits: int, column: str) -> str:
    """Hamming distance of a column from the parameter `wanted`."""
    return f"bit_count(({column} # %(wanted)s)::bit(64))" if n_bits <= WORD else f"bit_count({column} # %(wanted)s)"


def read_condition(where: Any, params: Any) -> Condition:
    """A condition with one value for every "%s"; any other per cent sign is doubled.

    The text is the developer's, and values are parameters.
    """
    if not isinstance(where, str) or not where.strip() or "\0" in where:
        raise ValueError(f"where={where!r}; give a SQL condition as text, such as 'price < %s'.")
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise ValueError(f"params={params!r}; give a list with a value for every %s of where.")
    _check_closed(where)
    count = itertools.count()

    def named(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%%"
        if found[1] != "s":
            raise ValueError(f"where={where!r} has {found[0]!r}; write %s for a value, and %% for a per cent sign.")
        return f"%(value_{next(count)})s"

    # Braces would be taken for names of ours.
    text = PLACEHOLDER.sub(named, where).replace("{", "{{").replace("}", "}}")
    if (n := next(count)) != len(params):
        raise ValueError(f"where has {n} %s and params has {len(params)} values; give one for each.")
    return Condition(where, text, {f"value_{number}": value for number, value in enumerate(params)})


def _check_closed(where: str) -> None:
    """Refuse a condition that is not whole, and could change the meaning of the statement around it."""
    opened: list[str] = []
    for token in TOKEN.findall(where):
        if token in "([":
            opened.append(token)
        elif token in CLOSING and opened and opened[-1] == CLOSING[token]:
            opened.pop()
        elif len(token) == 1 or token[0] not in "'\"":
            raise ValueError(
                f"where={where!r} has {token!r}, which is not closed or not opened, or must not be there; give one "
                "whole condition, without comments, semicolons, dollar quotes and backslashes in quotes."
            )
    if opened:
        raise ValueError(f"where={where!r} has a {opened[-1]!r} that nothing closes; give one whole condition.")
