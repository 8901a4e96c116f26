"""From the posterior of the whitened inducing values to a hash function: w = L⁻ᵀ b, and U Uᵀ = L⁻ᵀ (I − Λ̄⁻¹) L⁻¹."""

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.features.scaling import Scaling
from gphash.functions.kernel import HashFunction
from gphash.gp import triangular
from gphash.gp.prior import Prior
from gphash.gp.triangular import Factor


def hash_function(scaling: Scaling, prior: Prior, mean: Floats, factor: Factor) -> HashFunction:
    """Hash function from the means of the whitened inducing values, [r, m], and the shared factor."""
    root = prior.root.lower
    weights = scipy.linalg.solve_triangular(root, mean, lower=True, trans="T", check_finite=False)
    # I − Λ̄⁻¹, what the data have taught about the whitened inducing values; never negative but for rounding.
    spread = scipy.linalg.solve_triangular(factor.lower, np.eye(len(root)), lower=True, check_finite=False)
    explained = np.eye(len(root)) - spread.T @ spread
    try:
        half, _ = triangular.cholesky(explained, jitter=1e-10, largest=1e-6)
    except scipy.linalg.LinAlgError:
        shares, axes = scipy.linalg.eigh(explained, check_finite=False)
        half = axes * np.sqrt(np.maximum(shares, 0.0))
    uncertainty = scipy.linalg.solve_triangular(root, half, lower=True, trans="T", check_finite=False)
    return HashFunction(
        scaling,
        prior.kernel,
        # In the order in which a file gives them back: BLAS rounds by layout.
        prior.Z.astype(np.float32, order="C"),
        weights.astype(np.float32, order="C"),
        np.zeros(mean.shape[1]),
        uncertainty.astype(np.float32, order="C"),
    )
