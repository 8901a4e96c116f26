"""Commands that do many things in one: compare, reproduce, demo."""

import inspect
import shlex
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from gphash.cli import app, collecting, options, outputs, shown, training
from gphash.cli.options import DataDir, Seed, Set, Threads, output, whole
from gphash.data.known import data_sets
from gphash.hashers import methods

if TYPE_CHECKING:
    from gphash.paper.cells import Cell

# As gphash.paper and gphash.evaluation have them, which take long to import; a test compares.
EXPERIMENTS = ("table1", "bands", "figure-map", "figure-pr", "figure-toy", "lead", "protocols")
PROTOCOLS = ("held-out", "unseen-classes", "training-database")
MOST_SEEDS = 10

DATA = f"Data set: {', '.join(data_sets.DATA_SETS)}; or a folder of pictures, a sub-folder a class."
METHODS = f"Methods, separated by commas, or all: {', '.join(methods.METHODS)}."
PROTOCOL = (
    "held-out searches for each test row among the others, as the paper does; unseen-classes does so for a quarter of "
    "the classes, which training does not see; training-database searches among the training rows, which is leaky."
)
EXPERIMENT = f"Any of {', '.join(EXPERIMENTS)}; all of the paper, which are the first five, if none is named."

FewSeeds = Annotated[
    int | None, whole("--seeds", most=MOST_SEEDS, help="Seeds; if not given, 3 for table1, lead and protocols, else 1.")
]
DemoOutput = Annotated[Path, output("Folder where everything is written.")]

going_on = partial(app.command, interrupted=lambda given: app.AGAIN, has_json=False)


