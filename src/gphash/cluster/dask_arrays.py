"""Rows of dask arrays, as a table that training reads piece by piece, where the chunks are.

Dask computes what is selected, and hands it to a task on the worker that is to keep it; there it is checked.
"""

from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats, Indices, check_range
from gphash.data.block_kinds import float_type
from gphash.data.blocks import ArrayTable, Piece


class Kept(NamedTuple):
    """Stands for a piece whose rows come from Dask: which are kept, and the shape that Dask believes to come."""

    rows: Indices | None
    shape: tuple[int, int]


class DaskPiece(NamedTuple):
    """Rows of a dask array: those of the array whose numbers are kept, or all of them if that is None."""

    array: Any
    rows: Indices | None

    @property
    def kept(self) -> Kept:
        """What stands for it."""
        return Kept(self.rows, tuple(self.array.shape))

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0] if self.rows is None else len(self.rows))

    def read(self) -> Floats:
        """The rows, here."""
        return arrived(self.array, self.kept).read()


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
        if last - first == len(rows):
            return DaskPiece(self.X[first:last], None)
        if last - first <= 2 * len(rows):
            return DaskPiece(self.X[first:last], rows - first)
        return DaskPiece(self.X[rows], None)

    def fingerprint(self) -> str:
        """Dask's own name of the array: the same for the same source and the same operations, if Dask knows them."""
        return f"{self.X.name} {self.X.shape} {self.X.dtype}"


def arrived(rows: Any, kept: Kept) -> Piece:
    """Rows of a dask array that have arrived."""
    array = np.asarray(rows)
    if array.shape != kept.shape:
        came = f"{array.shape} rows and columns came instead of {kept.shape}"
        raise ValueError(f"X is a dask array whose chunks are not what it says: {came}; try X.compute_chunk_sizes().")
    array = array.astype(float_type([array.dtype]), copy=False)
    if not np.isfinite(array).all():
        raise ValueError("X, a dask array, contains NaN or infinity; give finite numbers.")
    check_range(array)
    return ArrayTable(array).select(np.arange(len(array)) if kept.rows is None else kept.rows)
