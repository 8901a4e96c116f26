"""Checks of what users hand to a collection; an error names the argument, what was given and what to give."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing
from gphash.collection.records import KnownItemError, Query, code_of
from gphash.functions.model import Model
from gphash.index.rankings import RANKINGS

LONGEST_LABEL = 256
LARGEST_ID = 2**63 - 1


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or (least is not None and value < least):
        raise ValueError(f"{name}={value!r}; give a whole number{'' if least is None else f' of at least {least}'}.")
    return int(value)


def fits(number: int) -> bool:
    """Whether a number can be the id of an item."""
    return -LARGEST_ID - 1 <= number <= LARGEST_ID


def free_id(id: int | None, ids: NDArray[np.int64], next_id: int) -> int:
    """The id of a new item among others, sorted [n]; if None, one more than the largest there ever was."""
    if id is None:
        found = max(next_id, int(ids[-1]) + 1) if len(ids) else next_id
        if not fits(found):
            raise ValueError(f"id=None, but {LARGEST_ID}, the largest id there can be, was used; give a free one.")
        return found
    found = whole("id", id)
    if not fits(found):
        raise ValueError(f"id={id}; give a number that fits in 64 bits with a sign.")
    if found in ids[np.searchsorted(ids, found) :][:1]:
        raise KnownItemError(f"id={id} is in the collection already; remove it first, or give another.")
    return found


def check_ranking(ranking: str, query: Query, model: Model, hidden_folder: Path | None) -> None:
    """Refuse a ranking that is unknown, or that the query does not allow."""
    if RANKINGS.find(ranking, "ranking").needs == "probabilities" and query.probabilities is None:
        why = "its picture cannot be described again" if model.has_probabilities else f"{model.method} has none"
        if model.has_probabilities and hidden_folder is not None:
            why += f": give pictures={str(hidden_folder)!r}"
        raise ValueError(f"ranking={ranking!r}, but the query has no probabilities ({why}); give 'hamming'.")


def check_label(allowed: str, classes: tuple[str, ...]) -> None:
    """Refuse a label that no item can have."""
    if allowed not in classes:
        names = ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")
        advice = f"give one of {names}" if classes else "its items have none"
        raise ValueError(f"allowed={allowed!r} is no label of the collection; {advice}.")


def row(features: ArrayLike | None, model: Model) -> NDArray[Any]:
    """One row that a model takes, as rows [1, d]."""
    found, width = np.asarray(features), model.n_features
    if found.shape not in ((width,), (1, width)):
        raise ValueError(f"features has shape {found.shape}; give one row of {width} numbers, [{width}].")
    return model.check_rows(found.reshape(1, width), "features")


def code(given: ArrayLike | str, n_bits: int) -> NDArray[np.uint8]:
    """A packed code, uint8 [bytes]."""
    if isinstance(given, str):
        if len(given) != n_bits or set(given) - {"0", "1"}:
            raise ValueError(f"code={given[:80]!r}; give {n_bits} zeros and ones.")
        return code_of(given)
    checked = packing.check_packed(np.atleast_2d(np.asarray(given)), n_bits, "code")
    if len(checked) != 1:
        raise ValueError(f"code has {len(checked)} rows; give one code.")
    return checked.reshape(-1)


def labels(label: str | None, tags: Sequence[str] | None) -> tuple[str, ...]:
    """Names of an item's class or tags, each once."""
    if label is not None and tags is not None:
        raise ValueError("label and tags given; give one of them, or none.")
    if isinstance(tags, str):
        raise ValueError(f"tags={tags!r}; give a list of names.")
    name = "label" if tags is None else "tags"
    given: list[Any] = [label] if label is not None else list(tags or ())
    for text in given:
        if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > LONGEST_LABEL:
            raise ValueError(f"{name} has {text!r}; give names of 1 to {LONGEST_LABEL} printable letters.")
    return tuple(dict.fromkeys(text.strip() for text in given))
