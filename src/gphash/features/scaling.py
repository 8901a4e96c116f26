"""Scaling of raw features: centre on the training mean, then give every row unit length.

Unit length makes the kernel a function of the angle between rows, so that one range of length scales suits all data.
"""

from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.schema import Array

MEAN = Array("<f8", ("features",))
"""The mean in a file."""

LARGEST = 1e18  # length of a row, whose square float32 can hold


class Scaling(NamedTuple):
    """What turns a raw row into a scaled one.

    mean
        Mean of the training rows, [d].
    unit_length
        Whether rows are divided by their length after centring; a zero row stays zero.
    """

    mean: Floats
    unit_length: bool


def fit(X: Floats, unit_length: bool = True) -> Scaling:
    """Learn the centre from training rows X, [n, d]."""
    return Scaling(X.mean(axis=0, dtype=np.float64), unit_length)


def apply(scaling: Scaling, X: Floats, dtype: type[np.floating[Any]] = np.float32) -> Floats:
    """Scale rows, [n, d]."""
    # Rounding comes last: small differences between large numbers, and tiny numbers, survive until then.
    working = np.result_type(X.dtype, dtype)
    scaled: Floats = X - scaling.mean.astype(working)
    if scaling.unit_length:
        length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        length[length == 0] = 1
        scaled /= length[:, None]
    return scaled.astype(dtype, copy=False)


def check_range(X: Floats) -> None:
    """Refuse finite numbers so large that squares of rows would not be."""
    largest, limit = max(float(X.max()), -float(X.min())) if X.size else 0.0, LARGEST / X.shape[1] ** 0.5
    if largest > limit:
        raise ValueError(f"X holds values as large as {largest:.3g}; give values of at most {limit:.1e}.")
