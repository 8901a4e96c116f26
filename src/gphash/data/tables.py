"""Rows of one file by its suffix; tables, ``.csv``, ``.parquet`` and ``.arrow`` or ``.feather``, are read here.

A table has names of columns, in CSV on its first line. Case does not count in them. What a column is, `Roles` say, or
its name: ``label`` is the class of a row, blank where it is not known; ``tags`` are its tags, with ``;`` between them;
``id`` or ``key`` tells it from others. A column of lists of numbers, all of one length, is the features. If there is
none, every other column of numbers is a feature; there, numbers are finite, and none is missing. Features of float32,
or all of one type of at most two bytes, such as float16, keep their type; all else becomes float32. All other columns
of numbers, texts, dates and booleans say something of the items. Any other column is left out, and the user is told.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices, is_short
from gphash.data import array_files, headers, labels
from gphash.data.array_files import reading
from gphash.data.dataset import Content, Skipped
from gphash.data.headers import BOOLEANS, DATES, EMPTY, NUMBERS, TEXTS, UNSAID, VECTORS, Header, Roles
from gphash.files import DataError

ARROW = (".arrow", ".feather")
TABLES = (".csv", ".parquet", *ARROW)
SUFFIXES = (".npy", ".npz", *TABLES)

_LARGEST = 2**63 - 1
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_PADDED = re.compile(r"[-+]?0[0-9]")  # a code such as 007, which a number would not give back
_OWN_NAMES = {"label", "tags", "id", "key", *headers.KNOWN}
_LONGEST_TYPE = 60  # letters of a type in a message


def read(path: Path, roles: Roles = UNSAID) -> Content:
    """Read a file by its suffix, one of `SUFFIXES`; a DataError names what is wrong with it, and where."""
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return (read_csv if suffix == ".csv" else read_arrow if suffix in ARROW else read_parquet)(path, roles)
    return array_files.read_npy(path) if suffix == ".npy" else array_files.read_npz(path)


def read_csv(path: Path, roles: Roles = UNSAID) -> Content:
    """A table as text, UTF-8, with commas between columns and quotes where a cell needs them."""
    with closing(headers.csv_rows(path)) as rows:
        _, raw = next(rows, (0, []))
        _, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{str(path)!r} has no rows; give a line of names and lines of numbers")
    if all(map(_is_number, raw)):
        raise DataError(f"{str(path)!r}, line 1: numbers; the first line must be the columns' names")
    names = [cell.strip() for cell in raw]
    own = _OWN_NAMES | {name.casefold() for name in roles.names}
    is_own = [name.casefold() in own for name in names]
    likely = {raw[column] for column, cell in enumerate(first[: len(raw)]) if _is_number(cell) and not is_own[column]}
    columns = _csv_columns(path, raw, set() if roles.described else likely)
    kinds = [_csv_kind(cells) for cells in columns]
    for column, cells in enumerate(columns):
        if kinds[column] == NUMBERS + TEXTS:
            kinds[column] = TEXTS
            if not is_own[column] and not roles.described:
                at, odd = next((at, one) for at, one in enumerate(cells) if one.strip() and not _is_number(one))
                raise DataError(
                    f"{headers.cell(path, at, names[column])}: {odd!r} among numbers; give a number in every "
                    "row, or say that the column is not a feature: item_column"
                )
    header = Header.of(path, names, kinds, roles)
    header.check(roles.described)
    for column in header.features:
        if isinstance(columns[column], list):
            cells = [float(cell) if cell.strip() else None for cell in columns[column]]
            columns[column] = pyarrow("CSV files").chunked_array([cells], pyarrow("CSV files").float64())
    items = {
        name: [cell if cell.strip() else None for cell in columns[column]]
        if name in headers.KNOWN
        else _typed(columns[column])
        for name, column in header.items.items()
    }
    return _content(header, columns, items)


def read_parquet(path: Path, roles: Roles = UNSAID) -> Content:
    """A table in the Parquet format; tags may be lists of words, too."""
    with open_parquet(path, roles) as (file, header):
        table = file.read()
    return _of_table(table, header, roles)


def read_arrow(path: Path, roles: Roles = UNSAID) -> Content:
    """A table in Arrow's own format, a file or a stream. It is mapped, and lists in one piece stay where they are."""
    arrow = pyarrow("Arrow files")
    with reading(path, "Arrow file", arrow.ArrowException):
        source = arrow.memory_map(str(path))
        try:
            table = arrow.ipc.open_file(source).read_all()
        except arrow.ArrowInvalid:
            source.seek(0)
            table = arrow.ipc.open_stream(source).read_all()
        table.validate(full=True)  # or lists could reach beyond their numbers
    kinds = _kinds(table.schema.types, dict(enumerate(map(_lengths, table.columns))))
    return _of_table(table, Header.of(path, table.schema.names, kinds, roles), roles)


