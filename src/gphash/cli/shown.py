"""What is shown: results on standard output; progress, remarks and errors beside it. The one user of rich.

A terminal gets bars and colours, a pipe or a log gets plain lines.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0  # seconds before a task is worth a bar
PAUSE = 10.0  # seconds between lines of a log
NO_WIDTH = 1000  # of what is not a terminal
MOST = 30  # things of a list that are shown
SCORE = "{:.4f} (log-likelihood per bit; chance is -0.6931, 0 is the best)"
SHORT = 12  # characters of a checksum that are shown

size = decimal  # bytes in words

manner = SimpleNamespace(quiet=False, as_json=False)  # of the command that is running, by its options


def console(**how: Any) -> Console:
    """A console that shows texts as they are: [brackets] are no style, and :train: is no picture of one."""
    return Console(markup=False, emoji=False, highlight=False, **how)


out = console()
err = console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print a line of the result."""
    out.print(text, style=style, soft_wrap=True)


def note(text: str, style: str | None = None) -> None:
    """Print a line about what is being done."""
    err.print(text, style=style, soft_wrap=True)


def remark(text: str) -> None:
    """Print a line that deserves a second look, unless --quiet is given."""
    if not manner.quiet:
        note(f"gphash: {text}", "yellow")


def complain(text: str) -> None:
    """Print an error."""
    note(f"gphash: {text}", "red")


def duration(seconds: float) -> str:
    """A time in words, as exact as anyone wants it."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def in_manner(quiet: bool, as_json: bool) -> Iterator[None]:
    """Show things in this manner, and what the package logs unless `quiet`."""
    manner.quiet, manner.as_json = quiet, as_json
    logger, handler = logging.getLogger("gphash"), logging.Handler()
    handler.emit = lambda record: note(f"gphash: {record.getMessage()}")  # type: ignore[method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        manner.quiet = manner.as_json = False


def answer(told: Mapping[str, Any], sentence: str | None = None) -> bool:
    """Print the result of a command, and tell whether people read it.

    With --json that is the record itself. People get a sentence that names values of the record in braces, or else a
    line for every value; "" leaves it to the caller to show the record.
    """
    if manner.as_json:
        from gphash.evaluation import report

        print(json.dumps(report.plain(told), indent=1, ensure_ascii=False, allow_nan=False, default=str))
    elif sentence is None:
        facts(told)
    elif sentence:
        say(sentence.format_map(told))
    return not manner.as_json


def facts(told: Mapping[str, Any]) -> None:
    """Print names and values, one pair a line; what is not known is left out."""
    lines = {}
    for name, value in told.items():
        if name == "arrays":
            for key, entry in value.items():
                shape = " × ".join(f"{side:,}" for side in entry["shape"]) or "1"
                lines[f"  {key}"] = f"{entry['dtype'].lstrip('<|')} {shape}, {size(entry['bytes'])}"
        elif value is not None and value not in ({}, [], ()):
            title, form = SPECIAL.get(name, (name.replace("_", " "), _text))
            lines[title] = form(value)
    width = max(map(len, lines), default=0)
    for title, text in lines.items():
        say(f"{title:<{width}}  {text}")


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{key} {_word(item)}" for key, item in value.items())
        case list() | tuple():
            return some(value, MOST, " … and {} more")
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value:  # an array, such as the words of a descriptor
        return f"{' × '.join(map(str, value['shape']))} numbers"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Values of a record that people read in other words.
SPECIAL: dict[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("size", size),
    "checksum": ("checksum", lambda value: value[:SHORT]),
    "codes": ("distinct codes", "{:,}".format),
    "leave_one_out_score": ("leave-one-out score", SCORE.format),
    "seconds": ("time", duration),
    "skipped": ("left out", lambda value: f"{len(value):,}"),
    "training_seconds": ("training time", duration),
}


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], left: Sequence[int] = (0,)) -> None:
    """Print a table without lines; columns are aligned to the right unless they are named in `left`."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="left" if place in left else "right", no_wrap=place not in left)
    for row in rows:
        grid.add_row(*row)
    # Rich takes what is not a terminal for one of 80 columns, and would cut the table.
    wide = out if out.is_terminal else console(file=out.file, width=NO_WIDTH)
    wide.print(grid)


def workers(done: Mapping[str, Any]) -> None:
    """Print what every worker did, one a line; --json has the seconds of every phase of training."""
    for worker, one in () if manner.quiet else sorted(done.items()):
        received = f", {size(one.received)} received" if hasattr(one, "received") else ""
        spent = f", {duration(sum(one.seconds.values()))} at work" if hasattr(one, "seconds") else ""
        note(f"{worker}: {one.rows:,} rows{received}{spent}")


def strong(text: str) -> Text:
    """A cell of a table that stands out."""
    return Text(text, "bold")


def against(bits: str, query: str) -> Text:
    """Bits beside the query's: those that differ, and a dot for each that agrees."""
    pairs = zip(bits, query, strict=True)
    return Text.assemble(*(("·", "dim") if bit == own else (bit, "bold red") for bit, own in pairs))


def some(things: Sequence[Any], most: int, then: str) -> str:
    """The first of many things, and what to add if there are more."""
    named = ", ".join(map(str, things[:most]))
    return named + (then.format(len(things) - most) if len(things) > most else "")


class Meter:
    """Progress of one task after another, each for itself; nothing is shown of one that takes less than two seconds.

    A terminal gets a bar, anything else a line now and then.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._bar: Progress | None = None
        self._began = self._last = time.monotonic()
        self._first = self._done = 0
        self._total: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Take note of what is done, and of the total if it is known."""
        now = time.monotonic()
        if done < self._done or total != self._total:  # another task: bytes of the next file, pictures after bytes
            self._began, self._first, self._total = now, done, total
        self._done = done
        if manner.quiet or now - self._began < PATIENCE or not (err.is_terminal or now - self._last >= PAUSE):
            return
        self._last = now
        left = ""
        if total is not None and done > self._first:
            left = f"about {duration((now - self._began) / (done - self._first) * (total - done))} left"
        self.show(done, total, left, f"{self.label}: {done:,}" + ("" if total is None else f" of {total:,}"))

    def show(self, done: int, total: int | None, left: str, line: str, label: str = "") -> None:
        """Move the bar, or print a line; `left` says how long it will take. Nothing is shown with --quiet."""
        if manner.quiet:
            return
        if not err.is_terminal:
            note(", ".join(filter(None, (line, left))))
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("fields[left]", "description"))
            self._bar = Progress(BarColumn(30), MofNCompleteColumn(), *texts, console=err, transient=True)
            self._bar.add_task("", total=None, left="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, left=left, description=label or self.label)

    def sweep(self, one: Any, most: int | None, verbose: bool) -> None:
        """Show a sweep of training, of at most so many; codes may settle sooner."""
        flips = "codes are fixed" if one.frozen else f"{one.flips:,} bits flipped"
        line = f"sweep {one.number}: {flips}, leave-one-out score {one.leave_one_out:.4f}"
        if verbose and err.is_terminal and not manner.quiet:
            note(line)
        left = ""
        if most is not None and one.number < most and time.monotonic() - self._began >= PATIENCE:
            left = f"up to about {duration(one.seconds * (most - one.number))} left"
        self.show(one.number, most, left, line)

    def cell(self, done: int, total: int, cell: Any, seconds_left: float | None) -> None:
        """Show a cell of a comparison that is about to be run."""
        if cell is not None:
            left = "" if seconds_left is None else f"about {duration(seconds_left)} left"
            self.show(done, total, left, f"[{done + 1}/{total}] {cell.label}", cell.label)
