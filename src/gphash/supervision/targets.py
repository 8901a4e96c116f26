"""What users hand in as y: recognised and checked here, once, and trusted from then on.

A kind of supervision turns y into a form that methods can learn from. To add one, give y a type of its own, say how
it becomes labels, tags or pairs, and register that in `KINDS` (docs/extending.md has an example).
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from gphash.registry import Registry
from gphash.supervision import similarity, weights
from gphash.supervision.similarity import Pairs, Signatures, Supervision


class Kind(NamedTuple):
    """One kind of supervision."""

    words: str  # what errors call it
    owns: Callable[[Any], bool]  # whether y is meant as this kind
    # Makes labels, tags or pairs of y, the number of rows, and whether pairs are balanced; an error says what is wrong.
    check: Callable[[Any, int, bool], Supervision]


KINDS: Registry[Kind] = Registry(
    "supervision", {name: f"gphash.supervision.targets:{name.upper()}" for name in ("labels", "tags", "pairs")}
)


def supervision(
    y: ArrayLike | Pairs | None,
    n_rows: int,
    balance_pairs: bool,
    method: str,
    takes: Iterable[str] = (),
    class_weight: Any = None,
    sample_weight: ArrayLike | None = None,
) -> Supervision:
    """Supervision to learn from: of a form that the method takes (by default any), and one that tells rows apart.

    Of how many rows nothing is known is said in a warning.
    """
    takes = tuple(takes) or ("labels", "tags", "pairs")
    learns = f"{method} learns from {kinds(takes)}"
    if y is None:
        raise ValueError(f"{method} requires y to be passed, but the target y is None; {learns}.")
    given = _checked(y, n_rows, balance_pairs)
    if given.form not in takes:
        raise ValueError(f"y is {KINDS[given.kind].words}, but {learns}.")
    if 0 < (n_known := len(given.known)) < n_rows:
        left = n_rows - n_known
        told = f"left out {left:,} of {n_rows:,} rows, which have no label (docs/questions.md#rows-have-no-label)."
        warnings.warn(told, UserWarning, stacklevel=6)
    given = weights.weigh(given, class_weight, sample_weight)
    given.check_teaches()
    return given


def signatures(y: ArrayLike | None, n_rows: int) -> Signatures:
    """Labels [n] or tags [n, c], to compare any two rows by."""
    if y is None:
        raise ValueError(f"y is None; give {kinds(KINDS)}.")
    given = _checked(y, n_rows, False)
    if not isinstance(given, Signatures):
        raise ValueError(f"y is {KINDS[given.kind].words}; here, give labels [n] or 0/1 tags [n, c].")
    return given


def kinds(names: Iterable[str]) -> str:
    """Kinds of supervision in words."""
    *words, last = (KINDS[name].words for name in names)
    return f"{', '.join(words)} or {last}" if words else last


def _checked(y: Any, n_rows: int, balance_pairs: bool) -> Supervision:
    """The supervision that y means, with the name of its kind."""
    # The newest kinds come first; class labels, the first of all, are whatever is nothing else.
    name, kind = next((name, kind) for name, kind in reversed(KINDS.everything().items()) if kind.owns(y))
    return replace(kind.check(y, n_rows, balance_pairs), kind=name)


def _is_table(y: Any) -> bool:
    """Whether y has several columns."""
    try:
        shape = (y if hasattr(y, "toarray") else np.asarray(y)).shape
    except ValueError:  # rows of different lengths
        return False
    return len(shape) == 2 and shape[1] > 1


def _array(y: Any, n_rows: int) -> NDArray[Any]:
    """Something for every row, [n] or [n, c]."""
    if hasattr(y, "toarray"):
        y = y.toarray()
    try:
        target = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y has rows of different lengths; give {kinds(KINDS)}.") from error
    if target.ndim not in (1, 2) or 0 in target.shape[1:]:
        raise ValueError(f"y has shape {target.shape}; give {kinds(KINDS)}.")
    if isinstance(y, tuple) and len(y) == 3 and n_rows != 3:
        raise ValueError(f"y is a tuple of three and X has {n_rows} rows; for pairs, give gphash.Pairs(i, j, similar).")
    if len(target) != n_rows:
        raise ValueError(f"y has {len(target)} rows and X has {n_rows}; give one label or row of tags per row.")
    return target


def unlabelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where there is no label, in the shape of y: −1 among numbers, a blank among words, None or NaN among either."""
    if y.dtype.kind == "O":
        return np.array([_is_missing(one) for one in y.flat], dtype=bool).reshape(y.shape)
    if y.dtype.kind == "U":
        return np.asarray(np.char.strip(y) == "")
    if y.dtype.kind in "if":
        return np.asarray((y == -1) | (y != y))
    return np.zeros(y.shape, dtype=bool)


def _is_missing(label: Any) -> bool:
    if isinstance(label, str):
        return not label.strip()
    # What is missing in tables is None, NaN, or of a type of its own (pandas.NA).
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label or label == -1)


def _labels(y: Any, n_rows: int, balance_pairs: bool) -> Signatures:
    whole = column_or_1d(_array(y, n_rows), warn=True)
    known = ~unlabelled(whole)
    target = whole[known]
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        row = int(np.flatnonzero(np.isinf(whole))[0])
        raise ValueError(f"Input y contains infinity (row {row}); give one class label per row.")
    if target.dtype.kind == "O" and (odd := [label for label in target if not isinstance(label, str | Real)]):
        raise ValueError(f"Unknown label type: y holds {odd[0]!r}; give a word or number per row, or 0/1 tags [n, c].")
    if target.dtype.kind == "O" and len({isinstance(label, str) for label in target}) > 1:
        raise ValueError("y holds words as well as numbers; give labels of one kind.")
    if not known.any():
        raise ValueError("y has a label for no row: all are −1, None, NaN or blank; give at least 2 classes.")
    if type_of_target(target, input_name="y").startswith("continuous"):
        fraction = target[target != np.floor(target)][0]
        raise ValueError(f"Unknown label type: y is continuous (it holds {fraction}); give {kinds(KINDS)}.")
    if not known.all() and whole.dtype.kind in "if" and (target == target[0]).all() and (whole[~known] == -1).all():
        raise ValueError(
            f"y has the labels -1 and {target[0]} only, and -1 means that a row has no label, so that one class is "
            "left; name the classes 0 and 1."
        )
    return similarity.from_labels(whole, known)


def _tags(y: Any, n_rows: int, balance_pairs: bool) -> Signatures:
    whole = _array(y, n_rows)
    # An empty row is known to have no tag; of a row of −1 or NaN, nothing is known.
    known = np.asarray(~unlabelled(whole).all(axis=1))
    if not known.any():
        raise ValueError("tags y are −1, None or NaN in all rows; give some rows tags of 0 and 1.")
    return similarity.from_tags(np.where(known[:, None], whole, 0), known)


LABELS = Kind("class labels [n]", lambda y: True, _labels)
TAGS = Kind("0/1 tags [n, c]", _is_table, _tags)
PAIRS = Kind("a list of Pairs", lambda y: isinstance(y, Pairs), similarity.from_pairs)
