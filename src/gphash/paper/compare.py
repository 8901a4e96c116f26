"""Any methods on any data set, at several lengths of codes: cells, then tables and pictures of them."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gphash import files
from gphash.data.dataset import Dataset, Progress
from gphash.data.descriptors import described
from gphash.data.known import data_sets, image_folder
from gphash.data.known.data_sets import DATA_SETS
from gphash.evaluation import canvas, plots
from gphash.evaluation.protocol import PROTOCOLS
from gphash.hashers import methods
from gphash.paper import table
from gphash.paper.cells import Cell, Folder, Options, collect
from gphash.paper.table import ResultTable

RANKINGS = {
    "mAP by Hamming distance": table.MAP,
    "precision within Hamming radius 2": table.WITHIN_RADIUS,
    "mAP by expected Hamming distance": table.EXPECTED_MAP,
    "mAP by P(similar)": table.SIMILARITY_MAP,
}


def load(name: str, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Dataset:
    """A data set with features: a known one by its name, or a folder of pictures by its path."""
    check_data(name)
    if name in DATA_SETS:
        return described.with_features(data_sets.load(name, data_dir, progress=progress))
    return described.with_features(image_folder.load(name, progress=progress))


def check_data(name: str) -> None:
    """Refuse a name that is neither a known data set nor a folder."""
    if name not in DATA_SETS and not Path(name).is_dir():
        raise ValueError(
            f"unknown data {name!r}; give one of {', '.join(DATA_SETS)}, or a folder of pictures by class."
        )


def check_options(names: Sequence[str], options: dict[str, Any]) -> None:
    """Refuse parameters that none of the methods knows, and those that are decided elsewhere."""
    known = {key for name in names for key in _parameters(name)} - {"n_bits", "random_state"}
    for name in options:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}; these methods have {', '.join(sorted(known))}.")


def grid(
    data: str,
    names: Sequence[str],
    lengths: Sequence[int],
    n_seeds: int,
    n_rows: int | None = None,
    n_test: int | None = None,
    options: dict[str, Any] | None = None,
    protocol: str = PROTOCOLS[0],
) -> list[Cell]:
    """Every method at every length with every seed; an option goes to those methods that know it."""
    chosen: dict[str, Options] = {}
    for name in names:
        defaults = _parameters(name)
        # A default that is given says nothing.
        differing = {key: value for key, value in (options or {}).items() if defaults.get(key, value) != value}
        chosen[name] = tuple(sorted(differing.items()))
    every = itertools.product(lengths, names, range(n_seeds))
    return [Cell(data, name, bits, seed, n_rows, n_test, chosen[name], protocol) for bits, name, seed in every]


def _parameters(name: str) -> dict[str, Any]:
    """The parameters of a method, and their defaults."""
    defaults: dict[str, Any] = methods.METHODS.find(name)().get_params(deep=False)
    return defaults


def tables(cells: Sequence[Cell], folder: Folder) -> list[ResultTable]:
    """Methods down, lengths across, for each of the usual figures that some method has."""
    reports = collect(cells, folder)
    groups, how = table.group(reports), table.protocol_names(reports.values())
    found = [table.by_bits(f"{title}; {how}", groups, *place) for title, place in RANKINGS.items()]
    found = [one for one in found if any(text != "–" for row in one.rows for text in row[1:])]
    times = table.by_bits("training time, seconds", groups, *table.TRAINING, show=table.seconds)
    return [*found, times._replace(best=frozenset())]  # the slowest is not the best


def write(cells: Sequence[Cell], folder: Folder) -> list[Path]:
    """Write tables, figures as numbers, and pictures into the folder; pictures need matplotlib."""
    if not (found := collect(cells, folder)):
        return []
    written = [
        files.write_text(folder.path / "table.md", "\n".join(map(table.markdown, tables(cells, folder)))),
        files.write_text(folder.path / "table.csv", table.csv(found)),
    ]
    if canvas.available():
        written += canvas.save(plots.map_against_bits(list(found.values())), folder.path / "map-against-bits")
        # Where the seed draws the rows, there is no one number of rows to retrieve.
        for bits in sorted({cell.n_bits for cell in found if cell.protocol != "unseen-classes"}):
            some = [one for cell, one in found.items() if cell.n_bits == bits]
            written += canvas.save(plots.precision_recall(some), folder.path / f"precision-recall-{bits}")
    return written
