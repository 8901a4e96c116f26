"""Expected Hamming distances as whole numbers.

A bit that differs from the likeliest code costs w_j = |1 − 2 P_j|, beyond the Σ_j min(P_j, 1 − P_j) that no code can
avoid. Costs are whole multiples of 2⁻⁴⁰, so that sums are exact in any order, and equal distances are equal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.hamming import packing

UNIT = 2.0**-40


class Uncertain(NamedTuple):
    """Queries that are known in probability.

    certain
        The expected distance that no code can avoid, [q].
    weights
        What a bit costs that differs from the likeliest one, in units, [q, m].
    modes
        The likeliest codes, packed, [q, ⌈m/8⌉].
    """

    certain: Floats
    weights: NDArray[np.int64]
    modes: NDArray[np.uint8]

    def distances(self, costs: NDArray[np.int64]) -> Floats:
        """Expected distances of what costs so much, [q, k]."""
        found: Floats = self.certain[:, None] + costs * UNIT
        return found


def uncertain(probabilities: ArrayLike, n_bits: int) -> Uncertain:
    """Queries from P(bit = 1), [q, m]."""
    chances = np.asarray(probabilities)
    if chances.ndim != 2 or chances.shape[1] != n_bits:
        raise ValueError(f"probabilities has shape {chances.shape}; give P(bit = 1), [q, {n_bits}].")
    if chances.dtype.kind not in "fiub" or not ((chances >= 0) & (chances <= 1)).all():
        raise ValueError("probabilities holds NaN or values outside of 0 to 1; give P(bit = 1) for every bit.")
    chances = chances.astype(np.float64)
    weights = np.rint(np.abs(1 - 2 * chances) / UNIT).astype(np.int64)
    return Uncertain(np.minimum(chances, 1 - chances).sum(axis=1), weights, packing.pack(chances >= 0.5))
