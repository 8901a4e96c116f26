"""What is shown: lines, tables, JSON on standard output; progress, remarks and errors beside it. The one user of rich.

A terminal gets bars and colours, a pipe or a log plain lines.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0  # seconds before a task is worth a bar
PAUSE = 10.0  # seconds between lines of a log
NO_WIDTH = 1000  # of what is not a terminal


def console(**how: Any) -> Console:
    """A console that shows texts as they are: [brackets] of a name are no style, and :train: is no picture of one."""
    return Console(markup=False, emoji=False, highlight=False, **how)


out = console()
err = console(stderr=True)


class Cells(NamedTuple):
    """A row of a table.

    texts
        One a column.
    strong
        Which of them stand out.
    """

    texts: Sequence[str | Text]
    strong: frozenset[int] = frozenset()


def say(text: str, style: str | None = None) -> None:
    """A line of the result, as it is."""
    out.print(text, style=style, soft_wrap=True)


def remark(text: str) -> None:
    """A line beside the result."""
    err.print(text, style="yellow", soft_wrap=True)


def note(text: str) -> None:
    """A line about what is being done."""
    err.print(text, soft_wrap=True)


def complain(text: str) -> None:
    """An error."""
    err.print(text, style="red", soft_wrap=True)


class _Log(logging.Handler):
    """What the package has to say meanwhile, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        note(f"gphash: {record.getMessage()}")


@contextmanager
def log(quiet: bool) -> Iterator[None]:
    """Show what the package logs, unless quiet."""
    logger, handler = logging.getLogger("gphash"), _Log()
    before = logger.level
    if not quiet:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def emit(value: Any) -> None:
    """The result as JSON."""
    from gphash.evaluation import report

    print(json.dumps(report.plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}")


def table(columns: Sequence[str], rows: Sequence[Cells], left: Sequence[int] = (0,)) -> None:
    """A table without lines; columns stand on the right unless they are named in `left`."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="left" if place in left else "right", no_wrap=place not in left)
    for row in rows:
        cells = (
            text if isinstance(text, Text) else Text(text, "bold" if place in row.strong else "")
            for place, text in enumerate(row.texts)
        )
        grid.add_row(*cells)
    # Rich takes what is not a terminal for one of 80 columns, and would cut the table.
    wide = out if out.is_terminal else console(file=out.file, width=NO_WIDTH)
    wide.print(grid)


def against(bits: str, query: str) -> Text:
    """Bits beside the query's: those that differ, and a dot for each that agrees."""
    text = Text()
    for bit, own in zip(bits, query, strict=True):
        text.append("·" if bit == own else bit, "dim" if bit == own else "bold red")
    return text


def duration(seconds: float) -> str:
    """A time in words, as exact as anyone wants it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size(n_bytes: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"


class Meter:
    """Progress of one task after another, with the time left; called with what is done and with the total, if known.

    Nothing is shown of a task that takes less than two seconds.

    Parameters
    ----------
    label
        What is being done.
    quiet
        Show nothing.
    """

    def __init__(self, label: str, quiet: bool = False) -> None:
        self.label, self.quiet = label, quiet
        self._began = self._last = time.monotonic()
        self._first = self._done = 0
        self._total: int | None = None
        self._bars: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Take note of what is done."""
        now = time.monotonic()
        if done < self._done or total != self._total:  # another task: bytes of the next file, pictures after bytes
            self._began, self._first, self._total = now, done, total
        self._done = done
        if self.quiet or now - self._began < PATIENCE:
            return
        left = ""
        if total is not None and done > self._first:
            seconds = (now - self._began) / (done - self._first) * (total - done)
            left = f"about {duration(seconds)} left"
        if err.is_terminal:
            self._draw(done, total, left)
        elif now - self._last >= PAUSE:
            self._last = now
            counted = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            note(f"{self.label}: {counted}" + (f", {left}" if left else ""))

    def _draw(self, done: int, total: int | None, left: str) -> None:
        if self._bars is None:
            self._bars = _bars()
            self._bars.start()
            self._task = self._bars.add_task(self.label, total=None, left="")
        self._bars.update(self._task, completed=done, total=total, left=left)


class Sweeps:
    """Progress of training: a bar that moves with every sweep, or a line for each.

    Parameters
    ----------
    label
        What is being trained.
    most
        Sweeps after which codes are fixed; None for a method that has none.
    quiet, verbose
        Show nothing; show a line for every sweep on a terminal as well.
    """

    def __init__(self, label: str, most: int | None, quiet: bool, verbose: bool) -> None:
        self.label, self.most, self.quiet = label, most, quiet
        self._lines = verbose or not err.is_terminal
        self._began = time.monotonic()
        self._seconds: list[float] = []
        self._bars: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if err.is_terminal:
            self._bars = _bars()
            self._bars.start()
            # Beside the bar there is room for the first words only.
            self._task = self._bars.add_task(self.label.partition(",")[0], total=None, left="")
        else:
            note(self.label)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, sweep: Any) -> None:
        """Take note of a sweep."""
        self._seconds.append(sweep.seconds)
        if self.quiet:
            return
        left = self._left(sweep.number)
        if self._lines:
            flips = "codes are fixed" if sweep.frozen else f"{sweep.flips:,} bits flipped"
            told = f"sweep {sweep.number}: {flips}, leave-one-out score {sweep.leave_one_out:.4f}"
            note(told + (f", {left}" if left else ""))
        if self._bars is not None:
            self._bars.update(self._task, completed=sweep.number, total=self.most, left=left)

    def _left(self, number: int) -> str:
        """A guess at the longest that it can still take: codes may settle at any sweep."""
        if self.most is None or number >= self.most or time.monotonic() - self._began < PATIENCE:
            return ""
        recent = self._seconds[-5:]
        return f"up to about {duration(sum(recent) / len(recent) * (self.most - number))} left"


@contextmanager
def cells() -> Iterator[Callable[[Any], None]]:
    """Show cells of a comparison as they are run: a bar on a terminal, plain lines elsewhere."""
    if not err.is_terminal:

        def tell(progress: Any) -> None:
            if progress.cell is not None:
                left = "" if progress.seconds_left is None else f" (about {duration(progress.seconds_left)} left)"
                note(f"[{progress.done + 1}/{progress.total}] {progress.cell.label}{left}")

        yield tell
        return
    with _bars() as bars:
        task = bars.add_task("", total=None, left="")

        def draw(progress: Any) -> None:
            left = "" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"
            label = progress.cell.label if progress.cell else ""
            bars.update(task, completed=progress.done, total=progress.total, left=left, description=label)

        yield draw


def _bars() -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("fields[left]", "description"))
    return Progress(BarColumn(30), MofNCompleteColumn(), *texts, console=err, transient=True)
