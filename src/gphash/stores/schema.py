"""Tables of a store and the statements on them, with names in braces and values as named parameters.

`NAME_items` has the code of every id, `NAME_codes` every distinct code and how many items have it, `NAME_meta` one row
on the store itself. Distances are computed on distinct codes only. Search statements give, for every distance or cost,
ascending, the ids in no order.
"""

from gphash.stores import probing
from gphash.stores.wire import Form

VERSION = 1
# What brings a store of the version before to the version of the key.
MIGRATIONS: dict[int, tuple[str, ...]] = {}

CREATE = (
    "CREATE TABLE {meta} (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, "
    "n_bits integer NOT NULL, kind text NOT NULL, model text, created timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE {codes} (code {column} NOT NULL, n bigint NOT NULL CHECK (n >= 0))",
    "CREATE TABLE {items} (id bigint NOT NULL, code {column} NOT NULL)",
)
# Rows of tables that nobody else can see yet; keys and indexes are made when the rows are there.
LOAD_ITEMS = "COPY {items} (id, code) FROM STDIN (FORMAT binary, FREEZE)"
LOAD_CODES = "COPY {codes} (code, n) FROM STDIN (FORMAT binary, FREEZE)"
KEYS = ("ALTER TABLE {codes} ADD PRIMARY KEY (code)", "ALTER TABLE {items} ADD PRIMARY KEY (id)")
DROP = "DROP TABLE {items}, {codes}, {meta}"
WRITE_META = "INSERT INTO {meta} (version, n_bits, kind, model) VALUES (%(version)s, %(n_bits)s, %(kind)s, %(model)s)"
READ_VERSION = "SELECT version FROM {meta}"
READ_META = "SELECT version, n_bits, kind, model, created FROM {meta}"
LOCK_META = "SELECT version FROM {meta} FOR UPDATE"
WRITE_VERSION = "UPDATE {meta} SET version = %(version)s"
TIDY = ("VACUUM (ANALYZE) {items}", "VACUUM (ANALYZE) {codes}")

COPY = "COPY {items} (id, code) FROM STDIN (FORMAT binary)"
KNOWN = "SELECT array_agg(id) FROM {items} WHERE id = ANY(%(ids)s)"
# Rows are locked in the order of ids, then of codes, by whoever writes: nobody waits for somebody who waits for them.
COUNT_UP = (
    "INSERT INTO {codes} AS known (code, n) SELECT code, n FROM unnest(%(codes)s, %(sizes)s) AS fresh (code, n) "
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
    "FROM unnest(%(codes)s, %(sizes)s) AS gone (code, n) WHERE known.code = gone.code"
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
READ_IDS = "SELECT array_agg(id) FROM (SELECT id FROM {items} WHERE id >= %(first)s ORDER BY id LIMIT %(rows)s) AS page"
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
    "SELECT probe.code, probe.cost, known.n FROM unnest(%(codes)s, %(costs)s) AS probe (code, cost) "
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


def indexes(how: Form) -> list[str]:
    """Statements that make the indexes beside the keys."""
    split = probing.parts(how.n_bits)
    by_part = [f"CREATE INDEX ON {{codes}} (({part(how, number)}))" for number in range(len(split)) if len(split) > 1]
    return ["CREATE INDEX ON {items} (code, id)", *by_part]


def part(how: Form, number: int) -> str:
    """A part of the column `code`, see `probing.parts`."""
    split = probing.parts(how.n_bits)
    start, length = split[number]
    if len(split) == 1:
        return "code"
    if how.kind == "bigint":
        return f"(code >> {how.n_bits - start - length}) & {2**length - 1}"
    return f"substring(code FROM {start + 1} FOR {length})"


def near(how: Form, asked: list[int]) -> str:
    """The condition that one of the parts asked for has one of the values of its parameter."""
    return "(" + " OR ".join(f"({part(how, number)}) = ANY(%(part_{number})s)" for number in asked) + ")"


def distance(how: Form, engine: str, column: str = "code") -> str:
    """Hamming distance of a column from the parameter `wanted`."""
    if engine == "pgvector":
        return f"({column} <~> %(wanted)s)::integer"
    if how.kind == "bigint":
        return f"bit_count(({column} # %(wanted)s)::bit(64))"
    return f"bit_count({column} # %(wanted)s)"
