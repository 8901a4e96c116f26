"""Names for the array types that signatures use, and rows that stay in their own type until they are read.

Shapes are stated in docstrings. Rows of short numbers, such as float16 or int8, sparse rows and rows in chunks are
never copied as a whole: whoever works on a tile of them makes that dense, and wide enough to compute with.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
"""Real numbers: float32 where an array is large (features), float64 where it is small (factors, sites)."""

Signs = NDArray[np.int8]
"""Codes as −1 and +1, the form that training works with."""

Indices = NDArray[np.int64]
"""Row numbers."""

LARGEST = 1e18  # length of a row, whose square float32 can hold
NUMBERS = "fiub"  # kinds of dtypes
TILE = 1 << 21  # numbers that are checked at a time


class HeldRows(ABC):
    """Rows that are not one array, [n, d]; some of them, by a slice or numbers, come as one."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: slice | Indices) -> NDArray[Any]: ...


@dataclass(frozen=True, eq=False)
class SparseRows(HeldRows):
    """Rows of a matrix of scipy.sparse in the format csr."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n_rows, n_features = self.matrix.shape
        return int(n_rows), int(n_features)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        found: np.dtype[Any] = self.matrix.dtype
        return found

    def __getitem__(self, rows: slice | Indices) -> NDArray[Any]:
        return np.asarray(self.matrix[rows].toarray())


@dataclass(frozen=True, eq=False)
class ChunkedRows(HeldRows):
    """Rows in chunks that follow each other: each an array [b, d], or d columns [b]."""

    chunks: Sequence[NDArray[Any] | Sequence[NDArray[Any]]]
    starts: Indices  # of every chunk, and behind the last one, [chunks + 1]
    n_features: int
    kind: np.dtype[Any]  # of the numbers

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.starts[-1]), self.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return self.kind

    def __getitem__(self, rows: slice | Indices) -> NDArray[Any]:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        found = np.empty((len(numbers), self.n_features), self.dtype)
        places = np.searchsorted(self.starts, numbers, side="right") - 1
        for number in np.unique(places):
            chunk, here = self.chunks[number], np.flatnonzero(places == number)
            own = numbers[here] - self.starts[number]
            if isinstance(chunk, np.ndarray):
                found[here] = chunk[own]
                continue
            for column, cells in enumerate(chunk):
                found[here, column] = cells[own]
        return found


Rows: TypeAlias = NDArray[Any] | HeldRows
"""Numbers [n, d] of any type, of which slices are taken, and widened."""


def is_sparse(X: Any) -> bool:
    """Whether X is a matrix of scipy.sparse."""
    return hasattr(X, "tocsr")


def is_short(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are of a type of at most two bytes, all of which float32 holds exactly."""
    return dtype.kind in NUMBERS and dtype.itemsize <= 2


def sparse(X: Any, name: str = "X") -> SparseRows:
    """Rows of a sparse matrix, which is checked; an error calls it by its name."""
    matrix = X.tocsr()
    if len(matrix.shape) != 2 or np.dtype(matrix.dtype).kind not in NUMBERS:
        raise ValueError(f"{name} is sparse, of dtype {matrix.dtype} and shape {matrix.shape}; give numbers [n, d].")
    matrix.check_format(full_check=True)  # indices may come from a file
    return SparseRows(matrix)


def part(X: Rows, rows: slice) -> Rows:
    """Some of the rows, as they are."""
    return SparseRows(X.matrix[rows]) if isinstance(X, SparseRows) else X[rows]


def widened(X: NDArray[Any]) -> Floats:
    """Numbers as they are computed with: float32 if that holds all of their type, else float64; a copy if need be."""
    return X.astype(np.float32 if X.dtype == np.float32 or is_short(X.dtype) else np.float64, copy=False)


def parts(X: Rows) -> Iterator[NDArray[Any]]:
    """The arrays that rows consist of, in pieces: of sparse ones their numbers and where these are."""
    found = (X.matrix.data, X.matrix.indices, X.matrix.indptr) if isinstance(X, SparseRows) else (X,)
    for array in found:
        yield from _tiles(array)


def _tiles(numbers: Rows) -> Iterator[NDArray[Any]]:
    rows = max(1, TILE // max(1, math.prod(numbers.shape[1:])))
    return (numbers[start : start + rows] for start in range(0, len(numbers), rows))


def check_numbers(X: Rows, name: str = "X") -> None:
    """Refuse NaN, infinity, and numbers so large that squares of rows would not be finite; tile by tile."""
    if not X.shape[1]:
        raise ValueError(f"{name} has shape {X.shape}; give rows of at least one number, [n, d].")
    limit = LARGEST / X.shape[1] ** 0.5
    for tile in _tiles(X.matrix.data if isinstance(X, SparseRows) else X):
        if not tile.size:
            continue
        least, most = float(tile.min()), float(tile.max())
        if not (np.isfinite(least) and np.isfinite(most)):
            raise ValueError(f"{name} holds NaN or infinity; give finite numbers.")
        if (largest := max(most, -least)) > limit:
            raise ValueError(f"{name} holds values as large as {largest:.3g}; give values of at most {limit:.1e}.")


def check_range(X: Floats) -> None:
    """Refuse finite numbers so large that squares of rows would not be."""
    largest, limit = max(float(X.max()), -float(X.min())) if X.size else 0.0, LARGEST / X.shape[1] ** 0.5
    if largest > limit:
        raise ValueError(f"X holds values as large as {largest:.3g}; give values of at most {limit:.1e}.")
