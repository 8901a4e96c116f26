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
import re
import tokenize
import zipfile
import zlib
from array import array
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.coding.similarity import Pairs
from gphash.datasets.dataset import DataError

LABEL, TAGS, ID = "label", "tags", "id"
MARK = ";"  # between tags

# An archive that grows so much, to so many bytes, is taken for one that is meant to fill the memory.
MOST_GROWTH = 100
MOST_GROWN = 1 << 28

_ARRAYS = ("X", "y", "tags", "pairs", "similar", "ids", "images", "classes")

# What reads the head of an array, by the version of the format.
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What reading a damaged array, or an archive of them, has been seen to raise.
DAMAGE = (
    ValueError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class Table(NamedTuple):
    """What a file holds.

    X
        Features, float32 [n, d]; None if there are images to describe instead.
    y
        Class labels, int64 [n], numbers into `classes`; or tags, uint8 [n, c]; or None.
    pairs
        Judged pairs, or None.
    classes
        The name of every class or tag; () without labels.
    ids
        Distinct numbers of the rows, int64 [n], or None.
    images
        Pixels, uint8 [n, H, W] or [n, H, W, 3], or None.
    """

    X: NDArray[np.float32] | None
    y: NDArray[Any] | None = None
    pairs: Pairs | None = None
    classes: tuple[str, ...] = ()
    ids: Indices | None = None
    images: NDArray[np.uint8] | None = None


def read(path: Path) -> Table:
    """Read a file by its suffix, one of `READERS`; a DataError names what is wrong with it, and where."""
    return READERS[path.suffix.lower()](path)


def read_npy(path: Path) -> Table:
    """Features [n, d], or [d] for a single row."""
    try:
        with open(path, "rb") as file:
            found = read_array(file, path.stat().st_size)
    except DAMAGE as error:
        raise DataError(f"{str(path)!r} is no whole .npy file of numbers: {error}") from error
    return Table(_features(found[None] if found.ndim == 1 else found, f"{str(path)!r}"))


def read_npz(path: Path) -> Table:
    """Arrays by their names, see the head of this module."""
    arrays = _load_arrays(path)
    of = {name: f"{name} of {str(path)!r}" for name in _ARRAYS}
    given = [name for name in ("y", "tags", "pairs") if name in arrays]
    if len(given) > 1:
        raise DataError(f"{str(path)!r} has {' and '.join(given)}; wanted is one of y, tags, pairs at most")
    if "X" not in arrays and "images" not in arrays:
        has = ", ".join(map(repr, arrays)) or "no array"
        raise DataError(f"{str(path)!r} has {has}; wanted is X [n, d], or images to describe")
    X = _features(arrays["X"], of["X"]) if "X" in arrays else None
    images = _images(arrays["images"], of["images"]) if "images" in arrays else None
    n_rows = len(images) if X is None and images is not None else len(X if X is not None else ())
    if images is not None:
        _check_length(images, n_rows, of["images"])
    ids = None
    if "ids" in arrays:
        _check_length(arrays["ids"], n_rows, of["ids"])
        ids = _ids(arrays["ids"], of["ids"])

    names = _names(arrays["classes"], of["classes"]) if "classes" in arrays else None
    if names is not None and "y" not in arrays and "tags" not in arrays:
        raise DataError(f"{str(path)!r} has classes, but neither y nor tags that they would name")
    if "pairs" in arrays or "similar" in arrays:
        return Table(X, None, _pairs(arrays, n_rows, path), (), ids, images)
    if "tags" in arrays:
        _check_length(arrays["tags"], n_rows, of["tags"])
        tags, classes = tag_columns(arrays["tags"], names, of["tags"])
        return Table(X, tags, None, classes, ids, images)
    if "y" in arrays:
        _check_length(arrays["y"], n_rows, of["y"])
        y, classes = numbered(arrays["y"], names, of["y"])
        return Table(X, y, None, classes, ids, images)
    return Table(X, None, None, (), ids, images)


def read_csv(path: Path) -> Table:
    """A table as text, UTF-8, with commas between columns and quotes where a cell needs them."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            with np.errstate(over="ignore"):  # Numbers too large become infinite, and are refused as such.
                return _read_csv(path, reader)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r}, after line {reader.line_num}: no readable CSV: {error}") from error


def read_parquet(path: Path) -> Table:
    """A table in the Parquet format; tags may be lists of words, too."""
    arrow = pyarrow()
    types = arrow.types
    try:
        # One file: read_table would also make columns of folders that are called such as year=2020.
        with arrow.parquet.ParquetFile(path) as file:
            table = file.read()
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not Arrow's own
            raise
        raise DataError(f"{str(path)!r} is no whole Parquet file: {error}") from error
    columns = Columns.of(path, table.column_names)
    if not len(table):
        raise DataError(f"{str(path)!r} has no rows; wanted is at least one")

    def is_number(column: int) -> bool:
        kind = table.schema.field(column).type
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    def values(column: int) -> list[Any]:
        found: list[Any] = table.column(column).to_pylist()
        return found

    kept = [column for column in columns.others if is_number(column)]
    columns.check_features(kept)
    X = np.empty((len(table), len(kept)), dtype=np.float32)
    for place, column in enumerate(kept):
        cells = table.column(column)
        if cells.null_count:
            row = values(column).index(None)
            raise DataError(f"{columns.label(column)}, row {row}: empty; wanted is a number in every row")
        with np.errstate(over="ignore"):
            X[:, place] = cells.to_numpy()
    _check_finite(X, lambda row, place: f"{columns.label(kept[place])}, row {row}")

    ids = None
    if columns.id is not None:
        found = values(columns.id)
        if not types.is_integer(table.schema.field(columns.id).type) or None in found:
            raise DataError(f"{columns.label(columns.id)}: wanted is a whole number in every row")
        ids = _ids(_whole(found, columns.label(columns.id)), columns.label(columns.id))
    if columns.label_column is not None:
        found = values(columns.label_column)
        where = columns.label(columns.label_column)
        if None in found:
            raise DataError(f"{where}, row {found.index(None)}: empty; wanted is a class in every row")
        y, classes = numbered(np.array(found), None, where)
        return Table(X, y, None, classes, ids)
    if columns.tags is not None:
        sets = [tag_names(cell) for cell in values(columns.tags)]
        tags, classes = tag_sets(sets, columns.label(columns.tags))
        return Table(X, tags, None, classes, ids)
    return Table(X, ids=ids)


READERS: dict[str, Callable[[Path], Table]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


class Columns(NamedTuple):
    """Names of a table's columns, and which of them are no features."""

    path: Path
    names: list[str]
    label_column: int | None
    tags: int | None
    id: int | None
    others: list[int]

    @classmethod
    def of(cls, path: Path, names: list[str]) -> "Columns":
        """Columns of a file by their names, in any case; a DataError says which names cannot be."""
        if "" in names:
            raise DataError(
                f"{str(path)!r}: column {names.index('') + 1} has no name; wanted are names for all (a table of "
                "pandas is written with index=False)"
            )
        # Case does not count here: a column Label of numbers must not become a feature.
        folded = [name.casefold() for name in names]
        seen: set[str] = set()
        for column, name in enumerate(folded):
            if name in seen:
                raise DataError(f"{str(path)!r}: column {column + 1} is another {names[column]!r}; wanted is each once")
            seen.add(name)
        label, tags, number = (folded.index(name) if name in folded else None for name in (LABEL, TAGS, ID))
        if label is not None and tags is not None:
            raise DataError(f"{str(path)!r} has the columns {LABEL!r} and {TAGS!r}; wanted is one of them")
        others = [column for column in range(len(names)) if column not in {label, tags, number}]
        return cls(path, names, label, tags, number, others)

    def label(self, column: int, line: int | None = None) -> str:
        """How an error names a place."""
        at = "" if line is None else f", line {line}"
        return f"{str(self.path)!r}{at}, column {self.names[column]!r}"

    def check_features(self, kept: Sequence[int]) -> None:
        """Refuse a table without features."""
        if not kept:
            shown = ", ".join(map(repr, self.names[:6])) + (", …" if len(self.names) > 6 else "")
            raise DataError(
                f"{str(self.path)!r} has no columns of numbers besides {LABEL!r}, {TAGS!r} and {ID!r}, but {shown}; "
                "wanted is one for every feature"
            )


def _read_csv(path: Path, reader: Any) -> Table:
    columns: Columns | None = None
    numeric: list[bool] = []
    n_features = 0
    text: list[int] = []
    values = bytearray()
    lines = array("q")
    special: list[list[str]] = [[], [], []]
    for cells in reader:
        if not cells or (len(cells) == 1 and not cells[0].strip()):  # an empty line
            continue
        if columns is None:
            columns = Columns.of(path, [cell.strip() for cell in cells])
            if all(map(_is_number, columns.names)):
                raise DataError(f"{str(path)!r}, line {reader.line_num}: numbers; wanted are the columns' names")
            continue
        if len(cells) != len(columns.names):
            raise DataError(
                f"{str(path)!r}, line {reader.line_num}: {len(cells)} columns; wanted are {len(columns.names)} as in "
                "the first line"
            )
        if not lines:
            numeric = [column in columns.others and _is_number(cell) for column, cell in enumerate(cells)]
            n_features = sum(numeric)
            text = [column for column in columns.others if not numeric[column]]
            columns.check_features([column for column in columns.others if numeric[column]])
        try:
            numbers = list(compress(cells, numeric))
            if "_" in "".join(numbers):  # which Python, and nobody else, takes for a part of a number
                raise ValueError
            values += np.fromiter(map(float, numbers), np.float32, n_features).data
        except ValueError:
            odd = next(column for column, cell in enumerate(cells) if numeric[column] and not _is_number(cell))
            raise DataError(
                f"{columns.label(odd, reader.line_num)}: {cells[odd]!r}; wanted is a number in every line"
            ) from None
        for column in text:
            if _is_number(cells[column]):
                raise DataError(
                    f"{columns.label(column, reader.line_num)}: the number {cells[column]!r}, but there is none in "
                    f"line {lines[0]}; wanted are numbers in every line or in none"
                )
        lines.append(reader.line_num)
        for place, number in enumerate((columns.label_column, columns.tags, columns.id)):
            if number is not None:
                special[place].append(cells[number].strip())
    if columns is None or not lines:
        raise DataError(f"{str(path)!r} has no rows; wanted are a line of names and lines of numbers")

    known = columns
    kept = [column for column, is_kept in enumerate(numeric) if is_kept]
    X = np.frombuffer(values, dtype=np.float32).reshape(len(lines), len(kept))
    _check_finite(X, lambda row, place: known.label(kept[place], lines[row]))
    labels, sets, ids = special
    y: NDArray[Any] | None = None
    classes: tuple[str, ...] = ()
    if columns.label_column is not None:
        if "" in labels:
            where = columns.label(columns.label_column, lines[labels.index("")])
            raise DataError(f"{where}: empty; wanted is a class in every line")
        y, classes = numbered(np.array(labels), None, columns.label(columns.label_column))
    elif columns.tags is not None:
        y, classes = tag_sets([tag_names(cell) for cell in sets], columns.label(columns.tags))
    distinct = None
    if columns.id is not None:
        for line, cell in zip(lines, ids, strict=True):
            if not re.fullmatch(r"[+-]?[0-9]+", cell):
                raise DataError(f"{columns.label(columns.id, line)}: {cell!r}; wanted is a whole number")
        where = columns.label(columns.id)
        distinct = _ids(_whole([int(cell) for cell in ids], where), where)
    return Table(X, y, None, classes, distinct)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
            if unknown := sorted(set(members) - set(_ARRAYS)):
                raise DataError(f"{str(path)!r} has the array {unknown[0]!r}; known are {', '.join(_ARRAYS)}")
            _check_growth(path, sum(one.file_size for one in members.values()))
            arrays = {}
            for name, member in members.items():
                with archive.open(member) as file:
                    arrays[name] = read_array(file, member.file_size)
            return arrays
    except DataError:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not an unpacker's
            raise
        raise DataError(f"{str(path)!r} is no whole .npz archive of arrays without objects: {error}") from error


def _check_growth(path: Path, n_bytes: int) -> None:
    stored = path.stat().st_size
    if n_bytes > max(MOST_GROWN, MOST_GROWTH * stored):
        raise DataError(
            f"{str(path)!r} has {stored:,} bytes and {n_bytes:,} unpacked, which looks like a trap; if it is "
            "none, write it with numpy.savez, which does not compress"
        )


def read_array(file: IO[bytes], n_bytes: int) -> NDArray[Any]:
    """An array of a .npy file of so many bytes; memory is asked for only if the file can fill it."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
    shape, _, dtype = HEADERS[version](file)
    if math.prod(shape) * dtype.itemsize > n_bytes:
        raise ValueError(f"{dtype} of shape {shape} does not fit into its {n_bytes:,} bytes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _features(given: NDArray[Any], label: str) -> NDArray[np.float32]:
    if given.ndim != 2 or 0 in given.shape or given.dtype.kind not in "buif":
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted are numbers [n, d], n and d not 0")
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(given, dtype=np.float32)
    _check_finite(X, lambda row, column: f"{label}, row {row}, column {column}")
    return X


def _check_finite(X: NDArray[np.float32], label: Callable[[int, int], str]) -> None:
    # The sum of a row is finite unless a number is not, or the row is of huge ones: few rows are looked at closely.
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = np.flatnonzero(~np.isfinite(X.sum(axis=1)))
    for row in suspects:
        odd = np.flatnonzero(~np.isfinite(X[row]))
        if len(odd):
            what = "NaN" if np.isnan(X[row, odd[0]]) else "infinite, or too large for 32 bits"
            raise DataError(f"{label(int(row), int(odd[0]))}: {what}; wanted are finite numbers")


def _images(given: NDArray[Any], label: str) -> NDArray[np.uint8]:
    coloured = given.ndim == 4 and given.shape[3] == 3
    if given.dtype != np.uint8 or not (given.ndim == 3 or coloured) or 0 in given.shape:
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted is uint8 [n, H, W] or [n, H, W, 3]")
    return given


def _check_length(given: NDArray[Any], n_rows: int, label: str) -> None:
    if given.ndim == 0 or len(given) != n_rows:
        raise DataError(f"{label} has shape {given.shape}; wanted is an entry for each of the {n_rows} rows")


def _whole(numbers: list[int], label: str) -> Indices:
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        raise DataError(f"{label}: a number does not fit in 64 bits with a sign") from None


def _ids(given: NDArray[Any], label: str) -> Indices:
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted are whole numbers [n]")
    if given.dtype.kind == "u" and given.max() > np.iinfo(np.int64).max:
        raise DataError(f"{label} has {given.max()}; wanted are numbers that fit in 64 bits with a sign")
    numbers = given.astype(np.int64)
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) < len(numbers):
        repeated = int(values[counts > 1][0])
        raise DataError(f"{label}: {repeated} occurs {int(counts[counts > 1][0])} times; wanted is every id once")
    return numbers


def _pairs(arrays: dict[str, NDArray[Any]], n_rows: int, path: Path) -> Pairs:
    for name in ("pairs", "similar"):
        if name not in arrays:
            raise DataError(f"{str(path)!r} lacks {name}; wanted are pairs [p, 2] and similar [p] together")
    pairs, similar = arrays["pairs"], arrays["similar"]
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(
            f"pairs of {str(path)!r} is {pairs.dtype} of shape {pairs.shape}; wanted are row numbers [p, 2]"
        )
    outside = (pairs < 0) | (pairs >= n_rows)
    if outside.any():
        raise DataError(f"pairs of {str(path)!r} names row {pairs[outside][0]}; wanted are rows 0 to {n_rows - 1}")
    signs = similar.dtype == bool or (similar.dtype.kind in "iuf" and np.isin(similar, (-1, 1)).all())
    if similar.shape != pairs.shape[:1] or not signs:
        raise DataError(
            f"similar of {str(path)!r} is {similar.dtype} of shape {similar.shape}; wanted is +1 or True (alike), "
            f"-1 or False (unlike) for each of the {len(pairs)} pairs"
        )
    return Pairs(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), similar)


def _names(given: NDArray[Any], label: str) -> tuple[str, ...]:
    words = decoded(given, label)
    if words.ndim != 1 or words.dtype.kind not in "Uiu":
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted are names [c]")
    names = tuple(map(str, words.tolist()))
    if len(set(names)) < len(names):
        raise DataError(f"{label} names a class twice; wanted is each once")
    return names


def decoded(given: NDArray[Any], label: str) -> NDArray[Any]:
    """Bytes as words, and everything else as it is."""
    if given.dtype.kind != "S":
        return given
    try:
        return np.asarray(np.char.decode(given, "utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{label} holds bytes that are no UTF-8: {error}") from error


def numbered(given: NDArray[Any], names: tuple[str, ...] | None, label: str) -> tuple[Indices, tuple[str, ...]]:
    """Labels as numbers into the sorted names of the classes, which are given or found."""
    labels = decoded(given, label)
    if labels.ndim != 1 or labels.dtype.kind not in "buifU":
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted are words or whole numbers [n]")
    if labels.dtype.kind == "f":
        whole = np.isfinite(labels) & (labels == np.rint(labels)) & (np.abs(labels) < 2**53)
        if not whole.all():
            raise DataError(f"{label} has {labels[~whole][0]}; wanted are classes: words or whole numbers")
        labels = labels.astype(np.int64)
    if names is None:
        values, y = np.unique(labels, return_inverse=True)
        found = values.tolist()
        order = list(range(len(found)))
        if labels.dtype.kind == "U" and all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in found):
            order.sort(key=lambda number: int(found[number]))  # 10 after 9
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank[y], tuple(str(found[number]) for number in order)
    if labels.dtype.kind == "U":
        numbers = {name: number for number, name in enumerate(names)}
        if unknown := sorted(set(labels.tolist()) - set(names)):
            raise DataError(f"{label} has {unknown[0]!r}, which is not among the names in classes")
        return np.array([numbers[word] for word in labels.tolist()], dtype=np.int64), names
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        raise DataError(f"{label} has {labels[outside][0]}; classes has names for 0 to {len(names) - 1}")
    return labels.astype(np.int64), names


def tag_columns(
    given: NDArray[Any], names: tuple[str, ...] | None, label: str
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """0/1 tags as uint8, and the names of their columns, which are given or numbers."""
    if given.ndim != 2 or given.dtype.kind not in "buif" or not np.isin(given, (0, 1)).all():
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; wanted are 0 and 1 [n, c]")
    classes = tuple(map(str, range(given.shape[1]))) if names is None else names
    if len(classes) != given.shape[1]:
        raise DataError(f"{label} has {given.shape[1]} columns, and classes has {len(classes)} names; they must agree")
    return given.astype(np.uint8), classes


def tag_names(cell: Any) -> list[str]:
    """The tags in a cell: a list, or words with `MARK` between them."""
    parts = cell if isinstance(cell, list) else str(cell or "").split(MARK)
    return [tag for tag in (str(part or "").strip() for part in parts) if tag]


def tag_sets(sets: Sequence[Sequence[str]], label: str) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """0/1 tags, uint8 [n, c], of the sets of names of all rows, and the sorted names."""
    classes = tuple(sorted({tag for tags in sets for tag in tags}))
    if not classes:
        raise DataError(f"{label}: no row has a tag; wanted are names, with {MARK!r} between them")
    columns = {name: column for column, name in enumerate(classes)}
    matrix = np.zeros((len(sets), len(classes)), dtype=np.uint8)
    for row, tags in enumerate(sets):
        matrix[row, [columns[tag] for tag in tags]] = 1
    return matrix, classes


def pyarrow() -> Any:
    """The package that reads Parquet files, which not everybody has."""
    try:
        import pyarrow
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise ImportError("reading Parquet files needs pyarrow: pip install 'gphash[parquet]'") from error
    return pyarrow
