"""Cells of a comparison: one method, one length of code, one data set, one seed; one file each.

A finished cell is never run again: its report is a file in the folder of results, written whole or not at all. Whoever
interrupts a run and starts it again goes on with the cells that are missing.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gphash import methods, validation
from gphash.contract import Hasher
from gphash.datasets.dataset import Dataset
from gphash.evaluation import protocol, report
from gphash.evaluation.protocol import Rows
from gphash.version import __version__

MANIFEST = "gphash-results.json"
FOLDER = "cells"

Options = tuple[tuple[str, Any], ...]


class ResultsError(ValueError):
    """A folder of results cannot be used; the message says why and what to do."""


class Cell(NamedTuple):
    """What to train and measure.

    data
        Name of the data set.
    method
        Name of the method, a key of `methods.METHODS`.
    n_bits
        Length of a code.
    seed
        Of the method.
    n_rows
        Training rows, drawn at random but the same ones for all methods and seeds; None takes all.
    n_test
        Test rows, the first ones; None takes all.
    options
        Parameters of the method that differ from its defaults, sorted by name.
    """

    data: str
    method: str
    n_bits: int
    seed: int
    n_rows: int | None = None
    n_test: int | None = None
    options: Options = ()

    @property
    def file_name(self) -> str:
        """Readable, and different for different cells."""
        parts = [self.data, self.method, f"{self.n_bits}bits"]
        parts += [f"{self.n_rows}rows"] if self.n_rows else []
        parts += [f"{self.n_test}test"] if self.n_test else []
        parts += [f"{name}={value}" for name, value in self.options] + [f"seed{self.seed}"]
        plain = "-".join("".join(c if c.isalnum() or c in "=._" else "_" for c in part) for part in parts)
        mark = hashlib.sha256(json.dumps(report.plain(self._asdict()), sort_keys=True).encode()).hexdigest()[:6]
        return f"{plain}-{mark}.json"

    @property
    def label(self) -> str:
        """For people who watch."""
        rows = f", {self.n_rows:,} rows" if self.n_rows else ""
        options = "".join(f", {name} {value}" for name, value in self.options)
        return f"{self.data} {self.method} {self.n_bits} bits{rows}{options}, seed {self.seed}"


class Failure(NamedTuple):
    """A cell that could not be run.

    cell
        Which one.
    reason
        Why.
    """

    cell: Cell
    reason: str


class Progress(NamedTuple):
    """Where a run is.

    done, total
        Cells finished and cells altogether.
    cell
        The one that begins now; None at the end.
    seconds_left
        Estimated; None while there is nothing to estimate from.
    """

    done: int
    total: int
    cell: Cell | None
    seconds_left: float | None


class Folder:
    """A folder of results, made by one version of the package.

    Parameters
    ----------
    path
        Made if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        manifest = self.path / MANIFEST
        if self.path.exists() and not self.path.is_dir():
            raise ResultsError(f"{str(self.path)!r} is a file; name a folder for the results.")
        if manifest.exists():
            try:
                made_by = json.loads(manifest.read_text(encoding="utf-8"))["gphash"]
            except (ValueError, KeyError, TypeError) as error:
                raise ResultsError(f"{str(manifest)!r} is damaged ({error}); name another folder.") from error
            if made_by != __version__:
                raise ResultsError(
                    f"the results in {str(self.path)!r} were made by gphash {made_by}, and this is {__version__}: "
                    "figures of two versions are not mixed. Name another folder, or remove that one."
                )
        elif self.path.is_dir() and any((self.path / FOLDER).glob("*.json")):
            raise ResultsError(f"{str(self.path)!r} holds results, but no {MANIFEST}; name another folder.")
        (self.path / FOLDER).mkdir(parents=True, exist_ok=True)
        if not manifest.exists():
            report.write(manifest, {"gphash": __version__})

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
            raise ResultsError(f"{error} Remove the file to have its cell run again.") from error
        if found.get("gphash") != __version__:
            raise ResultsError(
                f"{str(path)!r} was made by gphash {found.get('gphash')}, and this is {__version__}: remove the file."
            )
        before, now = found["method"]["parameters"], report.plain(protocol.parameters(make(cell)))
        if changed := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            raise ResultsError(
                f"{str(path)!r} was made with other defaults ({', '.join(changed)}): remove the file to run it again."
            )
        return found


def check(cells: Iterable[Cell]) -> None:
    """Refuse cells that could never be run, before any is."""
    for cell in cells:
        methods.find(cell.method)
        validation.code_length("bits", cell.n_bits)


