"""Tables of results, to be shown on a terminal, in Markdown, in CSV or in HTML."""

import csv as commas
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gphash import methods
from gphash.experiments.cells import Cell


class Table(NamedTuple):
    """A table of words and figures, ready to be shown.

    title
        What it shows.
    columns
        Their names; the first ones name what a row is about.
    rows
        As text.
    best
        Places (row, column) of what is best in its column.
    words
        Whether it holds words rather than figures.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    words: bool = False


class Figure(NamedTuple):
    """One figure over seeds.

    mean, spread
        Mean and standard deviation; the latter is None for a single seed.
    n_seeds
        How many there were.
    """

    mean: float
    spread: float | None
    n_seeds: int

    def __str__(self) -> str:
        return decimals(self.mean) + (f" ± {decimals(self.spread)}" if self.spread is not None else "")


def decimals(value: float) -> str:
    """Three decimals, without the zero before them: .429."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0") else text


def figure(reports: Sequence[dict[str, Any]], *names: str) -> Figure | None:
    """A figure of reports that differ in their seeds, by its place in them, such as "results", "hamming", "map"."""
    values = []
    for one in reports:
        value: Any = one
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            values.append(float(value))
    if not values:
        return None
    return Figure(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


def group(found: Iterable[tuple[Cell, dict[str, Any]]]) -> dict[Cell, list[dict[str, Any]]]:
    """Reports by cell, seeds together: the cells have seed 0."""
    groups: dict[Cell, list[dict[str, Any]]] = {}
    for cell, one in found:
        groups.setdefault(cell._replace(seed=0), []).append(one)
    return groups


def by_bits(
    title: str, groups: dict[Cell, list[dict[str, Any]]], *names: str, show: Callable[[Figure], str] = str
) -> Table:
    """Methods down, lengths of codes across."""
    lengths = sorted({cell.n_bits for cell in groups})
    order = list(methods.METHODS)
    kinds = sorted(dict.fromkeys(cell._replace(n_bits=0) for cell in groups), key=lambda kind: order.index(kind.method))
    figures = [[figure(groups.get(kind._replace(n_bits=bits), []), *names) for bits in lengths] for kind in kinds]
    columns = ("method", *(f"{bits} bits" for bits in lengths))
    rows = tuple(
        (
            kind.method + "".join(f", {name} {value}" for name, value in kind.options),
            *(text(found, show) for found in line),
        )
        for kind, line in zip(kinds, figures, strict=True)
    )
    return Table(title, columns, rows, best(figures, first=1))


def best(figures: Sequence[Sequence[Figure | None]], first: int = 0) -> frozenset[tuple[int, int]]:
    """Where the largest figure of each column is; columns are counted from `first`."""
    places = set()
    for column, values in enumerate(zip(*figures, strict=True)):
        known = [(value.mean, row) for row, value in enumerate(values) if value is not None]
        if len(known) > 1:
            places.add((max(known)[1], column + first))
    return frozenset(places)


def text(found: Figure | None, show: Callable[[Figure], str] = str) -> str:
    """A figure, or a dash where there is none."""
    return "–" if found is None else show(found)


def seconds(found: Figure) -> str:
    """A time or another number without its spread: 8.1."""
    return f"{found.mean:,.1f}"


def markdown(table: Table) -> str:
    """The table in Markdown, best figures bold."""

    def cell(row: int, column: int, value: str) -> str:
        value = value.replace("|", "\\|")
        return f"**{value}**" if (row, column) in table.best else value

    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += [
        "| " + " | ".join(cell(number, column, value) for column, value in enumerate(row)) + " |"
        for number, row in enumerate(table.rows)
    ]
    return "\n".join([f"**{table.title}**", "", *lines]) + "\n"


CSV_FIGURES = {
    "map": ("results", "hamming", "map"),
    "precision_within_radius_2": ("results", "hamming", "precision_within_radius"),
    "map_by_expected_distance": ("results", "expected", "map"),
    "calibration_error": ("results", "calibration", "calibration_error"),
    "training_seconds": ("method", "training_seconds"),
    "encoding_microseconds_per_row": ("method", "encoding_microseconds"),
}


def csv(found: Iterable[tuple[Cell, dict[str, Any]]]) -> str:
    """One line per cell, figures as plain numbers, for machines."""
    stream = io.StringIO()
    writer = commas.writer(stream, lineterminator="\n")
    names = ("data", "method", "options", "training_rows", "test_rows", "bits", "seed")
    writer.writerow((*names, *CSV_FIGURES))
    for cell, one in found:
        rows = one["protocol"]["training_rows"], one["protocol"]["queries"]
        options = " ".join(f"{name}={value}" for name, value in cell.options)
        figures = (figure([one], *place) for place in CSV_FIGURES.values())
        numbers = ("" if value is None else f"{value.mean:.6g}" for value in figures)
        writer.writerow((cell.data, cell.method, options, *rows, cell.n_bits, cell.seed, *numbers))
    return stream.getvalue()
