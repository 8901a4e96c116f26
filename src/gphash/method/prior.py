"""The sparse prior in whitened form, and the way from the posterior back to a hash function.

K_uu + jitter = L Lᵀ and Phi = K_fu L⁻ᵀ, so that Q_ff = Phi Phiᵀ and the inducing values are u = L v with v ~ N(0, I).
What the inducing inputs do not explain of a row, k(x_i, x_i) − ‖φ_i‖² ≥ 0, is noise of its own: all of it in FITC,
none of it in the variational limit, and a share α of it between them (power EP), in training as in prediction:

    residual_i = α (k(x_i, x_i) − ‖φ_i‖²)

With the training rows themselves as inducing inputs, Phi Phiᵀ is K and the residual is zero: the full Gaussian
process. After inference the weights are w = L⁻ᵀ b, and U diag(±1) Uᵀ = L⁻ᵀ (Λ̄⁻¹ − α I) L⁻¹.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.method import triangular
from gphash.method.hashing import HashFunction, Uncertainty
from gphash.method.kernels import Kernel, squared_norms
from gphash.method.scaling import Scaling
from gphash.method.triangular import Factor

JITTER = 1e-6  # float32 features cannot resolve less


class Prior(NamedTuple):
    """Kernel and inducing inputs, with the factor that whitens."""

    kernel: Kernel
    Z: Floats  # inducing inputs, scaled, [r, d]
    landmarks: Floats  # the same, prepared for the kernel
    power: float  # α, the share of the residual that counts as noise
    root: Factor  # L, the Cholesky factor of K_uu + jitter
    jitter: float  # what K_uu's diagonal was raised by, as a share of σ_f²


def build(kernel: Kernel, Z: Floats, power: float = 1.0, jitter: float = JITTER) -> Prior:
    """Prior for scaled inducing inputs Z, [r, d], computing with rows in Z's precision."""
    lower, jitter = triangular.cholesky(kernel.gram(Z.astype(np.float64)), jitter)
    return Prior(kernel, Z, kernel.landmarks(Z), power, triangular.factor(lower, Z.dtype), jitter)


def features(prior: Prior, X: Floats) -> tuple[Floats, Floats]:
    """Whitened features Phi, [n, r], and residual, [n], of scaled rows X."""
    K = prior.kernel.evaluate(prior.landmarks, X)
    Phi = triangular.solve_rows(prior.root, K, out=K)
    residual = prior.kernel.diagonal - squared_norms(Phi).astype(np.float64)
    return Phi, prior.power * np.maximum(residual, 0.0)


def plain(prior: Prior, X: Floats) -> Floats:
    """Kernel values of scaled rows X at the inducing inputs, not whitened, [n, r]."""
    return prior.kernel.evaluate(prior.landmarks, X)


def hash_function(scaling: Scaling, prior: Prior, mean: Floats, factor: Factor | None) -> HashFunction:
    """Hash function from the means of the whitened inducing values, [r, m], and the shared factor.

    Without the factor, it knows nothing of how uncertain it is.
    """
    root = prior.root.lower
    weights = scipy.linalg.solve_triangular(root, mean, lower=True, trans="T", check_finite=False)
    uncertainty = None if factor is None else _uncertainty(prior, factor)
    return HashFunction(
        scaling,
        prior.kernel,
        # In the order in which a file gives them back: BLAS rounds by layout.
        prior.Z.astype(np.float32, order="C"),
        weights.astype(np.float32, order="C"),
        np.zeros(mean.shape[1]),
        uncertainty,
    )


def _uncertainty(prior: Prior, factor: Factor) -> Uncertainty:
    root = prior.root.lower
    # What of the prior's variance is left, less what would be left of it if nothing were known but the inducing values.
    spread = scipy.linalg.solve_triangular(factor.lower, np.eye(len(root)), lower=True, check_finite=False)
    shares, axes = scipy.linalg.eigh(spread.T @ spread - prior.power * np.eye(len(root)), check_finite=False)
    half = axes * np.sqrt(np.abs(shares))
    columns = scipy.linalg.solve_triangular(root, half, lower=True, trans="T", check_finite=False)
    return Uncertainty(prior.power, columns.astype(np.float32, order="C"), int((shares < 0).sum()))
