"""The command that finds duplicates: dedupe."""

import contextlib
import csv
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import DataDir, EncoderPath, Threads
from gphash.data.headers import UNSAID, Roles

if TYPE_CHECKING:
    from gphash.collection.collection import Collection

ENDINGS = (".jsonl", ".csv")
PLACE = "A collection, a folder or postgresql://USER@HOST/DATABASE?collection=NAME; or, with --model, rows to read."
RADIUS = "Items whose codes differ in at most so many bits; 0 for equal codes."
PROBABILITY = "Items that are similar with at least this probability, by what their codes say of classes or tags."
COSINE = "Of these, only items whose vectors have at least this cosine; for a collection made with --vectors."
PAIRS = "Pairs of items rather than clusters of them."
OUTPUT = "Write all of them to this file: .jsonl, a line of JSON each, or .csv. If not given, the first are printed."


@app.command(
    "gphash dedupe photos.gphash --radius 2 -o clusters.jsonl",
    "gphash dedupe texts.gphash --radius 4 --min-cosine .98 --pairs -o pairs.csv",
    "gphash dedupe embeddings.npy --model texts.gph --radius 4 --min-cosine .98",
)
@options.with_columns
def dedupe(
    place: Annotated[str, Argument(metavar="COLLECTION", help=PLACE)],
    model: Annotated[Path | None, Option(help="The model that encodes rows, if they are no collection.")] = None,
    radius: Annotated[int | None, options.whole("--radius", least=0, help=RADIUS)] = None,
    min_probability: Annotated[float | None, Option(help=PROBABILITY)] = None,
    min_cosine: Annotated[float | None, Option(help=COSINE)] = None,
    pairs: Annotated[bool, Option("--pairs", help=PAIRS)] = False,
    path: Annotated[Path | None, options.output(OUTPUT)] = None,
    encoder: EncoderPath = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Find items that are near each other: clusters of them, or pairs.

    All pairs within the radius are found, also when there are millions of items. Codes that were learned from classes
    are equal for many items of a class; --min-cosine tells duplicates from these. A cluster has all items that pairs
    connect, directly or by way of others. Clusters come with the largest first, pairs in the order of their items.
    """
    if radius is None and min_probability is None:
        raise BadParameter("give --radius, or --min-probability, or both.")
    if encoder is not None and model is None:
        raise BadParameter("--descriptor is about rows to read; give --model, too.")
    if path is not None:
        if path.suffix not in ENDINGS:
            raise BadParameter(f"--output {str(path)!r}; give a name that ends in {' or '.join(ENDINGS)}.")
        outputs.file(path, "duplicates", place, model)
    began = time.perf_counter()
    with _opened(place, model, encoder, min_cosine is not None, data_dir, n_jobs, roles) as collection:
        found = collection.duplicates(radius, min_probability=min_probability, min_cosine=min_cosine)
        records = [one._asdict() for one in found.pairs()] if pairs else _clusters(found.clusters())
        told: dict[str, Any] = {"collection": options.hidden(place), "items": len(collection)}
    told |= {"pairs" if pairs else "clusters": len(records)}
    if not pairs:
        told["duplicates"] = sum(one["size"] - 1 for one in records)
    told |= {"seconds": time.perf_counter() - began, "output": path}
    if path is not None:
        _write(path, records)
    if not shown.answer(told | ({} if path is not None else {"found": records}), ""):
        return
    _print(told, records[: shown.MOST], pairs)
    if path is not None:
        shown.say(f"wrote {path}")


@contextlib.contextmanager
def _opened(
    place: str,
    model: Path | None,
    encoder: str | None,
    keep: bool,
    data_dir: Path | None,
    n_jobs: int,
    roles: Roles,
) -> "Iterator[Collection]":
    """A collection, or rows as one that is gone afterwards."""
    from gphash.collection.collection import Collection
    from gphash.functions import model as models

    if model is None:
        with Collection.open(place) as collection:
            yield collection
        return
    loaded, items = models.load(model), None
    options.place_encoder(encoder, loaded.descriptor, model)
    rows: Any
    if options.has_blocks(place):
        rows = options.open_blocks(place, roles)
    else:
        source = options.read(place, data_dir, n_jobs, loaded.descriptor, roles)
        options.check_rows(loaded.n_features, loaded.descriptor, model, source)
        rows, items = source.X, _keys(source)
    with tempfile.TemporaryDirectory(prefix="gphash-") as folder, shown.Meter("encoding") as progress:
        how: dict[str, Any] = {"vectors": "float16" if keep else None, "progress": progress, "n_jobs": n_jobs}
        with Collection.create(Path(folder, "rows.gphash"), model, rows, items, **how) as collection:
            yield collection


def _keys(source: Any) -> dict[str, Any]:
    """Keys of rows: those of a table, the paths of pictures, or none."""
    if source.ids is not None:
        return {"key": source.ids}
    if "key" in source.columns:
        return {"key": source.columns["key"]}
    if isinstance(source.images, list | tuple):
        from gphash import files

        return {"key": [files.readable(str(path)) for path in source.images]}
    return {}


def _clusters(found: list[list[Any]]) -> list[dict[str, Any]]:
    return [{"cluster": number, "size": len(keys), "keys": keys} for number, keys in enumerate(found)]


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records, whole or not at all; in a table, a cluster has a row for every key."""
    from gphash import files

    with files.replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        if path.suffix == ".jsonl":
            text.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
        else:
            rows = csv.writer(text, lineterminator="\n")
            pairs = bool(records) and "first" in records[0]
            rows.writerow(list(records[0]) if pairs else ["cluster", "key"])
            for one in records:
                rows.writerows([one.values()] if pairs else [[one["cluster"], key] for key in one["keys"]])
        text.detach()  # which writes what is left, and leaves the file open


def _print(told: dict[str, Any], records: list[dict[str, Any]], pairs: bool) -> None:
    """The first of what was found, and how much there is."""
    if pairs:
        forms = {"distance": "{}", "probability": "{:.1%}", "cosine": "{:.4f}"}
        rows = [
            [*(str(one[name]) for name in ("first", "second"))]
            + ["–" if one[name] is None else form.format(one[name]) for name, form in forms.items()]
            for one in records
        ]
        if rows:
            shown.table(("first", "second", *forms), rows, (0, 1))
        shown.say("{pairs:,} pairs among {items:,} items".format_map(told))
        return
    if records:
        some = [(f"{one['size']:,}", shown.some(one["keys"], shown.MOST, " … and {} more")) for one in records]
        shown.table(("size", "keys"), some, (1,))
    shown.say("{clusters:,} clusters among {items:,} items; {duplicates:,} items could go".format_map(told))
