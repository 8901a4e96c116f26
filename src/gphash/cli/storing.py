"""Commands on codes in PostgreSQL: store load, search, info, verify, drop."""

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import BadParameter, Option

from gphash.cli import app, options, searching, shown
from gphash.cli.options import Data, DataDir, Index, K, Model, Radius, Ranking, Threads

if TYPE_CHECKING:
    from gphash.index.postgres.postgres_index import PostgresIndex

VARIABLE = "GPHASH_DATABASE"
NAME = "Name of the store: its tables are NAME_items …"
NEW_NAME = f"{NAME}; if not given, INDEX without its ending, or the folder's name."
DATABASE = (
    "Connection string, postgresql://USER@HOST/DATABASE or 'host=… dbname=…'. Others can see a command line: keep "
    "passwords in the environment, or in ~/.pgpass."
)
WHERE = (
    "Only items for which this holds in --table: a condition on its columns, run as it is. %s is the next --param, and "
    "%% a per cent sign."
)
SCHEMA = "Schema of the tables; the connection's first if not given."
named: Any = partial(Option, "--name", "-n", metavar="NAME", show_default=False)
Name = Annotated[str, named(help=NAME)]
NewName = Annotated[str | None, named(help=NEW_NAME)]
Database = Annotated[str, Option("--database", metavar="TEXT", envvar=VARIABLE, show_default=False, help=DATABASE)]
Schema = Annotated[str | None, Option(metavar="NAME", help=SCHEMA)]
LockTimeout = Annotated[float, Option(metavar="SECONDS", min=0.001, help="How long to wait for somebody else's lock.")]
Params = Annotated[list[str] | None, Option("--param", metavar="VALUE", help="For a %s of --where; repeatable.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]

group = typer.Typer(
    name="store",
    help="Keep codes in PostgreSQL, and search there.\n\n"
    f"Unless --database is given, the database is what {VARIABLE} says, else what PGHOST, PGDATABASE … say.",
    epilog="gphash store COMMAND --help has examples.",
    no_args_is_help=True,
)
app.app.add_typer(group)


@app.command(
    "gphash store load digits.index",
    "gphash store load /shared/index --name photos",
    "gphash store load digits.index --name numbers --database postgresql://me@localhost/shop",
    interrupted=lambda given: "interrupted; the store is there with all its items, or not at all.",
    within=group,
)
def load(
    path: Index, name: NewName = None, conninfo: Database = "", schema: Schema = None, lock_timeout: LockTimeout = 10.0
) -> None:
    """Copy an index into new tables, as a whole or not at all."""
    from gphash.index.backends import open_index

    chosen = name or (path.resolve().name if path.is_dir() else path.stem)
    with open_index(path) as source, shown.Meter("loading") as progress:
        began = time.perf_counter()
        _opened(conninfo, chosen, schema, lock_timeout, source, progress=progress).close()
        seconds = time.perf_counter() - began
        stats = source.stats()
    told = {"name": chosen, "items": stats.n_items, "codes": stats.n_codes, "bits": source.n_bits}
    told |= {"model": source.model, "seconds": seconds, "items_per_second": stats.n_items / seconds}
    sentence = "loaded {items:,} items, {codes:,} distinct codes of {bits} bits, into the store {name!r} in "
    shown.answer(told, f"{sentence}{shown.duration(seconds)}: {{items_per_second:,.0f}} items a second")


@app.command(
    "gphash store search digits-16.gph digits:test --name digits -k 5",
    "gphash store search photos.gph cat.jpg --name photos --table products --where 'price < %s' --param 10",
    within=group,
)
def search(
    model: Model,
    data: Data,
    name: Name,
    k: K = 10,
    ranking: Ranking = "hamming",
    radius: Radius = None,
    where: Annotated[str | None, Option(metavar="SQL", help=WHERE)] = None,
    params: Params = None,
    table: Annotated[str | None, Option(metavar="TABLE", help="A table of yours, or SCHEMA.TABLE.")] = None,
    key: Annotated[str, Option(metavar="COLUMN", help="The column of that table that has the ids.")] = "id",
    conninfo: Database = "",
    schema: Schema = None,
    lock_timeout: LockTimeout = 10.0,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
) -> None:
    """Find the nearest items of every row of DATA, such as a picture."""
    from gphash.functions import model as models

    if (where is None) is not (table is None):
        raise BadParameter("--where and --table belong together; give both, or neither.")
    if params and where is None:
        raise BadParameter("--param without --where; give the condition that the values belong to.")
    if options.has_blocks(data):
        raise BadParameter(f"{data!r} is a folder of blocks; give a file of rows, such as .npy, or a picture.")
    loaded = models.load(model, n_jobs)
    condition = {} if where is None else {"where": where, "params": params or []}
    place: Any = tuple(table.split(".", 1)) if table is not None and "." in table else table
    with _opened(conninfo, name, schema, lock_timeout, table=place, key=key) as store:
        source = options.read(data, data_dir, n_jobs, loaded.descriptor)
        options.check_rows(loaded.n_features, loaded.descriptor, model, source)
        queries = searching.queries_of(loaded, source.X, source.name, ranking)
        results = searching.nearest(store, queries, k, ranking, radius, model=loaded.fingerprint, **condition)
    searching.tell(results, ranking)


@app.command("gphash store info --name digits", within=group)
def info(name: Name, conninfo: Database = "", schema: Schema = None, lock_timeout: LockTimeout = 10.0) -> None:
    """Say what a store holds."""
    with _opened(conninfo, name, schema, lock_timeout) as store:
        stats, meta = store.stats(), store.meta
    told = {"name": name, "items": stats.n_items, "codes": stats.n_codes, "bits": store.n_bits}
    told |= {"largest_bucket": stats.largest_bucket, "bytes": stats.bytes, "model": store.model}
    shown.answer(told | {"column": meta.column, "version": meta.version, "created": meta.created.isoformat()})


@app.command("gphash store verify --name digits", within=group)
def verify(name: Name, conninfo: Database = "", schema: Schema = None, lock_timeout: LockTimeout = 10.0) -> None:
    """Count all items again, and compare with the store's own counts."""
    with _opened(conninfo, name, schema, lock_timeout) as store:
        store.verify()
        n_items = len(store)
    shown.answer({"name": name, "items": n_items, "whole": True}, "the store {name!r} is whole: {items:,} items")


@app.command(
    "gphash store drop --name digits",
    interrupted=lambda given: "interrupted; the store is there with all its items, or gone.",
    within=group,
)
def drop(
    name: Name, yes: Yes = False, conninfo: Database = "", schema: Schema = None, lock_timeout: LockTimeout = 10.0
) -> None:
    """Remove a store and all its items from the database, once you have said yes."""
    with _opened(conninfo, name, schema, lock_timeout) as store:
        n_items = len(store)
        if not yes:
            shown.note(f"drop the store {name!r} and its {n_items:,} items? [y/N]")
            if not (said := sys.stdin.readline()):
                raise BadParameter("nobody is there to be asked; give --yes.")
            if said.strip().lower() not in ("y", "yes"):
                raise ValueError("nothing was dropped.")
        store.drop()
    told = {"name": name, "items": n_items, "dropped": True}
    shown.answer(told, "dropped the store {name!r} and its {items:,} items")


def _opened(
    conninfo: str, name: str, schema: str | None, lock_timeout: float, *source: Any, **more: Any
) -> "PostgresIndex":
    """A store, made of a source if there is one; errors come with advice for a command line."""
    from gphash.index.postgres.database import ConninfoError, NoServerError
    from gphash.index.postgres.postgres_index import PostgresIndex

    make: Any = PostgresIndex.from_index if source else PostgresIndex.open
    try:
        return make(conninfo, name, *source, schema=schema, lock_timeout=lock_timeout, **more)  # type: ignore[no-any-return]
    except ConninfoError as error:
        raise ValueError(
            f"the connection string of the database cannot be read; give --database, or {VARIABLE}, such as "
            "'host=localhost dbname=shop user=me', or a URL postgresql://…"
        ) from error
    except NoServerError as error:
        if conninfo:
            raise
        raise ConnectionError(f"{error} Say where it is by --database, or by {VARIABLE}.") from error
