"""Commands that search: index, search."""

import io
import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gphash.cli import app, shown, training
from gphash.cli.app import Argument, BadParameter, Data, DataDir, Debug, Json, Model, Option, Quiet, Threads

if TYPE_CHECKING:
    from gphash.functions import model as models
    from gphash.gallery.gallery import Gallery
    from gphash.gallery.records import Neighbour, Query
    from gphash.index.parts import PartedIndex

PICTURES = (".png", ".svg", ".pdf")
DRAWN = 512  # pixels of the longer side that a drawn picture keeps at least


class Ranking(StrEnum):
    """What neighbours are ordered by."""

    HAMMING = "hamming"
    EXPECTED = "expected"


class Found(NamedTuple):
    """A query and its neighbours.

    label
        The query as the user named it.
    query
        As the gallery has it.
    neighbours
        Nearest first.
    """

    label: str
    query: "Query"
    neighbours: "list[Neighbour]"


Index = Annotated[
    Path,
    Argument(metavar="INDEX", help="An index, as gphash index writes it: a file or a folder.", show_default=False),
]
ModelPath = Annotated[
    Path | None, Option("--model", metavar="MODEL", help="Where the model is, if not where it was.", show_default=False)
]


@app.command(
    "gphash index digits-16.gph digits -o digits.index",
    "gphash index photos.gph /shared/blocks -o /shared/index --cluster tcp://10.0.0.1:8786",
    interrupted=training.goes_on,
)
def index(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The index; DATA.index if not given. For blocks a folder, DATA-index.",
        ),
    ] = None,
    discard_added: Annotated[
        bool, Option("--discard-added", help="Replace an index although items were added to it, and lose them.")
    ] = False,
    cluster: training.ClusterAddress = None,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Encode rows into an index to search in.

    Labels and small pictures are kept beside it; large pictures stay in their folder. Of a folder of blocks, every
    block NAME becomes a file NAME.index in a folder, to be searched as one; stopped, the same command goes on with what
    is left.
    """
    if training.has_blocks(data, cluster):
        target = output or Path(f"{app.stem(data)}-index")
        training.in_bulk("index", model, data, target, cluster, threads, as_json, quiet)
        return
    target = app.destination(output or Path(f"{app.stem(data)}.index"), "index", model, data)
    loaded = training.load(model, threads)
    source = training.read(data, data_dir, threads, quiet)
    training.check_rows(loaded.n_features, loaded.descriptor, model, source)
    from gphash.gallery.gallery import Gallery

    with (
        shown.Meter("encoding", quiet) as progress,
        Gallery.build(target, model, source, progress=progress, discard_added=discard_added, n_jobs=threads) as gallery,
    ):
        stats = gallery.index.stats()
        told = {"index": str(target), "items": len(gallery), "bits": gallery.n_bits, "codes": stats.n_codes}
        told |= {"largest_bucket": stats.largest_bucket, "classes": len(gallery.classes), "model": str(model)}
    if as_json:
        shown.emit(told)
        return
    shown.say(
        f"wrote {target}: {told['items']:,} items, {told['codes']:,} distinct codes of {told['bits']} bits, "
        f"{told['largest_bucket']:,} items in the largest bucket"
    )
    home = target.absolute().parent.resolve()
    if source.folder is not None and not source.folder.resolve().is_relative_to(home):
        place = shlex.quote(str(source.folder))
        shown.say(f"its pictures stay where they are: gphash serve {target} --pictures {place} shows them")


@app.command(
    "gphash search digits.index id:7",
    "gphash search photos.index cat.jpg -k 20 --show found.png",
    "gphash search /shared/index rows.npy",
)
def search(
    index: Index,
    query: Annotated[
        str,
        Argument(
            metavar="QUERY", help="A picture, a file .npy of one or more rows, id:7, or random.", show_default=False
        ),
    ],
    k: Annotated[int, Option("-k", min=1, help="How many neighbours.")] = 10,
    ranking: Annotated[
        Ranking, Option(help="Count differing bits, or weigh each by how sure the model is of the query's.")
    ] = Ranking.HAMMING,
    radius: Annotated[int | None, Option(min=0, help="Only items that differ in at most so many bits.")] = None,
    label: Annotated[str | None, Option(help="Only items of this class.")] = None,
    show: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the neighbours: .png, .svg or .pdf; needs gphash[plots].")
    ] = None,
    model: ModelPath = None,
    pictures: app.Pictures = None,
    seed: Annotated[int | None, Option(min=0, help="Of the random item; another one each time if not given.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the nearest items of a picture, a row or an item.

    Bits are shown as they differ from the query's: a dot is a bit that agrees. In an index of a folder of blocks, ids
    are numbers of rows, and QUERY is a file .npy or id:7.
    """
    from gphash.index import parts

    if parts.is_folder_of_parts(index):
        if label is not None or show is not None:
            raise BadParameter("--label and --show: an index of a folder of blocks knows neither labels nor pictures.")
        n_bits, results = _search_parts(index, query, k, ranking, radius, model)
        _tell(results, n_bits, ranking, as_json)
        return
    if show is not None:
        _check_sheet(show, query)
        app.destination(show, "drawing", index, query, model, option="--show")
    from gphash.gallery.gallery import Gallery

    with Gallery.open(index, model=model, pictures=pictures) as gallery:
        results = [
            Found(
                name,
                one,
                gallery.search(one, k, ranking=ranking.value, radius=radius, allowed=label, others=one.id is not None),
            )
            for name, one in _queries(gallery, query, seed, as_json or ranking is Ranking.EXPECTED)
        ]
        if show is not None:
            _draw(gallery, results, query, show)
        n_bits = gallery.n_bits
    _tell(results, n_bits, ranking, as_json)
    if show is not None and not as_json:
        shown.say(f"wrote {show}")


