"""Labels and tags of rows: words or whole numbers become numbers into the names of classes, alone or block by block."""

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.files import DataError

MARK = ";"  # between tags


class Labels(NamedTuple):
    """Class labels, int64 [n], numbers into `classes`, −1 for none; or tags, uint8 [n, c], a column for each name."""

    y: NDArray[Any]
    classes: tuple[str, ...]


BlockLabels: TypeAlias = tuple[str, NDArray[Any], int]
"""Labels or tags of a block as they are written: how an error names them, they themselves, how many there must be."""


def check_form(sound: bool, given: NDArray[Any], label: str, needed: str) -> None:
    """Refuse an array of another type or shape than needed."""
    if not sound:
        raise DataError(f"{label} is {given.dtype} of shape {given.shape}; it must be {needed}")


def decoded(given: NDArray[Any], label: str) -> NDArray[Any]:
    """Bytes as words, and everything else as it is."""
    if given.dtype.kind != "S":
        return given
    try:
        return np.asarray(np.char.decode(given, "utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{label} holds bytes that are not UTF-8: {error}") from error


def numbered(given: NDArray[Any], names: tuple[str, ...] | None, label: str) -> Labels:
    """Labels as numbers into the sorted names of the classes, which are given or found; −1 for a blank word."""
    labels = decoded(given, label)
    check_form(labels.ndim == 1 and labels.dtype.kind in "buifU", given, label, "words or whole numbers [n]")
    if labels.dtype.kind == "f":
        whole = np.isfinite(labels) & (labels == np.rint(labels)) & (np.abs(labels) < 2**53)
        if not whole.all():
            raise DataError(f"{label} has {labels[~whole][0]}; classes must be words or whole numbers")
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "U":
        labels = np.char.strip(labels)
        if (blank := labels == "").any():
            y = np.full(len(labels), -1)
            y[~blank], classes = ((), ()) if blank.all() else numbered(labels[~blank], names, label)
            return Labels(y, names or classes)
    if names is None:
        values, y = np.unique(labels, return_inverse=True)
        words = [str(value) for value in values.tolist()]
        if all(re.fullmatch(r"-?[0-9]{1,19}", word) for word in words):  # 10 after 9
            order = sorted(range(len(words)), key=lambda number: int(words[number]))
            return Labels(np.argsort(order)[y], tuple(words[number] for number in order))
        return Labels(y, tuple(words))
    if labels.dtype.kind == "U":
        numbers = {name: number for number, name in enumerate(names)}
        if unknown := sorted(set(labels.tolist()) - set(names)):
            raise DataError(f"{label} has {unknown[0]!r}, which is not among the names in classes")
        return Labels(np.array([numbers[word] for word in labels.tolist()], dtype=np.int64), names)
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        raise DataError(f"{label} has {labels[outside][0]}; classes has names for 0 to {len(names) - 1}")
    return Labels(labels.astype(np.int64), names)


def words(cells: Sequence[Any], label: str) -> NDArray[Any]:
    """Labels of a table as words, blank for those that are missing."""
    try:
        known = {cell: _word(cell, label) for cell in set(cells)}
    except TypeError as error:
        raise DataError(f"{label} has {type(cells[0]).__name__}s; classes must be words or whole numbers") from error
    return np.array([known[cell] for cell in cells], dtype=np.str_)


def _word(cell: Any, label: str) -> str:
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if not isinstance(cell, str | int):
        raise DataError(f"{label} has {cell}; classes must be words or whole numbers")
    return str(cell).strip()


def tag_columns(given: NDArray[Any], names: tuple[str, ...] | None, label: str) -> Labels:
    """0/1 tags as uint8, and the names of their columns, which are given or numbers."""
    sound = given.ndim == 2 and given.dtype.kind in "buif" and np.isin(given, (0, 1)).all()
    check_form(bool(sound), given, label, "tags of 0 and 1 [n, c]")
    classes = tuple(map(str, range(given.shape[1]))) if names is None else names
    if len(classes) != given.shape[1]:
        raise DataError(f"{label} has {given.shape[1]} columns, and classes has {len(classes)} names; they must agree")
    return Labels(given.astype(np.uint8), classes)


def tag_names(cell: Any) -> list[str]:
    """The tags in a cell: a list, or words with `MARK` between them."""
    parts = cell if isinstance(cell, list) else str(cell or "").split(MARK)
    # A name is kept once, however many rows have it.
    return [sys.intern(tag) for tag in (str(part or "").strip() for part in parts) if tag]


def tag_sets(sets: Iterable[Iterable[str]]) -> Labels:
    """0/1 tags, uint8 [n, c], of the sets of names of all rows, and the sorted names."""
    rows = list(sets)
    classes = tuple(sorted({tag for tags in rows for tag in tags}))
    columns = {name: column for column, name in enumerate(classes)}
    matrix = np.zeros((len(rows), len(classes)), dtype=np.uint8)
    for row, tags in enumerate(rows):
        matrix[row, [columns[tag] for tag in tags]] = 1
    return Labels(matrix, classes)


def joined_labels(blocks: Iterable[BlockLabels]) -> Labels:
    """Labels or tags of all blocks, as if they were written together."""
    first, form = "", ""
    tags: list[NDArray[np.uint8]] = []
    # Words of all rows would take many times the space of their numbers: those of a block are numbered at once.
    words: list[NDArray[Any]] = []
    numbers: list[NDArray[Any]] = []
    for label, given, n_rows in blocks:
        values = decoded(given, label)
        sound = values.ndim in (1, 2) and len(values) == n_rows and (n_rows == 0 or values.dtype.kind in "buifU")
        check_form(sound, values, label, f"words or whole numbers, or 0/1 tags, for each of the {n_rows} rows")
        if not n_rows:
            continue
        own_form = "words" if values.dtype.kind == "U" else "numbers"
        if values.ndim == 2:
            own_form = f"{values.shape[1]} columns of tags"
        first, form = first or label, form or own_form
        if own_form != form:
            raise DataError(f"{label} has {own_form}, and {first} has {form}; all blocks must have the same")
        if values.ndim == 2:
            tags.append(tag_columns(values, None, label).y)
        else:
            own, inverse = np.unique(values, return_inverse=True)
            numbered(own, None, label)  # refuses fractions, in the name of this block
            words.append(own)
            numbers.append(inverse.astype(np.min_scalar_type(len(own))))
    if tags:
        return Labels(np.concatenate(tags), tuple(map(str, range(tags[0].shape[1]))))
    ranks, classes = numbered(np.concatenate(words), None, first)
    ranges = pairwise(accumulate(map(len, words), initial=0))
    y = [ranks[start:stop][own] for (start, stop), own in zip(ranges, numbers, strict=True)]
    return Labels(np.concatenate(y), classes)
