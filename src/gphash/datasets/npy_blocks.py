"""Blocks in ``.npy`` files, labels in others beside them."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.datasets import tables
from gphash.datasets.block_files import (
    Block,
    Heads,
    check_numbers,
    check_unchanged,
    consecutive,
    float_type,
    natural,
    range_or_rows,
    reading,
)
from gphash.datasets.block_labels import Given, Labels, joined_labels
from gphash.datasets.dataset import DataError

SUFFIX = ".npy"
_LABELS = ".labels.npy"


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
        check_unchanged(f"{str(path)!r}", "rows", header.shape[0], block.n_rows)
        check_unchanged(f"{str(path)!r}", "columns", header.shape[1], out.shape[1])
        with reading(path, ".npy file", ValueError):
            X = np.memmap(path, header.dtype, "r", header.offset, header.shape, "F" if header.fortran else "C")
            out[:] = X[range_or_rows(rows)]

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        return f"{str(self.folder / block.name)!r}, row {row}, column {column}"

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the files beside the blocks say."""
        return joined_labels(map(self._labels, blocks)) if self.labelled else None

    def _labels(self, block: Block) -> Given:
        path = self.folder / _labels_name(block.name)
        with reading(path, ".npy file of labels", *tables.DAMAGE), open(path, "rb") as file:
            values = tables.read_array(file, os.fstat(file.fileno()).st_size)
        return Given(f"{str(path)!r}", values, block.n_rows)

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        return (self.folder / block.name for block in blocks)


def read_heads(folder: Path, names: Sequence[str]) -> Heads:
    """Open a folder with such files, sorted by their names."""
    beside = {name for name in names if name.lower().endswith(_LABELS)}
    names = [name for name in names if name not in beside]
    wanted = {_labels_name(name): name for name in names}
    if stray := sorted(beside - set(wanted), key=natural):
        raise DataError(
            f"{str(folder / stray[0])!r} has labels of no block; wanted is {stray[0][: -len(_LABELS)] + SUFFIX!r} "
            "beside it"
        )
    lacking = [name for labels, name in wanted.items() if labels not in beside]
    if beside and lacking:
        raise DataError(
            f"{str(folder / lacking[0])!r} has no labels beside it, but there is {min(beside, key=natural)!r}; "
            f"wanted is {_labels_name(lacking[0])!r}, too, or labels for no block"
        )
    headers = [_read_header(folder / name) for name in names]
    for name, header in zip(names, headers, strict=True):
        if header.shape[1] != headers[0].shape[1]:
            raise DataError(
                f"{str(folder / name)!r} has {header.shape[1]} columns, and {str(folder / names[0])!r} has "
                f"{headers[0].shape[1]}; wanted is the same number in all blocks"
            )
    blocks = consecutive(names, [header.shape[0] for header in headers])
    dtype = float_type([header.dtype for header in headers])
    return Heads(NpyKind(folder, bool(beside)), blocks, headers[0].shape[1], dtype)


def _labels_name(name: str) -> str:
    return name[: -len(SUFFIX)] + _LABELS


def _read_header(path: Path) -> _Header:
    with reading(path, ".npy file of numbers", *tables.DAMAGE), open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in tables.HEADERS:
            raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
        header = _Header(*tables.HEADERS[version](file), file.tell())
        check_numbers(header.shape, header.dtype, f"{str(path)!r}")
        n_bytes = os.fstat(file.fileno()).st_size - header.offset
        if math.prod(header.shape) * header.dtype.itemsize > n_bytes:
            raise ValueError(f"{header.dtype} of shape {header.shape} does not fit into its {n_bytes:,} bytes")
    return header
