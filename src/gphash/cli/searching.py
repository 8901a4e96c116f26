"""Commands that encode and search, and how neighbours are shown: encode, index, search."""

import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import Cluster, Data, DataDir, Index, K, Model, ModelPath, Pictures, Radius, Ranking, Threads

if TYPE_CHECKING:
    from gphash.collection.collection import Collection
    from gphash.collection.records import Query
    from gphash.functions import model as models

DRAWINGS = (".png", ".svg", ".pdf")
DRAWN = 512  # pixels of the longer side that a drawn picture keeps at least

QUERY = "A picture, a file .npy of one or more rows, id:7, or random."
Show = Annotated[Path | None, Option(help="Draw the neighbours in this file: .png, .svg or .pdf; needs matplotlib.")]
SEED = "Seed of the random item, to get the same again."
ROWS = 8192  # encoded between two signs of progress

CODES = "A file .npy, or .npz with probabilities; DATA-codes.npy if not given. For blocks a folder, DATA-codes."
INDEX = "The index; DATA.index if not given. For blocks a folder, DATA-index."
DiscardAdded = Annotated[bool, Option("--discard-added", help="Replace an index even if added items get lost.")]


@app.command(
    "gphash encode digits-16.gph digits:test -o codes.npy",
    "gphash encode photos.gph /shared/blocks -o /shared/codes --cluster tcp://10.0.0.1:8786",
    interrupted=options.goes_on,
)
def encode(
    model: Model,
    data: Data,
    path: Annotated[Path | None, options.output(CODES)] = None,
    probabilities: Annotated[bool, Option("--probabilities", "-p", help="P(bit = 1) as well, in a file .npz.")] = False,
    executor: Cluster = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
) -> None:
    """Write the codes of rows.

    They are an array, uint8 [rows, bits / 8], packed in the order of numpy.packbits. If DATA is a folder of blocks, the
    result is a folder with a file NAME.codes.npy for every block NAME. If you stop it, the same command goes on.
    """
    if options.has_blocks(data, executor):
        if probabilities:
            raise BadParameter("--probabilities is for rows in one file; leave it out for a folder of blocks.")
        _in_bulk("codes", model, data, path, executor, n_jobs)
        return
    import numpy as np

    from gphash import files
    from gphash.functions import model as models

    ending = ".npz" if probabilities else ".npy"
    target = path or Path(f"{outputs.stem(data)}-codes{ending}")
    if target.suffix != ending:
        what = "codes with probabilities are" if probabilities else "codes alone are"
        raise BadParameter(f"--output {str(target)!r}; {what} a file {ending}.")
    outputs.file(target, "codes", model, data)
    loaded = models.load(model, n_jobs)
    if probabilities and not loaded.has_probabilities:
        raise ValueError(f"{str(model)!r} is a model of {loaded.method}, which gives no probabilities; leave -p out.")
    X = (source := options.read(data, data_dir, n_jobs, loaded.descriptor)).X
    options.check_rows(loaded.n_features, loaded.descriptor, model, source)
    pieces = [X[start : start + ROWS] for start in range(0, len(X), ROWS)]
    began = time.perf_counter()
    with shown.Meter("encoding") as progress:
        codes = loaded.encode_pieces(pieces, len(X), lambda done: progress(done, len(X)))
        chances = [loaded.bit_probabilities(piece).astype(np.float32) for piece in pieces if probabilities]
    told: dict[str, Any] = {"codes": target, "rows": len(codes), "bits": loaded.n_bits, "bytes_per_row": codes.shape[1]}
    told |= {"probabilities": probabilities, "seconds": time.perf_counter() - began, "model": loaded.fingerprint}
    with files.replacing(target) as file:
        if probabilities:
            np.savez(file, codes=codes, probabilities=np.concatenate(chances))
        else:
            np.save(file, codes, allow_pickle=False)
    more = " and their probabilities" if probabilities else ""
    shown.answer(told, f"wrote {{codes}}: {{rows:,}} rows of {{bits}} bits, {{bytes_per_row}} bytes each{more}")


