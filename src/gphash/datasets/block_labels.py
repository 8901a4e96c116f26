"""What is known of the rows of a folder of blocks: labels and tags of all blocks, joined."""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.datasets import tables
from gphash.datasets.dataset import DataError


class Labels(NamedTuple):
    """What is known of the rows of a folder.

    y
        Class labels, int64 [n], numbers into `classes`; or tags, uint8 [n, c].
    classes
        The name of every class or tag.
    """

    y: NDArray[Any]
    classes: tuple[str, ...]


class Given(NamedTuple):
    """Labels or tags of a block as they are written, how an error names them, and how many there should be."""

    label: str
    values: NDArray[Any]
    n_rows: int


def joined_labels(blocks: Iterable[Given]) -> Labels:
    """Labels or tags of all blocks, as if they were written together."""
    first: Given | None = None
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
            tags.append(tables.tag_columns(given.values, None, given.label)[0])
        else:
            own, inverse = np.unique(given.values, return_inverse=True)
            tables.numbered(own, None, given.label)  # refuses fractions, in the name of this block
            words.append(own)
            numbers.append(inverse.astype(np.min_scalar_type(len(own))))
    assert first is not None  # a folder has rows
    if tags:
        return Labels(np.concatenate(tags), tuple(map(str, range(tags[0].shape[1]))))
    ranks, classes = tables.numbered(np.concatenate(words), None, first.label)
    ranges = pairwise(accumulate(map(len, words), initial=0))
    y = [ranks[start:stop][own] for (start, stop), own in zip(ranges, numbers, strict=True)]
    return Labels(np.concatenate(y), classes)


def _checked(given: Given) -> Given:
    values = tables.decoded(given.values, given.label)
    if values.ndim not in (1, 2) or len(values) != given.n_rows or (len(values) and values.dtype.kind not in "buifU"):
        raise DataError(
            f"{given.label} is {values.dtype} of shape {values.shape}; wanted are words or whole numbers, or 0/1 tags, "
            f"for each of the {given.n_rows} rows"
        )
    return given._replace(values=values)


def _check_alike(given: Given, first: Given) -> None:
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


def _form(given: Given) -> str:
    return "labels" if given.values.ndim == 1 else f"{given.values.shape[1]} columns of tags"


def joined_tags(blocks: Iterable[list[Any]], label: str) -> Labels:
    """Tags of all blocks by their names, as if they were written together."""
    parts = []
    for cells in blocks:
        sets = [tables.tag_names(cell) for cell in cells]
        parts.append(tables.tag_sets(sets, label) if any(sets) else (np.zeros((len(sets), 0), dtype=np.uint8), ()))
    _, classes = tables.tag_sets([names for _, names in parts], label)
    columns = {name: column for column, name in enumerate(classes)}
    y = np.zeros((sum(len(tags) for tags, _ in parts), len(classes)), dtype=np.uint8)
    start = 0
    for tags, names in parts:
        y[start : start + len(tags), [columns[name] for name in names]] = tags
        start += len(tags)
    return Labels(y, classes)
