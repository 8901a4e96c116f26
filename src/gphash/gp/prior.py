"""The FITC prior in whitened form.

K_uu + jitter = L Lᵀ and Phi = K_fu L⁻ᵀ, so that Q_ff = Phi Phiᵀ and the inducing values are u = L v with v ~ N(0, I).
What the inducing inputs do not explain of a row, residual_i = k(x_i, x_i) − ‖φ_i‖² ≥ 0, is noise of its own (FITC).
With the training rows themselves as inducing inputs, Phi Phiᵀ is K and the residual is zero: the full Gaussian
process.
"""

from typing import NamedTuple

import numpy as np

from gphash import kernels
from gphash.arrays import Floats
from gphash.gp import triangular
from gphash.gp.triangular import Factor
from gphash.kernels import Landmarks, SquaredExponential

JITTER = 1e-6  # float32 features cannot resolve less


class Prior(NamedTuple):
    """Kernel and inducing inputs, with the factor that whitens.

    kernel
        The squared-exponential kernel.
    Z
        Inducing inputs, scaled, [r, d].
    landmarks
        The same, prepared for the kernel.
    root
        L, the Cholesky factor of K_uu + jitter.
    jitter
        What K_uu's diagonal was raised by, as a share of σ_f².
    """

    kernel: SquaredExponential
    Z: Floats
    landmarks: Landmarks
    root: Factor
    jitter: float


def build(kernel: SquaredExponential, Z: Floats, jitter: float = JITTER) -> Prior:
    """Prior for scaled inducing inputs Z, [r, d], computing with rows in Z's precision."""
    lower, jitter = triangular.cholesky(kernels.gram(kernel, Z.astype(np.float64)), jitter)
    return Prior(kernel, Z, kernels.landmarks(kernel, Z), triangular.factor(lower, Z.dtype), jitter)


def features(prior: Prior, X: Floats) -> tuple[Floats, Floats]:
    """Whitened features Phi, [n, r], and FITC residual, [n], of scaled rows X."""
    K = kernels.evaluate(prior.landmarks, X)
    Phi = triangular.solve_rows(prior.root, K, out=K)
    residual = kernels.diagonal(prior.kernel) - kernels.squared_norms(Phi).astype(np.float64)
    return Phi, np.maximum(residual, 0.0)
