"""Commands that encode and search, and how neighbours are shown: encode, search."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import Cluster, Data, DataDir, EncoderPath, K, Model, Pictures, Place, Radius, Ranking, Threads
from gphash.data.headers import UNSAID, Roles

if TYPE_CHECKING:
    from gphash.collection.collection import Collection
    from gphash.collection.records import Hits, Query

DRAWINGS = (".png", ".svg", ".pdf")
DRAWN = 512  # pixels of the longer side that a drawn picture keeps at least

QUERY = "A picture, a file .npy of one or more rows, key:7 for an item, or random."
TEXT = "Search by this text, in a collection of texts."
WHERE = "Only items for which this holds: a condition on their columns, such as 'price < ?'. gphash info lists them."
PARAM = "The value of a ? in --where, taken for a number or a text as what it is compared with; repeatable."
ABOUT = 60  # letters of a title
Show = Annotated[Path | None, Option(help="Draw the neighbours in this file: .png, .svg or .pdf; needs matplotlib.")]
SEED = "Seed of the random item, to get the same again."
ROWS = 8192  # encoded between two signs of progress

MIN_PROBABILITY = "Of the -k items, only those that are similar with at least this probability."
RERANK = (
    "Take this many candidates by their codes, and order them by the cosine of their vectors; for a collection made "
    "with gphash index --vectors. gphash evaluate --recall says how many."
)
PRECISION = "Of the -k items, as many as keep at least this share of them similar, on average over queries."
RECALL = (
    "Of the -k items, as many as it takes to find at least this share of all similar ones, on average over queries; "
    "give a large -k."
)
CODES = "A file .npy, or .npz with probabilities; DATA-codes.npy if not given. For blocks a folder, DATA-codes."


@app.command(
    "gphash encode digits-16.gph digits:test -o codes.npy",
    "gphash encode photos.gph /shared/blocks -o /shared/codes --cluster tcp://10.0.0.1:8786",
    interrupted=options.goes_on,
)
@options.with_columns
def encode(
    model: Model,
    data: Data,
    path: Annotated[Path | None, options.output(CODES)] = None,
    probabilities: Annotated[bool, Option("--probabilities", "-p", help="P(bit = 1) as well, in a file .npz.")] = False,
    encoder: EncoderPath = None,
    executor: Cluster = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Write the codes of rows.

    They are an array, uint8 [rows, bits / 8], packed in the order of numpy.packbits. If DATA is a folder of blocks, the
    result is a folder with a file NAME.codes.npy for every block NAME. If you stop it, the same command goes on.
    """
    if options.has_blocks(data, executor):
        if probabilities:
            raise BadParameter("--probabilities is for rows in one file; leave it out for a folder of blocks.")
        _in_bulk(model, data, path, executor, n_jobs, roles)
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
    options.place_encoder(encoder, loaded.descriptor, model)
    X = (source := options.read(data, data_dir, n_jobs, loaded.descriptor, roles)).X
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


def _in_bulk(model: Path, data: str, output: Path | None, cluster: str | None, n_jobs: int, roles: Roles) -> None:
    """Write the codes of a folder of blocks, a file for every block."""
    target = outputs.folder(output or Path(f"{outputs.stem(data)}-codes"))
    from gphash.collection import bulk

    table = options.open_blocks(data, roles)
    began = time.perf_counter()
    with shown.Meter("encoding") as progress:
        made = bulk.encode(model, table, target, cluster, progress, n_jobs)
    plan, n_files = made.plan, len(made.plan.blocks)
    told = {"codes": target, "rows": plan.n_rows, "blocks": n_files, "blocks_made_now": n_files - made.before}
    told |= {"bits": plan.n_bits, "seconds": time.perf_counter() - began, "model": plan.model}
    told["workers"] = {worker: share._asdict() for worker, share in made.workers.items()}
    if cluster is not None and not shown.manner.as_json:
        shown.workers(made.workers)
    there = f", {made.before:,} of them there before" if made.before else ""
    shown.answer(told, f"wrote {{codes}}: codes of {{rows:,}} rows, {{bits}} bits, in {{blocks:,}} files{there}")