@app.command(
    "gphash index digits-16.gph digits -o digits.index",
    "gphash index photos.gph /shared/blocks -o /shared/index --cluster tcp://10.0.0.1:8786",
    interrupted=options.goes_on,
)
def index(
    model: Model,
    data: Data,
    path: Annotated[Path | None, options.output(INDEX)] = None,
    discard_added: DiscardAdded = False,
    executor: Cluster = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
) -> None:
    """Encode rows into an index to search in.

    Labels and small pictures are kept beside it; large pictures stay in their folder. If DATA is a folder of blocks,
    the result is a folder with a file NAME.index for every block NAME, searched as one. If you stop it, the same
    command goes on.
    """
    if options.has_blocks(data, executor):
        _in_bulk("index", model, data, path, executor, n_jobs)
        return
    target = outputs.file(path or Path(f"{outputs.stem(data)}.index"), "index", model, data)
    from gphash.collection.collection import Collection
    from gphash.functions import model as models

    source = options.read(data, data_dir, n_jobs, models.load(model).descriptor)
    with shown.Meter("encoding") as progress:
        how: dict[str, Any] = {"progress": progress, "discard_added": discard_added, "n_jobs": n_jobs}
        with Collection.build(target, model, source, **how) as made:
            stats = made.index.stats()
            told = {"index": target, "items": len(made), "bits": made.n_bits, "codes": stats.n_codes, "model": model}
            told |= {"largest_bucket": stats.largest_bucket, "classes": len(made.classes)}
    sentence = "wrote {index}: {items:,} items, {codes:,} distinct codes of {bits} bits, "
    for_people = shown.answer(told, sentence + "{largest_bucket:,} items in the largest bucket")
    home = target.absolute().parent.resolve()
    if for_people and source.folder is not None and not source.folder.resolve().is_relative_to(home):
        place = shlex.quote(str(source.folder))
        shown.say(f"its pictures stay where they are: gphash serve {target} --pictures {place} shows them")


def _in_bulk(kind: str, model: Path, data: str, output: Path | None, cluster: str | None, n_jobs: int) -> None:
    """Make codes or an index of a folder of blocks, a file for every block."""
    target = outputs.folder(output or Path(f"{outputs.stem(data)}-{kind}"))
    from gphash.collection import bulk

    began = time.perf_counter()
    with shown.Meter("encoding") as progress:
        made = bulk.make(kind, model, Path(data).expanduser(), target, cluster, progress, n_jobs)
    manifest, n_files = made.manifest, len(made.manifest.blocks)
    told = {kind: target, "rows": manifest.n_rows, "blocks": n_files, "blocks_made_now": n_files - made.before}
    told |= {"bits": manifest.n_bits, "seconds": time.perf_counter() - began, "model": manifest.model}
    told["workers"] = {worker: share._asdict() for worker, share in made.workers.items()}
    if cluster is not None and not shown.manner.as_json:
        shown.workers(made.workers)
    there = f", {made.before:,} of them there before" if made.before else ""
    shown.answer(told, f"wrote {{{kind}}}: {kind} of {{rows:,}} rows, {{bits}} bits, in {{blocks:,}} files{there}")


@app.command(
    "gphash search digits.index id:7",
    "gphash search photos.index cat.jpg -k 20 --show found.png",
    "gphash search /shared/index rows.npy",
)
def search(
    path: Index,
    query: Annotated[str, Argument(metavar="QUERY", help=QUERY)],
    k: K = 10,
    ranking: Ranking = "hamming",
    radius: Radius = None,
    allowed: Annotated[str | None, Option("--label", help="Only items of this class.")] = None,
    show: Show = None,
    model: ModelPath = None,
    pictures: Pictures = None,
    seed: Annotated[int | None, options.whole("--seed", least=0, help=SEED)] = None,
) -> None:
    """Find the nearest items of a picture, a row or an item.

    Bits are shown as they differ from the query's: a dot is a bit that agrees. In an index of a folder of blocks, ids
    are numbers of rows, and QUERY is a file .npy or id:7.
    """
    from gphash.index import parts

    if parts.is_folder_of_parts(path):
        if allowed is not None or show is not None:
            raise BadParameter("--label and --show: an index of a folder of blocks knows neither labels nor pictures.")
        _search_parts(path, query, k, ranking, radius, model)
        return
    if show is not None:
        _check_sheet(show, query)
        outputs.file(show, "drawing", path, query, model, option="--show")
    from gphash.collection.collection import Collection

    results = []
    with Collection.open(path, model=model, pictures=pictures) as collection:
        for name, one in _queries(collection, query, seed, shown.manner.as_json or ranking == "expected"):
            is_item = one.id is not None
            found = collection.search(one, k, ranking=ranking, radius=radius, allowed=allowed, others=is_item)
            results.append(record(name, one, [item._asdict() for item in found], collection.n_bits))
        if show is not None:
            _draw(collection, results[0], query, show)
    if tell(results, ranking) and show is not None:
        shown.say(f"wrote {show}")