def _lengths(cells: Any) -> int | None:
    """How many numbers each list in a column has, as `Head` tells it."""
    compute = pyarrow("Arrow files").compute
    bounds = compute.min_max(compute.list_value_length(cells)).as_py() if has_lists(cells.type) else {"min": None}
    return bounds["min"] if bounds["min"] == bounds.get("max") else 0


def _of_table(table: Any, header: Header, roles: Roles) -> Content:
    if not len(table):
        raise DataError(f"{str(header.path)!r} has no rows; it must have at least one")
    gone = [column for column in (*header.features, *header.items.values()) if _is_empty(table.column(column))]
    header = header._replace(
        features=[column for column in header.features if column not in gone],
        items={name: column for name, column in header.items.items() if column not in gone},
        left_out=header.left_out | dict.fromkeys(gone, EMPTY),
    )
    header.check(roles.described)
    items = {name: cells_of(table.column(column)) for name, column in header.items.items()}
    return _content(header, table.columns, items)


class Head(NamedTuple):
    """What the head of a Parquet file tells: columns, how long the lists in some of them are, and how many rows.

    Lists have 0 numbers if not all have as many; None if there is no list.
    """

    names: list[str]
    types: list[Any]
    kinds: list[str]
    widths: dict[int, int | None]
    n_rows: int

    def header(self, path: Path, roles: Roles, filled: Sequence[tuple[int, str]] = ()) -> Header:
        """What the columns are; `filled` is what those hold that are empty in this file, and not in others."""
        kinds = list(self.kinds)
        for column, kind in filled:
            if column < len(kinds) and kinds[column] == EMPTY:
                kinds[column] = kind
        header = Header.of(path, self.names, kinds, roles)
        header.check(roles.described)
        return header


@contextmanager
def open_parquet(
    path: Path, roles: Roles = UNSAID, filled: Sequence[tuple[int, str]] = ()
) -> Iterator[tuple[Any, Header]]:
    """A Parquet file of Arrow's, and its columns."""
    with _opened(path) as file:
        yield file, _head(file).header(path, roles, filled)


def head(path: Path) -> Head:
    """The head of a Parquet file."""
    with _opened(path) as file:
        return _head(file)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file of Arrow's."""
    arrow = pyarrow("Parquet files")
    # One file: read_table would also make columns of folders that are called such as year=2020.
    with reading(path, "Parquet file", arrow.ArrowException), arrow.parquet.ParquetFile(path) as file:
        yield file


def _head(file: Any) -> Head:
    schema = file.schema_arrow
    lists = [column for column, kind in enumerate(schema.types) if _has_numbers(kind)]
    widths = {column: _width(file, schema.names[column], schema.types[column]) for column in lists}
    return Head(schema.names, schema.types, _kinds(schema.types, widths), widths, file.metadata.num_rows)


