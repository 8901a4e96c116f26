"""The command line: `gphash`. It reads arguments, shows progress and tables, and hands everything else over."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table as Grid
from rich.text import Text

from gphash import methods
from gphash.datasets.progress import bar
from gphash.experiments import cells as running
from gphash.experiments import compare as comparing
from gphash.experiments import paper
from gphash.experiments import reproduce as reproducing
from gphash.experiments.cells import Failure, Folder
from gphash.experiments.table import Table
from gphash.version import __version__

P = ParamSpec("P")

app = typer.Typer(
    name="gphash",
    help="Short binary codes that keep your notion of similarity.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console()
err = Console(stderr=True)

Seeds = Annotated[int, typer.Option(min=1, help="Runs with seeds 0, 1, …")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the data; else the one that GPHASH_DATA names, else the user's cache.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def main() -> None:
    """Run the command line; exit codes are 0, 1 (failed), 2 (usage) or 130 (interrupted)."""
    app()


def _guarded(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors are one line that says what to do, unless --debug is given."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            _say(err, "gphash: interrupted; run the same command again to go on where it stopped.", "red")
            raise typer.Exit(130) from None
        except (ValueError, OSError, ImportError) as error:
            if kwargs.get("debug"):
                raise
            _say(err, f"gphash: {error}", "red")
            raise typer.Exit(1) from error

    return guarded


def _say(console: Console, text: str, style: str | None = None) -> None:
    """Plain text, as it is."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        _say(out, f"gphash {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
@_guarded
def compare(
    data: Annotated[
        str,
        typer.Argument(
            help=f"Data set: {', '.join(comparing.DATA_SETS)}; or a folder of pictures, a sub-folder a class."
        ),
    ],
    method: Annotated[
        str, typer.Option("--methods", help=f"Methods, separated by commas, or all: {', '.join(methods.METHODS)}.")
    ] = "all",
    bits: Annotated[str, typer.Option(help="Lengths of codes, separated by commas.")] = "8,16,32,64",
    seeds: Seeds = 3,
    rows: Annotated[int | None, typer.Option(min=2, help="Train on so many random rows only.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="NAME=VALUE: a parameter for every method that knows it, such as n_inducing=300; repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of results; results-DATA if not given.")
    ] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Train and measure methods side by side, by the protocol of the paper: leave one out within the test rows.

    Every cell (method, bits, seed) is a file in the folder of results. A run that was interrupted goes on where it
    stopped, and a finished cell is never run twice.

        gphash compare digits --methods gph,sdh,lsh --bits 8,16 --seeds 3
    """
    names = list(methods.METHODS) if method == "all" else _words("methods", method)
    lengths = [_number("bits", word) for word in _words("bits", bits)]
    settings = dict(map(_setting, option or []))
    comparing.check_options(names, settings)
    grid = comparing.grid(data, names, lengths, seeds, rows, None, settings)
    running.check(grid)
    comparing.check_data(data)
    folder = Folder(output or Path(f"results-{Path(data).name}"))
    with _watched() as watch:
        failures = running.run(grid, folder, lambda name: comparing.load(name, data_dir, bar(sys.stderr, name)), watch)
    for one in comparing.tables(grid, folder):
        _print_table(one)
    _finish(comparing.write(grid, folder), failures, len(grid))


@app.command()
@_guarded
def reproduce(
    experiments: Annotated[
        list[str] | None, typer.Argument(help=f"Any of {', '.join(paper.EXPERIMENTS)}; all if none is named.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in minutes.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=reproducing.MOST_SEEDS,
            help="Seeds; 3 for the table and 1 for figures if not given.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of results; results, or results-quick, if not given.")
    ] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Run the paper's experiments and write one self-contained report.html.

    The full version takes some two hours on two cores; it can be interrupted, and goes on where it stopped.

        gphash reproduce --quick
        gphash reproduce table1 --seeds 3
    """
    names = experiments or list(paper.EXPERIMENTS)
    for name in names:
        paper.find(name)
    folder = Folder(output or Path("results-quick" if quick else "results"))
    with _watched() as watch:
        written, failures = reproducing.run(names, folder, quick, seeds, data_dir, watch, bar(sys.stderr, "data"))
    _say(out, f"report: {folder.path / 'report.html'}")
    _finish(written, failures, len(failures) if not any((folder.path / running.FOLDER).iterdir()) else None)


@contextmanager
def _watched() -> Iterator[Callable[[running.Progress], None]]:
    """Show cells as they are run: a bar on a terminal, plain lines elsewhere."""
    if not err.is_terminal:

        def tell(progress: running.Progress) -> None:
            if progress.cell is not None:
                left = "" if progress.seconds_left is None else f" (about {_duration(progress.seconds_left)} left)"
                _say(err, f"[{progress.done + 1}/{progress.total}] {progress.cell.label}{left}")

        yield tell
        return
    columns = (BarColumn(30), MofNCompleteColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bars:
        task = bars.add_task("", total=None, left="")

        def draw(progress: running.Progress) -> None:
            left = "" if progress.seconds_left is None else f"{_duration(progress.seconds_left)} left"
            label = progress.cell.label if progress.cell else ""
            bars.update(task, completed=progress.done, total=progress.total, left=left, description=label)

        yield draw


def _finish(written: list[Path], failures: list[Failure], n_cells: int | None) -> None:
    """Say what was written and what could not be run."""
    for path in written:
        _say(out, f"wrote {path}")
    reasons: dict[str, int] = {}
    for failure in failures:
        reasons[failure.reason] = reasons.get(failure.reason, 0) + 1
    for reason, count in reasons.items():
        _say(err, f"left out, {count} cell(s): {reason}", "yellow")
    if n_cells is not None and len(failures) == n_cells:
        raise typer.Exit(1)


def _print_table(table: Table) -> None:
    if not table.rows:
        return
    _say(out, table.title, "italic")
    grid = Grid(box=None, pad_edge=False)
    for number, name in enumerate(table.columns):
        grid.add_column(name, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for number, row in enumerate(table.rows):
        grid.add_row(*(Text(text, "bold" if (number, place) in table.best else "") for place, text in enumerate(row)))
    # What is not a terminal has no width.
    out.print(grid, width=None if out.is_terminal else 1000)
    out.print()


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _words(name: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise typer.BadParameter(f"--{name} is empty; give words separated by commas.")
    return list(dict.fromkeys(words))


def _number(name: str, word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise typer.BadParameter(f"--{name}: {word!r} is no whole number of at least 1.")
    return int(word)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as a number if it is one."""
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier() and value):
        raise typer.BadParameter(f"--set {text!r}; give NAME=VALUE.")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)
