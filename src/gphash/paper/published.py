"""Experiments by name: which cells each needs, and what the paper reports for its own (`published.json`).

Two go beyond the paper: `lead` says where GPH stands among all methods, and `protocols` how the strongest of them do by
other protocols.
"""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

from gphash.evaluation.protocol import PROTOCOLS
from gphash.hashers import methods
from gphash.paper import compare
from gphash.paper.cells import Cell

COMPARED = tuple(methods.HOMES)
PAPER = {"table1": 3, "bands": 1, "figure-map": 1, "figure-pr": 1, "figure-toy": 1}  # and their usual seeds
EXPERIMENTS = {**PAPER, "lead": 3, "protocols": 3}
LEAD = (  # data sets, and how many of their training rows
    *(("cifar10", None), ("mnist", None), ("coco_sift500", None), ("digits", None)),
    *(("mnist", 5000), ("cifar10", 5000), ("jeopardy", None)),
)
# Of `lead`, those that are slow or far behind: one seed says enough.
ONE_SEED = ("fasthash", "mlh", "cca-itq", "itq", "pcah", "spectral", "klsh", "lsh")
STRONG = ("gph", "hadamard-ridge", "classifier-codes", "sdh", "ksh")  # of `protocols`
PAPER_SECONDS = 497.9  # training time of the paper's best row


class PublishedRow(NamedTuple):
    """A method's figures elsewhere: a row of the paper's table 1, one that we add to it, or a band.

    None are all training rows, or all test rows. Long runs have at most `n_seeds`. The paper's figures are mAP,
    precision within radius 2, training seconds and microseconds per query. A band is the mAP that other implementations
    reach, from `low` to `high`, if there is an upper end; the reason says why ours differs, if it does.
    """

    method: str
    options: dict[str, Any]
    data: str = "cifar10"
    n_bits: int = 16
    n_rows: int | None = None
    n_test: int | None = None
    n_seeds: int = 99
    paper: Sequence[float | None] = (None,) * 4
    low: float = 0.0
    high: float | None = None
    reason: str = ""


_READ = json.loads(resources.files("gphash.paper").joinpath("published.json").read_text(encoding="utf-8"))
TABLE1, EXTRA, BANDS = ([PublishedRow(**row) for row in _READ[name]] for name in ("table1", "extra", "bands"))


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
    if name in ("table1", "bands"):
        rows = [*TABLE1, *EXTRA] if name == "table1" else [] if scale.quick else BANDS
        return [cell for row in rows for cell in row_cells(row, scale, n_seeds)]
    if name in ("lead", "protocols"):
        return _beyond(name, scale, n_seeds)
    drawn = {"figure-map": data, "figure-pr": ["cifar10"], "figure-toy": []}[name]
    how = COMPARED, scale.lengths, n_seeds, scale.n_rows.get(None), scale.n_test, scale.options
    return [cell for one in drawn for cell in compare.grid(one, *how)]


def _beyond(name: str, scale: Scale, n_seeds: int) -> list[Cell]:
    """The cells of an experiment that the paper does not have; all settings of methods are automatic."""
    found = []
    for data, n_rows in LEAD if name == "lead" else (("cifar10", 5000), ("jeopardy", None)):
        if scale.quick and data == "digits":
            continue  # small as it is
        size = scale.n_rows.get(n_rows, n_rows), scale.n_test
        if name == "lead":
            for method in COMPARED:
                seeds = 1 if method in ONE_SEED else n_seeds
                found += compare.grid(data, [method], scale.lengths, seeds, *size)
        else:
            lengths = [bits for bits in scale.lengths if bits in (16, 32)]
            for protocol in PROTOCOLS:
                found += compare.grid(data, STRONG, lengths, n_seeds, *size, protocol=protocol)
    return found


def set_name(cell: Cell) -> str:
    """A data set and how many of its training rows, such as cifar10-5000."""
    return f"{cell.data}-{cell.n_rows}" if cell.n_rows else cell.data


def chosen(cells: Sequence[Cell], names: Sequence[str] | None, data: Sequence[str] | None) -> list[Cell]:
    """Those cells that are of some methods and of some data sets, as `set_name` has them; None takes all."""
    for what, given, known in (
        ("method", names, {cell.method for cell in cells}),
        ("data", data, {set_name(cell) for cell in cells}),
    ):
        if unknown := set(given or ()) - known:
            raise ValueError(
                f"{what} {min(unknown)!r} is none of these experiments'; they have {', '.join(sorted(known))}."
            )
    return [
        cell for cell in cells if (names is None or cell.method in names) and (data is None or set_name(cell) in data)
    ]


def row_cells(row: PublishedRow, scale: Scale, n_seeds: int) -> list[Cell]:
    """The cells of a row; none if it is too large for the scale."""
    if row.options.get("n_inducing", 0) > scale.most_inducing:
        return []
    n_rows, n_test = scale.n_rows.get(row.n_rows, row.n_rows), scale.n_test or row.n_test
    options = scale.options | row.options
    return compare.grid(row.data, [row.method], [row.n_bits], min(n_seeds, row.n_seeds), n_rows, n_test, options)
