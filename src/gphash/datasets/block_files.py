"""What all kinds of blocks share: what a kind is, where its rows are, and how a file that is not as wanted is refused.

A kind is a module, `npy_blocks`, `parquet_blocks` or `zarr_blocks`; its function ``read_heads`` opens a folder.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.datasets.block_labels import Labels
from gphash.datasets.dataset import DataError


class Block(NamedTuple):
    """A file of a folder, or some chunks of a Zarr array.

    name
        Of the file, in the folder.
    start, stop
        Its range among all rows of the folder.
    """

    name: str
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Kind(Protocol):
    """How the blocks of a folder are read; as small as a piece, of which it is a part."""

    @property
    def folder(self) -> Path:
        """Where the blocks are."""
        ...

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """Read sorted rows of a block, counted in it, into an array of their shape."""
        ...

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        ...

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What is known of the rows."""
        ...

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        ...


class Heads(NamedTuple):
    """What the heads of a folder's files tell.

    kind
        How the blocks are read.
    blocks
        All blocks, in the order of their rows.
    n_features
        Number of columns.
    dtype
        Of the rows, float32 or float64.
    """

    kind: Kind
    blocks: tuple[Block, ...]
    n_features: int
    dtype: str


def natural(name: str) -> tuple[list[str | int], str]:
    """What names of blocks are sorted by: numbers in them count by their size."""
    words = re.split("([0-9]+)", name)
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


def consecutive(names: Sequence[str], counts: Sequence[int]) -> tuple[Block, ...]:
    """Blocks of so many rows, one after the other."""
    starts = accumulate(counts, initial=0)
    return tuple(Block(name, start, stop) for name, (start, stop) in zip(names, pairwise(starts), strict=True))


def float_type(dtypes: Sequence[np.dtype[Any]]) -> str:
    """The type of rows whose numbers are of these types, as for an array: what float32 may not hold is float64."""
    large = any(dtype.itemsize > (4 if dtype.kind == "f" else 2) for dtype in dtypes)
    return "float64" if large else "float32"


@contextmanager
def reading(path: Path, what: str, *damage: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong while a file is read becomes a DataError that names it."""
    expected: tuple[type[Exception], ...] = (OSError, *damage)
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{str(path)!r} is missing; wanted are all blocks of the folder") from error
    except expected as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not an unpacker's
            raise DataError(f"{str(path)!r} cannot be read: {error}") from error
        raise DataError(f"{str(path)!r} is no whole {what}: {error}") from error


def check_numbers(shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> None:
    """Refuse what is no array of rows."""
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1 or dtype.kind not in "buif":
        raise DataError(f"{label} is {dtype} of shape {shape}; wanted are numbers [b, d], d not 0")


def check_unchanged(label: str, what: str, found: int, before: int) -> None:
    """Refuse a block that is not as it was when its folder was opened."""
    if found != before:
        raise DataError(
            f"{label} has {found} {what}, and had {before} when the folder was opened; wanted are blocks that stay as "
            "they are"
        )


def range_or_rows(rows: Indices) -> slice | Indices:
    """Sorted rows as an index, which copies nothing if they follow each other."""
    start, stop = int(rows[0]), int(rows[-1]) + 1
    return slice(start, stop) if stop - start == len(rows) else rows
