"""The FITC prior in whitened form, and the way from the posterior back to a hash function.

K_uu + jitter = L Lᵀ and Phi = K_fu L⁻ᵀ, so that Q_ff = Phi Phiᵀ and the inducing values are u = L v with v ~ N(0, I).
What the inducing inputs do not explain of a row, residual_i = k(x_i, x_i) − ‖φ_i‖² ≥ 0, is noise of its own (FITC).
With the training rows themselves as inducing inputs, Phi Phiᵀ is K and the residual is zero: the full Gaussian
process. After inference the weights are w = L⁻ᵀ b, and U Uᵀ = L⁻ᵀ (I − Λ̄⁻¹) L⁻¹.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.method import triangular
from gphash.method.hashing import HashFunction
from gphash.method.kernels import Kernel, squared_norms
from gphash.method.scaling import Scaling
from gphash.method.triangular import Factor

JITTER = 1e-6  # float32 features cannot resolve less


class Prior(NamedTuple):
    """Kernel and inducing inputs, with the factor that whitens."""

    kernel: Kernel
    Z: Floats  # inducing inputs, scaled, [r, d]
    landmarks: Floats  # the same, prepared for the kernel
    root: Factor  # L, the Cholesky factor of K_uu + jitter
    jitter: float  # what K_uu's diagonal was raised by, as a share of σ_f²


def build(kernel: Kernel, Z: Floats, jitter: float = JITTER) -> Prior:
    """Prior for scaled inducing inputs Z, [r, d], computing with rows in Z's precision."""
    lower, jitter = triangular.cholesky(kernel.gram(Z.astype(np.float64)), jitter)
    return Prior(kernel, Z, kernel.landmarks(Z), triangular.factor(lower, Z.dtype), jitter)


def features(prior: Prior, X: Floats) -> tuple[Floats, Floats]:
    """Whitened features Phi, [n, r], and FITC residual, [n], of scaled rows X."""
    K = prior.kernel.evaluate(prior.landmarks, X)
    Phi = triangular.solve_rows(prior.root, K, out=K)
    residual = prior.kernel.diagonal - squared_norms(Phi).astype(np.float64)
    return Phi, np.maximum(residual, 0.0)


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