def _tell(results: list[Found], n_bits: int, ranking: Ranking, as_json: bool) -> None:
    if as_json:
        shown.emit({"ranking": ranking.value, "results": [_plain(found, n_bits) for found in results]})
        return
    for found in results:
        _print(found, n_bits, ranking)


def _search_parts(
    folder: Path, text: str, k: int, ranking: Ranking, radius: int | None, model: Path | None
) -> tuple[int, list[Found]]:
    """Length of a code, and neighbours in an index of many files."""
    from gphash.index import parts

    index = parts.PartedIndex.open(folder)
    loaded = training.load(model or folder / parts.MODEL, -1)
    if loaded.fingerprint != index.model:
        raise ValueError(f"--model {str(model)!r} is not the model of {str(folder)!r}; leave it out, or give that one.")
    if ranking is Ranking.EXPECTED and not loaded.has_probabilities:
        raise ValueError("--ranking expected: the model tells no probabilities; give hamming.")
    found = []
    for name, query in _plain_queries(index, loaded, text, ranking):
        found.append(Found(name, query, _neighbours(index, query, k, ranking, radius)))
    return index.n_bits, found


def _plain_queries(
    index: "PartedIndex", loaded: "models.Model", text: str, ranking: Ranking
) -> "Iterator[tuple[str, Query]]":
    """Queries of an index that knows codes only."""
    from gphash.gallery.records import Query

    if text.startswith("id:"):
        number = _id(text)
        if ranking is Ranking.EXPECTED:
            raise ValueError(f"QUERY {text!r} has a code, and no probabilities; give --ranking hamming.")
        try:
            code = index.codes_of([number])[0]
        except KeyError as error:
            raise ValueError(f"QUERY {text!r}: there is no such item; ids go from 0 to {len(index) - 1}.") from error
        yield text, Query(code, None, id=number)
        return
    if Path(text).suffix != ".npy" or not Path(text).is_file():
        raise ValueError(f"QUERY {text!r}; in an index of a folder of blocks, give a file .npy of rows, or id:NUMBER.")
    rows = _rows(text)
    codes = loaded.encode(rows)
    chances = loaded.bit_probabilities(rows) if ranking is Ranking.EXPECTED else [None] * len(rows)
    for number, (code, chance) in enumerate(zip(codes, chances, strict=True)):
        yield _row_name(text, number, len(rows)), Query(code, chance)


def _neighbours(
    index: "PartedIndex", query: "Query", k: int, ranking: Ranking, radius: int | None
) -> "list[Neighbour]":
    import numpy as np

    from gphash.gallery.records import Neighbour

    code = query.code[None]
    allowed = None if radius is None else index.within(code, radius).ids
    wanted = k + (query.id is not None)  # of which an item that is the query is left out
    if query.probabilities is not None:
        ids, distances = index.search_expected(query.probabilities[None], wanted, allowed=allowed)
    else:
        ids, distances = index.search(code, wanted, allowed=allowed)
    kept = ids[0] != query.id if query.id is not None else np.ones(ids.shape[1], bool)
    ids, distances = ids[0, kept][:k], distances[0, kept][:k]
    bits = np.unpackbits(index.codes_of(ids), axis=1, count=index.n_bits)
    return [
        Neighbour(int(one), float(distance), (), "".join(map(str, own)), None, False)
        for one, distance, own in zip(ids, distances, bits, strict=True)
    ]


def _rows(path: str) -> Any:
    """Rows of a file .npy."""
    from gphash.datasets import tables

    rows = tables.read_npy(Path(path)).X
    assert rows is not None  # such a file has nothing else
    return rows


def _row_name(path: str, number: int, n_rows: int) -> str:
    return path if n_rows == 1 else f"{path}, row {number}"