def refused(cell: Cell, dataset: Dataset) -> str | None:
    """Why a method cannot learn from a data set; None if it can."""
    takes = methods.find(cell.method).takes
    kind = "labels" if np.ndim(dataset.train.y) == 1 else "tags"
    if not takes or kind in takes:
        return None
    return f"{cell.method} learns from {validation.kinds(takes)}, and {dataset.name} has {validation.KINDS[kind]}"


def run(
    cells: Sequence[Cell],
    folder: Folder,
    load: Callable[[str], Dataset],
    watch: Callable[[Progress], None] = lambda progress: None,
) -> list[Failure]:
    """Run what has not been run yet.

    Parameters
    ----------
    cells
        All that are wanted.
    folder
        Where reports are, and go.
    load
        Gives a data set, with features, by its name.
    watch
        Is told before every cell, and at the end.

    Returns
    -------
    failures
        Cells that could not be run, and why; the others are in the folder.
    """
    check(cells)
    missing = [cell for cell in dict.fromkeys(cells) if folder.find(cell) is None]
    total, failures = len(dict.fromkeys(cells)), []
    clock = Clock()
    loaded: tuple[str, Dataset] | None = None
    for number, cell in enumerate(missing):
        watch(Progress(total - len(missing) + number, total, cell, clock.seconds_left(missing[number:])))
        if folder.place(cell).exists():
            continue  # another run of the same folder was faster
        if loaded is None or loaded[0] != cell.data:
            loaded = cell.data, load(cell.data)
        if (reason := refused(cell, loaded[1])) is not None:
            failures.append(Failure(cell, reason))
            continue
        began = time.perf_counter()
        try:
            made = measure(cell, loaded[1])
        except ValueError as error:
            failures.append(Failure(cell, str(error)))
            continue
        report.write(folder.place(cell), made)
        clock.note(cell, time.perf_counter() - began)
    watch(Progress(total, total, None, 0.0))
    return failures


def make(cell: Cell) -> Hasher:
    """The method of a cell, untrained."""
    return methods.find(cell.method)(cell.n_bits, random_state=cell.seed, **dict(cell.options))


def measure(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """Train and measure one cell, by the paper's protocol: leave one out within the test rows."""
    some = np.random.default_rng(17).permutation(len(dataset.train.y))[: cell.n_rows]
    if cell.n_rows is not None and cell.n_rows > len(dataset.train.y):
        raise ValueError(f"{cell.n_rows:,} training rows are wanted, and {dataset.name} has {len(dataset.train.y):,}.")
    rows = np.sort(some) if cell.n_rows else slice(None)
    assert dataset.train.X is not None
    assert dataset.test.X is not None
    train = Rows(dataset.train.X[rows], dataset.train.y[rows])
    test = Rows(dataset.test.X[: cell.n_test], dataset.test.y[: cell.n_test])
    about = {"name": dataset.name, "features": dataset.features, "checksum": dataset.checksum}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        made = protocol.run(lambda seed: make(cell), train, test, about, seed=cell.seed)
    said = sorted({str(warning.message) for warning in warned})
    return {**made, "cell": report.plain(cell._asdict()), "warnings": said}


def collect(cells: Iterable[Cell], folder: Folder) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Reports of those cells that are finished."""
    for cell in dict.fromkeys(cells):
        if (found := folder.find(cell)) is not None:
            yield cell, found


class Clock:
    """Estimates how long cells will take from those that are done: like cells first, in proportion to their bits."""

    def __init__(self) -> None:
        self._seen: list[tuple[Cell, float]] = []

    def note(self, cell: Cell, seconds: float) -> None:
        """A cell has taken so long."""
        self._seen.append((cell, seconds))

    def seconds_left(self, cells: Sequence[Cell]) -> float | None:
        """Of all the cells given."""
        if not self._seen:
            return None
        return float(sum(self._guess(cell) for cell in cells))

    def _guess(self, cell: Cell) -> float:
        def alike(other: Cell) -> int:
            return (
                2 * (other.method == cell.method)
                + (other.data == cell.data)
                + 3 * (other._replace(seed=0, n_bits=0) == cell._replace(seed=0, n_bits=0))
            )

        nearest = max(alike(other) for other, _ in self._seen)
        rates = [seconds / other.n_bits for other, seconds in self._seen if alike(other) == nearest]
        return float(np.mean(rates)) * cell.n_bits
