"""Tables of results, to be shown on a terminal, in Markdown, in CSV or in HTML."""

import csv as commas
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gphash.hashers.methods import METHODS
from gphash.paper.cells import Cell

Reports = Sequence[dict[str, Any]]
Groups = dict[Cell, list[dict[str, Any]]]

# Where figures are in a report.
MAP = ("results", "hamming", "map")
WITHIN_RADIUS = ("results", "hamming", "precision_within_radius")
EXPECTED_MAP = ("results", "expected", "map")
SIMILARITY_MAP = ("results", "similarity", "map")
TRAINING = ("method", "training_seconds")
ENCODING = ("method", "encoding_microseconds")
CSV_FIGURES = {
    "map": MAP,
    "precision_within_radius_2": WITHIN_RADIUS,
    "map_by_expected_distance": EXPECTED_MAP,
    "map_by_similarity": SIMILARITY_MAP,
    "calibration_error": ("results", "calibration", "calibration_error"),
    "calibration_error_of_similarity": ("results", "similarity", "calibration", "calibration_error"),
    "training_seconds": TRAINING,
    "encoding_microseconds_per_row": ENCODING,
}


class ResultTable(NamedTuple):
    """A table ready to be shown: texts in rows and columns, and the places (row, column) of what is best."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()


class Figure(NamedTuple):
    """One figure over seeds: mean and standard deviation, which is None for a single seed."""

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        return decimals(self.mean) + (f" ± {decimals(self.spread)}" if self.spread is not None else "")


def decimals(value: float) -> str:
    """Three decimals, without the zero before them: .429."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0") else text


def seconds(found: Figure) -> str:
    """A time or another number without its spread: 8.1."""
    return f"{found.mean:,.1f}"


def shown(found: Figure | None, show: Callable[[Figure], str] = str) -> str:
    """A figure as text; a dash if there is none."""
    return "–" if found is None else show(found)


def figure(reports: Reports, *names: str) -> Figure | None:
    """A figure of reports that differ in their seeds, by its place in them."""
    values = []
    for one in reports:
        found: Any = one
        for name in names:
            found = (found or {}).get(name)
        if found is not None:
            values.append(float(found))
    if not values:
        return None
    return Figure(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def group(found: Mapping[Cell, dict[str, Any]]) -> Groups:
    """Reports by cell, seeds together: the cells have seed 0."""
    groups: Groups = {}
    for cell, one in found.items():
        groups.setdefault(cell._replace(seed=0), []).append(one)
    return groups


def by_bits(title: str, groups: Groups, *names: str, show: Callable[[Figure], str] = str) -> ResultTable:
    """Methods down, lengths of codes across."""
    lengths = sorted({cell.n_bits for cell in groups})
    kinds = sorted(
        dict.fromkeys(cell._replace(n_bits=0) for cell in groups), key=lambda kind: list(METHODS).index(kind.method)
    )
    figures = [[figure(groups.get(kind._replace(n_bits=bits), []), *names) for bits in lengths] for kind in kinds]
    columns = ("method", *(f"{bits} bits" for bits in lengths))
    rows = tuple(
        (named(kind.method, kind.options), *(shown(found, show) for found in line))
        for kind, line in zip(kinds, figures, strict=True)
    )
    return ResultTable(title, columns, rows, best(figures, first=1))


def beside(title: str, tables: Mapping[str, ResultTable]) -> ResultTable:
    """Tables of the same rows in one, by the names of what they show."""
    columns, rows, places = ["method"], [[row[0]] for row in next(iter(tables.values())).rows], set()
    for name, one in tables.items():
        places |= {(row, column + len(columns) - 1) for row, column in one.best}
        columns += [f"{name}, {column}" for column in one.columns[1:]]
        rows = [[*row, *more[1:]] for row, more in zip(rows, one.rows, strict=True)]
    return ResultTable(title, tuple(columns), tuple(map(tuple, rows)), frozenset(places))


def protocol_names(reports: Iterable[dict[str, Any]]) -> str:
    """By what the figures of reports were measured."""
    return ", ".join(dict.fromkeys(one["protocol"]["name"] for one in reports))


def named(method: str, options: Iterable[tuple[str, Any]]) -> str:
    """A method with its options."""
    return method + "".join(f", {name} {value}" for name, value in options)


def best(figures: Sequence[Sequence[Figure | None]], first: int = 0) -> frozenset[tuple[int, int]]:
    """Where the largest figure of each column is; columns are counted from `first`."""
    places = set()
    for column, values in enumerate(zip(*figures, strict=True)):
        known = [(value.mean, row) for row, value in enumerate(values) if value is not None]
        if len(known) > 1:
            places.add((max(known)[1], column + first))
    return frozenset(places)


def markdown(table: ResultTable) -> str:
    """The table in Markdown, best figures bold."""
    rows = [table.columns, ("---",) * len(table.columns)]
    for number, row in enumerate(table.rows):
        plain = [value.replace("|", "\\|") for value in row]
        rows.append(tuple(f"**{text}**" if (number, at) in table.best else text for at, text in enumerate(plain)))
    return "\n".join([f"**{table.title}**", "", *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def csv(found: Mapping[Cell, dict[str, Any]]) -> str:
    """One line per cell, figures as plain numbers, for machines."""
    stream = io.StringIO()
    writer = commas.writer(stream, lineterminator="\n")
    writer.writerow(
        ("data", "method", "options", "training_rows", "test_rows", "bits", "seed", "protocol", *CSV_FIGURES)
    )
    for cell, one in found.items():
        rows = one["protocol"]["training_rows"], one["protocol"]["queries"]
        options = " ".join(f"{name}={value}" for name, value in cell.options)
        figures = (figure([one], *place) for place in CSV_FIGURES.values())
        numbers = ("" if value is None else f"{value.mean:.6g}" for value in figures)
        writer.writerow((cell.data, cell.method, options, *rows, cell.n_bits, cell.seed, cell.protocol, *numbers))
    return stream.getvalue()
