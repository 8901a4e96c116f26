"""Kinds of files that blocks of rows are in: ``.npy``, ``.parquet`` and Zarr.

To add one, subclass `BlockKind` and name it in `KINDS`. A DataError names the file and what is wrong with it.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.data import array_files, labels, tables
from gphash.data.headers import EMPTY, UNSAID, Header, Roles
from gphash.data.labels import BlockLabels, Labels
from gphash.files import DataError

LEAST_ROWS = 1 << 16  # of a block of a Zarr array, whose chunks may be tiny

# What reading a damaged Zarr array has been seen to raise, besides errors of the disk.
_ZARR_DAMAGE = (ValueError, LookupError, TypeError, RuntimeError)
_BESIDE = ".labels.npy"


class Block(NamedTuple):
    """A file of a folder, or some chunks of a Zarr array: its name, and its range among all rows of the folder."""

    name: str
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @classmethod
    def consecutive(cls, names: Sequence[str], counts: Sequence[int]) -> tuple["Block", ...]:
        """Blocks of so many rows, one after the other."""
        return tuple(map(cls, names, accumulate(counts, initial=0), accumulate(counts)))


Heads: TypeAlias = tuple["BlockKind", tuple[Block, ...], int, str]
"""What the heads of files tell: how blocks are read, all of them, the number of columns, and float32 or float64."""


@dataclass(frozen=True)
class BlockKind:
    """How the blocks of a folder are read. It travels to workers with every piece, so it is small."""

    name: ClassVar[str]
    has_names: ClassVar[bool] = False  # of columns
    folder: Path

    @classmethod
    def marks(cls, names: Sequence[str]) -> list[str]:
        """Which of a folder's files are such blocks, or say that there are some."""
        return [name for name in names if name[0] not in "._" and name.lower().endswith(f".{cls.name}")]

    @classmethod
    def read_heads(cls, folder: Path, names: Sequence[str], roles: Roles = UNSAID) -> Heads:
        """Open a folder with such blocks, sorted by their names."""
        raise NotImplementedError

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """Read sorted rows of a block, counted in it, into an array of their shape."""
        raise NotImplementedError

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """Labels or tags of the rows."""
        raise NotImplementedError

    def header(self, block: Block) -> Header | None:
        """What the columns of a table are."""
        return None

    def items(self, blocks: Sequence[Block]) -> dict[str, list[Any]]:
        """What else is known of the rows, column by column."""
        return {}

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        return f"{str(self.folder / block.name)!r}, row {row}, column {column}"

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        return (self.folder / block.name for block in blocks)


@dataclass(frozen=True)
class NpyKind(BlockKind):
    """A ``.npy`` file for each block, and maybe a ``.labels.npy`` file beside it."""

    name = "npy"
    labelled: bool

    @classmethod
    def read_heads(cls, folder: Path, names: Sequence[str], roles: Roles = UNSAID) -> Heads:
        """Open a folder with such files."""
        beside = {name for name in names if name.lower().endswith(_BESIDE)}
        names = [name for name in names if name not in beside]
        pairs = {f"{name[:-4]}{_BESIDE}": name for name in names}
        if beside and (odd := sorted(beside ^ set(pairs), key=natural)):
            there = pairs.get(odd[0], odd[0])
            lacking = odd[0] if odd[0] in pairs else f"{odd[0][: -len(_BESIDE)]}.npy"
            raise DataError(
                f"{str(folder / there)!r} is there, but not {lacking!r}; give labels beside every block or none"
            )
        shapes, _, dtypes, _ = zip(*(_read_header(folder / name) for name in names), strict=True)
        counts, widths = zip(*shapes, strict=True)
        for name, width in zip(names, widths, strict=True):
            if width != widths[0]:
                raise DataError(
                    f"{str(folder / name)!r} has {width} columns, and {str(folder / names[0])!r} has {widths[0]}; all "
                    "blocks must have as many"
                )
        return cls(folder, bool(beside)), Block.consecutive(names, counts), widths[0], float_type(dtypes)

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By memory map: only pages with some of the rows are read."""
        path = self.folder / block.name
        shape, is_fortran, dtype, offset = _read_header(path)
        _check_unchanged(path, shape, (block.n_rows, out.shape[1]))
        with array_files.reading(path, ".npy file", ValueError):
            X = np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")
            out[:] = X[_range_or_rows(rows)]

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the files beside the blocks say."""
        return labels.joined_labels(map(self._own_labels, blocks)) if self.labelled else None

    def _own_labels(self, block: Block) -> BlockLabels:
        path = self.folder / f"{block.name[:-4]}{_BESIDE}"
        return f"{str(path)!r}", array_files.load_npy(path, ".npy file of labels"), block.n_rows


