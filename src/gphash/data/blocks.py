"""Rows that are too many for one machine: a folder of blocks, read range by range where they are needed.

=========================  =========================================================================================
``*.npy``                  X [b, d] each; beside ``NAME.npy`` maybe ``NAME.labels.npy``, labels [b] or 0/1 tags [b, c],
                           for all blocks or for none
``*.parquet``              tables with the same columns in all of them, which mean what they mean in `tables`
a Zarr array               X [n, d]
a Zarr group               the array X [n, d], and maybe y [n] or tags 0/1 [n, c]
=========================  =========================================================================================

Blocks follow each other by their names, numbers in them by their size: ``block-2`` comes before ``block-10``. Names
that begin with a dot or an underscore are not blocks, nor are subfolders and files of other kinds. To open a folder is
to read the heads of its files. Rows are read later, and maybe on another machine: they are checked there and then.
"""

import hashlib
import mimetypes
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gphash import arrays
from gphash.arrays import LARGEST, Floats, Indices, Rows
from gphash.data.array_files import reading
from gphash.data.block_kinds import KINDS, Block, BlockKind, natural
from gphash.data.headers import UNSAID, Header, Roles
from gphash.data.labels import Labels
from gphash.files import DataError


class Piece(Protocol):
    """Some rows of a table, not read yet; it is sent to where they are read."""

    def __len__(self) -> int: ...

    def read(self) -> Floats:
        """The rows, float32 or float64 [len, d], C-contiguous and finite."""


class Table(Protocol):
    """Raw rows, read piece by piece, wherever they are."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of columns."""

    def select(self, rows: Indices) -> Piece:
        """Some of the rows, by sorted, distinct numbers."""

    def fingerprint(self) -> str:
        """What tells this table from another one, hexadecimal."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Sorted, distinct row numbers in little space: a range, and its rows left out or kept, whichever are fewer."""

    start: int
    stop: int
    offsets: NDArray[np.unsignedinteger[Any]]
    kept: bool

    @classmethod
    def of(cls, rows: Indices, n_rows: int) -> "Selection":
        """Some of so many rows."""
        if not len(rows):
            return cls(0, 0, np.empty(0, dtype=np.uint8), kept=True)
        if rows[0] < 0 or rows[-1] >= n_rows or (np.diff(rows) < 1).any():
            raise ValueError(f"rows are not sorted, distinct and among 0 to {n_rows - 1}.")
        start, stop = int(rows[0]), int(rows[-1]) + 1
        kept = 2 * len(rows) < stop - start
        offsets = rows - start
        if not kept:
            left_out = np.ones(stop - start, dtype=bool)
            left_out[offsets] = False
            offsets = np.flatnonzero(left_out)
        return cls(start, stop, offsets.astype(np.min_scalar_type(stop - start)), kept)

    def __len__(self) -> int:
        return len(self.offsets) if self.kept else self.stop - self.start - len(self.offsets)

    def rows(self) -> Indices:
        """The row numbers."""
        if self.kept:
            return self.start + self.offsets.astype(np.int64)
        return np.delete(np.arange(self.start, self.stop), self.offsets.astype(np.int64))


@dataclass(frozen=True, eq=False)
class ArrayPiece:
    """Some rows of an array, or of a sparse matrix."""

    X: Rows
    selection: Selection

    def __len__(self) -> int:
        return len(self.selection)

    def read(self) -> Floats:
        """The rows, a copy."""
        return np.ascontiguousarray(arrays.widened(np.asarray(self.X[self.selection.rows()])))

    def __reduce__(self) -> tuple[Any, ...]:
        # What travels is the piece, not the array.
        return ArrayPiece, (self.read(), Selection.of(np.arange(len(self)), len(self)))