@app.command(
    "gphash search digits.gphash key:7",
    "gphash search photos.gphash cat.jpg -k 20 --show found.png",
    "gphash search reviews.gphash --text 'arrived broken'",
    "gphash search texts.gphash rows.npy --rerank 400",
    "gphash search shop.gphash rows.npy --where 'price < ? and label = ?' --param 10 --param shoe",
    "gphash search 'postgresql://me@localhost/shop?collection=photos' key:sku-17",
)
def search(
    path: Place,
    query: Annotated[str | None, Argument(metavar="QUERY", help=QUERY)] = None,
    text: Annotated[str | None, Option("--text", metavar="TEXT", help=TEXT)] = None,
    k: K = 10,
    ranking: Ranking = None,
    radius: Radius = None,
    min_probability: Annotated[float | None, Option(help=MIN_PROBABILITY)] = None,
    precision: Annotated[float | None, Option(help=PRECISION)] = None,
    recall: Annotated[float | None, Option(help=RECALL)] = None,
    rerank: Annotated[int | None, options.whole("--rerank", help=RERANK)] = None,
    label: Annotated[str | None, Option("--label", help="Only items with this label or tag.")] = None,
    where: Annotated[str | None, Option(metavar="CONDITION", help=WHERE)] = None,
    params: Annotated[list[str] | None, Option("--param", metavar="VALUE", help=PARAM)] = None,
    show: Show = None,
    pictures: Pictures = None,
    encoder: EncoderPath = None,
    seed: Annotated[int | None, options.whole("--seed", least=0, help=SEED)] = None,
) -> None:
    """Find the nearest items of a picture, a text, a row or an item.

    Bits are shown as they differ from the query's: a dot is a bit that agrees. A condition compares columns with
    values: =, <>, <, <=, >, >=, and, or, not, in, between, like, is null. It is the same for a folder and PostgreSQL.
    """
    if (query is None) == (text is None):
        raise BadParameter("give either QUERY or --text.")
    if show is not None:
        if query is None:
            raise BadParameter("--show draws pictures; leave it out with --text.")
        _check_sheet(show, query)
        outputs.file(show, "drawing", query, option="--show")
    from gphash.collection import arguments
    from gphash.collection.collection import Collection

    how: dict[str, Any] = {"where": where, "params": params or [], "label": label}
    how |= {"min_probability": min_probability, "precision": precision, "recall": recall, "rerank": rerank}
    with Collection.open(path, pictures=pictures) as collection:
        options.place_encoder(encoder, collection.descriptor, options.hidden(path))
        ranking = arguments.ranking_of(ranking, collection.model)
        asked = dict(_queries(collection, query, seed) if query is not None else [_by_text(collection, str(text))])
        found = collection.search([*asked.values()], k, ranking=ranking, radius=radius, **how)
        pairs = zip(asked.items(), found, strict=True)
        results = [_record(name, one, hits, collection.n_bits) for (name, one), hits in pairs]
        metric = None if rerank is None or collection.vectors is None else collection.vectors.metric
        if show is not None and query is not None:
            _draw(collection, results[0], query, show)
    less = ["a larger --radius"] if radius is not None else []
    less += ["a weaker condition"] if where or label else []
    less += ["less --precision"] if precision is not None else []
    less += ["less --min-probability"] if min_probability is not None else []
    if _tell(results, ranking, metric, " or ".join(less)) and show is not None:
        shown.say(f"wrote {show}")


def _queries(collection: "Collection", text: str, seed: int | None) -> "Iterator[tuple[str, Query]]":
    """Queries by their names."""
    from gphash.data import array_files

    if text == "random":
        text = f"key:{collection.random_key(seed)}"
    if text.startswith("key:"):
        yield text, collection.query(key=options.key(text.removeprefix("key:"), collection))
    elif not Path(text).is_file():
        raise ValueError(f"QUERY {text!r} is not a file; give a picture, a file .npy, key:KEY, or random.")
    elif Path(text).suffix == ".npy":
        rows: Any = array_files.read_npy(Path(text)).X
        for place, row in enumerate(rows):
            name = text if len(rows) == 1 else f"{text}, row {place}"
            yield name, collection.query(features=row)
    elif Path(text).suffix in (".csv", ".parquet", ".arrow", ".feather"):
        raise ValueError(f"QUERY {text!r} is a table; give a row of it as a file .npy, key:KEY, or random.")
    else:
        yield text, collection.query(picture=Path(text))


def _by_text(collection: "Collection", text: str) -> "tuple[str, Query]":
    return text if len(text) <= ABOUT else f"{text[:ABOUT]}…", collection.query(text=text)


