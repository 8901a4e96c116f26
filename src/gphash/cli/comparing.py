"""Commands that compare methods: compare, reproduce."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gphash import methods
from gphash.cli import app, shown
from gphash.cli.app import Argument, DataDir, Debug, Exit, Option
from gphash.datasets import registry
from gphash.datasets.progress import bar

if TYPE_CHECKING:
    from gphash.experiments.cells import Failure
    from gphash.experiments.table import Table

# As gphash.experiments has them, which takes long to import; a test compares.
EXPERIMENTS = ("table1", "bands", "figure-map", "figure-pr", "figure-toy")
MOST_SEEDS = 10


@app.command("gphash compare digits --methods gph,sdh,lsh --bits 8,16 --seeds 3", interrupted=lambda given: app.AGAIN)
def compare(
    data: Annotated[
        str,
        Argument(
            help=f"Data set: {', '.join(registry.DATA_SETS)}; or a folder of pictures, a sub-folder a class.",
            autocompletion=app.complete_data,
        ),
    ],
    method: Annotated[
        str, Option("--methods", help=f"Methods, separated by commas, or all: {', '.join(methods.METHODS)}.")
    ] = "all",
    bits: Annotated[str, Option(help="Lengths of codes, separated by commas.")] = "8,16,32,64",
    seeds: Annotated[int, Option(min=1, help="Runs with seeds 0, 1, …")] = 3,
    rows: Annotated[int | None, Option(min=2, help="Train on so many random rows only.")] = None,
    option: Annotated[
        list[str] | None,
        Option(
            "--set", help="NAME=VALUE: a parameter for every method that knows it, such as n_inducing=300; repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder of results; results-DATA if not given.")
    ] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Train and measure methods side by side.

    The protocol is that of the paper: leave one out within the test rows. Every cell (method, bits, seed) is a file in
    the folder of results. A run that was interrupted goes on where it stopped, and a finished cell is never run twice.
    """
    from gphash.experiments import cells as running
    from gphash.experiments import compare as comparing
    from gphash.experiments.cells import Folder

    names = list(methods.METHODS) if method == "all" else app.words("methods", method)
    lengths = [app.number("bits", word) for word in app.words("bits", bits)]
    settings = app.settings(option)
    comparing.check_options(names, settings)
    grid = comparing.grid(data, names, lengths, seeds, rows, None, settings)
    running.check(grid)
    comparing.check_data(data)
    folder = Folder(output or Path(f"results-{Path(data).name}"))
    with shown.cells() as watch:
        failures = running.run(grid, folder, lambda name: comparing.load(name, data_dir, bar(sys.stderr, name)), watch)
    for one in comparing.tables(grid, folder):
        _print_table(one)
    _finish(comparing.write(grid, folder), failures, len(grid))


@app.command("gphash reproduce --quick", "gphash reproduce table1 --seeds 3", interrupted=lambda given: app.AGAIN)
def reproduce(
    experiments: Annotated[
        list[str] | None, Argument(help=f"Any of {', '.join(EXPERIMENTS)}; all if none is named.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A small version, in minutes.")] = False,
    seeds: Annotated[
        int | None, Option(min=1, max=MOST_SEEDS, help="Seeds; 3 for the table and 1 for figures if not given.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder of results; results, or results-quick, if not given.")
    ] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Run the paper's experiments.

    They end in one self-contained report.html. The full version takes some two hours on two cores; it can be
    interrupted, and goes on where it stopped.
    """
    from gphash.experiments import cells as running
    from gphash.experiments import paper
    from gphash.experiments import reproduce as reproducing
    from gphash.experiments.cells import Folder

    names = experiments or list(paper.EXPERIMENTS)
    for name in names:
        paper.find(name)
    folder = Folder(output or Path("results-quick" if quick else "results"))
    with shown.cells() as watch:
        written, failures = reproducing.run(names, folder, quick, seeds, data_dir, watch, bar(sys.stderr, "data"))
    shown.say(f"report: {folder.path / 'report.html'}")
    _finish(written, failures, len(failures) if not any((folder.path / running.FOLDER).iterdir()) else None)


def _finish(written: "list[Path]", failures: "list[Failure]", n_cells: int | None) -> None:
    """Say what was written and what could not be run."""
    for path in written:
        shown.say(f"wrote {path}")
    reasons: dict[str, int] = {}
    for failure in failures:
        reasons[failure.reason] = reasons.get(failure.reason, 0) + 1
    for reason, count in reasons.items():
        shown.remark(f"left out, {count} cell(s): {reason}")
    if n_cells is not None and len(failures) == n_cells:
        raise Exit(1)


def _print_table(table: "Table") -> None:
    if not table.rows:
        return
    shown.say(table.title, "italic")
    rows = [
        shown.Cells(row, frozenset(place for place in range(len(row)) if (number, place) in table.best))
        for number, row in enumerate(table.rows)
    ]
    shown.table(table.columns, rows)
    shown.say("")
