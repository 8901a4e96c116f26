"""Rows of dask arrays, as a table that training reads piece by piece, where the chunks are.

Dask computes what is selected, and hands it to a task on the worker that is to keep it; there it is checked.
"""

from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.datasets.block_files import float_type
from gphash.datasets.blocks import ArrayTable, Piece
from gphash.features.scaling import LARGEST


class DaskPiece(NamedTuple):
    """Rows of a dask array.

    array
        The array, as many rows as there are between the first and the last row wanted, or just those.
    kept
        Numbers of the rows wanted in it; None for all.
    """

    array: Any
    kept: Indices | None

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0] if self.kept is None else len(self.kept))

    def read(self) -> Floats:
        """The rows, here."""
        return arrived(np.asarray(self.array), Kept(self.kept, tuple(self.array.shape))).read()


class DaskTable:
    """Rows of a dask array, which stay where they are.

    Parameters
    ----------
    X
        Two dimensions of known length.
    """

    def __init__(self, X: Any) -> None:
        if X.ndim != 2 or any(size != size for size in X.shape):
            raise ValueError(
                f"X is a dask array of shape {X.shape}; give one of two known lengths (X.compute_chunk_sizes())."
            )
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


class Kept(NamedTuple):
    """Stands for a piece whose rows come from Dask.

    rows
        Which of them are wanted; None for all.
    shape
        Of what comes, as Dask believes it to be.
    """

    rows: Indices | None
    shape: tuple[int, int]


def arrived(rows: Any, kept: Kept) -> Piece:
    """Rows of a dask array that have arrived."""
    array = np.asarray(rows)
    if array.shape != kept.shape:
        raise ValueError(
            f"X is a dask array whose chunks are not what it says: {kept.shape} rows and columns were expected, and "
            f"{array.shape} came; X.compute_chunk_sizes() may mend it."
        )
    array = array.astype(float_type([array.dtype]), copy=False)
    limit = LARGEST / array.shape[1] ** 0.5
    if not np.isfinite(array).all():
        raise ValueError("X, a dask array, contains NaN or infinity; give finite numbers.")
    if np.abs(array).max() > limit:
        raise ValueError(f"X, a dask array, holds values beyond {limit:.1e}; scale them.")
    return ArrayTable(array).select(np.arange(len(array)) if kept.rows is None else kept.rows)