@going_on("gphash compare digits --methods gph,sdh,lsh --bits 8,16 --seeds 3")
def compare(
    data: Annotated[str, Argument(metavar="DATA", help=DATA, autocompletion=options.complete_data)],
    method: Annotated[str, Option("--methods", help=METHODS)] = "all",
    n_bits: Annotated[str, Option("--bits", help="Lengths of codes, separated by commas.")] = "8,16,32,64",
    seeds: Annotated[int, whole("--seeds", help="How many seeds: 0, 1, …")] = 3,
    rows: Annotated[int | None, whole("--rows", least=2, help="Train on so many random rows only.")] = None,
    protocol: Annotated[str, Option("--protocol", metavar="NAME", help=PROTOCOL)] = PROTOCOLS[0],
    option: Set = None,
    path: Annotated[Path | None, output("Folder of results; results-DATA if not given.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Train and measure methods side by side.

    Every cell (method, bits, seed) is a file in the folder of results. A run that was interrupted goes on where it
    stopped, and a finished cell is never run twice. With --set, a parameter goes to every method that knows it.
    """
    from gphash.paper import cells
    from gphash.paper import compare as comparing

    names = list(methods.METHODS) if method == "all" else options.words("methods", method)
    lengths = [options.number(word) for word in options.words("bits", n_bits)]
    settings = options.settings(option)
    with app.usage():
        comparing.check_options(names, settings)
        grid = comparing.grid(data, names, lengths, seeds, rows, None, settings, protocol)
        cells.check(grid)
        comparing.check_data(data)
    folder = cells.Folder(path or Path(f"results-{Path(data).name}"))
    with shown.Meter(f"reading {data}") as meter:
        failures = cells.run(grid, folder, lambda name: comparing.load(name, data_dir, meter), meter.cell)
    for table in comparing.tables(grid, folder):
        if table.rows:
            shown.say(table.title, "italic")
            texts: list[list[Any]] = [list(row) for row in table.rows]
            for number, place in table.best:
                texts[number][place] = shown.strong(texts[number][place])
            shown.table(table.columns, texts)
            shown.say("")
    _finish(comparing.write(grid, folder), failures, len(failures) == len(grid))


@going_on("gphash reproduce --quick", "gphash reproduce table1 --seeds 3")
def reproduce(
    experiments: Annotated[list[str] | None, Argument(metavar="EXPERIMENT", help=EXPERIMENT)] = None,
    quick: Annotated[bool, Option("--quick", help="A small version, in minutes.")] = False,
    seeds: FewSeeds = None,
    method: Annotated[str | None, Option("--methods", help="Run these methods only, separated by commas.")] = None,
    data: Annotated[str | None, Option("--data", help="Run these data sets only, such as cifar10-5000,digits.")] = None,
    path: Annotated[Path | None, output("Folder of results; results or results-quick if not given.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the paper's experiments, and others.

    They end in one self-contained report.html. The full version takes some two hours on two cores; it can be
    interrupted, and goes on where it stopped. lead says where GPH stands among all methods; protocols has the strongest
    of them on classes that training has not seen, and by a leaky protocol that is common.
    """
    from gphash.paper import cells, published
    from gphash.paper import reproduce as reproducing

    names = experiments or list(published.PAPER)
    some = None if method is None else options.words("methods", method)
    sets = None if data is None else options.words("data", data)
    with app.usage():
        scale, sources = published.QUICK if quick else published.FULL, tuple(reproducing.TITLES)
        wanted = [cell for name in names for cell in published.planned(name, sources, scale, seeds)]
        published.chosen(wanted, some, sets)
    folder = cells.Folder(path or Path("results-quick" if quick else "results"))
    with shown.Meter("reading data") as meter:
        written, failures = reproducing.run(names, folder, quick, seeds, data_dir, meter.cell, meter, (some, sets))
    for name in names:
        if name not in published.PAPER and (folder.path / f"{name}.md").exists():
            shown.say((folder.path / f"{name}.md").read_text(encoding="utf-8"))
    shown.say(f"report: {folder.path / 'report.html'}")
    _finish(written, failures, not any((folder.path / cells.FOLDER).iterdir()))


def _finish(written: "list[Path]", failures: "dict[Cell, str]", nothing: bool) -> None:
    """Say what was written and what could not be run; if that is everything, the command has failed."""
    for path in written:
        shown.say(f"wrote {path}")
    for reason, count in Counter(failures.values()).items():
        shown.note(f"left out, {count} cell(s): {reason}", "yellow")
    if failures and nothing:
        raise Exit(1)


@app.command("gphash demo", has_json=False)
def demo(folder: DemoOutput = Path("gphash-demo"), random_state: Seed = 0, n_jobs: Threads = -1) -> None:
    """Handwritten digits, from rows to a page.

    Learns 16 bits, measures them on rows never seen, indexes all digits, and ends with the command that opens the page.
    """
    from gphash.collection.collection import Collection
    from gphash.index.rankings import RANKINGS

    model, report, place = folder / "digits.gph", folder / "report.json", folder / "digits.gphash"
    if outputs.folder(folder).exists():
        for path, kind in ((model, "model"), (report, "report")):
            outputs.file(path, kind)
    folder.mkdir(exist_ok=True)
    # The commands themselves, without what is done once around a command.
    fit, evaluate, build = (inspect.unwrap(one) for one in (training.fit, training.evaluate, collecting.index))
    try:
        fit("digits:train", 16, path=model, option=["n_inducing=300"], random_state=random_state, n_jobs=n_jobs)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    evaluate(model, "digits:test", path=report, n_jobs=n_jobs)
    build(model, "digits", path=place, replace=True, n_jobs=n_jobs)
    with Collection.open(place) as collection:
        # The page's first search would compile what this one does.
        for ranking in RANKINGS:
            collection.search(collection.query(key=0), ranking=ranking)
    # An environment that is not activated is named.
    called, found = Path(sys.argv[0]), shutil.which("gphash")
    known = called.stem != "gphash" or (found is not None and Path(found).resolve() == called.resolve())
    shown.say("See it in the browser:")
    shown.say(f"  {shlex.join(['gphash' if known else str(called), 'serve', str(place)])}", "bold")
