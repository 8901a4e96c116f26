"""The paper's own schedule of expectation propagation: one bit after another, blocks of 1,000 rows.

Section 2.3 of the paper with generalised FITC: before every block of rows the posterior precision Λ is factored anew,

    Λ = I + Phiᵀ diag(τ) Phi,  b = Λ⁻¹ Phiᵀ ν,  μ_i = φ_iᵀ b,  v_i = φ_iᵀ Λ⁻¹ φ_i           marginals
    1/c_i = 1/v_i − τ_i,  μ⁻_i = c_i (μ_i/v_i − ν_i)                                        cavities

and the block's sites are matched to the tilted moments. A sweep over one bit costs two products of the size of Phiᵀ
Phi and one Cholesky factor a block, hence m times that for all bits: the reference that shared-factor EP is measured
against.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from gphash.arrays import Floats, Signs
from gphash.execution.local import row_blocks
from gphash.method import ep, triangular

BLOCK = 1000


class BitSweep(NamedTuple):
    """What a sweep over the rows leaves for one bit."""

    precision: Floats  # of the new sites, [n]
    shift: Floats
    gamma: Floats  # leave-one-out z-scores, [n], and
    cavity: Floats  # cavity variances that the sites were matched with, [n]
    mean: Floats  # posterior mean of the whitened inducing values, [r]


def sweep_bit(
    Phis: Sequence[Floats],
    residual: Floats,
    signs: Signs,
    precision: Floats,
    shift: Floats,
    block_size: int = BLOCK,
    damping: float = 1.0,
    weights: Floats | None = None,
) -> BitSweep:
    """Update every site of one bit once; Phi comes in consecutive parts, and is factored every `block_size` rows."""
    precision, shift = precision.copy(), shift.copy()
    weights = np.ones(len(signs)) if weights is None else weights
    gamma, cavity = np.zeros(len(signs)), np.zeros(len(signs))
    starts = np.cumsum([0, *(len(Phi) for Phi in Phis[:-1])])
    pieces = [
        (slice(start + rows.start, start + rows.stop), Phi[rows])
        for start, Phi in zip(starts, Phis, strict=True)
        for rows in row_blocks(len(Phi), block_size)
    ]
    Lambda = np.eye(Phis[0].shape[1])
    target = np.zeros(len(Lambda))
    for rows, Phi in pieces:
        Lambda += ep.precision_sum(Phi, precision[rows])
        target += Phi.T @ shift[rows].astype(Phi.dtype)
    for rows, Phi in pieces:
        lower, _ = triangular.cholesky(Lambda)
        mean = cho_solve((lower, True), target, check_finite=False).astype(Phi.dtype)
        half = triangular.solve_rows(triangular.factor(lower, Phi.dtype), Phi)
        variance = np.einsum("ir,ir->i", half, half).astype(np.float64)
        latent_mean = (Phi @ mean).astype(np.float64)

        left = 1.0 - variance * precision[rows]
        usable = left > 0
        c = np.divide(variance, left, out=np.zeros_like(variance), where=usable)
        D = 1.0 + residual[rows] + c
        cavity_mean = latent_mean + c * (precision[rows] * latent_mean - shift[rows])
        gamma[rows], cavity[rows] = cavity_mean / np.sqrt(D), c
        sites, _ = ep.match(gamma[rows][:, None], signs[rows][:, None], c, residual[rows], weights[rows])
        # A site whose cavity is no distribution is skipped.
        moved = np.where(usable, damping * (sites.precision[:, 0] - precision[rows]), 0.0)
        precision[rows] += moved
        change = np.where(usable, damping * (sites.shift[:, 0] - shift[rows]), 0.0)
        shift[rows] += change
        up, down = moved > 0, moved < 0
        Lambda += ep.precision_sum(Phi[up], moved[up]) - ep.precision_sum(Phi[down], -moved[down])
        target += Phi.T @ change.astype(Phi.dtype)
    lower, _ = triangular.cholesky(Lambda)
    return BitSweep(precision, shift, gamma, cavity, cho_solve((lower, True), target, check_finite=False))
