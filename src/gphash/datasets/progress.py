"""Progress as a callback, and a bar for terminals. Nothing is drawn unless a caller asks for it."""

import time
from collections.abc import Callable
from typing import TextIO, TypeAlias

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with what is done and with the total, both in bytes or both in files; the total is None if nobody knows it."""

WIDTH = 30
SECONDS_BETWEEN = 0.1


def bar(stream: TextIO, label: str = "", unit: str = "bytes") -> Progress:
    """A callback that draws a bar.

    On a terminal the bar moves; elsewhere, in a log, one line appears for every finished task.

    Parameters
    ----------
    stream
        Where to write, `sys.stderr` say.
    label
        What comes before the bar.
    unit
        What is counted: "bytes", which are shown as megabytes, or any other word.
    """
    moves = stream.isatty()
    drawn = -SECONDS_BETWEEN
    label = f"{label} " if label else ""

    def number(value: int) -> str:
        return f"{value / 1e6:.1f}" if unit == "bytes" else f"{value:,}"

    def draw(done: int, total: int | None) -> None:
        nonlocal drawn
        finished = total is not None and done >= total
        now = time.monotonic()
        if not finished and (not moves or now - drawn < SECONDS_BETWEEN):
            return
        drawn = now
        counted = "MB" if unit == "bytes" else unit
        if total is None:
            text = f"{label}{number(done)} {counted}"
        else:
            share = min(done / total, 1.0) if total else 1.0
            filled = round(WIDTH * share)
            blocks = "#" * filled + "." * (WIDTH - filled)
            text = f"{label}[{blocks}] {share:4.0%}  {number(done)} of {number(total)} {counted}"
        stream.write(("\r" if moves else "") + text + ("\n" if finished else ""))
        stream.flush()

    return draw
