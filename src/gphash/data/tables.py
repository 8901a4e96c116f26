"""Rows of features from one file: ``.npy``, ``.npz``, ``.csv`` or ``.parquet``; no file is ever unpickled.

A ``.npy`` file is X alone. A ``.npz`` file has ``X`` [n, d] or, to be described, ``images`` uint8 [n, H, W] or
[n, H, W, 3], or both; one of ``y`` [n], ``tags`` 0/1 [n, c], or ``pairs`` [p, 2] with ``similar`` [p]; and maybe
``classes``, the names of the labels 0, 1, … or of the tags, and ``ids`` [n].

A table (CSV or Parquet) has names of columns, in CSV on its first line. ``label`` is the class of a row, or ``tags``
its tags with ``;`` between them, and ``id`` its number; all of them are optional. Every other column of numbers is a
feature, and columns without any number are left out. Numbers are finite, and nothing is missing among them.
"""

import csv
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.data.dataset import Content
from gphash.data.labels import check_form, decoded, numbered, tag_columns, tag_names, tag_sets
from gphash.data.pictures import MIN_SIDE
from gphash.files import DataError
from gphash.supervision.similarity import Pairs

# An archive that grows so much, to so many bytes, is taken for one that is meant to fill the memory.
MOST_GROWTH = 100
MOST_GROWN = 1 << 28