def _kinds(types: Sequence[Any], widths: dict[int, int | None]) -> list[str]:
    """What columns hold, by their types and by how long the lists in them are."""
    kinds = [_scalar_kind(_plain(kind)) for kind in types]
    for column in (column for column, kind in enumerate(types) if _has_numbers(kind)):
        width = widths[column]
        kinds[column] = EMPTY if width is None else VECTORS if width else "lists of numbers of different lengths"
    return kinds


def _has_numbers(kind: Any) -> bool:
    """Whether a type is one of lists of numbers."""
    return has_lists(kind) and _scalar_kind(_plain(kind.value_type)) == NUMBERS


def _width(file: Any, name: str, kind: Any) -> int | None:
    """How many numbers each list in a column has."""
    if hasattr(kind, "list_size"):
        return int(kind.list_size)
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    leaf = next(at for at in range(file.metadata.num_columns) if file.schema.column(at).path.startswith(f"{name}."))
    counts = [(group.column(leaf).num_values, group.num_rows) for group in groups if group.num_rows]
    if not counts:
        return None
    width = counts[0][0] // counts[0][1]
    return int(width) if all(n_values == width * n_rows for n_values, n_rows in counts) else 0


def _plain(kind: Any) -> Any:
    """A type without the dictionary that its values are in."""
    return kind.value_type if pyarrow("Parquet files").types.is_dictionary(kind) else kind


def _scalar_kind(kind: Any) -> str:
    types = pyarrow("Parquet files").types
    for found, tests in {
        NUMBERS: (types.is_integer, types.is_floating, types.is_decimal),
        TEXTS: (types.is_string, types.is_large_string, types.is_string_view),
        DATES: (types.is_date, types.is_timestamp, types.is_time),
        BOOLEANS: (types.is_boolean,),
        EMPTY: (types.is_null,),
    }.items():
        if any(test(kind) for test in tests):
            return found
    text = " ".join(str(kind).split())
    return text if len(text) <= _LONGEST_TYPE else f"{text[:_LONGEST_TYPE]}…"


def has_lists(kind: Any) -> bool:
    """Whether a type is one of lists."""
    return hasattr(kind, "value_field")


def is_number(kind: Any) -> bool:
    """Whether a type is one of numbers that numpy has, too."""
    return _scalar_kind(kind) in (NUMBERS, BOOLEANS) and not pyarrow("Arrow tables").types.is_decimal(kind)


def number_type(kind: Any) -> np.dtype[Any]:
    """The type of the numbers in a column of features."""
    inner = _plain(kind.value_type if has_lists(kind) else kind)
    return np.dtype(np.float64 if pyarrow("Parquet files").types.is_decimal(inner) else inner.to_pandas_dtype())


def fill(
    out: NDArray[Any], header: Header, cells: Sequence[Any], rows: slice | Indices = slice(None), first: int = 0
) -> None:
    """Write the features of some rows into an array of their shape; the first cell is in the file's row `first`."""
    if has_lists(cells[0].type):
        _fill_lists(out, header, cells[0], np.arange(len(cells[0]))[rows], first)
        return
    for number, (column, own) in enumerate(zip(header.features, cells, strict=True)):
        if own.null_count and not (present := own.is_valid().to_numpy()[rows]).all():
            row = first + int(np.arange(len(own))[rows][np.argmin(present)])
            raise DataError(
                f"{header.place(column, row)}: empty; there must be a number in every row, unless the column is not a "
                "feature: item_column"
            )
        out[:, number] = _simple(own).to_numpy()[rows]