def _queries(collection: "Collection", text: str, seed: int | None, certainty: bool) -> "Iterator[tuple[str, Query]]":
    """Queries by their names, with the probabilities of their bits if `certainty`."""
    from gphash.data import tables

    if text == "random":
        text = f"id:{collection.random_id(seed)}"
    if text.startswith("id:"):
        yield text, collection.query(id=_id(text), certainty=certainty)
    elif not Path(text).is_file():
        raise ValueError(f"QUERY {text!r} is not a file; give a picture, a file .npy, id:NUMBER, or random.")
    elif Path(text).suffix == ".npy":
        for name, row in _named(text, tables.read_npy(Path(text)).X):
            yield name, collection.query(features=row, certainty=certainty)
    else:
        yield text, collection.query(picture=Path(text), certainty=certainty)


def _id(text: str) -> int:
    try:
        return options.number(text.removeprefix("id:"), -(2**63))
    except BadParameter as error:
        raise BadParameter(f"QUERY {text!r}; give id: and a whole number, such as id:7.") from error


def _named(name: str, rows: Any) -> Iterable[tuple[str, Any]]:
    """Rows that are queries, by what they are called."""
    return ((name if len(rows) == 1 else f"{name}, row {place}", row) for place, row in enumerate(rows))


def _search_parts(folder: Path, text: str, k: int, ranking: str, radius: int | None, model: Path | None) -> None:
    """Search in an index of many files."""
    from gphash.collection.records import Query, bits_of
    from gphash.data import tables
    from gphash.functions import model as models
    from gphash.index import parts

    index = parts.PartedIndex.open(folder)
    loaded = models.load(model or folder / parts.MODEL)
    if loaded.fingerprint != index.model:
        raise ValueError(f"--model {str(model)!r} is not the model of {str(folder)!r}; leave it out, or give that one.")
    if text.startswith("id:"):
        if ranking == "expected":
            raise ValueError(f"QUERY {text!r} has a code, and no probabilities; give --ranking hamming.")
        if not 0 <= (number := _id(text)) < len(index):
            raise ValueError(f"QUERY {text!r}: there is no such item; ids go from 0 to {len(index) - 1}.")
        queries = [(text, Query(index.codes_of([number])[0], None, id=number))]
    elif Path(text).suffix != ".npy" or not Path(text).is_file():
        raise ValueError(f"QUERY {text!r}; in an index of a folder of blocks, give a file .npy of rows, or id:NUMBER.")
    else:
        queries = queries_of(loaded, tables.read_npy(Path(text)).X, text, ranking)
    results = nearest(index, queries, k, ranking, radius)
    for found in results:
        codes = index.codes_of([one["id"] for one in found["neighbours"]])
        for one, bits in zip(found["neighbours"], bits_of(codes, index.n_bits), strict=True):
            one["bits"] = bits
    tell(results, ranking)


def queries_of(loaded: "models.Model", rows: Any, name: str, ranking: str) -> "list[tuple[str, Query]]":
    """Rows as queries of an index that knows codes only."""
    from gphash.collection.records import Query
    from gphash.index.rankings import RANKINGS

    uncertain = RANKINGS.find(ranking, "ranking").needs == "probabilities"
    if uncertain and not loaded.has_probabilities:
        raise ValueError(f"ranking={ranking!r}: {loaded.method} gives no probabilities; give --ranking hamming.")
    chances = loaded.bit_probabilities(rows) if uncertain else [None] * len(rows)
    pairs = list(zip(loaded.encode(rows), chances, strict=True))
    return [(label, Query(*pair)) for label, pair in _named(name, pairs)]


