"""Names for the array types that signatures use; shapes are stated in docstrings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
"""Real numbers: float32 where an array is large (features), float64 where it is small (factors, sites)."""

Signs = NDArray[np.int8]
"""Codes as −1 and +1, the form that training works with."""

Indices = NDArray[np.int64]
"""Row numbers."""

LARGEST = 1e18  # length of a row, whose square float32 can hold


def check_range(X: Floats) -> None:
    """Refuse finite numbers so large that squares of rows would not be."""
    largest, limit = max(float(X.max()), -float(X.min())) if X.size else 0.0, LARGEST / X.shape[1] ** 0.5
    if largest > limit:
        raise ValueError(f"X holds values as large as {largest:.3g}; give values of at most {limit:.1e}.")
