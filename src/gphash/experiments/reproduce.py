"""The paper's experiments, from cells to one report that a reader can open without ever having seen the paper."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gphash import files, methods
from gphash.datasets import registry
from gphash.datasets.dataset import Dataset
from gphash.datasets.progress import Progress as LoadProgress
from gphash.datasets.storage import DataMissingError
from gphash.evaluation import canvas
from gphash.experiments import cells as running
from gphash.experiments import compare, html, paper, pictures, table
from gphash.experiments.cells import Cell, Failure, Folder, Progress, collect
from gphash.experiments.paper import EXTRA, FULL, PAPER_SECONDS, QUICK, TABLE1, Scale
from gphash.experiments.table import Table
from gphash.version import __version__

MOST_SEEDS = 10
TITLES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "nuswide": "NUS-WIDE", "coco_sift500": "COCO-SIFT500"}

METHOD_NOTES = {
    "gph": "Gaussian processes whose labels are the codes; this package",
    "hadamard-ridge": "fixed code words for classes, kernel ridge regression to them",
    "sdh": "supervised discrete hashing: codes from which a linear classifier reads the labels; kernel",
    "fasthash": "graph cuts for the bits, boosted trees to predict them",
    "ksh": "kernel-based supervised hashing: bits one after another; learns from 5,000 rows",
    "lfh": "latent factor hashing, with the kernel of the others",
    "mlh": "minimal loss hashing: hinge loss on pairs; linear",
    "cca-itq": "canonical correlations with the labels, then a rotation; linear",
    "itq": "principal components, then a rotation; no supervision",
    "pcah": "signs of principal components; no supervision",
    "spectral": "sinusoids along principal components; no supervision",
    "klsh": "random hyperplanes in the kernel's space; no supervision",
    "lsh": "random hyperplanes; no supervision",
}

DIFFERENCES = (
    "The paper used four cores. Training time includes the choice of all hyper-parameters; the paper does not say "
    "whether its times do.",
    "Inducing inputs are k-means centres for every kernel method (but KLSH); the paper draws random rows. Extra rows "
    "of the table show random ones.",
    "Ties (rows at equal Hamming distance) are averaged over in closed form; the paper does not say how it orders "
    "them. An empty Hamming ball counts 0 for precision.",
    "GIST is computed by this package with the paper's 512 dimensions; it is not the paper's to the digit.",
    "Kernel methods choose their width, and the strength of prior or ridge if they have one, on training rows alone, "
    "among the same five widths and at most 20 candidates: GPH by its leave-one-out score on 2,000 rows with 300 "
    "inducing inputs, KSH by three-fold cross-validated retrieval on as many, SDH, LFH and Hadamard ridge likewise on "
    "5,000 rows with 1,000 inducing inputs, because their ridge does not carry over from fewer. KLSH takes the median "
    "distance. GPH alone also chooses among four random starts of its codes. The paper cross-validates as well, and "
    "does not give its grid.",
    "FastHash has trees of depth 2 in the paper, and here unless a row says otherwise; it has shrinkage of .3, which "
    "the authors' does not. KSH learns from at most 5,000 rows, as in the paper.",
    "MLH takes a decaying step for a fixed number of batches instead of the authors' bold driver over thousands of "
    "epochs.",
    "Methods beyond the paper's four rivals are added, among them fixed Hadamard code words with kernel ridge "
    "regression, the baseline to beat on class labels.",
)


def roles(data_dir: str | os.PathLike[str] | None) -> list[str]:
    """The data sets of the figure: CIFAR-10, MNIST, and NUS-WIDE or what stands in for it."""
    try:
        registry.load("nuswide", data_dir, download=False)
    except DataMissingError:
        return ["cifar10", "mnist", "coco_sift500"]
    return ["cifar10", "mnist", "nuswide"]


def load(name: str, data_dir: str | os.PathLike[str] | None, progress: LoadProgress | None = None) -> Dataset:
    """A data set as the paper uses it."""
    if name == "nuswide":
        return registry.load(name, data_dir, progress=progress, paper_test=True)
    return compare.load(name, data_dir, progress)


def run(
    names: Sequence[str],
    folder: Folder,
    quick: bool,
    n_seeds: int | None,
    data_dir: str | os.PathLike[str] | None,
    watch: Callable[[Progress], None],
    progress: LoadProgress | None = None,
) -> tuple[list[Path], list[Failure]]:
    """Run what is missing of some experiments, and write tables, figures and the report of all that is there."""
    scale = QUICK if quick else FULL
    data = roles(data_dir) if "figure-map" in names else []
    wanted = [cell for name in names for cell in planned(name, data, scale, n_seeds)]
    failures = running.run(wanted, folder, lambda name: load(name, data_dir, progress), watch)
    return write(names, folder, scale, failures), failures


def complete(name: str, found: Mapping[Cell, dict[str, Any]], scale: Scale) -> bool:
    """Whether all cells of an experiment are there, as far as data sets are there at all."""
    data = {cell.data for cell in found}
    wanted = [cell for cell in planned(name, tuple(TITLES), scale, 1) if cell.data in data]
    tagged = {"nuswide", "coco_sift500"}
    return bool(found) and all(
        cell in found or (cell.data in tagged and "tags" not in (methods.find(cell.method).takes or "tags"))
        for cell in wanted
    )


def planned(name: str, data: Sequence[str], scale: Scale, n_seeds: int | None) -> list[Cell]:
    """The cells of an experiment."""
    experiment = paper.find(name)
    return experiment.cells(data, scale, n_seeds or (1 if scale.quick else experiment.n_seeds))


def write(names: Sequence[str], folder: Folder, scale: Scale, failures: Sequence[Failure] = ()) -> list[Path]:
    """Tables, figures and one report of all cells that are there, whichever experiments were asked for."""
    sections: list[html.Section] = []
    written: list[Path] = []
    everything: dict[Cell, dict[str, Any]] = {}
    for name in paper.EXPERIMENTS:
        found = dict(collect(planned(name, tuple(TITLES), scale, MOST_SEEDS), folder))
        everything |= found
        made: list[html.Section] = []
        if name not in names and not complete(name, found, scale):
            continue
        if name == "table1":
            made = list(_table1(found, scale))
        elif name == "bands":
            made = list(_bands(found, scale))
        elif name == "figure-map":
            made = list(_figure_map(found, folder, written))
        elif name == "figure-pr":
            made = list(_figure_pr(found, folder, written))
        elif name in names or (folder.path / "figure-toy.svg").exists():
            made = list(_figure_toy(folder, written))
        sections += made
        if tables := [table.markdown(one) for section in made for one in section.tables]:
            written.append(files.write_text(folder.path / f"{name}.md", "\n".join(tables)))
    if failures:
        reasons = list(dict.fromkeys(failure.reason for failure in failures))
        sections.append(html.Section("Left out, and why", reasons, (), bullets=True))
    page = html.page(TITLE, _introduction(scale), sections, _appendix(everything))
    written.append(files.write_text(folder.path / "cells.csv", table.csv(everything.items())))
    return [*written, files.write_text(folder.path / "report.html", page)]


TITLE = "Scalable Gaussian Processes for Supervised Hashing: the experiments, run again"


def _introduction(scale: Scale) -> list[str]:
    quick = (
        "This is the quick version: fewer training rows, test rows, trees and inducing inputs. It shows that "
        "everything runs; its figures are not those of the paper's experiments."
    )
    return [
        "A hash function turns a picture, given as a vector of features, into a short binary code, so that pictures "
        "that belong together have codes that differ in few bits (a small Hamming distance). It is learned from "
        "pictures whose classes or tags are known, and judged on pictures that it has never seen.",
        "Every test picture is searched for among the other test pictures. Mean average precision (mAP) is 1 if all "
        "pictures of its class come first, and about the share of the class (.1 for ten classes) if codes say "
        "nothing. Precision within radius 2 is the share of right ones among those whose code differs in at most two "
        "bits.",
        "GPH, the paper's method, treats every bit as a Gaussian process classifier whose training labels are unknown "
        "and are sampled. Inducing inputs are the points that its processes, and the kernels of other methods, are "
        "built on: more are more accurate and slower.",
        *([quick] if scale.quick else []),
    ]


def _table1(found: Mapping[Cell, dict[str, Any]], scale: Scale) -> Iterator[html.Section]:
    groups = table.group(found.items())
    columns = (
        "method", "training rows", "inducing inputs", "mAP", "paper", "precision, radius 2", "paper",
        "training, s", "paper", "µs a query", "paper", "seeds",
    )  # fmt: skip
    places = (
        ("results", "hamming", "map"),
        ("results", "hamming", "precision_within_radius"),
        ("method", "training_seconds"),
        ("method", "encoding_microseconds"),
    )
    fitting: list[tuple[float, str, float]] = []
    for title, rows in (("The paper's rows", TABLE1), ("Beyond the paper", EXTRA)):
        lines, figures = [], []
        for row in rows:
            cells = paper.table_cells(row, scale, 1)
            reports = groups.get(cells[0], []) if cells else []
            if not reports:
                continue
            values = [table.figure(reports, *place) for place in places]
            known = row.paper if row.paper and not scale.quick else (None,) * 4
            texts = []
            for number, (value, theirs) in enumerate(zip(values, known, strict=True)):
                exact = number < 2
                mean = "–" if value is None else str(value) if exact else table.seconds(value)
                texts += [mean, "–" if theirs is None else table.decimals(theirs) if exact else f"{theirs:,.1f}"]
            inducing = "–" if row.n_inducing is None else f"{row.n_inducing:,}"
            inducing += " random" if ("inducing", "random") in row.options else ""
            name = row.method + "".join(f", {name} {value}" for name, value in row.options if name == "depth")
            n_rows = reports[0]["protocol"]["training_rows"]
            lines.append((name, f"{n_rows:,}", inducing, *texts, str(len(reports))))
            figures.append(values[:2])
            if row.method == "gph" and values[0] and values[2] and values[2].mean < PAPER_SECONDS:
                fitting.append((values[0].mean, inducing, values[2].mean))
        if lines:
            marks = {(place, 3 + 2 * column) for place, column in table.best(figures)}
            about = [
                "Mean ± standard deviation over seeds. “paper” are the figures that the paper reports. µs a query is "
                "the time to encode one of a batch of all test rows."
            ]
            if fitting and rows is EXTRA:
                quality, inducing, seconds = max(fitting)
                about.append(
                    f"Of all rows, the best GPH that trains within the {PAPER_SECONDS:.0f} s of the paper's best row "
                    f"has {inducing} inducing inputs and a mAP of {table.decimals(quality)}, in {seconds:.0f} s."
                )
            yield html.Section(
                f"Table 1: CIFAR-10, 16 bits. {title}",
                about,
                (Table(f"CIFAR-10, GIST, 16 bits. {title}", columns, tuple(lines), frozenset(marks)),),
            )


def _bands(found: Mapping[Cell, dict[str, Any]], scale: Scale) -> Iterator[html.Section]:
    groups = table.group(found.items())
    lines, reasons = [], []
    for band in paper.BANDS:
        reports = groups.get(paper.band_cells(band, scale, 1)[0], [])
        value = table.figure(reports, "results", "hamming", "map")
        if value is None:
            continue
        low, high = band.low, band.high or band.low
        place = "below" if value.mean < low else "above" if value.mean > high and band.high else "reached"
        wanted = table.decimals(low) + (f"–{table.decimals(high)}" if band.high else " or more")
        options = "".join(f", {name} {value}" for name, value in band.options)
        lines.append((f"{TITLES[band.data]}, {band.n_bits} bits", band.method + options, str(value), wanted, place))
        if place != "reached" and band.reason:
            reasons.append(f"{band.method} on {TITLES[band.data]}: {band.reason}")
    if lines:
        text = (
            "Small versions of the data sets on which other implementations of the methods have been measured (5,000 "
            "training rows; the first 1,000 test rows of MNIST, all of CIFAR-10), so that nobody need fear a straw man."
        )
        columns = ("data", "method", "mAP", "elsewhere", "band")
        yield html.Section(
            "Are the opponents as good as they should be?", [text, *reasons], (Table("Bands", columns, tuple(lines)),)
        )


def _figure_map(found: Mapping[Cell, dict[str, Any]], folder: Folder, written: list[Path]) -> Iterator[html.Section]:
    groups = table.group(found.items())
    panels = {name: {cell: some for cell, some in groups.items() if cell.data == name} for name in TITLES}
    panels = {name: part for name, part in panels.items() if part}
    if not panels:
        return
    picture = _picture(
        folder, "figure-map", written, lambda: pictures.map_panels({TITLES[n]: p for n, p in panels.items()})
    )
    texts = []
    if "coco_sift500" in panels and "nuswide" not in panels:
        texts.append(
            "COCO-SIFT500 (photographs with 17 tags, bags of 500 SIFT words), another set of photographs with tags, "
            "stands in for NUS-WIDE here. Its figures are not comparable with the paper's for NUS-WIDE."
        )
    seeds = sorted({len(reports) for reports in groups.values()})
    texts.append(f"Number of seeds per point: {'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))}.")
    measures = {
        "mAP by Hamming distance": ("results", "hamming", "map"),
        "precision within radius 2": ("results", "hamming", "precision_within_radius"),
    }
    texts += [
        f"{TITLES[name]}, {what}: {sentence}"
        for what, place in measures.items()
        for name, part in panels.items()
        if (sentence := placings(part, *place))
    ]
    tables = tuple(
        table.by_bits(f"{TITLES[name]}: {what}", part, *place)
        for what, place in measures.items()
        for name, part in panels.items()
    )
    yield html.Section("Mean average precision against the length of codes", texts, tables, picture)


def placings(groups: Mapping[Cell, list[dict[str, Any]]], *place: str, method: str = "gph") -> str | None:
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


def _figure_pr(found: Mapping[Cell, dict[str, Any]], folder: Folder, written: list[Path]) -> Iterator[html.Section]:
    groups = table.group(found.items())
    if groups:
        picture = _picture(folder, "figure-pr", written, lambda: pictures.precision_recall_panels(groups))
        text = (
            "Precision against recall as more and more of the ranking by Hamming distance is retrieved, ties averaged."
        )
        yield html.Section("Precision and recall on CIFAR-10", [text], (), picture)


def _figure_toy(folder: Folder, written: list[Path]) -> Iterator[html.Section]:
    X, y, trained = pictures.train_toy()
    codes, share = pictures.toy_words(trained, y)
    picture = _picture(folder, "figure-toy", written, lambda: pictures.toy(X, y, trained))
    text = (
        f"Four classes in the plane, two bits. The codes of the classes are {', '.join(codes)}; {share:.0%} of the "
        "points have the code of their class. Shades are the probability of a bit, pale where there are no data to "
        "tell."
    )
    yield html.Section("Two bits for four classes", [text], (), picture)


def _picture(folder: Folder, name: str, written: list[Path], draw: Callable[[], Any]) -> str | None:
    """Draw, keep, and hand back as SVG text; None without matplotlib."""
    if not canvas.available():
        return None
    paths = canvas.save(draw(), folder.path / name)
    written += paths
    return paths[0].read_text(encoding="utf-8")


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _appendix(found: Mapping[Cell, dict[str, Any]]) -> list[html.Section]:
    named = list(dict.fromkeys(cell.method for cell in found))
    notes = Table(
        "Methods",
        ("method", "what it is"),
        tuple((name, METHOD_NOTES[name]) for name in methods.METHODS if name in named),
        words=True,
    )
    about: dict[str, Any] = {"gphash": __version__}
    if found:
        reports = found.values()
        about["python"] = _distinct(one["python"] for one in reports)
        for library in next(iter(reports))["versions"]:
            about[library] = _distinct(one["versions"].get(library, "–") for one in reports)
        machines = (one["machine"] for one in reports)
        about["machine"] = _distinct(f"{one['system']}, {one['processor']}, {one['cores']} cores" for one in machines)
        about["protocol"] = _distinct(one["protocol"]["name"] for one in reports)
        about["seeds"] = ", ".join(str(seed) for seed in sorted({cell.seed for cell in found}))
    for data in {cell.data: each["data"] for cell, each in found.items()}.values():
        about[data["name"]] = f"{data['features']}; SHA-256 {data['checksum'][:16]}…"
    how = Table("Made with", ("what", "which"), tuple((name, str(value)) for name, value in about.items()), words=True)
    return [
        html.Section("The methods", [], (notes,)),
        html.Section("What differs from the paper, and why", list(DIFFERENCES), (), bullets=True),
        html.Section(
            "Machine, seeds, versions",
            ["Repeat it with `gphash reproduce`; every cell is a JSON file beside this page."],
            (how,),
        ),
    ]
