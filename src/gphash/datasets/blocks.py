"""Rows that are too many for one machine: a folder of blocks, read range by range by whoever needs them.

=========================  =========================================================================================
``*.npy``                  X [b, d] each; beside ``NAME.npy`` maybe ``NAME.labels.npy``, labels [b] or 0/1 tags [b, c],
                           for all blocks or for none
``*.parquet``              tables with the same columns in all of them; ``label``, ``tags`` and ``id`` as in `tables`
a Zarr array               X [n, d]
a Zarr group               the array X [n, d], and maybe y [n] or tags 0/1 [n, c]
=========================  =========================================================================================

Blocks follow each other by their names, numbers in them by their size: ``block-2`` comes before ``block-10``. Names
that begin with a dot or an underscore are no blocks, nor are subfolders and files of other kinds. To open a folder is
to read the heads of its files. Rows are read later, and maybe on another machine: they are checked there and then.
"""

import hashlib
import math
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices
from gphash.datasets import tables
from gphash.datasets.dataset import DataError

LARGEST = 1e18  # length of a row, whose square float32 can hold
LEAST_ROWS = 1 << 16  # of a block of a Zarr array, whose chunks may be tiny

_NPY, _PARQUET, _LABELS = ".npy", ".parquet", ".labels.npy"
_ZARR = ("zarr.json", ".zarray", ".zgroup")
# What reading a damaged Zarr array has been seen to raise, besides errors of the disk.
_ZARR_DAMAGE = (ValueError, LookupError, TypeError, RuntimeError)


class Piece(Protocol):
    """Some rows of a table, not read yet; it is sent to whoever reads them."""

    def __len__(self) -> int: ...

    def read(self) -> Floats:
        """The rows, float32 or float64 [len, d], C-contiguous and finite."""
        ...


class Table(Protocol):
    """Raw rows, read piece by piece, wherever they are."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_features(self) -> int:
        """Number of columns."""
        ...

    def select(self, rows: Indices) -> Piece:
        """Some of the rows, by sorted, distinct numbers."""
        ...

    def fingerprint(self) -> str:
        """What tells this table from another one, hexadecimal."""
        ...


class Labels(NamedTuple):
    """What is known of the rows of a folder.

    y
        Class labels, int64 [n], numbers into `classes`; or tags, uint8 [n, c].
    classes
        The name of every class or tag.
    """

    y: NDArray[Any]
    classes: tuple[str, ...]


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
    """Some rows of an array."""

    X: Floats
    selection: Selection

    def __len__(self) -> int:
        return len(self.selection)

    def read(self) -> Floats:
        """The rows, a copy."""
        return np.ascontiguousarray(self.X[self.selection.rows()])

    def __reduce__(self) -> tuple[Any, ...]:
        # What travels is the piece, not the array.
        return ArrayPiece, (self.read(), Selection.of(np.arange(len(self)), len(self)))


class ArrayTable:
    """An array in memory, checked by whoever hands it in."""

    def __init__(self, X: Floats) -> None:
        self.X = X

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    def select(self, rows: Indices) -> ArrayPiece:
        """Some of the rows, by sorted, distinct numbers."""
        return ArrayPiece(self.X, Selection.of(rows, self.n_rows))

    def fingerprint(self) -> str:
        """SHA-256 of type, shape and content."""
        digest = hashlib.sha256(f"{self.X.dtype.str} {self.X.shape} ".encode())
        digest.update(np.ascontiguousarray(self.X).data)
        return digest.hexdigest()


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


@dataclass(frozen=True, eq=False)
class FolderPiece:
    """Some rows of a folder: where to read them, and the blocks that have any."""

    kind: Kind
    blocks: tuple[Block, ...]
    selection: Selection
    n_features: int
    dtype: str

    def __len__(self) -> int:
        return len(self.selection)

    def read(self) -> Floats:
        """The rows, checked; a DataError names what is wrong, and where."""
        rows = self.selection.rows()
        X: Floats = np.empty((len(rows), self.n_features), dtype=self.dtype)
        for block in self.blocks:
            first, last = np.searchsorted(rows, (block.start, block.stop))
            inside = rows[first:last] - block.start
            with np.errstate(over="ignore", invalid="ignore"):  # What becomes infinite is refused as such.
                self.kind.fill(X[first:last], block, inside)
                self._check(X[first:last], block, inside)
        return X

    def _check(self, X: Floats, block: Block, rows: Indices) -> None:
        limit = LARGEST / self.n_features**0.5
        if max(float(X.max()), -float(X.min())) <= limit:  # False if a number is NaN
            return
        row, column = np.argwhere(~(np.abs(X) <= limit))[0]
        value = X[row, column]
        wanted = f"numbers of at most {limit:.1e}" if np.isfinite(value) else "finite numbers"
        found = "NaN" if np.isnan(value) else f"{value:.3g}"
        raise DataError(f"{self.kind.place(block, int(rows[row]), int(column))}: {found}; wanted are {wanted}")


@dataclass(frozen=True)
class FolderTable:
    """Rows in a folder of blocks; see `open_folder`."""

    kind: Kind
    blocks: tuple[Block, ...]
    n_features: int
    dtype: str

    @property
    def folder(self) -> Path:
        """Where the blocks are."""
        return self.kind.folder

    @property
    def names(self) -> tuple[str, ...]:
        """Name of every block: of its file, or of a range of rows of a Zarr array."""
        return tuple(block.name for block in self.blocks)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.blocks[-1].stop

    def block_rows(self) -> list[range]:
        """The rows of every block, in the order of `names`."""
        return [range(block.start, block.stop) for block in self.blocks]

    def select(self, rows: Indices) -> FolderPiece:
        """Some of the rows, by sorted, distinct numbers; nothing is read yet."""
        selection = Selection.of(rows, self.n_rows)
        places = np.searchsorted(rows, [0, *(block.stop for block in self.blocks)])
        touched = tuple(self.blocks[number] for number in np.flatnonzero(np.diff(places)))
        return FolderPiece(self.kind, touched, selection, self.n_features, self.dtype)

    def labels(self) -> Labels | None:
        """What is known of the rows, in this process; None if there is nothing."""
        return self.kind.labels(self.blocks)

    def fingerprint(self) -> str:
        """SHA-256 of columns, blocks and their rows, and of all files' names, which tell the kind, sizes and times."""
        told: list[object] = [self.n_features, self.dtype, *self.blocks]
        for path in self.kind.files(self.blocks):
            with _reading(path, "file"):
                state = path.stat()
            told.append((path.relative_to(self.folder).as_posix(), state.st_size, state.st_mtime_ns))
        return hashlib.sha256("\n".join(map(repr, told)).encode()).hexdigest()


