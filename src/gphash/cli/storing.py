"""Commands on codes in PostgreSQL: store load, search, info, verify, migrate, drop."""

import contextlib
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gphash.cli import app, shown, training
from gphash.cli.app import BadParameter, Data, DataDir, Debug, Exit, Json, Model, Option, Quiet, Threads
from gphash.cli.looking import SHORT
from gphash.cli.searching import Index, Ranking

if TYPE_CHECKING:
    from gphash.datasets.sources import Source
    from gphash.functions import model as models
    from gphash.index.hamming_index import HammingIndex
    from gphash.stores.postgres_index import PostgresIndex
    from gphash.stores.tables import Options

BLOCK = 64  # rows that are searched between two words on progress
VARIABLE = "GPHASH_DATABASE"
ELSEWHERE = f"Unless --database is given, the database is what {VARIABLE} says, else what PGHOST, PGDATABASE … say."


class Engine(StrEnum):
    """What counts differing bits."""

    PLAIN = "plain"
    PGVECTOR = "pgvector"


class Found(NamedTuple):
    """A query and its neighbours.

    label
        Which row it is.
    code
        Its bits, "0110…".
    neighbours
        Ids and distances, nearest first.
    """

    label: str
    code: str
    neighbours: list[tuple[int, float]]


Name = Annotated[
    str, Option("--name", "-n", metavar="NAME", help="Of the store: its tables are NAME_items …", show_default=False)
]
Database = Annotated[
    str,
    Option(
        metavar="TEXT",
        envvar=VARIABLE,
        show_default=False,
        help="Connection string, postgresql://USER@HOST/DATABASE or 'host=… dbname=…'. Others can see a command line: "
        "keep passwords in the environment, or in ~/.pgpass.",
    ),
]
Schema = Annotated[
    str | None, Option(metavar="NAME", help="Schema of the tables; the connection's first if not given.")
]
LockTimeout = Annotated[float, Option(metavar="SECONDS", min=0.001, help="How long to wait for somebody else's lock.")]

group = typer.Typer(
    name="store",
    help=f"Keep codes in PostgreSQL, and search there.\n\n{ELSEWHERE}",
    epilog="gphash store COMMAND --help has examples.",
    no_args_is_help=True,
)


