"""The border: what users hand in is checked here, once, and trusted from then on.

A method declares a parameter together with what it may be, such as ``n_trees: int = whole(200)``, and
`Hasher.check_parameters` holds it to that. An error names the argument, what was given and what is needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from gphash import arrays
from gphash.arrays import LARGEST, Floats, HeldRows, Rows
from gphash.data import frames

UNREAD = {"ensure_all_finite": False}  # `arrays.check_numbers` looks at them, a tile at a time


def parameter(default: Any, need: str, fits: Callable[[Any], bool]) -> Any:
    """A parameter of a method, as a field of its dataclass: what it needs to be in words, and whether a value is."""
    return field(default=default, metadata={"need": need, "fits": fits})


def _within(value: Any, kind: Any, least: float, most: float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most


def whole(default: int | None, most: float = np.inf) -> Any:
    """A whole number of at least 1; None is allowed if it is the default."""
    need = f"a whole number from 1 to {most}" if most < np.inf else "a whole number of at least 1"
    if default is None:
        return parameter(None, f"{need}, or None", lambda value: value is None or _within(value, Integral, 1, most))
    return parameter(default, need, lambda value: _within(value, Integral, 1, most))


def count(default: int) -> Any:
    """A whole number of at least 0."""
    return parameter(default, "a whole number of at least 0", lambda value: _within(value, Integral, 0, np.inf))


def positive_or_auto(default: float | str = "auto", least: float = 1e-6, most: float = 1e6) -> Any:
    """A positive number within bounds, or the word "auto"."""

    def fits(value: Any) -> bool:
        return value == "auto" if isinstance(value, str) else _within(value, Real, least, most)

    return parameter(default, f'a number from {least:g} to {most:g}, or "auto"', fits)


def share(default: float) -> Any:
    """A number from 0 to 1."""
    return parameter(default, "a number from 0 to 1", lambda value: _within(value, Real, 0, 1))


def one_of(*words: str) -> Any:
    """One of some words; the first is the default."""
    need = f"one of {', '.join(map(repr, words))}"
    return parameter(words[0], need, lambda value: isinstance(value, str) and value in words)


def truth(default: bool) -> Any:
    """True or False."""
    return parameter(default, "True or False", lambda value: isinstance(value, bool | np.bool_))


def _is_class_weight(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_within(one, Real, 0, LARGEST) for one in value.values())
    return value is None or (isinstance(value, str) and value in ("auto", "balanced"))


CLASS_WEIGHT = parameter(
    "auto", '"auto", "balanced", None, or a dict of numbers of at least 0 by class', _is_class_weight
)
"""How much the rows of every class count."""


def _is_random_state(value: Any) -> bool:
    known = value is None or value is np.random or isinstance(value, np.random.RandomState)
    return known or (isinstance(value, Integral) and int(value) >= 0)


RANDOM_STATE = parameter(None, "a whole number of at least 0, a RandomState or None", _is_random_state)
"""What scikit-learn takes for a seed."""


def seed(random_state: Any) -> int:
    """A seed from a `random_state`."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def features(estimator: Any, X: ArrayLike, reset: bool) -> Floats:
    """Features as float32 or float64 [n, d]; `reset` is True in `fit`, where the number of columns is learned."""
    found = rows(estimator, X, reset)
    return arrays.widened(found[:] if isinstance(found, HeldRows) else found)


def rows(estimator: Any, X: ArrayLike, reset: bool) -> Rows:
    """The same, but that short numbers, such as float16, keep their type, and rows stay sparse or in chunks."""
    if X is None:
        raise ValueError(
            "X is None; give features [n, d]. A data set of pictures gets them from gphash.data.descriptors.described."
        )
    checks: dict[str, Any] = {"reset": reset, "ensure_min_samples": 2 if reset else 1}
    if arrays.is_sparse(X):
        kept = arrays.sparse(validate_data(estimator, X, **checks, dtype=None, accept_sparse="csr", **UNREAD))
        arrays.check_numbers(kept)
        return kept
    if frames.is_frame(X):
        return _framed(estimator, X, reset)
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and len(X) and np.ndim(X[0]):
        raise ValueError(
            f"X is an array of objects, such as {type(X[0]).__name__}; give numbers [n, d]: numpy.stack(X)."
        )
    if isinstance(X, np.ndarray) and arrays.is_short(X.dtype):
        short: NDArray[Any] = validate_data(estimator, X, **checks, dtype=None, **UNREAD)
        arrays.check_numbers(short)
        return short
    # What is neither of these types becomes the first of them; float32 holds bytes and the like exactly.
    small = getattr(getattr(X, "dtype", None), "itemsize", 8) <= 2
    types = [np.float32, np.float64] if small else [np.float64, np.float32]
    checked: Floats = validate_data(estimator, X, **checks, dtype=types)
    arrays.check_range(checked)
    return checked


def _framed(estimator: Any, X: Any, reset: bool) -> Rows:
    """Rows of a table or a frame; names of its columns are those of features, if each is one."""
    table = frames.table(X)
    kept = frames.rows(table)
    named = table if frames.has_columns(table) else kept
    validate_data(estimator, named, reset=reset, skip_check_array=True)
    if len(kept) < (least := 2 if reset else 1):
        raise ValueError(f"X has {len(kept)} row(s); give at least {least}.")
    arrays.check_numbers(kept)
    return kept
