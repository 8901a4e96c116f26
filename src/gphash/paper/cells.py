"""Cells of a comparison: one method, one length of code, one data set, one seed; one file each.

A finished cell is never run again: its report is a file in the folder of results, written whole or not at all. Whoever
interrupts a run and starts it again goes on with the cells that are missing.
"""

import functools
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gphash.data.dataset import Dataset, Split
from gphash.evaluation import protocol, report
from gphash.hashers import cross_fitting, methods
from gphash.hashers.contract import Hasher
from gphash.supervision import targets
from gphash.version import __version__

FOLDER = "cells"

Options = tuple[tuple[str, Any], ...]


class Cell(NamedTuple):
    """What to train and measure: a method on a data set, by their names.

    Training rows are drawn at random, but the same ones for all methods and seeds; test rows are the first ones; None
    takes all. Options are parameters that differ from the method's defaults, sorted by name. The protocol is one of
    `protocol.PROTOCOLS`.
    """

    data: str
    method: str
    n_bits: int
    seed: int
    n_rows: int | None = None
    n_test: int | None = None
    options: Options = ()
    protocol: str = protocol.PROTOCOLS[0]

    @property
    def file_name(self) -> str:
        """Readable, and different for different cells."""
        parts = [self.data, self.method, f"{self.n_bits}bits"]
        parts += [f"{self.n_rows}rows"] if self.n_rows else []
        parts += [f"{self.n_test}test"] if self.n_test else []
        parts += [self.protocol] if self.protocol != protocol.PROTOCOLS[0] else []
        parts += [f"{name}={value}" for name, value in self.options] + [f"seed{self.seed}"]
        plain = "-".join("".join(c if c.isalnum() or c in "=._" else "_" for c in part) for part in parts)
        mark = hashlib.sha256(json.dumps(report.plain(self._asdict()), sort_keys=True).encode()).hexdigest()[:6]
        return f"{plain}-{mark}.json"

    @property
    def label(self) -> str:
        """For people who watch."""
        rows = f", {self.n_rows:,} rows" if self.n_rows else ""
        options = "".join(f", {name} {value}" for name, value in self.options)
        how = f", {self.protocol}" if self.protocol != protocol.PROTOCOLS[0] else ""
        return f"{self.data} {self.method} {self.n_bits} bits{rows}{how}{options}, seed {self.seed}"


Watch = Callable[[int, int, Cell | None, float | None], None]


class Folder:
    """A folder of results, made by one version of the package; it is made if it does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{str(self.path)!r} is a file; name a folder for the results.")
        (self.path / FOLDER).mkdir(parents=True, exist_ok=True)

    def place(self, cell: Cell) -> Path:
        """Where the report of a cell is or will be."""
        return self.path / FOLDER / cell.file_name

    def find(self, cell: Cell) -> dict[str, Any] | None:
        """The report of a finished cell; None if it has not been run."""
        path = self.place(cell)
        if not path.exists():
            return None
        try:
            found = report.read(path)
        except ValueError as error:
            raise ValueError(f"{error} Remove the file to have its cell run again.") from error
        if (made_by := found.get("gphash")) != __version__:
            mixed = "figures of two versions are not mixed. Name another folder, or remove the file."
            raise ValueError(f"{str(path)!r} was made by gphash {made_by}, and this is {__version__}: {mixed}")
        before, now = found["method"]["parameters"], report.plain(protocol.parameters(make(cell)))
        if changed := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            other = f"other defaults ({', '.join(changed)})"
            raise ValueError(f"{str(path)!r} was made with {other}: remove the file to run it again.")
        return found


def check(cells: Iterable[Cell]) -> None:
    """Refuse cells that could never be run, before any is."""
    for cell in cells:
        protocol.check(cell.protocol)
        make(cell).check_parameters()


def run(
    cells: Sequence[Cell],
    folder: Folder,
    load: Callable[[str], Dataset],
    watch: Watch = lambda *told: None,
) -> dict[Cell, str]:
    """Run those cells whose reports are not in the folder yet; returns those that could not be run, and why.

    `load` gives a data set, with features, by its name; `watch` is told before every cell, and at the end: how many
    cells are done, and of how many, the cell that begins now, if any, and about how many seconds are left, if known.
    """
    check(cells)
    wanted = list(dict.fromkeys(cells))
    missing = [cell for cell in wanted if folder.find(cell) is None]
    total, failures = len(wanted), {}
    times: list[tuple[Cell, float]] = []
    loaded = functools.lru_cache(1)(load)
    for number, cell in enumerate(missing):
        watch(total - len(missing) + number, total, cell, seconds_left(times, missing[number:]))
        if folder.place(cell).exists():
            continue  # another run of the same folder was faster
        dataset = loaded(cell.data)
        began = time.perf_counter()
        try:
            report.write(folder.place(cell), measure(cell, dataset))
        except ValueError as error:
            failures[cell] = str(error)
        else:
            times.append((cell, time.perf_counter() - began))
    watch(total, total, None, 0.0)
    return failures


def make(cell: Cell) -> Hasher:
    """The method of a cell, untrained."""
    method: type[Hasher] = methods.METHODS.find(cell.method)
    return method(cell.n_bits, random_state=cell.seed, **dict(cell.options))


def measure(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """Train and measure one cell."""
    train, test = dataset.train, dataset.test
    takes, kind = methods.METHODS.find(cell.method).takes, "labels" if np.ndim(train.y) == 1 else "tags"
    if takes and kind not in takes:
        learns = f"{cell.method} learns from {targets.kinds(takes)}"
        raise ValueError(f"{learns}, and {dataset.name} has {targets.KINDS[kind].words}")
    if cell.n_rows is not None and cell.n_rows > len(train.y):
        has = f"{dataset.name} has {len(train.y):,} training rows"
        raise ValueError(f"{has}; give at most so many, not {cell.n_rows:,}.")
    some = np.random.default_rng(17).permutation(len(train.y))[: cell.n_rows]
    rows = np.sort(some) if cell.n_rows else slice(None)
    about = {"name": dataset.name, "features": dataset.features, "checksum": dataset.checksum}
    own = Split(train.X[rows], train.y[rows])  # type: ignore[index]
    searched = Split(test.X[: cell.n_test], test.y[: cell.n_test])  # type: ignore[index]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        how: dict[str, Any] = {"seed": cell.seed, "protocol": cell.protocol, "read": cross_fitting.read}
        made = protocol.run(lambda seed: make(cell), own, searched, about, **how)
    said = sorted({str(warning.message) for warning in warned})
    return {**made, "cell": report.plain(cell._asdict()), "warnings": said}


def collect(cells: Iterable[Cell], folder: Folder) -> dict[Cell, dict[str, Any]]:
    """Reports of those cells that are finished."""
    return {cell: found for cell in cells if (found := folder.find(cell)) is not None}


def seconds_left(times: Sequence[tuple[Cell, float]], cells: Iterable[Cell]) -> float | None:
    """How long cells will take, from the times of others: of those that are most alike, in proportion to their bits."""

    def guess(cell: Cell) -> float:
        def alike(other: Cell) -> tuple[bool, bool, bool]:
            same = other._replace(seed=0, n_bits=0) == cell._replace(seed=0, n_bits=0)
            return same, other.method == cell.method, other.data == cell.data

        nearest = max(alike(other) for other, _ in times)
        rates = [seconds / other.n_bits for other, seconds in times if alike(other) == nearest]
        return float(np.mean(rates)) * cell.n_bits

    return sum(map(guess, cells)) if times else None
