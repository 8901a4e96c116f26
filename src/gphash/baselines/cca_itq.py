"""Iterative quantisation of canonical variates (Gong and Lazebnik, 2011): ITQ that learns from labels or tags.

    C_xy (C_yy + r_y I)⁻¹ C_yx w = ρ² (C_xx + r_x I) w,   V = X (ρ_1 w_1, …, ρ_m w_m),   bits = sign(V R)

Y are indicators of classes or tags, C are covariances, ρ canonical correlations; R is the rotation of ITQ. Every
direction counts as much as it has to do with Y. The regularisers are 10⁻⁴ of the mean variance of a column, so that
neither the unit of the features nor the number of rows matters.

Y has few directions: of c classes, c − 1. For other bits ρ is zero, and so is their column of V. The rotation then
spreads the few over all the bits, which become m hyperplanes in a space of fewer dimensions.
"""

import warnings
from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.baselines.itq import ITERATIONS, rotation
from gphash.baselines.linear import LinearHasher
from gphash.baselines.pcah import moments, orient
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures

REGULARISER = 1e-4  # of the mean variance
NOTHING = 1e-6  # a correlation that is none but for rounding


class CCAITQ(LinearHasher):
    """Iterative quantisation of the directions of X that correlate with Y. Learns from labels or tags.

    At most as many bits as X has features; warns if there are more than directions that correlate. The parameters are
    those of `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags")

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        assert isinstance(supervision, Signatures)
        self._restrict_bits(X)
        directions, correlations = canonical_directions(X, similarity.indicators(supervision))
        useful = min(int((correlations > NOTHING).sum()), self.n_bits)
        if useful < self.n_bits:
            warnings.warn(
                f"n_bits={self.n_bits}, but only {useful} directions of X correlate with y; the rotation of CCAITQ "
                f"spreads these over all {self.n_bits} bits, so that the others add no direction of their own.",
                UserWarning,
                stacklevel=4,  # whoever called fit
            )
        W = np.zeros((X.shape[1], self.n_bits))
        W[:, :useful] = directions[:, :useful] * correlations[:useful]
        offset = -X.mean(axis=0) @ W
        R = rotation(X @ W + offset, generator, ITERATIONS)
        return W @ R, offset @ R


def canonical_directions(X: Floats, Y: Floats) -> tuple[Floats, Floats]:
    """Directions w of X [d, min(d, c)], of unit regularised variance, and their correlations with Y, [n, c], falling.

    With C_xx + r_x I = L Lᵀ and C_yy + r_y I = M Mᵀ, the correlations are the singular values of L⁻¹ C_xy M⁻ᵀ.
    """
    x_mean, C_xx = moments(X)
    y_mean, C_yy = moments(Y)
    C_xy = X.T @ Y / len(X) - np.outer(x_mean, y_mean)
    L, M = _factor(C_xx), _factor(C_yy)
    half = scipy.linalg.solve_triangular(L, C_xy, lower=True, check_finite=False)
    whitened = scipy.linalg.solve_triangular(M, half.T, lower=True, check_finite=False).T
    left, correlations, _ = scipy.linalg.svd(whitened, full_matrices=False, check_finite=False)
    return orient(scipy.linalg.solve_triangular(L, left, lower=True, trans="T", check_finite=False)), correlations


def _factor(C: Floats) -> Floats:
    """Cholesky factor of a regularised covariance."""
    variance = float(np.trace(C)) / len(C)
    regularised = C + REGULARISER * (variance if variance > 0 else 1.0) * np.eye(len(C))
    lower: Floats = scipy.linalg.cholesky(regularised, lower=True, check_finite=False)
    return lower
