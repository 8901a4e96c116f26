"""The paper's experiments by name: which cells each needs, and what the paper reports for them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gphash import methods
from gphash.experiments import compare
from gphash.experiments.cells import Cell

LENGTHS = (8, 16, 32, 64)
DEPTH = 2  # of FastHash's trees, as in the paper
PAPER_SECONDS = 497.9  # training time of the paper's best row


class Row(NamedTuple):
    """A row of table 1, or one that we add.

    method
        Name of the method.
    n_rows
        Training rows; None takes all 50,000.
    n_inducing
        Inducing inputs; None for methods without a kernel.
    paper
        The paper's mAP, precision within radius 2, training seconds and microseconds per query; None if it has no
        such row.
    options
        Further parameters.
    n_seeds
        At most so many, for long runs.
    """

    method: str
    n_rows: int | None
    n_inducing: int | None
    paper: tuple[float, float, float, float] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    n_seeds: int = 99


TABLE1 = (
    Row("gph", 5000, 300, (0.279, 0.365, 26.5, 7.7)),
    Row("gph", 5000, 500, (0.304, 0.387, 37.6, 12.3)),
    Row("gph", 5000, 1000, (0.309, 0.395, 78.5, 21.6)),
    Row("gph", 5000, 3000, (0.338, 0.416, 456.1, 44.7)),
    Row("gph", None, 300, (0.311, 0.403, 177.4, 7.6)),
    Row("gph", None, 1000, (0.395, 0.466, 497.9, 18.9)),
    Row("sdh", 5000, 1000, (0.306, 0.373, 0.9, 17.1)),
    Row("sdh", None, 1000, (0.372, 0.423, 7.5, 16.5)),
    Row("fasthash", 5000, None, (0.240, 0.357, 24.6, 47.5)),
    Row("fasthash", None, None, (0.311, 0.440, 355.5, 68.0)),
    Row("ksh", 5000, 1000, (0.305, 0.408, 1461.6, 25.0)),
    Row("cca-itq", 5000, None, (0.262, 0.353, 0.1, 0.2)),
    Row("cca-itq", None, None, (0.304, 0.389, 0.3, 0.2)),
)
EXTRA = (
    Row("gph", None, 1000, options=(("inducing", "random"),)),
    Row("sdh", None, 1000, options=(("inducing", "random"),)),
    Row("hadamard-ridge", 5000, 1000),
    Row("hadamard-ridge", None, 1000),
    Row("sdh", None, 3000),
    Row("hadamard-ridge", None, 3000),
    Row("gph", None, 3000),
    Row("gph", None, 9000, n_seeds=1),
)


class Scale(NamedTuple):
    """How large the experiments are.

    quick
        Whether this is the version of minutes.
    n_rows
        Replacements for numbers of training rows; a row of the table that is not named keeps its number.
    n_test
        Test rows; None for all.
    most_inducing
        Rows of the table with more are left out.
    lengths
        Of codes, in the figures.
    options
        Of methods that know them, in the figures.
    """

    quick: bool
    n_rows: dict[int | None, int]
    n_test: int | None
    most_inducing: int
    lengths: tuple[int, ...]
    options: dict[str, Any]


FULL = Scale(False, {}, None, 10**9, LENGTHS, {"depth": DEPTH})
QUICK = Scale(True, {5000: 1000, None: 4000}, 2000, 1000, (8, 16), {"depth": DEPTH, "n_trees": 50, "n_inducing": 300})


class Experiment(NamedTuple):
    """One of the paper's experiments.

    title
        For people.
    cells
        What it needs, given data sets by their role, a scale and a number of seeds.
    n_seeds
        Unless somebody wants another number.
    """

    title: str
    cells: Callable[[Sequence[str], Scale, int], list[Cell]]
    n_seeds: int


def table_cells(row: Row, scale: Scale, n_seeds: int) -> list[Cell]:
    """Cells of a row of table 1."""
    if (row.n_inducing or 0) > scale.most_inducing:
        return []
    options = dict(row.options)
    if row.n_inducing:
        options["n_inducing"] = row.n_inducing
    if row.method == "fasthash":
        options |= {name: value for name, value in scale.options.items() if name != "n_inducing"}
    chosen = compare.options_for(methods.find(row.method), options)
    n_rows = scale.n_rows.get(row.n_rows, row.n_rows)
    seeds = range(min(n_seeds, row.n_seeds))
    return [Cell("cifar10", row.method, 16, seed, n_rows, scale.n_test, chosen) for seed in seeds]


def _table1(data: Sequence[str], scale: Scale, n_seeds: int) -> list[Cell]:
    return [cell for row in (*TABLE1, *EXTRA) for cell in table_cells(row, scale, n_seeds)]


def _figure_map(data: Sequence[str], scale: Scale, n_seeds: int) -> list[Cell]:
    n_rows = scale.n_rows.get(None)
    return [
        cell
        for name in data
        for cell in compare.grid(
            name, list(methods.METHODS), scale.lengths, n_seeds, n_rows, scale.n_test, scale.options
        )
    ]


def _figure_pr(data: Sequence[str], scale: Scale, n_seeds: int) -> list[Cell]:
    return _figure_map(["cifar10"], scale, n_seeds)


def _figure_toy(data: Sequence[str], scale: Scale, n_seeds: int) -> list[Cell]:
    return []


EXPERIMENTS = {
    "table1": Experiment("Table 1: accuracy and time on CIFAR-10, 16 bits", _table1, 3),
    "figure-map": Experiment("Mean average precision against the length of codes", _figure_map, 1),
    "figure-pr": Experiment("Precision and recall on CIFAR-10", _figure_pr, 1),
    "figure-toy": Experiment("Two bits for four classes in the plane", _figure_toy, 1),
}


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; give one of {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