def _fill_lists(out: NDArray[Any], header: Header, cells: Any, rows: Indices, first: int) -> None:
    arrow, done, width = pyarrow("Parquet files"), 0, out.shape[1]
    where = header.features[0]
    is_range = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    # By chunks: as one array, lists could be longer than Arrow can count.
    for chunk in (cells.slice(rows[0], len(rows)) if is_range else cells.take(arrow.array(rows))).chunks:
        lengths = arrow.compute.list_value_length(chunk).fill_null(0).to_numpy(zero_copy_only=False)
        if (odd := lengths != width).any():
            at = int(odd.argmax())
            place = header.place(where, first + int(rows[done + at]))
            raise DataError(f"{place}: a list of {lengths[at]} numbers; there must be {width} in every row")
        flat = chunk.flatten()
        if flat.null_count:
            at = int(flat.is_null().to_numpy(zero_copy_only=False).argmax()) // width
            place = header.place(where, first + int(rows[done + at]))
            raise DataError(f"{place}: a list with an empty place; give a number in every place")
        out[done : done + len(chunk)] = _simple(flat).to_numpy(zero_copy_only=False).reshape(-1, width)
        done += len(chunk)


def _simple(cells: Any) -> Any:
    """Cells of a type that numpy knows."""
    kind, arrow = _plain(cells.type), pyarrow("Parquet files")
    target = arrow.float64() if arrow.types.is_decimal(kind) else kind
    return cells if target == cells.type else cells.cast(target)


def cells_of(cells: Any) -> list[Any]:
    """Cells of an item column, as Python has them."""
    arrow = pyarrow("Parquet files")
    cells = _simple(cells)
    if arrow.types.is_timestamp(cells.type) and cells.type.unit == "ns":
        cells = cells.cast(arrow.timestamp("us", cells.type.tz), safe=False)
    found: list[Any] = cells.to_pylist()
    return found


def _content(header: Header, columns: Sequence[Any], items: dict[str, list[Any]]) -> Content:
    """What a table holds; without features, rows are made of its texts later."""
    X = _features(header, columns) if header.features else None
    content, left_out = Content(X, columns=items), dict(header.left_out)
    if header.key is not None:
        found = keys_of(header, columns[header.key])
        if isinstance(found, np.ndarray):
            content = content._replace(ids=found)
        else:
            content = content._replace(columns={"key": found} | items)
    if header.label is not None:
        words = label_words(columns[header.label], where := header.place(header.label))
        known = labels.numbered(words, None, where)
    elif header.tags is not None:
        known = labels.tag_sets(tag_lists(columns[header.tags]))
    else:
        known = labels.Labels(np.empty(0), ())
    if known.classes:
        content = content._replace(**known._asdict())
    else:
        left_out |= {column: EMPTY for column in (header.label, header.tags) if column is not None}
    skipped = [Skipped(header.path, f"column {header.names[at]!r}: {why}") for at, why in sorted(left_out.items())]
    return content._replace(skipped=tuple(skipped))


def _features(header: Header, columns: Sequence[Any]) -> NDArray[Any]:
    cells = [columns[column] for column in header.features]
    is_list = has_lists(cells[0].type)
    compute = pyarrow("Parquet files").compute
    width = compute.max(compute.list_value_length(cells[0])).as_py() if is_list else len(cells)
    types = {number_type(column.type) for column in cells}
    dtype = types.pop() if len(types) == 1 and all(map(is_short, types)) else np.dtype(np.float32)
    X = _in_place(cells[0], width) if is_list else None
    if X is None or X.dtype != dtype:
        X = np.empty((len(cells[0]), width), dtype)
        with np.errstate(over="ignore"):  # Numbers too large become infinite, and are refused as such.
            fill(X, header, cells)
    array_files.check_finite(X, lambda row, number: header.place(header.features[0 if is_list else number], row))
    return X


def _in_place(cells: Any, width: int) -> NDArray[Any] | None:
    """Lists as an array without a copy; None if they lack numbers, or are in several pieces."""
    if cells.num_chunks != 1 or cells.null_count or not is_number(cells.type.value_type):
        return None
    flat = cells.chunk(0).flatten()
    return None if flat.null_count or len(flat) != len(cells) * width else flat.to_numpy().reshape(-1, width)


