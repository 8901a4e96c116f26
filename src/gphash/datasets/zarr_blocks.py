"""Blocks of a Zarr array: some chunks each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.datasets.block_files import Block, Heads, check_numbers, check_unchanged, float_type, range_or_rows, reading
from gphash.datasets.block_labels import Given, Labels, joined_labels
from gphash.datasets.dataset import DataError

LEAST_ROWS = 1 << 16  # of a block of a Zarr array, whose chunks may be tiny

_MARKS = ("zarr.json", ".zarray", ".zgroup")
# What reading a damaged Zarr array has been seen to raise, besides errors of the disk.
_DAMAGE = (ValueError, LookupError, TypeError, RuntimeError)


@dataclass(frozen=True)
class ZarrKind:
    """An array with chunks; `array` is its name in a group, or empty."""

    folder: Path
    array: str
    n_rows: int

    def fill(self, out: Floats, block: Block, rows: Indices) -> None:
        """By chunks, those with some of the rows."""
        path = self.folder / self.array
        with reading(path, "Zarr array", *_DAMAGE):
            X = _zarr().open_array(store=str(path), mode="r")
            check_numbers(X.shape, X.dtype, f"{str(path)!r}")
            check_unchanged(f"{str(path)!r}", "rows", X.shape[0], self.n_rows)
            check_unchanged(f"{str(path)!r}", "columns", X.shape[1], out.shape[1])
            start, stop = int(rows[0]), int(rows[-1]) + 1
            if 2 * len(rows) < stop - start:
                out[:] = X.oindex[block.start + rows, :]
            else:
                out[:] = X[block.start + start : block.start + stop][range_or_rows(rows - start)]

    def place(self, block: Block, row: int, column: int) -> str:
        """How an error names a number."""
        return f"{str(self.folder / self.array)!r}, row {block.start + row}, column {column}"

    def labels(self, blocks: Sequence[Block]) -> Labels | None:
        """What the arrays y or tags of the group say."""
        if not self.array:
            return None
        with reading(self.folder, "Zarr group", *_DAMAGE):
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
        return joined_labels([Given(label, np.array(values.tolist()) if words else values, self.n_rows)])

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows: metadata and chunks."""
        return (path for path in sorted((self.folder / self.array).rglob("*")) if path.is_file())


def marks(folder: Path) -> list[str]:
    """Names of the files that make a folder a Zarr array or group; empty if it is none."""
    return [name for name in _MARKS if (folder / name).is_file()]


def read_heads(folder: Path) -> Heads:
    """Open such a folder."""
    zarr = _zarr()
    with reading(folder, "Zarr array", *_DAMAGE):
        found = zarr.open(store=str(folder), mode="r")
        name = "" if isinstance(found, zarr.Array) else "X"
        if name and name not in found:
            has = ", ".join(map(repr, sorted(found.array_keys()))) or "no array"
            raise DataError(f"{str(folder)!r} has {has}; wanted is X [n, d] in a Zarr group")
        X = found[name] if name else found
        label = f"{str(folder / name)!r}"
        if not isinstance(X, zarr.Array):
            raise DataError(f"{label} is a Zarr group; wanted is an array [n, d]")
        check_numbers(X.shape, X.dtype, label)
        step = (getattr(X, "shards", None) or X.chunks)[0]
    n_rows = X.shape[0]
    step *= -(-LEAST_ROWS // step)
    ranges = [(start, min(start + step, n_rows)) for start in range(0, max(n_rows, 1), step)]
    blocks = tuple(Block(f"rows-{start}-{stop}", start, stop) for start, stop in ranges)
    return Heads(ZarrKind(folder, name, n_rows), blocks, X.shape[1], float_type([X.dtype]))


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("reading Zarr arrays needs zarr: pip install zarr") from error
    return zarr
