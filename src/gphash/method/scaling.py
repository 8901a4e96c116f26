"""Scaling of raw features: centre on the training mean, map by a metric if there is one, then give rows unit length.

Unit length makes the kernel a function of the angle between rows, so that one range of length scales suits all data. A
metric is a linear map to fewer dimensions, those in which the functions to learn change; see `metric`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.schema import Array, FaultError

MEAN = Array("<f8", ("features",))
ARRAYS = {"scaling_mean": MEAN, "scaling_metric": Array("<f8", ("features", "dimensions"), optional=True)}
"""What a file holds of a scaling, besides whether rows get unit length."""


class Scaling(NamedTuple):
    """What turns a raw row into a scaled one."""

    mean: Floats  # of the training rows, [d]
    unit_length: bool  # divide rows by their length; a zero row stays zero
    metric: Floats | None = None  # maps centred rows, float64 [d, q]; None leaves them as they are


def fit(X: Floats, unit_length: bool = True) -> Scaling:
    """Learn the centre from training rows X, [n, d]."""
    return Scaling(X.mean(axis=0, dtype=np.float64), unit_length)


def apply(scaling: Scaling, X: Floats, dtype: type[np.floating[Any]] = np.float32) -> Floats:
    """Scale rows, [n, d] or, with a metric, [n, q]."""
    # Rounding comes last: small differences between large numbers, and tiny numbers, survive until then.
    scaled: Floats = X - scaling.mean.astype(np.result_type(X.dtype, dtype))
    if scaling.metric is not None:
        scaled = scaled @ scaling.metric
    if scaling.unit_length:
        length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        length[length == 0] = 1
        scaled /= length[:, None]
    return scaled.astype(dtype, copy=False)


def arrays(scaling: Scaling) -> dict[str, NDArray[Any]]:
    """What a file keeps of it, by name."""
    return {f"scaling_{name}": part for name in ("mean", "metric") if (part := getattr(scaling, name)) is not None}


def restore(unit_length: bool, arrays: dict[str, NDArray[Any]], n_dimensions: int) -> Scaling:
    """The scaling that `arrays` gave, of rows that get so many dimensions; a FaultError if it gives them others."""
    mean, metric = arrays["scaling_mean"], arrays.get("scaling_metric")
    if metric is None and len(mean) != n_dimensions:
        raise FaultError(f"it has {len(mean)} features, and inducing inputs of {n_dimensions} dimensions")
    return Scaling(mean, unit_length, metric)
