"""Commands that make and change collections: index, add, remove, compact; in PostgreSQL: store, fetch, drop."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import Cluster, Data, DataDir, Model, Place, Threads
from gphash.data.headers import UNSAID, Roles

NEW = "The collection, a folder; DATA.gphash if not given."
REPLACE = "Replace a collection that is there. It stays until the new one is whole."
ADDRESS = "A collection in PostgreSQL: postgresql://USER@HOST/DATABASE?collection=NAME. Keep passwords in ~/.pgpass."
Address = Annotated[str, Argument(metavar="ADDRESS", help=ADDRESS)]
Output = Annotated[Path | None, options.output(NEW)]
Replace = Annotated[bool, Option("--replace", help=REPLACE)]


@app.command(
    "gphash index digits-16.gph digits -o digits.gphash",
    "gphash index photos.gph /shared/blocks -o /shared/photos.gphash --cluster tcp://10.0.0.1:8786",
    interrupted=options.goes_on,
)
@options.with_columns
def index(
    model: Model,
    data: Data,
    path: Output = None,
    replace: Replace = False,
    executor: Cluster = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Encode rows into a collection to search in.

    A collection is a folder that you can copy: the model, the codes, and what is known of the items. Small pictures are
    kept in it; large pictures stay in their folder. If DATA is a folder of blocks and you stop it, the same command
    goes on.
    """
    target = outputs.folder(path or Path(f"{outputs.stem(data)}.gphash"))
    from gphash.collection.collection import Collection
    from gphash.functions import model as models

    source: Any
    if blocks := options.has_blocks(data, executor):
        source = options.open_blocks(data, roles)
    else:
        source = options.read(data, data_dir, n_jobs, models.load(model).descriptor, roles)
    began = time.perf_counter()
    with shown.Meter("encoding") as progress:
        how: dict[str, Any] = {"replace": replace, "executor": executor, "progress": progress, "n_jobs": n_jobs}
        with app.usage(), Collection.create(target, model, source, **how) as made:
            stats = made.index.stats()
            told = {"collection": target, "items": len(made), "bits": made.n_bits, "codes": stats.n_codes}
            told |= {"largest_bucket": stats.largest_bucket, "classes": len(made.classes), "model": model}
    told["seconds"] = time.perf_counter() - began
    sentence = "wrote {collection}: {items:,} items, {codes:,} distinct codes of {bits} bits, "
    for_people = shown.answer(told, sentence + "{largest_bucket:,} items in the largest bucket")
    home = None if blocks else source.folder
    if for_people and home is not None and not home.resolve().is_relative_to(target.absolute().parent.resolve()):
        place = shlex.quote(str(home))
        shown.say(f"its pictures stay where they are: gphash serve {target} --pictures {place} shows them")


@app.command("gphash add photos.gphash new-photos/", "gphash add shop.gphash products.csv")
@options.with_columns
def add(path: Place, data: Data, n_jobs: Threads = -1, data_dir: DataDir = None, roles: Roles = UNSAID) -> None:
    """Add rows to a collection, all of them or none.

    When the command ends, they are on disk. Pictures are kept in the collection.
    """
    from gphash.collection.collection import Collection

    if options.has_blocks(data):
        raise BadParameter(f"{data!r} is a folder of blocks; gphash index makes a collection of one.")
    with Collection.open(path, writable=True) as collection:
        source = options.read(data, data_dir, n_jobs, collection.descriptor or collection.model.descriptor, roles)
        options.check_rows(collection.model.n_features, collection.descriptor, Path(path), source)
        if collection.layout.keys == "text" and source.ids is not None:  # a file of texts that all look like numbers
            keys = list(map(str, source.ids.tolist()))
            source = source._replace(ids=None, columns={"key": keys, **source.columns})
        keys = collection.add(source)
        told = {"collection": path, "added": len(keys), "items": len(collection), "keys": keys}
    shown.answer(told, "added {added:,} items to {collection}, which has {items:,} now")


@app.command("gphash remove photos.gphash 7 12", "gphash remove shop.gphash sku-17")
def remove(path: Place, keys: Annotated[list[str], Argument(metavar="KEY …", help="Keys of the items.")]) -> None:
    """Remove items from a collection, all of them or none."""
    from gphash.collection.collection import Collection

    with Collection.open(path, writable=True) as collection:
        asked = list(dict.fromkeys(options.key(key, collection) for key in keys))
        collection.remove(asked)
        told = {"collection": path, "removed": len(asked), "items": len(collection)}
    shown.answer(told, "removed {removed:,} items from {collection}, which has {items:,} now")


@app.command("gphash compact photos.gphash")
def compact(path: Place) -> None:
    """Fold what was added and removed into the parts of a collection.

    This happens by itself when there are many changes. Opening a collection is fastest without any.
    """
    from gphash.collection.collection import Collection

    with Collection.open(path, writable=True) as collection:
        collection.compact()
        told = {"collection": path, "items": len(collection)}
    shown.answer(told, "{collection} has no changes left to fold in: {items:,} items")


@app.command(
    "gphash store photos.gphash 'postgresql://me@localhost/shop?collection=photos'",
    interrupted=lambda given: "interrupted; the collection is in the database as a whole, or not at all.",
)
def store(path: Annotated[Path, Argument(metavar="COLLECTION", help="A folder.")], address: Address) -> None:
    """Copy a collection into PostgreSQL, as a whole or not at all."""
    from gphash.collection import copying

    began = time.perf_counter()
    with shown.Meter("copying") as progress:
        n_items = copying.to_database(path, address, progress)
    told = {"collection": options.hidden(address), "items": n_items, "seconds": time.perf_counter() - began}
    shown.answer(told, "copied {items:,} items into {collection}")


@app.command("gphash fetch 'postgresql://me@localhost/shop?collection=photos' photos.gphash")
def fetch(
    address: Address,
    path: Annotated[Path, Argument(metavar="COLLECTION", help="The folder to write.")],
    replace: Replace = False,
) -> None:
    """Copy a collection from PostgreSQL into a folder."""
    from gphash.collection import copying

    with app.usage():
        n_items = copying.to_folder(address, outputs.folder(path), replace)
    shown.answer({"collection": path, "items": n_items}, "wrote {collection}: {items:,} items")


@app.command("gphash drop 'postgresql://me@localhost/shop?collection=photos'")
def drop(address: Address, yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Remove a collection and all its items from PostgreSQL, once you have said yes."""
    from gphash.collection import database

    opened = database.Database.open(address, writable=True)
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
