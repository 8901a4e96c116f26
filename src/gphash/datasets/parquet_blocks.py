"""Blocks in ``.parquet`` files: tables with the same columns in all of them."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices
from gphash.datasets import tables
from gphash.datasets.block_files import Block, Heads, check_unchanged, consecutive, float_type, range_or_rows, reading
from gphash.datasets.block_labels import Given, Labels, joined_labels, joined_tags
from gphash.datasets.dataset import DataError

SUFFIX = ".parquet"


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
                index = range_or_rows(rows[first:last] - start)
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
            return joined_labels(self._labels(block, columns.names[columns.label_column]) for block in blocks)
        if columns.tags is not None:
            name = columns.names[columns.tags]
            return joined_tags((self._cells(block, name) for block in blocks), f"{str(self.folder)!r}, column {name!r}")
        return None

    def _labels(self, block: Block, name: str) -> Given:
        cells = self._cells(block, name)
        label = f"{str(self.folder / block.name)!r}, column {name!r}"
        if None in cells:
            raise DataError(f"{label}, row {cells.index(None)}: empty; wanted is a class in every row")
        return Given(label, np.array(cells), block.n_rows)

    def _cells(self, block: Block, name: str) -> list[Any]:
        with self._open(block) as (file, _):
            cells: list[Any] = file.read(columns=[name], use_threads=False).column(name).to_pylist()
            return cells

    @contextmanager
    def _open(self, block: Block) -> Iterator[tuple[Any, "_Footer"]]:
        """A block that is as it was when the folder was opened."""
        path = self.folder / block.name
        with _parquet(path) as (file, footer):
            check_unchanged(f"{str(path)!r}", "rows", footer.n_rows, block.n_rows)
            if footer.digest() != self.columns:
                raise DataError(f"{str(path)!r} has other columns than when the folder was opened; wanted are the same")
            yield file, footer

    def files(self, blocks: Sequence[Block]) -> Iterator[Path]:
        """What holds the rows."""
        return (self.folder / block.name for block in blocks)


class _Footer(NamedTuple):
    """What a table tells of itself: its rows, all columns, and names and types of the features."""

    n_rows: int
    columns: tables.Columns
    features: list[str]
    dtypes: list[np.dtype[Any]]

    def digest(self) -> str:
        return hashlib.sha256(repr((self.columns.names, self.features)).encode()).hexdigest()


def read_heads(folder: Path, names: Sequence[str]) -> Heads:
    """Open a folder with such files, sorted by their names."""
    footers = []
    for name in names:
        with _parquet(folder / name) as (_, footer):
            footers.append(footer)
    for footer in footers:
        _check_columns("", footer, footer.columns.names, footers[0], footers[0].columns.names)
        _check_columns(" of numbers", footer, footer.features, footers[0], footers[0].features)
    blocks = consecutive(names, [footer.n_rows for footer in footers])
    dtype = float_type([dtype for footer in footers for dtype in footer.dtypes])
    return Heads(ParquetKind(folder, footers[0].digest()), blocks, len(footers[0].features), dtype)


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
    with reading(path, "Parquet file", arrow.ArrowException), arrow.parquet.ParquetFile(path) as file:
        yield file, _read_footer(path, file, arrow.types)


def _read_footer(path: Path, file: Any, types: Any) -> _Footer:
    columns = tables.Columns.of(path, file.schema_arrow.names)
    kinds = {column: file.schema_arrow.field(column).type for column in columns.others}
    kept = [
        column
        for column, kind in kinds.items()
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    ]
    columns.check_features(kept)
    dtypes = [np.dtype(kinds[column].to_pandas_dtype()) for column in kept]
    return _Footer(file.metadata.num_rows, columns, [columns.names[column] for column in kept], dtypes)