def keys_of(header: Header, cells: Any) -> Indices | list[str]:
    """What tells rows apart: whole numbers, or texts."""
    assert header.key is not None
    where = header.place(header.key)
    found: list[Any] = _typed(cells) if isinstance(cells, list) else _simple(cells).to_pylist()
    kinds = {type(cell) for cell in found}
    if isinstance(cells, list) and float in kinds:
        found, kinds = list(cells), {str}
    if kinds == {int}:
        return array_files.distinct(np.array(found), where)
    keys = [cell.strip() if isinstance(cell, str) else cell for cell in found]
    if kinds != {str} or "" in keys:
        raise DataError(f"{where}: there must be a whole number or a text in every row")
    array_files.check_distinct(np.array(keys), where)
    return keys


def label_words(cells: Any, where: str) -> NDArray[Any]:
    """Classes of rows, blank where there is none."""
    return labels.words(cells if isinstance(cells, list) else cells.to_pylist(), where)


def tag_lists(cells: Any) -> Iterable[list[str]]:
    """Tags of rows."""
    return map(labels.tag_names, cells if isinstance(cells, list) else cells.to_pylist())


def _is_empty(cells: Any) -> bool:
    return bool(cells.null_count == len(cells))


def _csv_columns(path: Path, names: list[str], likely: set[str]) -> list[Any]:
    """Columns of a CSV file: those that are likely to be numbers as Arrow's, if they are, and all others as lists."""
    arrow = pyarrow("CSV files")
    plain = {"true_values": [], "false_values": [], "null_values": [""], "strings_can_be_null": False}
    parsing = arrow.csv.ParseOptions(newlines_in_values=True)

    def read(numbers: set[str], use_threads: bool) -> Any:
        kinds = {name: arrow.float64() if name in numbers else arrow.string() for name in names}
        converting = arrow.csv.ConvertOptions(column_types=kinds, **plain)
        # A cell must lie within two blocks; small ones are shared by threads.
        room = {} if use_threads else {"block_size": headers.LONGEST_CELL}
        reading = arrow.csv.ReadOptions(use_threads=use_threads, **room)
        return arrow.csv.read_csv(path, reading, parsing, converting)

    try:
        table = read(likely, True)
    except arrow.ArrowException:
        try:  # again by one thread, whose errors tell the row, and without any idea of what is a number
            table = read(set(), False)
        except arrow.ArrowException as error:
            raise DataError(f"{str(path)!r} is not readable as CSV: {' '.join(str(error).split())}") from error
    columns = [cells if cells.type == arrow.float64() else cells.to_pylist() for cells in table.columns]
    if any("\n" in cells[-1] for cells in columns if isinstance(cells, list)):
        # Arrow takes a quote that is never closed for a cell up to the end of the file.
        for _ in headers.csv_rows(path):
            pass
    return columns


def _csv_kind(cells: Any) -> str:
    """What a column of a CSV file holds; numbers and texts, if it could be meant for both."""
    if not isinstance(cells, list):
        return NUMBERS
    values = {cell for cell in cells if cell and not cell.isspace()}
    n_numbers = sum(map(_is_number, values))
    if not values or n_numbers == len(values):
        return NUMBERS if values else EMPTY
    return NUMBERS + TEXTS if 2 * n_numbers >= len(values) else TEXTS


def _typed(cells: list[str]) -> list[Any]:
    """Cells of a CSV file as numbers, if all of them are and can be given back, or as texts; None if blank."""
    plain = [cell.strip() for cell in cells]
    filled = [cell for cell in plain if cell]
    if all(_WHOLE.fullmatch(cell) and abs(int(cell)) <= _LARGEST for cell in filled):
        return [int(cell) if cell else None for cell in plain]
    if all(_is_number(cell) and not _PADDED.match(cell) for cell in filled):
        return [float(cell) if cell else None for cell in plain]
    return [cell if own else None for cell, own in zip(cells, plain, strict=True)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def pyarrow(what: str) -> Any:
    """The package that reads tables, which not everybody has."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise ImportError(f"reading {what} needs pyarrow: pip install pyarrow") from error
    return pyarrow
