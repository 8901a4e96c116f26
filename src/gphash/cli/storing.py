"""Commands that copy collections into PostgreSQL and back: store, fetch, drop."""

import sys
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import Replace

ADDRESS = "A collection in PostgreSQL: postgresql://USER@HOST/DATABASE?collection=NAME. Keep passwords in ~/.pgpass."
Address = Annotated[str, Argument(metavar="ADDRESS", help=ADDRESS)]


@app.command(
    "gphash store photos.gphash 'postgresql://me@localhost/shop?collection=photos'",
    interrupted=lambda given: "interrupted; the collection is in the database as a whole, or not at all.",
)
def store(path: Annotated[Path, Argument(metavar="COLLECTION", help="A folder.")], address: Address) -> None:
    """Copy a collection into PostgreSQL, as a whole or not at all.

    All commands take the address in place of the folder: search, add, remove, serve, info. Pictures that lie in a
    folder of their own stay there; name it by --pictures to see them.
    """
    from gphash.collection import copying

    began = time.perf_counter()
    with shown.Meter("copying") as progress:
        n_items = copying.to_database(path, address, progress)
    told = {"collection": options.hidden(address), "items": n_items, "seconds": time.perf_counter() - began}
    shown.answer(told, "copied {items:,} items into {collection}")


@app.command(
    "gphash fetch 'postgresql://me@localhost/shop?collection=photos' photos.gphash",
    "gphash fetch 'postgresql://me@localhost/shop?collection=photos' photos.gphash --replace",
)
def fetch(
    address: Address,
    path: Annotated[Path, Argument(metavar="COLLECTION", help="The folder to write.")],
    replace: Replace = False,
) -> None:
    """Copy a collection from PostgreSQL into a folder, as a whole or not at all."""
    outputs.collection(path, replace, "COLLECTION")
    from gphash.collection import copying

    n_items = copying.to_folder(address, path, replace)
    shown.answer({"collection": path, "items": n_items}, "wrote {collection}: {items:,} items")


@app.command(
    "gphash drop 'postgresql://me@localhost/shop?collection=photos'",
    "gphash drop 'postgresql://me@localhost/shop?collection=photos' --yes",
)
def drop(address: Address, yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Remove a collection and all its items from PostgreSQL, once you have said yes.

    A collection in a folder is gone when you remove the folder.
    """
    from gphash.collection import postgres_store

    opened = postgres_store.PostgresStore.open(address, writable=True)
    try:
        n_items = len(opened.index)
        if not yes:
            shown.note(f"drop the collection {opened.index.name!r} and its {n_items:,} items? [y/N]")
            if not (said := sys.stdin.readline()):
                raise BadParameter("nobody is there to be asked; give --yes.")
            if said.strip().lower() not in ("y", "yes"):
                raise ValueError("nothing was dropped.")
        opened.drop()
    finally:
        opened.close()
    told = {"collection": options.hidden(address), "items": n_items, "dropped": True}
    shown.answer(told, "dropped {collection} and its {items:,} items")