def is_folder_of_blocks(path: Path) -> bool:
    """Whether a folder is a Zarr array or group, or has blocks and no pictures; no file is opened."""
    if not path.is_dir():
        return False
    if _zarr_marks(path):
        return True
    names = _file_names(path)
    return any(_suffix(name) for name in names) and not any(map(_is_picture, names))


def open_folder(path: str | os.PathLike[str]) -> FolderTable:
    """Open a folder of blocks.

    Parameters
    ----------
    path
        The folder; where workers read its rows, it has the same path for all of them.

    Returns
    -------
    table
        With at least one row. Rows are float64 if any block is, else float32.

    Raises
    ------
    FileNotFoundError
        If there is nothing at the path.
    DataError
        If there are no blocks, or blocks that are damaged, or do not go together: it names them and what is wanted.
    ImportError
        If the package that reads such blocks is not installed.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.exists():
        raise FileNotFoundError(f"{str(folder)!r}: there is no such folder.")
    if not folder.is_dir():
        raise DataError(f"{str(folder)!r} is a file; wanted is a folder of blocks")
    marks = _zarr_marks(folder)
    names = sorted((name for name in _file_names(folder) if _suffix(name)), key=_natural)
    firsts = [*marks[:1], *({_suffix(name): name for name in reversed(names)}.values())]
    if len(firsts) > 1:
        raise DataError(
            f"{str(folder)!r} has blocks of different kinds, {firsts[0]!r} and {firsts[1]!r}; wanted is one kind"
        )
    if not firsts:
        raise DataError(f"{str(folder)!r} has no blocks; wanted are .npy or .parquet files, or a Zarr array")
    if marks:
        table = _open_zarr(folder)
    elif _suffix(names[0]) == _NPY:
        table = _open_npy(folder, names)
    else:
        table = _open_parquet(folder, names)
    if not table.n_rows:
        raise DataError(f"{str(folder)!r} has blocks without rows only; wanted is at least one row")
    return table


def _file_names(folder: Path) -> list[str]:
    # A link that leads nowhere counts: it stands for a block that is missing.
    return [entry.name for entry in os.scandir(folder) if entry.name[0] not in "._" and not entry.is_dir()]


def _zarr_marks(folder: Path) -> list[str]:
    return [name for name in _ZARR if (folder / name).is_file()]


def _suffix(name: str) -> str:
    """The suffix of a block; empty if a file is none."""
    suffix = Path(name).suffix.lower()
    return suffix if suffix in (_NPY, _PARQUET) else ""


def _is_picture(name: str) -> bool:
    return (mimetypes.guess_type(name, strict=False)[0] or "").startswith("image/")


def _natural(name: str) -> tuple[list[str | int], str]:
    words = re.split("([0-9]+)", name)
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


def _blocks(names: Sequence[str], counts: Sequence[int]) -> tuple[Block, ...]:
    starts = accumulate(counts, initial=0)
    return tuple(Block(name, start, stop) for name, (start, stop) in zip(names, pairwise(starts), strict=True))


def _float_type(dtypes: Sequence[np.dtype[Any]]) -> str:
    return "float64" if any(dtype.kind == "f" and dtype.itemsize >= 8 for dtype in dtypes) else "float32"


@contextmanager
def _reading(path: Path, what: str, *damage: type[Exception]) -> Iterator[None]:
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


def _check_numbers(shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> None:
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1 or dtype.kind not in "buif":
        raise DataError(f"{label} is {dtype} of shape {shape}; wanted are numbers [b, d], d not 0")


def _check_unchanged(label: str, what: str, found: int, before: int) -> None:
    if found != before:
        raise DataError(
            f"{label} has {found} {what}, and had {before} when the folder was opened; wanted are blocks that stay as "
            "they are"
        )


def _range_or_rows(rows: Indices) -> slice | Indices:
    """Sorted rows as an index, which copies nothing if they follow each other."""
    start, stop = int(rows[0]), int(rows[-1]) + 1
    return slice(start, stop) if stop - start == len(rows) else rows


# Arrays in files


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int


@dataclass(frozen=True)
class NpyKind:
    """A file for each block, and maybe one for its labels."""

    folder: Path
    labelled: bool

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By memory map: only pages with some of the rows are read."""
        path = self.folder / block.name
        header = _read_header(path)
        _check_unchanged(f"{str(path)!r}", "rows", header.shape[0], block.n_rows)
        _check_unchanged(f"{str(path)!r}", "columns", header.shape[1], out.shape[1])
        with _reading(path, ".npy file", ValueError):
            X = np.memmap(path, header.dtype, "r", header.offset, header.shape, "F" if header.fortran else "C")
            out[:] = X[_range_or_rows(rows)]

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        return f"{str(self.folder / block.name)!r}, row {row}, column {column}"

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the files beside the blocks say."""
        return _joined_labels(map(self._labels, blocks)) if self.labelled else None

    def _labels(self, block: Block) -> "_Given":
        path = self.folder / _labels_name(block.name)
        with _reading(path, ".npy file of labels", *tables._DAMAGE), open(path, "rb") as file:
            values = tables._read_array(file, os.fstat(file.fileno()).st_size)
        return _Given(f"{str(path)!r}", values, block.n_rows)

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        return (self.folder / block.name for block in blocks)


def _open_npy(folder: Path, names: Sequence[str]) -> FolderTable:
    beside = {name for name in names if name.lower().endswith(_LABELS)}
    names = [name for name in names if name not in beside]
    wanted = {_labels_name(name): name for name in names}
    if stray := sorted(beside - set(wanted), key=_natural):
        raise DataError(
            f"{str(folder / stray[0])!r} has labels of no block; wanted is {stray[0][: -len(_LABELS)] + _NPY!r} beside "
            "it"
        )
    lacking = [name for labels, name in wanted.items() if labels not in beside]
    if beside and lacking:
        raise DataError(
            f"{str(folder / lacking[0])!r} has no labels beside it, but there is {min(beside, key=_natural)!r}; "
            f"wanted is {_labels_name(lacking[0])!r}, too, or labels for no block"
        )
    headers = [_read_header(folder / name) for name in names]
    for name, header in zip(names, headers, strict=True):
        if header.shape[1] != headers[0].shape[1]:
            raise DataError(
                f"{str(folder / name)!r} has {header.shape[1]} columns, and {str(folder / names[0])!r} has "
                f"{headers[0].shape[1]}; wanted is the same number in all blocks"
            )
    blocks = _blocks(names, [header.shape[0] for header in headers])
    dtype = _float_type([header.dtype for header in headers])
    return FolderTable(NpyKind(folder, bool(beside)), blocks, headers[0].shape[1], dtype)


def _labels_name(name: str) -> str:
    return name[: -len(_NPY)] + _LABELS


def _read_header(path: Path) -> _Header:
    with _reading(path, ".npy file of numbers", *tables._DAMAGE), open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in tables._HEADERS:
            raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
        header = _Header(*tables._HEADERS[version](file), file.tell())
        _check_numbers(header.shape, header.dtype, f"{str(path)!r}")
        n_bytes = os.fstat(file.fileno()).st_size - header.offset
        if math.prod(header.shape) * header.dtype.itemsize > n_bytes:
            raise ValueError(f"{header.dtype} of shape {header.shape} does not fit into its {n_bytes:,} bytes")
    return header


# Tables


@dataclass(frozen=True)
class ParquetKind:
    """A table for each block; `columns` is a digest of the columns' names, which are the same in all of them."""

    folder: Path
    columns: str

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By row groups, those with some of the rows, one after the other."""
        with self._open(block) as (file, footer):
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            for group, (start, stop) in enumerate(pairwise(accumulate(counts, initial=0))):
                first, last = np.searchsorted(rows, (start, stop))
                if first == last:
                    continue
                index = _range_or_rows(rows[first:last] - start)
                # A name also stands for what is nested below it, hence the second choice.
                found = file.read_row_group(group, columns=footer.features, use_threads=False).select(footer.features)
                for column, cells in enumerate(found.columns):
                    if cells.null_count:
                        self._check_present(cells.is_valid().to_numpy()[index], block, rows[first:last], column)
                    out[first:last, column] = cells.to_numpy()[index]

    def _check_present(self, present: NDArray[np.bool_], block: Block, rows: Indices, column: int) -> None:
        if not present.all():
            row = int(rows[np.argmin(present)])
            raise DataError(f"{self.place(block, row, column)}: empty; wanted is a number in every row")

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        with self._open(block) as (_, footer):
            return f"{str(self.folder / block.name)!r}, row {row}, column {footer.features[column]!r}"

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the columns ``label`` or ``tags`` say."""
        with self._open(blocks[0]) as (_, footer):
            columns = footer.columns
        if columns.label_column is not None:
            return _joined_labels(self._labels(block, columns.names[columns.label_column]) for block in blocks)
        if columns.tags is not None:
            name = columns.names[columns.tags]
            return _joined_tags(
                (self._cells(block, name) for block in blocks), f"{str(self.folder)!r}, column {name!r}"
            )
        return None

    def _labels(self, block: Block, name: str) -> "_Given":
        cells = self._cells(block, name)
        label = f"{str(self.folder / block.name)!r}, column {name!r}"
        if None in cells:
            raise DataError(f"{label}, row {cells.index(None)}: empty; wanted is a class in every row")
        return _Given(label, np.array(cells), block.n_rows)

    def _cells(self, block: Block, name: str) -> list[Any]:
        with self._open(block) as (file, _):
            cells: list[Any] = file.read(columns=[name], use_threads=False).column(name).to_pylist()
            return cells

    @contextmanager
    def _open(self, block: Block) -> Iterator[tuple[Any, "_Footer"]]:
        """A block that is as it was when the folder was opened."""
        path = self.folder / block.name
        with _parquet(path) as (file, footer):
            _check_unchanged(f"{str(path)!r}", "rows", footer.n_rows, block.n_rows)
            if footer.digest() != self.columns:
                raise DataError(f"{str(path)!r} has other columns than when the folder was opened; wanted are the same")
            yield file, footer

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        return (self.folder / block.name for block in blocks)


