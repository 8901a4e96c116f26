"""Scaling of raw features: centre on the training mean, then give every row unit length.

Unit length makes the kernel a function of the angle between rows, so that one range of length scales suits all data.
"""

from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.schema import Array

MEAN = Array("<f8", ("features",))  # in a file


class Scaling(NamedTuple):
    """What turns a raw row into a scaled one."""

    mean: Floats  # of the training rows, [d]
    unit_length: bool  # divide centred rows by their length; a zero row stays zero


def fit(X: Floats, unit_length: bool = True) -> Scaling:
    """Learn the centre from training rows X, [n, d]."""
    return Scaling(X.mean(axis=0, dtype=np.float64), unit_length)


def apply(scaling: Scaling, X: Floats, dtype: type[np.floating[Any]] = np.float32) -> Floats:
    """Scale rows, [n, d]."""
    # Rounding comes last: small differences between large numbers, and tiny numbers, survive until then.
    scaled: Floats = X - scaling.mean.astype(np.result_type(X.dtype, dtype))
    if scaling.unit_length:
        length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        length[length == 0] = 1
        scaled /= length[:, None]
    return scaled.astype(dtype, copy=False)
