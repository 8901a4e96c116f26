"""How often rows count: what users say as `class_weight` and `sample_weight`, checked, as one weight for every row."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats, Indices
from gphash.supervision.similarity import Signatures, Supervision

RELIABLE = 300  # rows of a class that are enough for it to count half as much as a very large one; docs/decisions.md


def weigh(given: Supervision, class_weight: Any, sample_weight: ArrayLike | None) -> Supervision:
    """The same supervision, with rows that count as often as their weight and that of their class say."""
    if isinstance(class_weight, str) and class_weight == "auto" and getattr(given, "classes", None) is None:
        class_weight = None
    if class_weight is None and sample_weight is None:
        return given
    if not isinstance(given, Signatures):
        name = "class_weight" if sample_weight is None else "sample_weight"
        raise ValueError(f"{name} was given, but y is a list of pairs; leave it out: rows count as pairs name them.")
    weights = np.zeros(given.n_rows)
    weights[given.known] = 1.0
    if sample_weight is not None:
        weights *= _checked(sample_weight, given.n_rows)
        if not weights.any():
            raise ValueError("sample_weight is zero for all rows that have a label; give some of them more.")
    if class_weight is not None:
        if given.classes is None:
            raise ValueError(f"class_weight={class_weight!r}, but y has no classes; for tags, give sample_weight.")
        some, classes = np.flatnonzero(weights), given.classes
        numbers = given.masks[some, 0].astype(np.int64)
        sizes = np.bincount(numbers, weights[some], len(classes))
        given = replace(given, shares=sizes / sizes.sum())
        weights[some] *= _by_class(class_weight, classes, np.bincount(numbers))[numbers]
        if not weights.any():
            raise ValueError(f"class_weight={class_weight!r} is zero for all classes of y; give some of them more.")
    return given.weighted(weights)


def _by_class(class_weight: Any, classes: NDArray[Any], sizes: Indices) -> Floats:
    """The weight of every class, [c]; those that are not named have 1."""
    if isinstance(class_weight, str):
        return 1 / np.maximum(sizes + (RELIABLE if class_weight == "auto" else 0), 1e-300)
    numbers = {name: number for number, name in enumerate(classes.tolist())}
    weights = np.ones(len(classes))
    for name, weight in class_weight.items():
        if name not in numbers:
            raise ValueError(f"class_weight names the class {name!r}, which y does not have; leave it out.")
        weights[numbers[name]] = weight
    return weights


def _checked(sample_weight: ArrayLike, n_rows: int) -> Floats:
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight holds something that is no number ({error}); give one per row.") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape} and X has {n_rows} rows; give one number per row.")
    if len(odd := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))):
        found = f"sample_weight is {weights[odd[0]]:g} at row {odd[0]}"
        raise ValueError(f"{found}; give finite numbers of at least 0.")
    return weights