@app.command(
    "gphash store load digits.index",
    "gphash store load /shared/index --name photos",
    "gphash store load digits.index --name numbers --database postgresql://me@localhost/shop",
    interrupted=lambda given: "interrupted; the store is there with all its items, or not at all.",
    within=group,
)
def load(
    index: Index,
    name: Annotated[
        str | None,
        Option(
            "--name",
            "-n",
            metavar="NAME",
            help="Of the store: its tables are NAME_items …; if not given, INDEX without its ending, or the folder's "
            "name.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Engine, Option(help="What counts differing bits: PostgreSQL itself, or the extension pgvector, if it is there.")
    ] = Engine.PLAIN,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Copy an index into new tables, as a whole or not at all."""
    from gphash.stores.postgres_index import PostgresIndex

    chosen = name or (index.resolve().name if index.is_dir() else index.stem)
    with _index(index) as source, shown.Meter("loading", quiet) as progress, _advised(database):
        began = time.perf_counter()
        options: Options = {"schema": schema, "lock_timeout": lock_timeout, "engine": engine.value}
        with PostgresIndex.from_index(database, chosen, source, progress=progress, **options):
            seconds = time.perf_counter() - began
        stats = source.stats()
        told = {"name": chosen, "items": stats.n_items, "codes": stats.n_codes, "bits": source.n_bits}
        told |= {"model": source.model, "seconds": seconds, "items_per_second": stats.n_items / seconds}
    if as_json:
        shown.emit(told)
        return
    shown.say(
        f"loaded {stats.n_items:,} items, {stats.n_codes:,} distinct codes of {source.n_bits} bits, into the store "
        f"{chosen!r} in {shown.duration(seconds)}: {stats.n_items / seconds:,.0f} items a second"
    )


@app.command(
    "gphash store search digits-16.gph digits:test --name digits -k 5",
    "gphash store search photos.gph cat.jpg --name photos --table products --where 'price < %s' --param 10",
    within=group,
)
def search(
    model: Model,
    data: Data,
    name: Name,
    k: Annotated[int, Option("-k", min=1, help="How many neighbours.")] = 10,
    ranking: Annotated[
        Ranking, Option(help="Count differing bits, or weigh each by how sure the model is of the query's.")
    ] = Ranking.HAMMING,
    radius: Annotated[int | None, Option(min=0, help="Only items that differ in at most so many bits.")] = None,
    where: Annotated[
        str | None,
        Option(
            metavar="SQL",
            help="Only items for which this holds in --table: a condition on its columns, run as it is. %s is the next "
            "--param, and %% a per cent sign.",
        ),
    ] = None,
    param: Annotated[list[str] | None, Option(metavar="VALUE", help="For a %s of --where; repeatable.")] = None,
    table: Annotated[str | None, Option(metavar="TABLE", help="A table of yours, or SCHEMA.TABLE.")] = None,
    key: Annotated[str, Option(metavar="COLUMN", help="The column of that table that has the ids.")] = "id",
    engine: Annotated[Engine, Option(help="As it was loaded with, or plain.")] = Engine.PLAIN,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the nearest items of every row of DATA, such as a picture."""
    if (where is None) is not (table is None):
        raise BadParameter("--where and --table belong together; give both, or neither.")
    if param and where is None:
        raise BadParameter("--param without --where; give the condition that the values belong to.")
    if training.has_blocks(data, None):
        raise ValueError(f"{data!r} is a folder of blocks; give a file of rows, such as .npy, or a picture.")
    loaded = training.load(model, threads)
    if ranking is Ranking.EXPECTED and not loaded.has_probabilities:
        raise ValueError(f"{str(model)!r} is a model of {loaded.method}, which tells no probabilities.")
    options: Options = {"schema": schema, "lock_timeout": lock_timeout, "engine": engine.value}
    if table is not None:
        space, dot, own = table.partition(".")
        options |= {"table": (space, own) if dot else table, "key": key}
    condition = {} if where is None else {"where": where, "params": param or []}
    with _opened(database, name, options) as store:
        source = training.read(data, data_dir, threads, quiet)
        training.check_rows(loaded.n_features, loaded.descriptor, model, source)
        with shown.Meter("searching", quiet) as progress:
            results = list(_results(store, loaded, source, k, ranking, radius, condition, progress))
    if as_json:
        shown.emit({"ranking": ranking.value, "results": [_plain(found) for found in results]})
        return
    for found in results:
        _print(found, ranking)


@app.command("gphash store info --name digits", within=group)
def info(
    name: Name,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say what a store holds."""
    with _opened(database, name, {"schema": schema, "lock_timeout": lock_timeout}) as store:
        stats, meta = store.stats(), store.meta
    told = {"name": name, "items": stats.n_items, "codes": stats.n_codes, "bits": store.n_bits}
    told |= {"largest_bucket": stats.largest_bucket, "bytes": stats.bytes, "model": store.model}
    told |= {"column": meta.form.column, "version": meta.version, "created": meta.created.isoformat()}
    if as_json:
        shown.emit(told)
        return
    lines = [("items", f"{stats.n_items:,}"), ("distinct codes", f"{stats.n_codes:,}"), ("bits", f"{store.n_bits}")]
    lines += [("largest bucket", f"{stats.largest_bucket:,} items"), ("tables", shown.size(stats.bytes))]
    lines += [("column", meta.form.column), ("model", store.model[:SHORT] if store.model else "unknown")]
    shown.facts([*lines, ("version", f"{meta.version}"), ("created", f"{meta.created:%Y-%m-%d %H:%M:%S %z}")])


@app.command("gphash store verify --name digits", within=group)
def verify(
    name: Name,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Count all items anew, and compare with what the store has counted."""
    with _opened(database, name, {"schema": schema, "lock_timeout": lock_timeout}) as store:
        store.verify()
        n_items = len(store)
    if as_json:
        shown.emit({"name": name, "items": n_items, "whole": True})
    else:
        shown.say(f"the store {name!r} is whole: {n_items:,} items")


@app.command(
    "gphash store migrate --name digits",
    interrupted=lambda given: "interrupted; the store is of the old version, or of the new one.",
    within=group,
)
def migrate(
    name: Name,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Bring the tables of a store that an older gphash has made up to date."""
    from gphash.stores.postgres_index import PostgresIndex
    from gphash.stores.schema import VERSION

    with _advised(database):
        before = PostgresIndex.migrate(database, name, schema=schema, lock_timeout=lock_timeout)
    if as_json:
        shown.emit({"name": name, "before": before, "version": VERSION})
    elif before == VERSION:
        shown.say(f"the store {name!r} is of version {VERSION} already")
    else:
        shown.say(f"the store {name!r} was of version {before}, and is of version {VERSION} now")


@app.command(
    "gphash store drop --name digits",
    interrupted=lambda given: "interrupted; the store is there with all its items, or gone.",
    within=group,
)
def drop(
    name: Name,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    database: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Remove a store and all its items from the database, once you have said yes."""
    with _opened(database, name, {"schema": schema, "lock_timeout": lock_timeout}) as store:
        n_items = len(store)
        if not yes and not _agreed(f"drop the store {name!r} and its {n_items:,} items? [y/N]"):
            shown.complain("gphash: nothing was dropped.")
            raise Exit(1)
        store.drop()
    if as_json:
        shown.emit({"name": name, "items": n_items, "dropped": True})
    else:
        shown.say(f"dropped the store {name!r} and its {n_items:,} items")


app.app.add_typer(group)


def _opened(database: str, name: str, options: "Options") -> "PostgresIndex":
    from gphash.stores.postgres_index import PostgresIndex

    with _advised(database):
        return PostgresIndex.open(database, name, **options)


def _index(path: Path) -> "HammingIndex":
    """An index in a file, or in a folder of many."""
    from gphash.index.hamming_index import HammingIndex
    from gphash.index.parts import PartedIndex

    return PartedIndex.open(path) if path.is_dir() else HammingIndex.open(path)


@contextlib.contextmanager
def _advised(database: str) -> Iterator[None]:
    """Errors of the stores with advice for a command line."""
    from gphash.stores.postgres import ConninfoError, UnreachableError

    try:
        yield
    except ConninfoError as error:
        raise ValueError(
            f"the connection string of the database cannot be read; give --database, or {VARIABLE}, such as "
            "'host=localhost dbname=shop user=me', or a URL postgresql://…"
        ) from error
    except UnreachableError as error:
        if database:
            raise
        raise ConnectionError(f"{error} Say where it is by --database, or by {VARIABLE}.") from error


def _agreed(question: str) -> bool:
    shown.note(question)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        raise BadParameter("nobody is there to be asked; give --yes.") from None


def _results(
    store: "PostgresIndex",
    loaded: "models.Model",
    source: "Source",
    k: int,
    ranking: Ranking,
    radius: int | None,
    condition: dict[str, Any],
    progress: Callable[[int, int | None], None],
) -> Iterator[Found]:
    """Queries and their neighbours, a block of rows at a time."""
    from gphash.hamming import packing

    for start in range(0, len(source.X), BLOCK):
        rows = source.X[start : start + BLOCK]
        codes = loaded.encode(rows)
        if ranking is Ranking.HAMMING:
            found = store.search(codes, k, model=loaded.fingerprint, **condition)
            pairs = list(zip(*found, strict=True))
        else:
            pairs = list(_expected(store, loaded, rows, codes, k, radius, condition))
        bits = packing.unpack(codes, store.n_bits)
        for number, (own, (ids, distances)) in enumerate(zip(bits, pairs, strict=True), start):
            label = source.name if len(source.X) == 1 else f"{source.name}, row {number}"
            near = distances <= (store.n_bits if radius is None or ranking is Ranking.EXPECTED else radius)
            neighbours = list(zip(ids[near].tolist(), distances[near].tolist(), strict=True))
            yield Found(label, "".join(map(str, own)), neighbours)
        progress(min(start + BLOCK, len(source.X)), len(source.X))


def _expected(
    store: "PostgresIndex", loaded: Any, rows: Any, codes: Any, k: int, radius: int | None, condition: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Ids and expected distances of every query, of items within a Hamming radius if there is one."""
    chances = loaded.bit_probabilities(rows)
    if radius is None:
        yield from zip(*store.search_expected(chances, k, model=loaded.fingerprint, **condition), strict=True)
        return
    balls = store.within(codes, radius, model=loaded.fingerprint, **condition)
    for number in range(len(rows)):
        near = balls.ids[balls.offsets[number] : balls.offsets[number + 1]]
        found = store.search_expected(chances[number : number + 1], k, allowed=near, **condition)
        yield found.ids[0], found.distances[0]


def _plain(found: Found) -> dict[str, Any]:
    neighbours = [{"id": number, "distance": distance} for number, distance in found.neighbours]
    return {"query": {"name": found.label, "bits": found.code}, "neighbours": neighbours}


def _print(found: Found, ranking: Ranking) -> None:
    shown.say(f"{found.label}  {found.code}")
    if not found.neighbours:
        shown.say("nothing was found; give a larger --radius, or another --where.")
    else:
        exact = ranking is Ranking.HAMMING
        rows = [
            shown.Cells((f"{rank}", f"{number}", f"{distance:.0f}" if exact else f"{distance:.2f}"))
            for rank, (number, distance) in enumerate(found.neighbours, 1)
        ]
        shown.table(("rank", "id", "distance"), rows, left=())
    shown.say("")