def _read_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and place of the array in a .npy file."""
    with array_files.reading(path, ".npy file of numbers", *array_files.DAMAGE), open(path, "rb") as file:
        shape, is_fortran, dtype = array_files.read_header(file, os.fstat(file.fileno()).st_size)
        _check_numbers(shape, dtype, f"{str(path)!r}")
        return shape, is_fortran, dtype, file.tell()


@dataclass(frozen=True)
class ParquetKind(BlockKind):
    """A table for each block.

    columns
        A digest of its columns, which are the same in all of them.
    roles
        Which of them are what, as far as it was said.
    filled
        What columns hold that are empty in some of the blocks.
    """

    name = "parquet"
    has_names = True
    columns: str
    roles: Roles = UNSAID
    filled: tuple[tuple[int, str], ...] = ()

    @classmethod
    def read_heads(cls, folder: Path, names: Sequence[str], roles: Roles = UNSAID) -> Heads:
        """Open a folder with such files."""
        heads = [tables.head(folder / name) for name in names]
        filled = _filled([head.kinds for head in heads])
        dtypes: list[np.dtype[Any]] = []
        widths: dict[int, str] = {}
        first: list[str] = []
        for name, head in zip(names, heads, strict=True):
            header = head.header(folder / name, roles, filled)
            told = _told(header)
            first = first or told
            for mine, right in zip_longest(told, first, fillvalue="no column"):
                if mine != right:
                    raise DataError(
                        f"{str(folder / name)!r} has {mine} where {str(folder / names[0])!r} has {right}; all blocks "
                        "must have the same columns in the same order"
                    )
            dtypes += [tables.number_type(head.types[column]) for column in header.features]
            if (width := head.widths.get(header.features[0], len(header.features))) is not None:
                widths.setdefault(width, name)
        if len(widths) > 1:
            (one, there), (other, here) = list(widths.items())[:2]
            raise DataError(
                f"{str(folder / here)!r} has lists of {other} numbers, and {str(folder / there)!r} has {one}; all "
                "blocks must have as many"
            )
        blocks = Block.consecutive(names, [head.n_rows for head in heads])
        return cls(folder, _digest(first), roles, filled), blocks, next(iter(widths), 1), float_type(dtypes)

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By row groups, those with some of the rows, one after the other."""
        with self._open(block) as (file, header):
            names = [header.names[column] for column in header.features]
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            for group, (start, stop) in enumerate(pairwise(accumulate(counts, initial=0))):
                first, last = np.searchsorted(rows, (start, stop))
                if first == last:
                    continue
                index = _range_or_rows(rows[first:last] - start)
                # A name also stands for what is nested below it, hence the second choice.
                found = file.read_row_group(group, columns=names, use_threads=False).select(names)
                tables.fill(out[first:last], header, found.columns, index, start)

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        with self._open(block) as (_, header):
            return header.place(header.features[min(column, len(header.features) - 1)], row)

    def header(self, block: Block) -> Header:
        """What the columns are."""
        with self._open(block) as (_, header):
            return header

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the columns of labels or tags say."""
        header = self.header(blocks[0])
        if header.label is not None:
            column = header.label
            return labels.joined_labels(
                (where := here.place(column), tables.label_words(cells, where), len(cells))
                for here, (cells,) in self._read(blocks, [column])
            )
        if header.tags is not None:
            read = self._read(blocks, [header.tags])
            return labels.tag_sets(tags for _, (cells,) in read for tags in tables.tag_lists(cells))
        return None

    def items(self, blocks: Sequence[Block]) -> dict[str, list[Any]]:
        """Item columns, and the column of keys."""
        header = self.header(blocks[0])
        found: dict[str, list[Any]] = {name: [] for name in header.items}
        keys: list[Any] = []
        for _, cells in self._read(blocks, list(header.items.values())):
            for name, own in zip(header.items, cells, strict=True):
                found[name] += tables.cells_of(own)
        if header.key is not None:
            for here, (own,) in self._read(blocks, [header.key]):
                keys += list(tables.keys_of(here, own)) if len(own) else []
            found["key"] = keys
        return found

    def _read(self, blocks: Sequence[Block], columns: list[int]) -> Iterator[tuple[Header, list[Any]]]:
        """Some columns of every block."""
        for block in blocks if columns else ():
            with self._open(block) as (file, header):
                names = [header.names[column] for column in columns]
                yield header, file.read(columns=names, use_threads=False).select(names).columns

    @contextmanager
    def _open(self, block: Block) -> Iterator[tuple[Any, Header]]:
        """A block that is as it was when the folder was opened."""
        path = self.folder / block.name
        with tables.open_parquet(path, self.roles, self.filled) as (file, header):
            _check_unchanged(path, (file.metadata.num_rows,), (block.n_rows,))
            if _digest(_told(header)) != self.columns:
                raise DataError(f"{str(path)!r} has other columns than when the folder was opened; open it again")
            yield file, header


def _filled(kinds: Sequence[Sequence[str]]) -> tuple[tuple[int, str], ...]:
    """What columns hold that are empty in some tables and not in others."""
    filled = []
    for column, own in enumerate(zip(*kinds, strict=False)):
        if EMPTY in own and (others := sorted(set(own) - {EMPTY})):
            filled.append((column, others[0]))
    return tuple(filled)


def _told(header: Header) -> list[str]:
    """What must be the same in all tables: names of columns, what they hold, and which are features."""
    features = set(header.features)
    return [
        f"the {'feature' if at in features else 'column'} {name!r}"
        + ("" if at in features else f" of {header.kinds[at]}")
        for at, name in enumerate(header.names)
    ]


def _digest(told: list[str]) -> str:
    return hashlib.sha256(repr(told).encode()).hexdigest()


@dataclass(frozen=True)
class ZarrKind(BlockKind):
    """An array with chunks; `array` is its name in a group, or empty."""

    name = "zarr"
    array: str
    n_rows: int

    @classmethod
    def marks(cls, names: Sequence[str]) -> list[str]:
        """The files that make a folder a Zarr array or group."""
        return [name for name in ("zarr.json", ".zarray", ".zgroup") if name in names]

    @classmethod
    def read_heads(cls, folder: Path, names: Sequence[str], roles: Roles = UNSAID) -> Heads:
        """Open such a folder."""
        zarr = _zarr()
        with array_files.reading(folder, "Zarr array", *_ZARR_DAMAGE):
            X = zarr.open(store=str(folder), mode="r")
            name = "" if isinstance(X, zarr.Array) else "X"
            if name:
                if name not in X:
                    has = ", ".join(map(repr, sorted(X.array_keys()))) or "no array"
                    raise DataError(f"{str(folder)!r} has {has}; a Zarr group must have X [n, d]")
                X = X[name]
            label = f"{str(folder / name)!r}"
            if not isinstance(X, zarr.Array):
                raise DataError(f"{label} is a Zarr group; it must be an array [n, d]")
            _check_numbers(X.shape, X.dtype, label)
            step = (getattr(X, "shards", None) or X.chunks)[0]
        n_rows = X.shape[0]
        step *= -(-LEAST_ROWS // step)
        ranges = [(start, min(start + step, n_rows)) for start in range(0, max(n_rows, 1), step)]
        blocks = tuple(Block(f"rows-{start}-{stop}", start, stop) for start, stop in ranges)
        return cls(folder, name, n_rows), blocks, X.shape[1], float_type([X.dtype])

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By chunks, those with some of the rows."""
        path = self.folder / self.array
        with array_files.reading(path, "Zarr array", *_ZARR_DAMAGE):
            X = _zarr().open_array(store=str(path), mode="r")
            _check_numbers(X.shape, X.dtype, f"{str(path)!r}")
            _check_unchanged(path, X.shape, (self.n_rows, out.shape[1]))
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
        with array_files.reading(self.folder, "Zarr group", *_ZARR_DAMAGE):
            group = _zarr().open_group(store=str(self.folder), mode="r")
            given = [name for name in ("y", "tags") if name in group]
            if not given:
                return None
            if len(given) > 1:
                raise DataError(f"{str(self.folder)!r} has y and tags; it may have one of them")
            values = group[given[0]][:]
        label = f"{given[0]} of {str(self.folder)!r}"
        if values.ndim != (1 if given == ["y"] else 2):
            raise DataError(f"{label} has shape {values.shape}; it must be y [n] or tags [n, c]")
        if values.dtype.kind == "T":  # numpy's strings of any length
            values = np.array(values.tolist())
        return labels.joined_labels([(label, values, self.n_rows)])

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows: metadata and chunks."""
        return (path for path in sorted((self.folder / self.array).rglob("*")) if path.is_file())


KINDS: tuple[type[BlockKind], ...] = (ZarrKind, NpyKind, ParquetKind)


def natural(name: str) -> tuple[list[str | int], str]:
    """What names of blocks are sorted by: numbers in them count by their size."""
    words = re.split("([0-9]+)", name)
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


def float_type(dtypes: Sequence[np.dtype[Any]]) -> str:
    """The type of rows whose numbers are of these types, as for an array: what float32 may not hold is float64."""
    large = any(dtype.itemsize > (4 if dtype.kind == "f" else 2) for dtype in dtypes)
    return "float64" if large else "float32"


def _check_numbers(shape: tuple[int, ...], dtype: np.dtype[Any], label: str) -> None:
    """Refuse what is no array of rows."""
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1 or dtype.kind not in "buif":
        raise DataError(f"{label} is {dtype} of shape {shape}; it must be numbers [b, d], d not 0")


def _check_unchanged(path: Path, found: tuple[int, ...], before: tuple[int, ...]) -> None:
    """Refuse a block that is not as it was when its folder was opened."""
    for what, now, then in zip(("rows", "columns"), found, before, strict=False):
        if now != then:
            raise DataError(f"{str(path)!r} has {now} {what}, and had {then} when the folder was opened; open it again")


def _range_or_rows(rows: Indices) -> slice | Indices:
    """Sorted rows as an index, which copies nothing if they follow each other."""
    start, stop = int(rows[0]), int(rows[-1]) + 1
    return slice(start, stop) if stop - start == len(rows) else rows


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("reading Zarr arrays needs zarr: pip install zarr") from error
    return zarr
