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