def _record(name: str, query: "Query", hits: "Hits", n_bits: int) -> dict[str, Any]:
    """What was found for a query, nearest first; precision is over those where it is known whether they are right."""
    from gphash.collection.records import bits_of

    (bits,) = bits_of(query.code[None], n_bits)
    asked: dict[str, Any] = {"name": name, "key": query.key, "labels": query.labels, "bits": bits}
    judged = [hit.relevant for hit in hits if hit.relevant is not None]
    told: dict[str, Any] = {"query": asked | {"probabilities": query.probabilities, "familiarity": query.familiarity}}
    told |= {"neighbours": [hit._asdict() for hit in hits], "judged": len(judged)}
    told |= {"nothing_similar": hits.nothing_similar, "complete": hits.complete}
    return told | {"precision": sum(judged) / len(judged) if judged else None}


def _tell(results: list[dict[str, Any]], ranking: str, metric: str | None, less: str) -> bool:
    """Print neighbours, as tables or as JSON; tells whether people read them. A metric is what has re-ranked them."""
    if not shown.answer({"ranking": ranking, "reranked_by": metric, "results": results}, ""):
        return False
    for found in results:
        query, neighbours, judged = found["query"], found["neighbours"], found["judged"]
        rows: list[tuple[Any, ...]] = [
            ("", shown.strong(query["name"]), ", ".join(query["labels"]), "", "", "", query["bits"], "")
        ]
        for rank, one in enumerate(neighbours, 1):
            labels = ", ".join(one["labels"]) + (" ✗" if one["relevant"] is False else "")
            distance = f"{one['distance']:.{2 if ranking == 'expected' else 0}f}"
            similar = "" if one["probability"] is None else f"{one['probability']:.1%}"
            score = "" if one["score"] is None else f"{one['score']:.4g}"
            about = next((one["values"][name] for name in ("title", "name", "text") if name in one["values"]), "")
            bits = shown.against(one["bits"], query["bits"])
            rows.append((str(rank), str(one["key"]), labels, score, distance, similar, bits, str(about)[:ABOUT]))
        named = ("rank", "key", "label", metric or "", "distance", "similar", "bits", "about")
        columns = zip(named, *rows, strict=True)
        filled = [column for column in columns if column[0] in ("rank", "key") or any(column[1:])]
        left = [
            place for place, column in enumerate(filled) if column[0] not in ("rank", metric, "distance", "similar")
        ]
        titles, *texts = zip(*filled, strict=True)
        shown.table(titles, texts, left)
        if found["nothing_similar"] and neighbours:
            shown.say("nothing similar here; these are the nearest.")
        if not found["complete"]:
            shown.remark("the list ends at -k before the promise does; give a larger -k.")
        if judged:
            rest = f"; {len(neighbours) - judged} without a label" if len(neighbours) > judged else ""
            right = round(found["precision"] * judged)
            shown.say(f"precision {found['precision']:.2f}: {right} of {judged}{rest}")
        elif not neighbours:
            shown.say(f"nothing was found; give {less}." if less else "nothing was found.")
        shown.say("")
    return True


def _check_sheet(show: Path, query: str) -> None:
    from gphash.evaluation import canvas

    if show.suffix not in DRAWINGS:
        raise BadParameter(f"--show {str(show)!r}; give a name that ends in {', '.join(DRAWINGS)}.")
    if query.endswith(".npy"):
        raise BadParameter("--show draws the query, and rows of features have no picture; give a picture or key:KEY.")
    canvas.matplotlib_()  # says how to get it


def _draw(collection: "Collection", found: dict[str, Any], text: str, path: Path) -> None:
    """A contact sheet of the one query that a sheet can have."""
    from gphash import files
    from gphash.data import pictures
    from gphash.evaluation import canvas, plots

    if not (neighbours := found["neighbours"]):
        raise ValueError("--show has nothing to draw: no item was found.")
    key = found["query"]["key"]
    shots = [Path(text) if key is None else collection.picture(key).content]
    shots += [collection.picture(one["key"]).content for one in neighbours]
    query, *images = (
        pictures.open_picture(shot, reduction=lambda height, width: max(height, width) // DRAWN) for shot in shots
    )
    distances = [int(one["distance"]) if one["distance"] % 1 == 0 else one["distance"] for one in neighbours]
    marks = [one["relevant"] is not False for one in neighbours]
    figure = plots.contact_sheet([query], [images], [marks], [distances])
    with files.replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=canvas.DOTS_PER_INCH)