def nearest(
    index: Any, queries: "list[tuple[str, Query]]", k: int, ranking: str, radius: int | None, **narrowed: Any
) -> list[dict[str, Any]]:
    """Records of neighbours in an index or a store that knows codes only; `narrowed` is what a store takes beside."""
    from gphash.collection import nearest as searching

    results = []
    with shown.Meter("searching") as progress:
        for label, query in queries:
            # An item that is the query itself is left out.
            more = k + (query.id is not None)
            ids, distances = searching.nearest(index, query, more, ranking, radius, **narrowed)
            pairs = zip(ids.tolist(), distances.tolist(), strict=True)
            found = [{"id": id, "distance": distance} for id, distance in pairs if id != query.id][:k]
            results.append(record(label, query, found, index.n_bits))
            progress(len(results), len(queries))
    return results


def record(name: str, query: "Query", neighbours: list[dict[str, Any]], n_bits: int) -> dict[str, Any]:
    """What was found for a query, nearest first; precision is over those where it is known whether they are right."""
    from gphash.collection.records import bits_of

    (bits,) = bits_of(query.code[None], n_bits)
    asked: dict[str, Any] = {"name": name, "id": query.id, "labels": query.labels, "bits": bits}
    judged = [one["relevant"] for one in neighbours if one.get("relevant") is not None]
    precision = sum(judged) / len(judged) if judged else None
    asked["probabilities"] = query.probabilities
    return {"query": asked, "neighbours": neighbours, "judged": len(judged), "precision": precision}


def tell(results: list[dict[str, Any]], ranking: str) -> bool:
    """Print neighbours, as tables or as JSON; tells whether people read them."""
    if not shown.answer({"ranking": ranking, "results": results}, ""):
        return False
    for found in results:
        query, neighbours, judged = found["query"], found["neighbours"], found["judged"]
        rows: list[tuple[Any, ...]] = [
            ("", shown.strong(query["name"]), ", ".join(query["labels"]), "", query["bits"], "")
        ]
        for rank, one in enumerate(neighbours, 1):
            labels = ", ".join(one.get("labels", ())) + (" ✗" if one.get("relevant") is False else "")
            distance = f"{one['distance']:.{0 if ranking == 'hamming' else 2}f}"
            bits = shown.against(one["bits"], query["bits"]) if "bits" in one else ""
            rows.append((str(rank), str(one["id"]), labels, distance, bits, one.get("name") or ""))
        columns = zip(("rank", "id", "label", "distance", "bits", "picture"), *rows, strict=True)
        filled = [column for column in columns if column[0] in ("rank", "id") or any(column[1:])]
        left = [place for place, column in enumerate(filled) if column[0] not in ("rank", "distance")]
        titles, *texts = zip(*filled, strict=True)
        shown.table(titles, texts, left)
        if judged:
            rest = f"; {len(neighbours) - judged} without a label" if len(neighbours) > judged else ""
            right = round(found["precision"] * judged)
            shown.say(f"precision {found['precision']:.2f}: {right} of {judged}{rest}")
        elif not neighbours:
            shown.say("nothing was found; give a larger --radius, or a weaker condition.")
        shown.say("")
    return True


def _check_sheet(show: Path, query: str) -> None:
    from gphash.evaluation import canvas

    if show.suffix not in DRAWINGS:
        raise BadParameter(f"--show {str(show)!r}; give a name that ends in {', '.join(DRAWINGS)}.")
    if query.endswith(".npy"):
        raise BadParameter("--show draws the query, and rows of features have no picture; give a picture or id:NUMBER.")
    canvas.matplotlib_()  # says how to get it


def _draw(collection: "Collection", found: dict[str, Any], text: str, path: Path) -> None:
    """A contact sheet of the one query that a sheet can have."""
    from gphash import files
    from gphash.data import pictures
    from gphash.evaluation import canvas, plots

    if not (neighbours := found["neighbours"]):
        raise ValueError("--show has nothing to draw: no item was found.")
    number = found["query"]["id"]
    shots = [Path(text) if number is None else collection.picture(number).content]
    shots += [collection.picture(one["id"]).content for one in neighbours]
    query, *images = (
        pictures.open_picture(shot, reduction=lambda height, width: max(height, width) // DRAWN) for shot in shots
    )
    distances = [int(one["distance"]) if one["distance"] % 1 == 0 else one["distance"] for one in neighbours]
    marks = [one["relevant"] is not False for one in neighbours]
    figure = plots.contact_sheet([query], [images], [marks], [distances])
    with files.replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=canvas.DOTS_PER_INCH)