# What reading a damaged array, or an archive of them, has been seen to raise.
DAMAGE = (
    *(ValueError, EOFError, LookupError, NotImplementedError, RuntimeError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)

_ARRAYS = ("X", "y", "tags", "pairs", "similar", "ids", "images", "classes")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def reading(path: Path, what: str, *damage: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong while a file is read becomes a DataError that names it."""
    expected: tuple[type[Exception], ...] = (OSError, *damage)
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{str(path)!r} is missing; put it back") from error
    except expected as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not an unpacker's
            raise DataError(f"{str(path)!r} cannot be read: {error}") from error
        raise DataError(f"{str(path)!r} is not a whole {what}: {error}") from error


def read(path: Path) -> Content:
    """Read a file by its suffix, one of `READERS`; a DataError names what is wrong with it, and where."""
    return READERS[path.suffix.lower()](path)


def read_npy(path: Path) -> Content:
    """Features [n, d], or [d] for a single row."""
    found = load_npy(path, ".npy file of numbers")
    return Content(_features(found[None] if found.ndim == 1 else found, f"{str(path)!r}"))


def read_npz(path: Path) -> Content:
    """Arrays by their names, see the head of this module."""
    arrays = _load_arrays(path)
    of = {name: f"{name} of {str(path)!r}" for name in _ARRAYS}
    given = [name for name in ("y", "tags", "pairs") if name in arrays]
    if len(given) > 1:
        raise DataError(f"{str(path)!r} has {' and '.join(given)}; it may have one of y, tags and pairs")
    if "X" not in arrays and "images" not in arrays:
        has = ", ".join(map(repr, arrays)) or "no array"
        raise DataError(f"{str(path)!r} has {has}; it must have X [n, d], or images to describe")
    if "classes" in arrays and not {"y", "tags"} & set(given):
        raise DataError(f"{str(path)!r} has classes, but neither y nor tags that they would name")
    X = _features(arrays["X"], of["X"]) if "X" in arrays else None
    if (images := arrays.get("images")) is not None:
        coloured = images.ndim == 4 and images.shape[3] == 3
        sound = images.dtype == np.uint8 and (images.ndim == 3 or coloured) and 0 not in images.shape
        check_form(sound, images, of["images"], "uint8 [n, H, W] or [n, H, W, 3]")
        height, width = images.shape[1:3]
        if X is None and min(height, width) < MIN_SIDE:
            has = f"{of['images']} have {height} × {width} pixels"
            raise DataError(f"{has}; give at least {MIN_SIDE} on each side, or X")
    n_rows = len(arrays["images"] if X is None else X)
    for name in {"images", "ids", "tags", "y"} & set(arrays):
        if (shape := arrays[name].shape)[:1] != (n_rows,):
            raise DataError(f"{of[name]} has shape {shape}; it must have an entry for each of the {n_rows} rows")
    content = Content(X, images=images)
    if "ids" in arrays:
        content = content._replace(ids=_ids(arrays["ids"], of["ids"]))
    names = _names(arrays["classes"], of["classes"]) if "classes" in arrays else None
    if "tags" in arrays:
        return content._replace(**tag_columns(arrays["tags"], names, of["tags"])._asdict())
    if "y" in arrays:
        return content._replace(**numbered(arrays["y"], names, of["y"])._asdict())
    if "pairs" in arrays or "similar" in arrays:
        return content._replace(pairs=_pairs(arrays, n_rows, path))
    return content


def read_csv(path: Path) -> Content:
    """A table as text, UTF-8, with commas between columns and quotes where a cell needs them.

    Which columns are numbers, its first row says.
    """
    arrow = pyarrow("CSV")
    with closing(csv_rows(path)) as rows:
        _, raw = next(rows, (0, []))
        _, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{str(path)!r} has no rows; give a line of names and lines of numbers")
    if all(map(_is_number, raw)):
        raise DataError(f"{str(path)!r}, line 1: numbers; the first line must be the columns' names")
    names = [cell.strip() for cell in raw]
    columns = Columns.of(path, names, lambda column: column < len(first) and _is_number(first[column]))
    kinds = {name: arrow.string() for name in raw} | {raw[column]: arrow.float64() for column in columns.features}
    if columns.id is not None:
        kinds[raw[columns.id]] = arrow.int64()
    plain = {"null_values": [], "true_values": [], "false_values": [], "strings_can_be_null": False}
    options = {
        "parse_options": arrow.csv.ParseOptions(newlines_in_values=True),
        "convert_options": arrow.csv.ConvertOptions(column_types=kinds, **plain),
    }
    try:
        table = arrow.csv.read_csv(path, **options)
    except arrow.ArrowException:
        try:  # again by one thread, whose errors tell the row
            table = arrow.csv.read_csv(path, read_options=arrow.csv.ReadOptions(use_threads=False), **options)
        except arrow.ArrowException as error:
            raise DataError(f"{str(path)!r} is not readable as CSV: {' '.join(str(error).split())}") from error
    for column in set(range(len(names))) - {*columns.features, columns.id}:
        cells = table.column(column)
        if column not in (columns.label, columns.tags) and any(map(_is_number, cells.unique().to_pylist())):
            row, cell = next((row, cell) for row, cell in enumerate(cells.to_pylist()) if _is_number(cell))
            where = columns.place(column, row)
            raise DataError(f"{where}: the number {cell!r}, but row 0 has none; give numbers in every row or in none")
        if "\n" in cells[-1].as_py():  # Arrow takes a quote that is never closed for a cell up to the end of the file
            for _ in csv_rows(path):
                pass
    return _content(columns, table)


def read_parquet(path: Path) -> Content:
    """A table in the Parquet format; tags may be lists of words, too."""
    with open_parquet(path) as (file, columns):
        table = file.read()
    if not len(table):
        raise DataError(f"{str(path)!r} has no rows; it must have at least one")
    return _content(columns, table)


READERS = {".npy": read_npy, ".npz": read_npz, ".csv": read_csv, ".parquet": read_parquet}


class Columns(NamedTuple):
    """The names of a table's columns, which of them are label, tags and id, and which are features."""

    path: Path
    names: list[str]
    label: int | None
    tags: int | None
    id: int | None
    features: list[int]

    @classmethod
    def of(cls, path: Path, names: list[str], is_number: Callable[[int], bool]) -> "Columns":
        """Columns of a file by their names, in any case; a DataError says which names cannot be."""
        if "" in names:
            raise DataError(
                f"{str(path)!r}: column {names.index('') + 1} has no name; give all columns names (pandas writes such "
                "a table with index=False)"
            )
        # Case does not count here: a column Label of numbers must not become a feature.
        folded = [name.casefold() for name in names]
        for column, name in enumerate(folded):
            if name in folded[:column]:
                raise DataError(f"{str(path)!r}: column {column + 1} is another {names[column]!r}; name each once")
        label, tags, number = (folded.index(name) if name in folded else None for name in ("label", "tags", "id"))
        if label is not None and tags is not None:
            raise DataError(f"{str(path)!r} has the columns 'label' and 'tags'; it may have one of them")
        features = [column for column in range(len(names)) if column not in (label, tags, number) and is_number(column)]
        if not features:
            shown = ", ".join(map(repr, names[:6])) + (", …" if len(names) > 6 else "")
            raise DataError(
                f"{str(path)!r} has no columns of numbers besides 'label', 'tags' and 'id', but {shown}; give one for "
                "every feature"
            )
        return cls(path, names, label, tags, number, features)

    def place(self, column: int, row: int | None = None) -> str:
        """How an error names a column, or a cell."""
        return f"{str(self.path)!r}, {'' if row is None else f'row {row}, '}column {self.names[column]!r}"

    def numbers(self, column: int, cells: Any, rows: slice | Indices = slice(None), first: int = 0) -> NDArray[Any]:
        """Some cells of a column of numbers, whose first one is in the row `first` of the file."""
        if cells.null_count and not (present := cells.is_valid().to_numpy()[rows]).all():
            row = first + int(np.arange(len(cells))[rows][np.argmin(present)])
            raise DataError(f"{self.place(column, row)}: empty; there must be a number in every row")
        return np.asarray(cells.to_numpy()[rows])

    def words(self, column: int, cells: list[Any]) -> NDArray[Any]:
        """Cells of the column ``label``, none of which may be None."""
        if None in cells:
            raise DataError(f"{self.place(column, cells.index(None))}: empty; there must be a class in every row")
        return np.array(cells)


@contextmanager
def open_parquet(path: Path) -> Iterator[tuple[Any, Columns]]:
    """A Parquet file of Arrow's, and its columns."""
    arrow = pyarrow("Parquet")
    tests = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
    # One file: read_table would also make columns of folders that are called such as year=2020.
    with reading(path, "Parquet file", arrow.ArrowException), arrow.parquet.ParquetFile(path) as file:
        types = file.schema_arrow.types
        yield file, Columns.of(path, file.schema_arrow.names, lambda at: any(test(types[at]) for test in tests))


def _content(columns: Columns, table: Any) -> Content:
    """What an Arrow table holds."""
    X = np.empty((len(table), len(columns.features)), dtype=np.float32)
    with np.errstate(over="ignore"):  # Numbers too large become infinite, and are refused as such.
        for number, column in enumerate(columns.features):
            X[:, number] = columns.numbers(column, table.column(column))
    _check_finite(X, lambda row, number: columns.place(columns.features[number], row))
    content = Content(X)
    if columns.id is not None:
        where, cells = columns.place(columns.id), table.column(columns.id)
        if cells.null_count or not pyarrow("Parquet").types.is_integer(cells.type):
            raise DataError(f"{where}: there must be a whole number in every row")
        content = content._replace(ids=_ids(cells.to_numpy(), where))
    if columns.label is not None:
        found = table.column(columns.label).to_pylist()
        words = columns.words(columns.label, [one.strip() or None if isinstance(one, str) else one for one in found])
        return content._replace(**numbered(words, None, columns.place(columns.label))._asdict())
    if columns.tags is not None:
        sets = map(tag_names, table.column(columns.tags).to_pylist())
        return content._replace(**tag_sets(sets, columns.place(columns.tags))._asdict())
    return content


def csv_rows(path: Path) -> Generator[tuple[int, list[str]], None, None]:
    """Rows of a CSV file, each with the number of its last line."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r}, after line {reader.line_num}: not readable as CSV: {error}") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, ".npz archive of arrays without objects", *DAMAGE), zipfile.ZipFile(path) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if unknown := sorted(set(members) - set(_ARRAYS)):
            raise DataError(f"{str(path)!r} has the array {unknown[0]!r}; known are {', '.join(_ARRAYS)}")
        stored, n_bytes = path.stat().st_size, sum(one.file_size for one in members.values())
        if n_bytes > max(MOST_GROWN, MOST_GROWTH * stored):
            raise DataError(
                f"{str(path)!r} has {stored:,} bytes and {n_bytes:,} unpacked, which looks like a trap; if it is "
                "not, write it with numpy.savez, which does not compress"
            )
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as file:
                arrays[name] = _read_array(file, member.file_size)
        return arrays


def load_npy(path: Path, what: str) -> NDArray[Any]:
    """The array of a .npy file, which an error calls `what`."""
    with reading(path, what, *DAMAGE), open(path, "rb") as file:
        return _read_array(file, path.stat().st_size)


def _read_array(file: IO[bytes], n_bytes: int) -> NDArray[Any]:
    """The array of a .npy file of so many bytes; memory is asked for only if the file can fill it."""
    read_header(file, n_bytes)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_header(file: IO[bytes], n_bytes: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type of the array in a .npy file of so many bytes."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if math.prod(shape) * dtype.itemsize > n_bytes - file.tell():
        raise ValueError(f"{dtype} of shape {shape} does not fit into its {n_bytes:,} bytes")
    return shape, is_fortran, dtype


def _features(given: NDArray[Any], label: str) -> NDArray[np.float32]:
    sound = given.ndim == 2 and 0 not in given.shape and given.dtype.kind in "buif"
    check_form(sound, given, label, "numbers [n, d], n and d not 0")
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(given, dtype=np.float32)
    _check_finite(X, lambda row, column: f"{label}, row {row}, column {column}")
    return X


def _check_finite(X: NDArray[np.float32], place: Callable[[int, int], str]) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        row, column = divmod(int(finite.argmin()), X.shape[1])
        what = "NaN" if np.isnan(X[row, column]) else "infinite, or too large for 32 bits"
        raise DataError(f"{place(row, column)}: {what}; give finite numbers")


def _ids(given: NDArray[Any], label: str) -> Indices:
    check_form(given.ndim == 1 and given.dtype.kind in "iu", given, label, "whole numbers [n]")
    if given.dtype.kind == "u" and given.max() > np.iinfo(np.int64).max:
        raise DataError(f"{label} has {given.max()}; it must fit in 64 bits with a sign")
    values, counts = np.unique(given, return_counts=True)
    if len(values) < len(given):
        worst = counts.argmax()
        raise DataError(f"{label}: {values[worst]} occurs {counts[worst]} times; give every id once")
    return given.astype(np.int64)


def _pairs(arrays: dict[str, NDArray[Any]], n_rows: int, path: Path) -> Pairs:
    for name in ("pairs", "similar"):
        if name not in arrays:
            raise DataError(f"{str(path)!r} lacks {name}; give pairs [p, 2] and similar [p] together")
    pairs, similar = arrays["pairs"], arrays["similar"]
    sound = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
    check_form(sound, pairs, f"pairs of {str(path)!r}", "row numbers [p, 2]")
    outside = (pairs < 0) | (pairs >= n_rows)
    if outside.any():
        raise DataError(f"pairs of {str(path)!r} names row {pairs[outside][0]}; there are rows 0 to {n_rows - 1}")
    signs = similar.dtype == bool or (similar.dtype.kind in "iuf" and np.isin(similar, (-1, 1)).all())
    needed = f"+1 or True (alike), -1 or False (unlike) for each of the {len(pairs)} pairs"
    check_form(similar.shape == pairs.shape[:1] and bool(signs), similar, f"similar of {str(path)!r}", needed)
    return Pairs(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), similar)


def _names(given: NDArray[Any], label: str) -> tuple[str, ...]:
    words = decoded(given, label)
    check_form(words.ndim == 1 and words.dtype.kind in "Uiu", given, label, "names [c]")
    names = tuple(map(str, words.tolist()))
    if len(set(names)) < len(names):
        raise DataError(f"{label} names a class twice; name each once")
    return names


def pyarrow(what: str) -> Any:
    """The package that reads tables, which not everybody has."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise ImportError(f"reading {what} files needs pyarrow: pip install pyarrow") from error
    return pyarrow
