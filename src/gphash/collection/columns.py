"""What users say of items, as columns: from a DataFrame, a list of dicts, a dict of lists, or an Arrow table."""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from gphash.collection.rows import OWN, SAID, Key, Layout, Value

LONGEST_LABEL, LONGEST_NAME = 256, 63
LARGEST = 2**63 - 1
LISTING = ("tolist", "to_list", "to_pylist")  # methods of arrays and columns of frames


class Columns(NamedTuple):
    """Keys, if they are given, and values of every column, with the types of those that not every collection has."""

    keys: list[Key] | None
    values: dict[str, list[Value]]
    types: dict[str, str]

    @property
    def layout(self) -> Layout:
        """The table that they fit into."""
        return Layout("text" if self.keys and isinstance(self.keys[0], str) else "integer", self.types)


def read(items: Any, n_rows: int) -> Columns:
    """Check and convert what is said of so many items."""
    given: dict[Any, Sequence[Any]] = dict(lists(items, n_rows))
    folded: set[str] = set()
    for name, cells in given.items():
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.encode()) <= LONGEST_NAME:
            raise ValueError(f"items has a column {name!r}; give names of 1 to {LONGEST_NAME} printable letters.")
        if name.casefold() in folded or (name.casefold() in (*OWN, *SAID) and name not in ("key", *SAID)):
            raise ValueError(f"items has a column {name!r}, a name that is taken; rename it.")
        folded.add(name.casefold())
        if len(cells) != n_rows:
            raise ValueError(f"items[{name!r}] has {len(cells)} values for {n_rows} rows; give one for each.")
    if "label" in given and "tags" in given:
        raise ValueError("items has the columns 'label' and 'tags'; give one of them.")
    values: dict[str, list[Value]] = {}
    types: dict[str, str] = {}
    keys = _keys(_plain("key", given.pop("key"))) if "key" in given else None
    for name, cells in given.items():
        if name == "tags":
            values[name] = [_tags(cell) for cell in cells]
            continue
        plain = _plain(name, cells)
        if name in SAID:
            texts = set(map(type, plain)) <= {str, NoneType}
            values[name] = plain if texts else [None if cell is None else str(cell) for cell in plain]
        else:
            types[name] = _type(name, plain)
            values[name] = _typed(plain, types[name])
    for label in set(values.get("label", ())) - {None}:
        check_label("label", label)
    return Columns(keys, values, types)


def fit(columns: Columns, layout: Layout) -> Columns:
    """Values for a table that is there; a column that it does not have, or another type, is refused."""
    for name, kind in columns.types.items():
        if name not in layout.columns:
            known = ", ".join((*SAID, *layout.columns))
            raise ValueError(f"items has a column {name!r} that the collection does not have; its columns are {known}.")
        there = layout.columns[name]
        if (
            kind != there
            and not (kind == "integer" and there == "real")
            and any(cell is not None for cell in columns.values[name])
        ):
            raise ValueError(f"items[{name!r}] is {kind}, and the collection's column is {there}; give {there} values.")
    if columns.keys is not None and columns.layout.keys != layout.keys:
        kind = "texts" if layout.keys == "text" else "whole numbers"
        raise ValueError(f"items['key'] has {columns.keys[0]!r}; the keys of this collection are {kind}.")
    if columns.keys is None and layout.keys == "text":
        raise ValueError("items has no keys; this collection has texts as keys, so give each item one in 'key'.")
    values = {
        name: _typed(cells, layout.columns[name]) if name in layout.columns else cells
        for name, cells in columns.values.items()
    }
    return columns._replace(values=values)


def check_key(key: Any, layout: Layout) -> Key:
    """A key of a collection; keys of another kind are refused."""
    if layout.keys == "text" and isinstance(key, str):
        return key
    if layout.keys == "integer" and isinstance(key, int | np.integer) and not isinstance(key, bool):
        return int(key)
    kind = "texts" if layout.keys == "text" else "whole numbers"
    raise ValueError(f"key={key!r}; the keys of this collection are {kind}.")


def check_label(name: str, text: Any) -> str:
    """A label or tag."""
    right = isinstance(text, str) and text.strip() and text.isprintable() and len(text) <= LONGEST_LABEL
    if not right or (name == "tags" and ";" in text):
        raise ValueError(
            f"{name} has {text!r}; give names of 1 to {LONGEST_LABEL} printable letters, in tags without ';'."
        )
    return str(text)


