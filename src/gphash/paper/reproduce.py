"""The paper's experiments, from cells to one report that a reader can open without ever having seen the paper."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gphash import files
from gphash.data.dataset import Dataset, Progress
from gphash.data.downloads import DataMissingError
from gphash.data.known import data_sets
from gphash.evaluation import canvas
from gphash.evaluation.protocol import PROTOCOLS
from gphash.hashers import methods
from gphash.paper import cells as running
from gphash.paper import compare, illustrations, page, published, table
from gphash.paper.cells import Cell, Folder, Watch, collect
from gphash.paper.page import Section
from gphash.paper.published import EXTRA, FULL, PAPER_SECONDS, QUICK, TABLE1, Scale
from gphash.paper.table import Figure, Groups, ResultTable
from gphash.version import __version__

MOST_SEEDS = 10
TITLES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "nuswide": "NUS-WIDE", "coco_sift500": "COCO-SIFT500"}
BEYOND = {**TITLES, "digits": "digits", "jeopardy": "Jeopardy"}
PLACES: dict[tuple[str, ...], Callable[[Figure], str]] = {
    **dict.fromkeys((table.MAP, table.WITHIN_RADIUS), str),
    **dict.fromkeys((table.TRAINING, table.ENCODING), table.seconds),
}
COLUMNS = (
    "method", "training rows", "inducing inputs", "mAP", "paper", "precision, radius 2", "paper",
    "training, s", "paper", "µs a query", "paper", "seeds",
)  # fmt: skip
TAGGED = {"nuswide", "coco_sift500"}
SHORT = {"mAP": table.MAP, "precision, radius 2": table.WITHIN_RADIUS, "mAP by P(similar)": table.SIMILARITY_MAP}
MEASURES = {"mAP by Hamming distance": table.MAP, "precision within radius 2": table.WITHIN_RADIUS}
READ = {**MEASURES, "mAP by P(similar)": table.SIMILARITY_MAP}

Found = Mapping[Cell, dict[str, Any]]
Picture = Callable[[str, Callable[[], Any]], str | None]


def roles(data_dir: str | os.PathLike[str] | None) -> list[str]:
    """The data sets of the figure: CIFAR-10, MNIST, and NUS-WIDE or what stands in for it."""
    try:
        data_sets.load("nuswide", data_dir, download=False)
    except DataMissingError:
        return ["cifar10", "mnist", "coco_sift500"]
    return ["cifar10", "mnist", "nuswide"]


def load(name: str, data_dir: str | os.PathLike[str] | None, progress: Progress | None = None) -> Dataset:
    """A data set as the paper uses it."""
    if name == "nuswide":
        return data_sets.load(name, data_dir, progress=progress, paper_test=True)
    return compare.load(name, data_dir, progress)


def run(
    names: Sequence[str],
    folder: Folder,
    quick: bool,
    n_seeds: int | None,
    data_dir: str | os.PathLike[str] | None,
    watch: Watch,
    progress: Progress | None = None,
    only: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
) -> tuple[list[Path], dict[Cell, str]]:
    """Run what is missing of some experiments, and write tables, figures and the report of all that is there.

    `only` are methods and data sets to run; None for all.
    """
    page.library()  # rather than after hours
    scale = QUICK if quick else FULL
    data = roles(data_dir) if "figure-map" in names else []
    wanted = [cell for name in names for cell in published.planned(name, data, scale, n_seeds)]
    wanted = published.chosen(wanted, *only)
    failures = running.run(wanted, folder, lambda name: load(name, data_dir, progress), watch)
    return write(names, folder, scale, failures.values()), failures


def complete(name: str, found: Found, scale: Scale) -> bool:
    """Whether all cells of an experiment are there, as far as data sets are there and methods can learn from them."""
    data = {cell.data for cell in found}
    for cell in published.planned(name, tuple(TITLES), scale, 1):
        learns = cell.data not in TAGGED or "tags" in (methods.METHODS.find(cell.method).takes or "tags")
        if cell.data in data and learns and cell not in found:
            return False
    return bool(found)


def write(names: Sequence[str], folder: Folder, scale: Scale, reasons: Iterable[str] = ()) -> list[Path]:
    """Tables, figures and one report of all cells that are there, whichever experiments were asked for.

    The reasons are why some cells could not be run.
    """
    sections: list[Section] = []
    written: list[Path] = []
    everything: dict[Cell, dict[str, Any]] = {}

    def picture(name: str, draw: Callable[[], Any]) -> str | None:
        """Draw, keep, and hand back as SVG text; None without matplotlib."""
        if not canvas.available():
            return None
        paths = canvas.save(draw(), folder.path / name)
        written.extend(paths)
        return paths[0].read_text(encoding="utf-8")

    for name in published.EXPERIMENTS:
        found = collect(published.planned(name, tuple(TITLES), scale, MOST_SEEDS), folder)
        everything |= found if name in published.PAPER else {}
        asked = name in names or (name == "figure-toy" and (folder.path / "figure-toy.svg").exists())
        if not asked and not complete(name, found, scale):
            continue
        made = list(SECTIONS[name](table.group(found), scale, picture))
        sections += made
        if any(section.tables for section in made):
            parts = [
                part
                for one in made
                for part in (*(f"{text}\n" for text in one.texts), *map(table.markdown, one.tables))
            ]
            written.append(files.write_text(folder.path / f"{name}.md", "\n".join(parts)))
    used = {cell.method for cell in everything}
    more = {"methods": [name for name in methods.METHODS if name in used], "quick": scale.quick}
    text = page.render(sections, _made_with(everything), left_out=list(dict.fromkeys(reasons)), **more)
    written.append(files.write_text(folder.path / "cells.csv", table.csv(everything)))
    return [*written, files.write_text(folder.path / "report.html", text)]


def _table1(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    fitting: list[tuple[float, str, float]] = []
    for title, rows in (("The paper's rows", TABLE1), ("Beyond the paper", EXTRA)):
        lines, figures = [], []
        for row in rows:
            cells = published.row_cells(row, scale, 1)
            reports = groups.get(cells[0], []) if cells else []
            if not reports:
                continue
            values = [table.figure(reports, *place) for place in PLACES]
            theirs = [None if value is None or scale.quick else Figure(value) for value in row.paper]
            pairs = zip(PLACES.values(), values, theirs, strict=True)
            texts = (table.shown(value, show) for show, *pair in pairs for value in pair)
            inducing = f"{row.options['n_inducing']:,}" if "n_inducing" in row.options else "–"
            inducing += " random" if row.options.get("inducing") == "random" else ""
            said = [option for option in row.options.items() if option[0] in ("codes", "depth")]
            name = table.named(row.method, said)
            lines.append((name, f"{reports[0]['protocol']['training_rows']:,}", inducing, *texts, str(len(reports))))
            figures.append(values[:2])
            if row.method == "gph" and values[0] and values[2] and values[2].mean < PAPER_SECONDS:
                fitting.append((values[0].mean, inducing, values[2].mean))
        if not lines:
            continue
        about = []
        if fitting and rows is EXTRA:
            quality, inducing, seconds = max(fitting)
            about.append(
                f"Of all rows, the best GPH that trains within the {PAPER_SECONDS:.0f} s of the paper's best row "
                f"has {inducing} inducing inputs and a mAP of {table.decimals(quality)}, in {seconds:.0f} s."
            )
        marks = frozenset((place, 3 + 2 * column) for place, column in table.best(figures))
        one = ResultTable(f"CIFAR-10, GIST, 16 bits. {title}", COLUMNS, tuple(lines), marks)
        yield Section("table1", f"Table 1: CIFAR-10, 16 bits. {title}", about, [one])


def _bands(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    lines, reasons = [], []
    for band in published.BANDS:
        (cell,) = published.row_cells(band, scale, 1)
        value = table.figure(groups.get(cell, []), *table.MAP)
        if value is None:
            continue
        place = "below" if value.mean < band.low else "above" if band.high and value.mean > band.high else "reached"
        range_ = table.decimals(band.low) + (f"–{table.decimals(band.high)}" if band.high else " or more")
        data = f"{TITLES[band.data]}, {band.n_bits} bits"
        lines.append((data, table.named(cell.method, cell.options), str(value), range_, place))
        if place != "reached" and band.reason:
            reasons.append(f"{band.method} on {TITLES[band.data]}: {band.reason}")
    if lines:
        one = ResultTable("Bands", ("data", "method", "mAP", "elsewhere", "band"), tuple(lines))
        yield Section("bands", "Are the opponents as good as they should be?", reasons, [one])


def _figure_map(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    panels: dict[str, Groups] = {}
    for cell in sorted(groups, key=lambda cell: list(TITLES).index(cell.data)):
        panels.setdefault(TITLES[cell.data], {})[cell] = groups[cell]
    if not panels:
        return
    texts = []
    if "COCO-SIFT500" in panels and "NUS-WIDE" not in panels:
        texts.append(
            "COCO-SIFT500 (photographs with 17 tags, bags of 500 SIFT words), another set of photographs with tags, "
            "stands in for NUS-WIDE here. Its figures are not comparable with the paper's for NUS-WIDE."
        )
    seeds = sorted({len(reports) for reports in groups.values()})
    texts.append(f"Number of seeds per point: {'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))}.")
    shown = [(title, part, what, place) for what, place in MEASURES.items() for title, part in panels.items()]
    texts += [f"{title}, {what}: {told}" for title, part, what, place in shown if (told := placings(part, *place))]
    tables = [table.by_bits(f"{title}: {what}", part, *place) for title, part, what, place in shown]
    drawn = picture("figure-map", lambda: illustrations.map_panels(panels))
    yield Section("figure-map", "Mean average precision against the length of codes", texts, tables, drawn)


def placings(groups: Groups, *place: str, method: str = "gph") -> str | None:
    """Where a method is first, and where not and by how much; None if it was not measured."""
    told = []
    for bits in sorted({cell.n_bits for cell in groups}):
        scores = {
            cell.method: found.mean
            for cell, reports in groups.items()
            if cell.n_bits == bits and (found := table.figure(reports, *place))
        }
        rivals = {cell.method for cell in groups}
        if method not in scores or len(scores) < 2 or rivals - set(scores):
            continue  # nobody is first among rivals that were not measured
        others = {name: score for name, score in scores.items() if name != method}
        rival = max(others, key=others.__getitem__)
        own, best = scores[method], others[rival]
        if own > best:
            told.append(f"at {bits} bits first, by {table.decimals(own - best)} ({rival} {table.decimals(best)})")
        else:
            rank = 1 + sum(score > own for score in others.values())
            told.append(f"at {bits} bits number {rank}, {table.decimals(best - own)} behind {rival}")
    return f"{method} is " + "; ".join(told) + "." if told else None


def _by_data(groups: Groups) -> dict[str, Groups]:
    """Groups by data set and number of training rows, under a title."""
    found: dict[str, Groups] = {}
    for cell, reports in groups.items():
        some = f", {cell.n_rows:,} training rows" if cell.n_rows else ""
        found.setdefault(BEYOND[cell.data] + some, {})[cell] = reports
    return found


def _lead(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    told, tables = [f"One seed: {', '.join(published.ONE_SEED)}."], []
    for title, part in _by_data(groups).items():
        places = [(what, placings(part, *place)) for what, place in READ.items()]
        told += [f"{title}, {what}: {text}" for what, text in places if text]
        sides = {what: table.by_bits(what, part, *place) for what, place in SHORT.items()}
        tables.append(table.beside(title, sides))
    if tables:
        yield Section("lead", "Where GPH stands among all methods", told, tables)


def _protocols(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    tables = []
    for title, part in _by_data(groups).items():
        sides = {}
        for name in PROTOCOLS:
            cells = {cell._replace(protocol=name) for cell in part}  # a dash for those that were not run
            own = {cell: part.get(cell, []) for cell in sorted(cells, key=str)}
            shown = f"{name} (leaky)" if name == "training-database" else name
            sides[shown] = table.by_bits(shown, own, *table.MAP)
        tables.append(table.beside(f"{title}: mAP by Hamming distance", sides))
    if tables:
        told = "Classes that are not seen are drawn by the seed, so that figures of seeds differ by them as well."
        yield Section("protocols", "Other protocols", [told], tables)


def _figure_pr(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    if groups:
        drawn = picture("figure-pr", lambda: illustrations.precision_recall_panels(groups))
        yield Section("figure-pr", "Precision and recall on CIFAR-10", picture=drawn)


def _figure_toy(groups: Groups, scale: Scale, picture: Picture) -> Iterator[Section]:
    X, y, trained = illustrations.train_toy()
    codes, share = illustrations.toy_words(trained, y)
    drawn = picture("figure-toy", lambda: illustrations.toy(X, y, trained))
    text = f"The codes of the classes are {', '.join(codes)}; {share:.0%} of the points have the code of their class."
    yield Section("figure-toy", "Two bits for four classes", [text], picture=drawn)


SECTIONS: dict[str, Callable[[Groups, Scale, Picture], Iterator[Section]]] = {
    "table1": _table1,
    "bands": _bands,
    "figure-map": _figure_map,
    "figure-pr": _figure_pr,
    "figure-toy": _figure_toy,
    "lead": _lead,
    "protocols": _protocols,
}


def _made_with(found: Found) -> ResultTable:
    """Versions, machine, protocol, seeds and data of all cells."""

    def facts(one: dict[str, Any]) -> dict[str, str]:
        machine = "{system}, {processor}, {cores} cores".format_map(one["machine"])
        return {"python": one["python"], **one["versions"], "machine": machine, "protocol": one["protocol"]["name"]}

    about = {"gphash": __version__}
    if all_facts := [facts(one) for one in found.values()]:
        about |= {name: ", ".join(dict.fromkeys(each.get(name, "–") for each in all_facts)) for name in all_facts[0]}
        about["seeds"] = ", ".join(map(str, sorted({cell.seed for cell in found})))
    for data in {cell.data: each["data"] for cell, each in found.items()}.values():
        about[data["name"]] = f"{data['features']}; SHA-256 {data['checksum'][:16]}…"
    return ResultTable("Made with", ("what", "which"), tuple(about.items()))
