"""Rows of dask arrays, as a table that training reads piece by piece, where the chunks are.

Dask computes what is selected, and hands it to a task on the worker that is to keep it; there it is checked.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gphash.arrays import Floats, Indices, check_range
from gphash.data.block_kinds import float_type
from gphash.data.blocks import ArrayPiece, ArrayTable


@dataclass(frozen=True, eq=False)
class DaskPiece:
    """Rows of a dask array: those whose numbers are kept, or all of them if that is None."""

    array: Any  # None on the way to a worker, which Dask hands the rows itself
    rows: Indices | None
    shape: tuple[int, int]  # that Dask believes the array to have

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0] if self.rows is None else len(self.rows)

    def read(self) -> Floats:
        """The rows, here."""
        return self.arrived(self.array).read()

    def arrived(self, rows: Any) -> ArrayPiece:
        """The piece, once rows of the array have come."""
        array = np.asarray(rows)
        if array.shape != self.shape:
            came = f"{array.shape} rows and columns came instead of {self.shape}; try X.compute_chunk_sizes()"
            raise ValueError(f"X is a dask array whose chunks are not what it says: {came}.")
        array = array.astype(float_type([array.dtype]), copy=False)
        if not np.isfinite(array).all():
            raise ValueError("X, a dask array, contains NaN or infinity; give finite numbers.")
        check_range(array)
        return ArrayTable(array).select(np.arange(len(array)) if self.rows is None else self.rows)


class DaskTable:
    """Rows of a dask array of two known lengths, which stay where they are."""

    def __init__(self, X: Any) -> None:
        if X.ndim != 2 or any(size != size for size in X.shape):
            known = "give one of two known lengths (X.compute_chunk_sizes())"
            raise ValueError(f"X is a dask array of shape {X.shape}; {known}.")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"X is a dask array of dtype {X.dtype}; give numbers.")
        self.X = X.rechunk({1: -1})
        self.n_rows, self.n_features = (int(size) for size in X.shape)

    def select(self, rows: Indices) -> DaskPiece:
        """Some rows."""
        first, last = int(rows[0]), int(rows[-1]) + 1
        dense = last - first <= 2 * len(rows)
        array = self.X[first:last] if dense else self.X[rows]
        kept = rows - first if dense and last - first > len(rows) else None
        return DaskPiece(array, kept, tuple(array.shape))

    def fingerprint(self) -> str:
        """Dask's own name of the array: the same for the same source and the same operations, if Dask knows them."""
        return f"{self.X.name} {self.X.shape} {self.X.dtype}"
