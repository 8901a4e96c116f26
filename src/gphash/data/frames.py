"""Rows as users hold them: arrays, sparse matrices, Arrow's tables, frames of polars, and whatever hands out the like.

What hands out Arrow's data by its protocol (``__arrow_c_stream__`` or ``__arrow_c_array__``) is read through it: a
table or a frame with one column of lists of numbers, all of one length, or with nothing but columns of numbers; or such
lists alone. Numbers stay where they are and in their type. Frames of pandas are arrays for scikit-learn, and for us.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash import arrays
from gphash.arrays import ChunkedRows, Rows
from gphash.data import tables

NEEDED = "give one column of lists of numbers, or nothing but columns of numbers"


def is_frame(X: Any) -> bool:
    """Whether X hands out Arrow's data, and is none of pandas' frames."""
    return any(hasattr(X, f"__arrow_c_{what}__") for what in ("stream", "array")) and not hasattr(X, "iloc")


def held(X: Any, name: str = "X") -> Rows:
    """Rows in their own type, wherever they are; an error calls them by their name."""
    if arrays.is_sparse(X):
        return arrays.sparse(X, name)
    return rows(table(X), name) if is_frame(X) else np.asanyarray(X)


def table(X: Any) -> Any:
    """What hands out Arrow's data, as a table of Arrow's; lists alone are its only column."""
    arrow = tables.pyarrow("Arrow tables and polars frames")
    streams = hasattr(X, "__arrow_c_stream__")
    cells = arrow.chunked_array(X) if streams else arrow.chunked_array([arrow.array(X)])
    if arrow.types.is_struct(cells.type):
        return arrow.Table.from_struct_array(cells)
    return arrow.table({"lists": cells})


def has_columns(found: Any) -> bool:
    """Whether every column of a table is a feature, and so has a name that tells something."""
    return bool(found.num_columns) and not tables.has_lists(found.schema.types[0])


def rows(found: Any, name: str = "X") -> Rows:
    """The rows of a table of Arrow's; one array if there is one chunk of lists."""
    types = found.schema.types
    is_list = len(types) == 1 and tables.has_lists(types[0])
    for column, kind in zip(found.schema.names, types, strict=True):
        inner = kind.value_type if is_list else kind
        if not tables.is_number(inner):
            raise ValueError(f"{name} has the column {column!r} of {inner}{' in lists' * is_list}; {NEEDED}.")
    if not types:
        raise ValueError(f"{name} has no columns; {NEEDED}.")
    width = 0 if is_list else len(types)
    chunks: list[Any] = []
    batches = [batch for batch in found.to_batches() if batch.num_rows]
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    for batch, first in zip(batches, starts.tolist(), strict=False):
        for cells in batch.columns:
            _refuse_empty(cells, first, name)
        if is_list:
            width = width or len(batch.column(0)[0])
            chunks.append(_listed(batch.column(0), width, first, name))
        else:
            chunks.append([cells.to_numpy(zero_copy_only=False) for cells in batch.columns])
    if is_list and len(chunks) == 1:
        return np.asarray(chunks[0])
    return ChunkedRows(chunks, starts, width, np.result_type(*map(tables.number_type, types)))


def _listed(cells: Any, width: int, first: int, name: str) -> NDArray[Any]:
    """Lists as an array; they stay where they are if they are of a type that numpy has."""
    lengths = tables.pyarrow("Arrow tables").compute.list_value_length(cells).to_numpy(zero_copy_only=False)
    if (odd := lengths != width).any():
        at = int(odd.argmax())
        raise ValueError(f"{name} has {lengths[at]} numbers in row {first + at}, and {width} in others; give as many.")
    flat = cells.flatten()
    _refuse_empty(flat, first, name, width)
    return np.asarray(flat.to_numpy(zero_copy_only=False).reshape(len(cells), width))


def _refuse_empty(cells: Any, first: int, name: str, width: int = 1) -> None:
    if cells.null_count:
        row = first + int(cells.is_null().to_numpy(zero_copy_only=False).argmax()) // width
        raise ValueError(f"{name} has an empty place in row {row}; give a number in every place.")