class _Footer(NamedTuple):
    """What a table tells of itself: its rows, all columns, and names and types of the features."""

    n_rows: int
    columns: tables._Columns
    features: list[str]
    dtypes: list[np.dtype[Any]]

    def digest(self) -> str:
        return hashlib.sha256(repr((self.columns.names, self.features)).encode()).hexdigest()


def _open_parquet(folder: Path, names: Sequence[str]) -> FolderTable:
    footers = []
    for name in names:
        with _parquet(folder / name) as (_, footer):
            footers.append(footer)
    for footer in footers:
        _check_columns("", footer, footer.columns.names, footers[0], footers[0].columns.names)
        _check_columns(" of numbers", footer, footer.features, footers[0], footers[0].features)
    blocks = _blocks(names, [footer.n_rows for footer in footers])
    dtype = _float_type([dtype for footer in footers for dtype in footer.dtypes])
    return FolderTable(ParquetKind(folder, footers[0].digest()), blocks, len(footers[0].features), dtype)


def _check_columns(what: str, one: _Footer, names: list[str], other: _Footer, wanted: list[str]) -> None:
    here, there = f"{str(one.columns.path)!r}", f"{str(other.columns.path)!r}"
    if len(names) != len(wanted):
        raise DataError(
            f"{here} has {len(names)} columns{what}, and {there} has {len(wanted)}; wanted are the same columns in all "
            "blocks"
        )
    for mine, theirs in zip(names, wanted, strict=True):
        if mine != theirs:
            raise DataError(
                f"{here} has the column{what} {mine!r} where {there} has {theirs!r}; wanted are the same columns in "
                "the same order in all blocks"
            )


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, _Footer]]:
    arrow = tables.pyarrow()
    with _reading(path, "Parquet file", arrow.ArrowException), arrow.parquet.ParquetFile(path) as file:
        yield file, _read_footer(path, file, arrow.types)


