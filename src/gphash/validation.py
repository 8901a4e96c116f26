"""The border: what users hand in is checked here, once, and trusted from then on.

An error names the argument, what was given and what is wanted.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d, validate_data

from gphash.arrays import Floats
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.features import scaling
from gphash.hamming.packing import MOST_BITS

KINDS = {"labels": "class labels [n]", "tags": "0/1 tags [n, c]", "pairs": "Pairs"}
WANTED = "give labels [n], 0/1 tags [n, c] or Pairs"


def features(estimator: Any, X: ArrayLike, reset: bool) -> Floats:
    """Features as float32 or float64 [n, d]; `reset` is True in `fit`, where the number of columns is learned."""
    if X is None:
        raise ValueError(
            "X is None; give features [n, d]. A data set of pictures gets them from gphash.datasets.described."
        )
    # Everything that is not of these types becomes the first of them; float32 holds bytes and the like exactly.
    short = getattr(getattr(X, "dtype", None), "itemsize", 8) <= 2
    types = [np.float32, np.float64] if short else [np.float64, np.float32]
    checked: Floats = validate_data(estimator, X, reset=reset, dtype=types, ensure_min_samples=2 if reset else 1)
    scaling.check_range(checked)
    return checked


def supervision(
    y: ArrayLike | Pairs | None, n_rows: int, balance_pairs: bool, method: str, takes: Sequence[str] = tuple(KINDS)
) -> Signatures | PairGraph:
    """What is similar, to learn from: labels, tags or pairs, as far as a method takes them, that tell something apart.

    `method` is the name that errors mention.
    """
    wanted = f"{method} learns from {kinds(takes)}"
    if y is None:
        raise ValueError(f"{method} requires y to be passed, but the target y is None; {wanted}.")
    if isinstance(y, Pairs):
        if "pairs" not in takes:
            raise ValueError(f"y is a list of pairs, but {wanted}.")
        return similarity.from_pairs(y, n_rows, balance_pairs)
    given = signatures(y, n_rows)
    if (kind := "labels" if given.exact else "tags") not in takes:
        raise ValueError(f"y is {KINDS[kind]}, but {wanted}.")
    similarity.check_teaches(given)
    return given


def kinds(takes: Sequence[str]) -> str:
    """Kinds of supervision in words."""
    words = [KINDS[kind] for kind in takes]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def signatures(y: ArrayLike | None, n_rows: int) -> Signatures:
    """Labels [n] or tags [n, c], to compare rows by."""
    if y is None:
        raise ValueError(f"y is None; {WANTED}.")
    if isinstance(y, Pairs):
        raise ValueError("y is a list of pairs; here, give labels [n] or 0/1 tags [n, c].")
    if hasattr(y, "toarray"):
        y = y.toarray()
    try:
        target = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y has rows of different lengths; {WANTED}.") from error
    if target.ndim not in (1, 2) or 0 in target.shape[1:]:
        raise ValueError(f"y has shape {target.shape}; {WANTED}.")
    if isinstance(y, tuple) and len(y) == 3 and n_rows != 3:
        raise ValueError(f"y is a tuple of three and X has {n_rows} rows; for pairs, give gphash.Pairs(i, j, similar).")
    if len(target) != n_rows:
        raise ValueError(f"y has {len(target)} rows and X has {n_rows}; give one label or row of tags per row.")
    if target.ndim == 2 and target.shape[1] > 1:
        return similarity.from_tags(target)
    target = column_or_1d(target, warn=True)
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        row = int(np.flatnonzero(~np.isfinite(target))[0])
        raise ValueError(f"Input y contains NaN or infinity (row {row}); give one class label per row.")
    if target.dtype.kind == "O" and (odd := [label for label in target if not isinstance(label, str | Real)]):
        raise ValueError(
            f"Unknown label type: y holds {odd[0]!r}; give a word or a number per row, or 0/1 tags [n, c]."
        )
    if target.dtype.kind == "O" and len({isinstance(label, str) for label in target}) > 1:
        raise ValueError("y holds words as well as numbers (or NaN); give labels of one kind.")
    if type_of_target(target, input_name="y").startswith("continuous"):
        fraction = target[target != np.floor(target)][0]
        raise ValueError(f"Unknown label type: y is continuous (it holds {fraction}); {WANTED}.")
    return similarity.from_labels(target)


def whole_number(name: str, value: Any) -> None:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"{name}={value!r}; give a whole number of at least 1.")


def code_length(name: str, value: Any) -> None:
    """A whole number of bits that a code may have."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST_BITS:
        raise ValueError(f"{name}={value!r}; give a whole number from 1 to {MOST_BITS}, the bits of a code.")


def positive_or_auto(name: str, value: Any, least: float = 0.0, most: float = np.inf, unit: str = "") -> None:
    """A positive number within bounds, or the word "auto"."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f'{name}={value!r}; give a positive number{unit} or "auto".')
    if not least <= float(value) <= most:
        raise ValueError(f'{name}={value!r}; give a number between {least:g} and {most:g}, or "auto".')


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """One of the known words."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r}; give one of {', '.join(map(repr, known))}.")


def truth(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}={value!r}; give True or False.")


def seed(random_state: Any) -> int:
    """A seed from what scikit-learn accepts as `random_state`."""
    if isinstance(random_state, Integral) and int(random_state) >= 0:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        wanted = "give a whole number of at least 0, a RandomState or None"
        raise ValueError(f"random_state={random_state!r}; {wanted}.") from error
