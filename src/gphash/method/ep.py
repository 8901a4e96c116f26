"""Shared-factor expectation propagation: m bits for the price of one.

With v ~ N(0, I) and h_i = φ_iᵀ v, the likelihood of bit j at row i is Φ(y_ij h_ij / √(1 + residual_i)); EP replaces
it by a site exp(−½ τ_ij h² + ν_ij h). All bits share Phi and differ only in their sites, so the costly factor is made
once for all of them:

    Λ̄ = I + Phiᵀ diag(τ̄) Phi,  τ̄ = mean of τ over bits,  v̄_i = φ_iᵀ Λ̄⁻¹ φ_i      shared factor
    1/c_i = 1/v̄_i − τ̄_i                                                          cavity variance, for all bits
    (I + Phiᵀ diag(τ_j) Phi) b_j = Phiᵀ ν_j                                       each bit's own mean, by conjugate
                                                                                  gradients preconditioned with Λ̄
    μ⁻_ij = μ_ij + c_i (τ_ij μ_ij − ν_ij),  γ_ij = μ⁻_ij / √(1 + residual_i + c_i)   cavity mean, leave-one-out z-score

A sweep visits every row block once to update its sites and to collect the gradient Phiᵀ(ν_j − τ_j μ_j) − b_j, and
once more for each step of conjugate gradients. The fixed point has every bit's mean exact; only its variances come
from the shared factor.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from gphash.arrays import Floats, Signs
from gphash.compiled import jit
from gphash.method import triangular
from gphash.method.probit import hazard, log_cdf
from gphash.method.triangular import Factor


class Sites(NamedTuple):
    """Gaussian stand-ins for the likelihood terms, in natural parameters."""

    precision: Floats  # τ, [n, m], never negative
    shift: Floats  # ν, [n, m]


class Shared(NamedTuple):
    """What the bits share at one row block."""

    precision: Floats  # τ̄ of the rows when the factor was made, [n]
    cavity: Floats  # c, the variance of a row's latent value without its own site, [n]


def initial_sites(signs: Signs) -> Sites:
    """Sites to begin with: τ = ½, ν = ½ y."""
    return Sites(np.full(signs.shape, 0.5), 0.5 * signs)


def precision_sum(Phi: Floats, precision: Floats) -> Floats:
    """Phiᵀ diag(τ) Phi of one row block, for one τ per row, [r, r]."""
    weighted: Floats = Phi * np.sqrt(precision).astype(Phi.dtype)[:, None]
    return weighted.T @ weighted


def shared_factor(precision_total: Floats, dtype: np.dtype[Any] | type) -> Factor:
    """Cholesky factor of Λ̄ = I + Phiᵀ diag(τ̄) Phi, from the sum over all blocks."""
    matrix = precision_total + np.eye(len(precision_total))
    return triangular.factor(triangular.cholesky((matrix + matrix.T) / 2)[0], dtype)


def share(factor: Factor, Phi: Floats, precision: Floats) -> Shared:
    """Cavity variances of one row block under the shared factor."""
    half = triangular.solve_rows(factor, Phi)
    variance = np.einsum("ij,ij->i", half, half).astype(np.float64)
    # A row of zeros has no variance at all and learns nothing; rounding must not turn 1/v̄ − τ̄ negative elsewhere.
    left = 1.0 - variance * precision
    return Shared(precision, variance / np.maximum(left, 1e-6))


def leave_one_out(mean: Floats, sites: Sites, shared: Shared, residual: Floats) -> Floats:
    """Cavity z-scores γ of one row block, [n, m], from the posterior means μ of its latent values."""
    gamma = np.empty(sites.precision.shape)
    _leave_one_out(mean, sites.precision, sites.shift, shared.cavity, residual, gamma)
    return gamma


@jit
def _leave_one_out(mean, precision, shift, cavity, residual, gamma):  # type: ignore[no-untyped-def]
    for i in range(mean.shape[0]):
        c = cavity[i]
        scale = 1.0 / math.sqrt(1.0 + residual[i] + c)
        for j in range(mean.shape[1]):
            mu = mean[i, j]
            gamma[i, j] = (mu + c * (precision[i, j] * mu - shift[i, j])) * scale


def match(
    gamma: Floats, signs: Signs, cavity: Floats, residual: Floats, weights: Floats | None = None
) -> tuple[Sites, Floats]:
    """Sites that match the tilted moments, and the leave-one-out score Σ_i w_i log Φ(y_ij γ_ij) of every bit, [m].

    Cavity variances are [n] when the bits share them, else [n, m]. The site of a row of weight w counts w times, as if
    there were so many rows like it; weights are [n], and 1 if None.
    """
    sites = Sites(np.empty(gamma.shape), np.empty(gamma.shape))
    score = np.zeros(gamma.shape[1])
    cavity = np.broadcast_to(cavity.reshape(len(cavity), -1), gamma.shape)
    weights = np.ones(len(gamma)) if weights is None else weights
    _match(gamma, signs, cavity, residual, weights, sites.precision, sites.shift, score)
    return sites, score


@jit
def _match(gamma, signs, cavity, residual, weights, precision, shift, score):  # type: ignore[no-untyped-def]
    for i in range(gamma.shape[0]):
        for j in range(gamma.shape[1]):
            c = cavity[i, j]
            D = 1.0 + residual[i] + c
            root = math.sqrt(D)
            y = signs[i, j]
            z = y * gamma[i, j]
            rho = hazard(z)
            # First and minus second derivative of log Φ(z) by the cavity mean.
            alpha = y * rho / root
            beta = rho * (z + rho) / D
            times = weights[i] / (1.0 - c * beta)
            precision[i, j] = times * beta
            shift[i, j] = times * (alpha + gamma[i, j] * root * beta)
            score[j] += weights[i] * log_cdf(z)


def damp(old: Sites, new: Sites, damping: float) -> Sites:
    """Sites that go only a share of the way from old to new."""
    if damping == 1.0:
        return new
    return Sites(*(before + damping * (after - before) for before, after in zip(old, new, strict=True)))


def solve_means(
    apply: Callable[[Floats], Floats],
    gradient: Floats,
    mean: Floats,
    energy: Floats,
    factor: Factor,
    steps: int,
    tolerance: float,
) -> Floats:
    """Move all means towards (I + Phiᵀ diag(τ_j) Phi) b_j = Phiᵀ ν_j by preconditioned conjugate gradients, [r, m].

    `apply` is the map p_j ↦ Phiᵀ diag(τ_j) Phi p_j, for all bits together. `gradient` and `energy` are
    Phiᵀ(ν_j − τ_j μ_j), [r, m], and Σ_i τ_ij μ_ij², [m], at the present mean. The steps end once every bit's error,
    relative to its mean and in the norm of its own posterior precision, is below the tolerance.
    """
    mean = mean.copy()
    size = np.einsum("rm,rm->m", mean, mean) + energy
    rest = gradient - mean
    pushed = _solved(factor, rest)
    direction, error = pushed, np.einsum("rm,rm->m", rest, pushed)
    for step in range(steps):
        if np.all(error <= tolerance**2 * size):
            break
        product = direction + apply(direction)
        curvature = np.einsum("rm,rm->m", direction, product)
        length = np.divide(error, curvature, out=np.zeros_like(error), where=curvature > 0)
        mean += length * direction
        size = size + length * error
        if step + 1 == steps:
            break
        rest = rest - length * product
        pushed = _solved(factor, rest)
        previous, error = error, np.einsum("rm,rm->m", rest, pushed)
        direction = pushed + np.divide(error, previous, out=np.zeros_like(error), where=previous > 0) * direction
    return mean


def _solved(factor: Factor, columns: Floats) -> Floats:
    """(L Lᵀ)⁻¹ x in the precision of L, which would be copied otherwise."""
    return np.asarray(cho_solve((factor.lower, True), columns.astype(factor.lower.dtype), check_finite=False))