class ArrayTable:
    """An array in memory, or mapped, or a sparse matrix, checked before."""

    def __init__(self, X: Rows) -> None:
        self.X = X
        self.n_rows, self.n_features = X.shape

    def select(self, rows: Indices) -> ArrayPiece:
        """Some of the rows, by sorted, distinct numbers."""
        return ArrayPiece(self.X, Selection.of(rows, self.n_rows))

    def fingerprint(self) -> str:
        """SHA-256 of type, shape and content."""
        digest = hashlib.sha256(f"{self.X.dtype.str} {self.X.shape} ".encode())
        for part in arrays.parts(self.X):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class FolderTable:
    """Rows in a folder of blocks; see `open_folder`."""

    kind: BlockKind
    blocks: tuple[Block, ...]
    n_features: int
    dtype: str

    @property
    def folder(self) -> Path:
        """Where the blocks are."""
        return self.kind.folder

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.blocks[-1].stop

    def select(self, rows: Indices) -> "FolderPiece":
        """Some of the rows, by sorted, distinct numbers; nothing is read yet."""
        places = np.searchsorted(rows, [0, *(block.stop for block in self.blocks)])
        touched = tuple(self.blocks[number] for number in np.flatnonzero(np.diff(places)))
        return FolderPiece(replace(self, blocks=touched), Selection.of(rows, self.n_rows))

    def labels(self) -> Labels | None:
        """Labels or tags of the rows, in this process; None if there are none."""
        found = self.kind.labels(self.blocks)
        return found if found is not None and found.classes else None

    def header(self) -> Header | None:
        """What the columns of tables are; None if columns have no names."""
        return self.kind.header(self.blocks[0])

    def items(self) -> dict[str, list[Any]]:
        """What else is known of the rows, in this process: item columns by their names, and keys as "key"."""
        return self.kind.items(self.blocks)

    def fingerprint(self) -> str:
        """SHA-256 of columns, blocks and their rows, and of all files' names, which tell the kind, sizes and times."""
        told: list[object] = [replace(self.kind, folder=Path()), self.n_features, self.dtype, *self.blocks]
        for path in self.kind.files(self.blocks):
            with reading(path, "file"):
                state = path.stat()
            told.append((path.relative_to(self.folder).as_posix(), state.st_size, state.st_mtime_ns))
        return hashlib.sha256("\n".join(map(repr, told)).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class FolderPiece:
    """Some rows of a folder, and the table of those blocks that have any."""

    table: FolderTable
    selection: Selection

    def __len__(self) -> int:
        return len(self.selection)

    def read(self) -> Floats:
        """The rows, checked; a DataError names what is wrong, and where."""
        rows, kind = self.selection.rows(), self.table.kind
        X: Floats = np.empty((len(rows), self.table.n_features), dtype=self.table.dtype)
        limit = LARGEST / self.table.n_features**0.5
        for block in self.table.blocks:
            first, last = np.searchsorted(rows, (block.start, block.stop))
            inside, part = rows[first:last] - block.start, X[first:last]
            with np.errstate(over="ignore", invalid="ignore"):  # What becomes infinite is refused as such.
                kind.fill(part, block, inside)
                if max(float(part.max()), -float(part.min())) <= limit:  # False if a number is NaN
                    continue
                row, column = np.argwhere(~(np.abs(part) <= limit))[0]
            value = part[row, column]
            right = f"numbers of at most {limit:.1e}" if np.isfinite(value) else "finite numbers"
            found = "NaN" if np.isnan(value) else f"{value:.3g}"
            raise DataError(f"{kind.place(block, int(inside[row]), int(column))}: {found}; give {right}")
        return X


def is_folder_of_blocks(path: Path) -> bool:
    """Whether a folder is a Zarr array or group, or has blocks and no pictures; no file is opened."""
    if not path.is_dir():
        return False
    names = _file_names(path)
    zarr, *others = (kind.marks(names) for kind in KINDS)
    types = [mimetypes.guess_type(name, strict=False)[0] or "" for name in names if name[0] not in "._"]
    return bool(zarr) or (any(others) and not any(kind.startswith("image/") for kind in types))


def open_folder(path: str | os.PathLike[str], roles: Roles = UNSAID) -> FolderTable:
    """Open a folder of blocks; rows are float64 if any block is, else float32.

    Where workers read its rows, the folder has the same path for all of them. A DataError says that there are no rows,
    or names blocks that are damaged or do not go together. `roles` say which columns of Parquet blocks are what.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.exists():
        raise FileNotFoundError(f"{str(folder)!r}: there is no such folder.")
    if not folder.is_dir():
        raise DataError(f"{str(folder)!r} is a file; give a folder of blocks")
    names = sorted(_file_names(folder), key=natural)
    found = [(kind, marks) for kind in KINDS if (marks := kind.marks(names))]
    if not found:
        raise DataError(f"{str(folder)!r} has no blocks; give .npy or .parquet files, or a Zarr array")
    if len(found) > 1:
        one, other = found[0][1][0], found[1][1][0]
        raise DataError(f"{str(folder)!r} has blocks of different kinds, {one!r} and {other!r}; give one kind")
    ((kind, marks),) = found
    if roles.names and not kind.has_names:
        raise ValueError(f"{roles.said}, but the columns of {str(folder)!r} have no names; leave it out.")
    table = FolderTable(*kind.read_heads(folder, marks, roles))
    if not table.n_rows:
        raise DataError(f"{str(folder)!r} has blocks without rows only; it must have at least one row")
    return table


def _file_names(folder: Path) -> list[str]:
    # A link that leads nowhere counts: it stands for a block that is missing.
    return [entry.name for entry in os.scandir(folder) if not entry.is_dir()]
