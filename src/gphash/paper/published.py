"""The paper's experiments by name: which cells each needs, and what the paper reports for them (`published.json`)."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

from gphash.hashers import methods
from gphash.paper import compare
from gphash.paper.cells import Cell

COMPARED = tuple(methods.METHODS)
EXPERIMENTS = {"table1": 3, "bands": 1, "figure-map": 1, "figure-pr": 1, "figure-toy": 1}  # and their usual seeds
PAPER_SECONDS = 497.9  # training time of the paper's best row


class TableRow(NamedTuple):
    """A row of table 1, or one that we add; None are all 50,000 training rows, or a method without a kernel.

    The paper's figures are mAP, precision within radius 2, training seconds and microseconds per query. Long runs have
    at most `n_seeds`.
    """

    method: str
    options: dict[str, Any]
    n_rows: int | None = None
    n_inducing: int | None = None
    paper: Sequence[float | None] = (None,) * 4
    n_seeds: int = 99


class Band(NamedTuple):
    """mAP that a method should reach on 5,000 training rows of a data set, from runs of other implementations.

    There may be no upper end; None are all test rows. The reason says why ours differs, if it does.
    """

    data: str
    method: str
    n_bits: int
    low: float
    options: dict[str, Any]
    high: float | None = None
    n_test: int | None = None
    reason: str = ""


_PUBLISHED = json.loads(resources.files("gphash.paper").joinpath("published.json").read_text(encoding="utf-8"))
TABLE1, EXTRA = ([TableRow(**row) for row in _PUBLISHED[name]] for name in ("table1", "extra"))
BANDS = [Band(**band) for band in _PUBLISHED["bands"]]


class Scale(NamedTuple):
    """How large the experiments are.

    `n_rows` replaces numbers of training rows, `n_test` the number of test rows, if not None; rows of the table with
    more inducing inputs are left out. Lengths and options of methods that know them are those of the figures.
    """

    quick: bool
    n_rows: dict[int | None, int]
    n_test: int | None
    most_inducing: int
    lengths: tuple[int, ...]
    options: dict[str, Any]


# FastHash has trees of depth 2 in the paper.
FULL = Scale(False, {}, None, 10**9, (8, 16, 32, 64), {"depth": 2})
QUICK = Scale(True, {5000: 1000, None: 4000}, 2000, 1000, (8, 16), {"depth": 2, "n_trees": 50, "n_inducing": 300})


def check(name: str) -> None:
    """Refuse a name that no experiment has."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; give one of {', '.join(EXPERIMENTS)}.")


def planned(name: str, data: Sequence[str], scale: Scale, n_seeds: int | None) -> list[Cell]:
    """The cells of an experiment; `data` are the data sets of its figure, and None is its usual number of seeds."""
    check(name)
    n_seeds = n_seeds or (1 if scale.quick else EXPERIMENTS[name])
    if name == "table1":
        return [cell for row in (*TABLE1, *EXTRA) for cell in table_cells(row, scale, n_seeds)]
    if name == "bands":
        return [] if scale.quick else [cell for band in BANDS for cell in band_cells(band, n_seeds)]
    drawn = {"figure-map": data, "figure-pr": ["cifar10"], "figure-toy": []}[name]
    how = COMPARED, scale.lengths, n_seeds, scale.n_rows.get(None), scale.n_test, scale.options
    return [cell for one in drawn for cell in compare.grid(one, *how)]


def table_cells(row: TableRow, scale: Scale, n_seeds: int) -> list[Cell]:
    """Cells of a row of table 1."""
    if (row.n_inducing or 0) > scale.most_inducing:
        return []
    options = row.options | ({"n_inducing": row.n_inducing} if row.n_inducing else {})
    if row.method == "fasthash":
        options = {name: value for name, value in scale.options.items() if name != "n_inducing"} | options
    n_rows, n_seeds = scale.n_rows.get(row.n_rows, row.n_rows), min(n_seeds, row.n_seeds)
    return compare.grid("cifar10", [row.method], [16], n_seeds, n_rows, scale.n_test, options)


def band_cells(band: Band, n_seeds: int) -> list[Cell]:
    """Cells of a band."""
    return compare.grid(band.data, [band.method], [band.n_bits], n_seeds, 5000, band.n_test, band.options)