def _read_footer(path: Path, file: Any, types: Any) -> _Footer:
    columns = tables._Columns.of(path, file.schema_arrow.names)
    kinds = {column: file.schema_arrow.field(column).type for column in columns.others}
    kept = [
        column
        for column, kind in kinds.items()
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    ]
    columns.check_features(kept)
    dtypes = [np.dtype(kinds[column].to_pandas_dtype()) for column in kept]
    return _Footer(file.metadata.num_rows, columns, [columns.names[column] for column in kept], dtypes)


# Zarr


@dataclass(frozen=True)
class ZarrKind:
    """An array with chunks; `array` is its name in a group, or empty."""

    folder: Path
    array: str
    n_rows: int

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By chunks, those with some of the rows."""
        path = self.folder / self.array
        with _reading(path, "Zarr array", *_ZARR_DAMAGE):
            X = _zarr().open_array(store=str(path), mode="r")
            _check_numbers(X.shape, X.dtype, f"{str(path)!r}")
            _check_unchanged(f"{str(path)!r}", "rows", X.shape[0], self.n_rows)
            _check_unchanged(f"{str(path)!r}", "columns", X.shape[1], out.shape[1])
            start, stop = int(rows[0]), int(rows[-1]) + 1
            if 2 * len(rows) < stop - start:
                out[:] = X.oindex[block.start + rows, :]
            else:
                out[:] = X[block.start + start : block.start + stop][_range_or_rows(rows - start)]

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        return f"{str(self.folder / self.array)!r}, row {block.start + row}, column {column}"

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the arrays y or tags of the group say."""
        if not self.array:
            return None
        with _reading(self.folder, "Zarr group", *_ZARR_DAMAGE):
            group = _zarr().open_group(store=str(self.folder), mode="r")
            given = [name for name in ("y", "tags") if name in group]
            if not given:
                return None
            if len(given) > 1:
                raise DataError(f"{str(self.folder)!r} has y and tags; wanted is one of them")
            values = group[given[0]][:]
        label = f"{given[0]} of {str(self.folder)!r}"
        if values.ndim != (1 if given == ["y"] else 2):
            raise DataError(f"{label} has shape {values.shape}; wanted is y [n] or tags [n, c]")
        words = values.dtype.kind == "T"  # numpy's strings of any length
        return _joined_labels([_Given(label, np.array(values.tolist()) if words else values, self.n_rows)])

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows: metadata and chunks."""
        return (path for path in sorted((self.folder / self.array).rglob("*")) if path.is_file())


def _open_zarr(folder: Path) -> FolderTable:
    zarr = _zarr()
    with _reading(folder, "Zarr array", *_ZARR_DAMAGE):
        found = zarr.open(store=str(folder), mode="r")
        name = "" if isinstance(found, zarr.Array) else "X"
        if name and name not in found:
            has = ", ".join(map(repr, sorted(found.array_keys()))) or "no array"
            raise DataError(f"{str(folder)!r} has {has}; wanted is X [n, d] in a Zarr group")
        X = found[name] if name else found
        label = f"{str(folder / name)!r}"
        if not isinstance(X, zarr.Array):
            raise DataError(f"{label} is a Zarr group; wanted is an array [n, d]")
        _check_numbers(X.shape, X.dtype, label)
        step = (getattr(X, "shards", None) or X.chunks)[0]
    n_rows = X.shape[0]
    step *= -(-LEAST_ROWS // step)
    ranges = [(start, min(start + step, n_rows)) for start in range(0, max(n_rows, 1), step)]
    blocks = tuple(Block(f"rows-{start}-{stop}", start, stop) for start, stop in ranges)
    return FolderTable(ZarrKind(folder, name, n_rows), blocks, X.shape[1], _float_type([X.dtype]))


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("reading Zarr arrays needs zarr: pip install zarr") from error
    return zarr


# Labels


class _Given(NamedTuple):
    """Labels or tags of a block as they are written, how an error names them, and how many there should be."""

    label: str
    values: NDArray[Any]
    n_rows: int


def _joined_labels(blocks: Iterable[_Given]) -> Labels:
    """Labels or tags of all blocks, as if they were written together."""
    first: _Given | None = None
    tags: list[NDArray[np.uint8]] = []
    # Words of all rows would take many times the space of their numbers: those of a block are numbered at once.
    words: list[NDArray[Any]] = []
    numbers: list[NDArray[Any]] = []
    for block in blocks:
        given = _checked(block)
        if not given.n_rows:
            continue
        first = first or given._replace(values=given.values[:1])
        _check_alike(given, first)
        if given.values.ndim == 2:
            tags.append(tables._tag_columns(given.values, None, given.label)[0])
        else:
            own, inverse = np.unique(given.values, return_inverse=True)
            tables._numbered(own, None, given.label)  # refuses fractions, in the name of this block
            words.append(own)
            numbers.append(inverse.astype(np.min_scalar_type(len(own))))
    assert first is not None  # a folder has rows
    if tags:
        return Labels(np.concatenate(tags), tuple(map(str, range(tags[0].shape[1]))))
    ranks, classes = tables._numbered(np.concatenate(words), None, first.label)
    ranges = pairwise(accumulate(map(len, words), initial=0))
    y = [ranks[start:stop][own] for (start, stop), own in zip(ranges, numbers, strict=True)]
    return Labels(np.concatenate(y), classes)


def _checked(given: _Given) -> _Given:
    values = tables._decoded(given.values, given.label)
    if values.ndim not in (1, 2) or len(values) != given.n_rows or (len(values) and values.dtype.kind not in "buifU"):
        raise DataError(
            f"{given.label} is {values.dtype} of shape {values.shape}; wanted are words or whole numbers, or 0/1 tags, "
            f"for each of the {given.n_rows} rows"
        )
    return given._replace(values=values)


def _check_alike(given: _Given, first: _Given) -> None:
    if given.values.shape[1:] != first.values.shape[1:]:
        raise DataError(
            f"{given.label} has {_form(given)}, and {first.label} has {_form(first)}; wanted are labels in all blocks, "
            "or as many columns of tags in all"
        )
    if (given.values.dtype.kind == "U") != (first.values.dtype.kind == "U"):
        raise DataError(
            f"{given.label} is {given.values.dtype}, and {first.label} is {first.values.dtype}; wanted are words in "
            "all blocks, or numbers in all"
        )


def _form(given: _Given) -> str:
    return "labels" if given.values.ndim == 1 else f"{given.values.shape[1]} columns of tags"


def _joined_tags(blocks: Iterable[list[Any]], label: str) -> Labels:
    """Tags of all blocks by their names, as if they were written together."""
    parts = []
    for cells in blocks:
        sets = [tables._tag_names(cell) for cell in cells]
        parts.append(tables._tag_sets(sets, label) if any(sets) else (np.zeros((len(sets), 0), dtype=np.uint8), ()))
    _, classes = tables._tag_sets([names for _, names in parts], label)
    columns = {name: column for column, name in enumerate(classes)}
    y = np.zeros((sum(len(tags) for tags, _ in parts), len(classes)), dtype=np.uint8)
    start = 0
    for tags, names in parts:
        y[start : start + len(tags), [columns[name] for name in names]] = tags
        start += len(tags)
    return Labels(y, classes)
