"""Commands that make and change collections: index, add, remove, compact."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import Cluster, Data, DataDir, EncoderPath, Model, Place, Replace, Threads
from gphash.data.headers import UNSAID, Roles

VECTORS = "Keep the rows, too: float16 (2 bytes a number) or int8 (1 byte); if not given, codes only."
NEW = "The collection, a folder; DATA.gphash if not given."
Output = Annotated[Path | None, options.output(NEW)]


@app.command(
    "gphash index digits-16.gph digits -o digits.gphash",
    "gphash index texts.gph embeddings.npy --vectors float16",
    "gphash index photos.gph /shared/blocks -o /shared/photos.gphash --cluster tcp://10.0.0.1:8786",
    interrupted=options.goes_on,
)
@options.with_columns
def index(
    model: Model,
    data: Data,
    path: Output = None,
    replace: Replace = False,
    encoder: EncoderPath = None,
    vectors: Annotated[str | None, Option(metavar="FORM", help=VECTORS)] = None,
    metric: Annotated[str, Option(help="What --rerank orders by: cosine, or dot for the dot product.")] = "cosine",
    executor: Cluster = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Encode rows into a collection to search in.

    A collection is a folder that you can copy: the model, the codes, and what is known of the items. Small pictures are
    kept in it; large pictures stay in their folder. With --vectors the rows are kept, too, so that gphash search
    --rerank can order what codes have found. If DATA is a folder of blocks and you stop it, the same command goes on.
    """
    target = outputs.collection(path or Path(f"{outputs.stem(data)}.gphash"), replace)
    from gphash.collection.collection import Collection
    from gphash.collection.vectors import VectorKind
    from gphash.functions import model as models

    source: Any
    with app.usage():
        kind = VectorKind.of(vectors, metric)
    loaded = models.load(model)
    options.place_encoder(encoder, loaded.descriptor, model)
    if blocks := options.has_blocks(data, executor):
        source = options.open_blocks(data, roles)
    else:
        source = options.read(data, data_dir, n_jobs, loaded.descriptor, roles)
        options.check_rows(loaded.n_features, loaded.descriptor, model, source)
    began = time.perf_counter()
    with shown.Meter("encoding") as progress:
        how: dict[str, Any] = {"replace": replace, "executor": executor, "progress": progress, "n_jobs": n_jobs}
        how |= {"vectors": vectors, "metric": metric}
        with Collection.create(target, model, source, **how) as made:
            stats = made.index.stats()
            told: dict[str, Any] = {"collection": target, "items": stats.n_items, "bits": made.n_bits}
            told |= {"codes": stats.n_codes, "largest_bucket": stats.largest_bucket, "classes": len(made.classes)}
            told["vectors"] = None if kind is None else kind._asdict()
            unlabelled = not made.classes and loaded.class_names is not None
    told |= {"seconds": time.perf_counter() - began, "model": loaded.fingerprint}
    sentence = "wrote {collection}: {items:,} items, {codes:,} distinct codes of {bits} bits, "
    for_people = shown.answer(told, sentence + "{largest_bucket:,} items in the largest bucket")
    if unlabelled:
        shown.remark(
            "the model knows labels, and these items have none; if a column has them, --label-column names it."
        )
    home = None if blocks else source.folder
    if for_people and home is not None and home.resolve().parent != target.absolute().parent.resolve():
        place = shlex.quote(str(home))
        shown.say(f"its pictures stay where they are: gphash serve {target} --pictures {place} shows them")


@app.command(
    "gphash add photos.gphash new-photos/",
    "gphash add shop.gphash products.csv",
    "gphash add 'postgresql://me@localhost/shop?collection=photos' cat.jpg",
)
@options.with_columns
def add(
    path: Place,
    data: Data,
    encoder: EncoderPath = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Add rows to a collection, all of them or none.

    The collection's own model encodes them. When the command ends, they are on disk, and whoever searches finds them.
    Pictures are kept in the collection. Keys that are numbers go on where they ended; --json lists them.
    """
    from gphash.collection.collection import Collection

    if options.has_blocks(data):
        raise BadParameter(f"DATA {data!r} is a folder of blocks; gphash index makes a collection of one.")
    with Collection.open(path, writable=True) as collection:
        descriptor = collection.descriptor or collection.model.descriptor
        options.place_encoder(encoder, descriptor, options.hidden(path))
        source = options.read(data, data_dir, n_jobs, descriptor, roles)
        options.check_rows(collection.model.n_features, descriptor, options.hidden(path), source)
        if collection.layout.keys == "text" and source.ids is not None:  # a file of texts that all look like numbers
            source = source._replace(ids=None, columns={"key": list(map(str, source.ids.tolist())), **source.columns})
        keys = collection.add(source)
        told = {"collection": options.hidden(path), "added": len(keys), "items": len(collection), "keys": keys}
    shown.answer(told, "added {added:,} items to {collection}, which has {items:,} now")


@app.command("gphash remove photos.gphash 7 12", "gphash remove shop.gphash sku-17")
def remove(path: Place, keys: Annotated[list[str], Argument(metavar="KEY", help="Keys of the items.")]) -> None:
    """Remove items from a collection, all of them or none.

    gphash search shows the keys of items. When the command ends, nobody finds these any more.
    """
    from gphash.collection.collection import Collection

    with Collection.open(path, writable=True) as collection:
        asked = list(dict.fromkeys(options.key(key, collection) for key in keys))
        collection.remove(asked)
        told = {"collection": options.hidden(path), "removed": len(asked), "items": len(collection)}
    shown.answer(told, "removed {removed:,} items from {collection}, which has {items:,} now")


@app.command("gphash compact photos.gphash")
def compact(path: Place) -> None:
    """Fold what was added and removed into the parts of a collection.

    This happens by itself when there are many changes. Opening a collection is fastest without any. Of a collection in
    PostgreSQL, the server tidies up the tables.
    """
    from gphash.collection.collection import Collection

    with Collection.open(path, writable=True) as collection:
        collection.compact()
        told = {"collection": options.hidden(path), "items": len(collection)}
    shown.answer(told, "{collection} is compact: {items:,} items")