def _queries(gallery: "Gallery", text: str, seed: int | None, certainty: bool) -> "Iterator[tuple[str, Query]]":
    """Queries by their names, with the probabilities of their bits if these are wanted."""
    if text == "random":
        chosen = gallery.random_id(seed)
        yield f"id:{chosen}", gallery.query(id=chosen, certainty=certainty)
    elif text.startswith("id:"):
        yield text, gallery.query(id=_id(text), certainty=certainty)
    elif not Path(text).is_file():
        raise ValueError(f"QUERY {text!r} is no file; give a picture, a file .npy, id:NUMBER, or random.")
    elif Path(text).suffix == ".npy":
        rows = _rows(text)
        for number, row in enumerate(rows):
            yield _row_name(text, number, len(rows)), gallery.query(features=row, certainty=certainty)
    else:
        yield text, gallery.query(picture=Path(text), certainty=certainty)


def _id(text: str) -> int:
    word = text.removeprefix("id:")
    if not (word.removeprefix("-").isdecimal() and word.isascii()):
        raise BadParameter(f"QUERY {text!r}; give id: and a whole number, such as id:7.")
    return int(word)


def bits_of(query: "Query", n_bits: int) -> str:
    """A query's code as 0110…."""
    import numpy as np

    return "".join(map(str, np.unpackbits(query.code, count=n_bits)))


def _judged(neighbours: "list[Neighbour]") -> list[bool]:
    """Whether neighbours are right, of those where it is known."""
    return [one.relevant for one in neighbours if one.relevant is not None]


def _plain(found: Found, n_bits: int) -> dict[str, Any]:
    query = found.query
    judged = _judged(found.neighbours)
    return {
        "query": {
            "name": found.label,
            "id": query.id,
            "labels": query.labels,
            "bits": bits_of(query, n_bits),
            "probabilities": query.probabilities,
        },
        "neighbours": [one._asdict() for one in found.neighbours],
        "precision": sum(judged) / len(judged) if judged else None,
    }


def _print(found: Found, n_bits: int, ranking: Ranking) -> None:
    own = bits_of(found.query, n_bits)
    named = any(one.name for one in found.neighbours)
    first = ("", found.label, ", ".join(found.query.labels), "", own, *(("",) if named else ()))
    rows = [shown.Cells(first, frozenset({1}))]
    for rank, one in enumerate(found.neighbours, 1):
        distance = f"{one.distance:.0f}" if ranking is Ranking.HAMMING else f"{one.distance:.2f}"
        wrong = " ✗" if one.relevant is False else ""
        labels = ", ".join(one.labels) + wrong
        cells = (f"{rank}", f"{one.id}", labels, distance, shown.against(one.bits, own))
        rows.append(shown.Cells((*cells, one.name or "") if named else cells))
    columns = ("rank", "id", "label", "distance", "bits", *(("picture",) if named else ()))
    shown.table(columns, rows, left=(1, 2, 4, 5))
    if judged := _judged(found.neighbours):
        unknown = len(found.neighbours) - len(judged)
        rest = f"; {unknown} without a label" if unknown else ""
        shown.say(f"precision {sum(judged) / len(judged):.2f}: {sum(judged)} of {len(judged)}{rest}")
    elif not found.neighbours:
        shown.say("nothing was found; give a larger --radius, or none.")
    shown.say("")


def _check_sheet(show: Path, query: str) -> None:
    from gphash.evaluation import canvas

    if show.suffix not in PICTURES:
        raise BadParameter(f"--show {str(show)!r}; give a name that ends in {', '.join(PICTURES)}.")
    if query.endswith(".npy"):
        raise BadParameter("--show draws the query, and rows of features have no picture; give a picture or id:NUMBER.")
    if not canvas.available():
        canvas.matplotlib_()  # says how to get it


def _draw(gallery: "Gallery", results: list[Found], text: str, path: Path) -> None:
    """A contact sheet of the one query that a sheet can have."""
    from gphash import files
    from gphash.datasets import pictures
    from gphash.evaluation import canvas, plots

    (found,) = results
    if not found.neighbours:
        raise ValueError("--show has nothing to draw: no item was found.")
    own = Path(text) if found.query.id is None else gallery.picture(found.query.id).content

    def drawn(source: "bytes | Path") -> Any:
        return pictures.open_picture(source, reduction=lambda height, width: max(height, width) // DRAWN)

    images = [drawn(gallery.picture(one.id).content) for one in found.neighbours]
    marks = [[one.relevant is not False for one in found.neighbours]]
    distances = [[one.distance for one in found.neighbours]]
    whole = all(float(value).is_integer() for value in distances[0])
    figure = plots.contact_sheet(
        [drawn(own)], [images], marks, [[int(value) for value in distances[0]]] if whole else distances
    )
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=canvas.DOTS_PER_INCH)
    with files.replacing(path) as file:
        file.write(content.getvalue())
