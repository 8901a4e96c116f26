"""EP's approximation of the log evidence of each bit, log p(y_j | X).

    log Z = −Σ log diag chol(Λ) + ½ νᵀ μ + Σ_i [log Φ(z_i) + ½ log(c_i/v_i) + (μ⁻_i)²/(2 c_i) − μ_i²/(2 v_i)]

It needs each bit's own factor, so it costs as much as a sweep of blockwise EP; the leave-one-out score Σ log Φ(z_i)
costs nothing.
"""

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import log_ndtr

from gphash.arrays import Floats, Signs
from gphash.gp import ep, triangular
from gphash.gp.ep import Sites


def log_evidence(Phi: Floats, residual: Floats, signs: Signs, sites: Sites) -> Floats:
    """Log evidence of every bit under converged sites, [m]."""
    return np.array(
        [_of_bit(Phi, residual, signs[:, j], sites.precision[:, j], sites.shift[:, j]) for j in range(signs.shape[1])]
    )


def _of_bit(Phi: Floats, residual: Floats, signs: Signs, precision: Floats, shift: Floats) -> float:
    lower, _ = triangular.cholesky(np.eye(Phi.shape[1]) + ep.precision_sum(Phi, precision))
    half = triangular.solve_rows(triangular.factor(lower, Phi.dtype), Phi)
    mean = Phi @ cho_solve((lower, True), Phi.T @ shift.astype(Phi.dtype))
    variance = np.einsum("ir,ir->i", half, half).astype(np.float64)
    cavity = variance / (1.0 - variance * precision)
    cavity_mean = mean + cavity * (precision * mean - shift)
    z = signs * cavity_mean / np.sqrt(1.0 + residual + cavity)
    terms = log_ndtr(z)
    known = variance > 0  # a row of zeros has neither marginal nor cavity, and z = 0
    v, c = variance[known], cavity[known]
    terms[known] += 0.5 * np.log(c / v) + cavity_mean[known] ** 2 / (2 * c) - mean[known] ** 2 / (2 * v)
    return float(-np.log(np.diag(lower)).sum() + 0.5 * shift @ mean + terms.sum())
