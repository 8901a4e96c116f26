"""Where the tables of a store are, what they say of themselves, and statements on them."""

from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from gphash.persistence import FormatError
from gphash.stores import schema
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Session, StoreError, compose
from gphash.stores.wire import Form

Engine: TypeAlias = Literal["plain", "pgvector"]

LONGEST = 57  # of a name, which the names of tables add six to; PostgreSQL cuts at 63
PGVECTOR = (0, 7)  # the first version that counts bits
STATEMENTS = 1024  # that are kept ready


class Options(TypedDict, total=False):
    """Where a store is and what it works with.

    schema
        Schema of its tables; the connection's first one if None.
    table, key
        A table of yours, ("schema", "table") if it is in another schema than the connection's, and its column of ids,
        "id" if not given: what `where` is about.
    engine
        "plain" needs nothing but PostgreSQL 14; "pgvector" counts bits with that extension.
    lock_timeout
        Seconds to wait for somebody else's lock (10).
    """

    schema: str | None
    table: str | tuple[str, str] | None
    key: str
    engine: Engine
    lock_timeout: float


class Place(NamedTuple):
    """Which tables are meant.

    name
        Of the store.
    schema
        Of its tables; None for the connection's first one.
    table, key
        The user's table, with its schema if that is given, and its column of ids; None if there is none.
    """

    name: str
    schema: str | None
    table: tuple[str, ...] | None
    key: str

    @property
    def names(self) -> dict[str, str | tuple[str, ...]]:
        """Names of tables and columns, as statements have them."""
        before = () if self.schema is None else (self.schema,)
        names: dict[str, str | tuple[str, ...]] = {
            part: (*before, f"{self.name}_{part}") for part in ("items", "codes", "meta")
        }
        return names if self.table is None else names | {"table": self.table, "key": self.key}


class Meta(NamedTuple):
    """What a store says of itself.

    version
        Of its tables.
    form
        How it keeps codes.
    model
        Fingerprint of the model that made the codes.
    created
        When.
    """

    version: int
    form: Form
    model: str | None
    created: Any


class Tables(NamedTuple):
    """Tables of a store, for statements.

    place
        Which they are.
    form
        How they keep codes.
    engine
        What computes distances.
    """

    place: Place
    form: Form
    engine: Engine


def place(name: Any, options: Options) -> Place:
    """Checked names."""
    for key in options:
        if key not in Options.__annotations__:
            raise TypeError(f"{key!r} is no option of a store; give some of {', '.join(Options.__annotations__)}.")
    if (engine := options.get("engine", "plain")) not in get_args(Engine):
        raise ValueError(f"engine={engine!r}; give one of {', '.join(get_args(Engine))}.")
    _check_name("name", name, LONGEST)
    space, table, key = options.get("schema"), options.get("table"), options.get("key", "id")
    if space is not None:
        _check_name("schema", space)
    if table is None:
        return Place(name, space, None, key)
    parts = table if isinstance(table, tuple) else (table,)
    for part in parts:
        _check_name("table", part)
    _check_name("key", key)
    return Place(name, space, parts, key)


def _check_name(argument: str, name: Any, longest: int = 63) -> None:
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= longest or "\0" in name:
        raise ValueError(f"{argument}={name!r}; give a name of 1 to {longest} bytes.")


def statement(
    tables: Tables, template: str, hit: str = "", asked: tuple[int, ...] = (), condition: Condition | None = None
) -> bytes:
    """A template of `schema` with everything filled in.

    Parameters
    ----------
    tables
        What it is about.
    template
        Of the statement.
    hit
        Template of the part that finds codes.
    asked
        Parts of a code that are looked up.
    condition
        On the user's table.
    """
    return _composed(tables, template, hit, asked, None if condition is None else condition.text)


@lru_cache(STATEMENTS)
def _composed(tables: Tables, template: str, hit: str, asked: tuple[int, ...], where: str | None) -> bytes:
    how, engine = tables.form, tables.engine
    texts = {"column": how.column, "named_items": schema.NAMED_ITEMS, "distance": schema.distance(how, engine)}
    texts |= {"scanned": schema.distance(how, engine, "gphash_code"), "near": schema.near(how, list(asked))}
    texts |= {"hit": hit, "where": where or "", "filter": "true" if where is None else schema.EXISTS}
    return compose(template, tables.place.names, texts)


def read_meta(session: Session, place: Place) -> Meta:
    """What a store says of itself, if it is of a version that this package knows, or older."""
    versions = session.rows(compose(schema.READ_VERSION, place.names, {}))
    if len(versions) != 1:
        raise FormatError(f"the store {place.name!r} has {len(versions)} rows about itself; wanted is one.")
    # Before anything else, which a newer version may have changed.
    if versions[0][0] > schema.VERSION:
        raise FormatError(
            f"the store {place.name!r} has tables of version {versions[0][0]}; this gphash knows {schema.VERSION}, "
            "update it."
        )
    ((version, n_bits, kind, model, created),) = session.rows(compose(schema.READ_META, place.names, {}))
    return Meta(version, Form(n_bits, kind), model, created)


def check_unchanged(session: Session, place: Place, meta: Meta) -> None:
    """Refuse to go on with a store that was made anew, or migrated, since it was opened."""
    if read_meta(session, place) != meta:
        raise StoreError(f"the store {place.name!r} has been replaced or migrated since it was opened; open it again.")


def check_engine(session: Session, engine: Engine, how: Form) -> None:
    """Refuse an engine that the store, or the server, does not do."""
    if engine != "pgvector":
        return
    if how.kind != "bit":
        raise ValueError("engine='pgvector' needs codes kept as bit strings; build the store with that engine.")
    rows = session.rows(b"SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if not rows:
        raise StoreError("engine='pgvector' needs the extension in this database: CREATE EXTENSION vector.")
    if tuple(map(int, rows[0][0].split(".")[:2])) < PGVECTOR:
        wanted = ".".join(map(str, PGVECTOR))
        raise StoreError(f"engine='pgvector' needs version {wanted} of the extension; this database has {rows[0][0]}.")
