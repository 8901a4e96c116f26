"""Bags of visual words as features.

Counts c of a photograph's words become √(c / Σ c): Euclidean distance between such rows is the Hellinger distance
between the photographs' distributions of words, which frequent words do not drown.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 8192


def root_frequencies(counts: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Counts [n, d] as square roots of frequencies, float32 [n, d]; a row without words stays 0."""
    features = np.empty(counts.shape, dtype=np.float32)
    for start in range(0, len(counts), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        totals = counts[rows].sum(axis=1, dtype=np.int64, keepdims=True)
        np.sqrt(counts[rows] / np.maximum(totals, 1), out=features[rows], casting="same_kind")
    return features