def lists(items: Any, n_rows: int) -> dict[str, Sequence[Any]]:
    """Columns by their names."""
    if items is None:
        return {}
    if isinstance(items, Mapping):
        return {name: _listed(cells) for name, cells in items.items()}
    if hasattr(items, "column_names"):  # Arrow
        return {name: items.column(name).to_pylist() for name in items.column_names}
    if hasattr(items, "columns"):  # pandas, polars
        names = list(items.columns)
        if len(set(names)) < len(names):
            raise ValueError("items has two columns of the same name; rename one.")
        return {name: _listed(items[name]) for name in names}
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise ValueError(f"items is a {type(items).__name__}; give a DataFrame, a list of dicts, or a dict of lists.")
    rows = list(items)
    if len(rows) != n_rows:
        raise ValueError(f"items has {len(rows)} entries for {n_rows} rows; give one for each.")
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"items[{place}] is {row!r}; give a dict with the columns of the item.")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def texts(X: Any) -> list[str] | None:
    """Texts as a list, from a list, an array of numpy, or a column of a frame; None if what X begins with is none."""
    is_column = isinstance(X, Sequence) or any(hasattr(X, method) for method in LISTING)
    if not is_column or isinstance(X, str | bytes) or getattr(X, "ndim", 1) != 1:
        return None
    cells = (cell.as_py() if hasattr(cell, "as_py") else cell for cell in X)
    if not isinstance(next((cell for cell in cells if cell is not None), None), str):
        return None
    found = [*_listed(X)]
    for row, one in enumerate(found):
        if not isinstance(one, str):
            raise ValueError(f"X has {one!r} in row {row}, and texts in others; give a text in each.")
    return found


def _listed(cells: Any) -> Sequence[Any]:
    for method in LISTING:
        if hasattr(cells, method):
            listed: list[Any] = getattr(cells, method)()
            return listed
    return list(cells)


def _plain(name: str, cells: Sequence[Any]) -> list[Value]:
    """Values that a database can keep."""
    kinds = set(map(type, cells)) - {NoneType}
    if kinds <= {str}:
        whole = "".join(filter(None, cells))
        if _is_text(whole) and "\0" not in whole:
            return list(cells)
    elif kinds == {float}:
        return [None if cell != cell else cell for cell in cells]
    elif kinds == {int} and None not in cells and min(cells) >= -LARGEST and max(cells) <= LARGEST:
        return list(cells)
    return [_value(name, row, cell) for row, cell in enumerate(cells)]


def _value(name: str, row: int, cell: Any) -> Value:
    """A value that a database can keep."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, bool):
        return int(cell)
    if cell is None or isinstance(cell, str):
        if cell is not None and ("\0" in cell or not _is_text(cell)):
            raise ValueError(f"items[{name!r}] has {cell!r} in row {row}; give texts of whole characters.")
        return cell
    if isinstance(cell, float):
        return None if math.isnan(cell) else cell
    if isinstance(cell, int) and abs(cell) <= LARGEST:
        return cell
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    if isinstance(cell, int):
        raise ValueError(f"items[{name!r}] has {cell!r} in row {row}; give whole numbers between -2^63 and 2^63.")
    raise ValueError(f"items[{name!r}] has {cell!r} in row {row}; give texts, numbers, dates or nothing.")


def _is_text(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type(name: str, cells: Sequence[Value]) -> str:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {str}:
        return "text"
    if kinds == {int}:
        return "integer"
    if kinds <= {int, float}:
        return "real"
    raise ValueError(f"items[{name!r}] has texts and numbers; give one kind.")


def _typed(cells: Sequence[Value], kind: str) -> list[Value]:
    # Databases know no −0.0.
    return list(cells) if kind != "real" else [None if cell is None else float(cell) + 0.0 for cell in cells]


def _keys(cells: list[Value]) -> list[Key]:
    kinds = {type(cell) for cell in cells}
    if len(kinds) > 1 or not kinds <= {int, str}:
        odd = next(
            (cell for cell in cells if type(cell) is not type(cells[0]) or not isinstance(cell, int | str)), None
        )
        raise ValueError(f"items['key'] has {odd!r}; give a text to every item, or a whole number to every item.")
    if len(set(cells)) < len(cells):
        seen: set[Value] = set()
        twice = next(cell for cell in cells if cell in seen or seen.add(cell))  # type: ignore[func-returns-value]
        raise ValueError(f"items['key'] has {twice!r} twice; give every item its own key.")
    if "" in cells:
        raise ValueError("items['key'] has an empty text; give every item a key.")
    return list(cells)  # type: ignore[arg-type]


def _tags(cell: Any) -> str | None:
    """Tags as they are stored, ";a;b;"."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    names = cell.split(";") if isinstance(cell, str) else list(cell)
    distinct = dict.fromkeys(
        check_label("tags", name.strip() if isinstance(name, str) else name) for name in names if name != ""
    )
    return ";" + "".join(f"{name};" for name in distinct)
