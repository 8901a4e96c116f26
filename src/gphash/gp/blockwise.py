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
from gphash.gp import ep, triangular

BLOCK = 1000


class BitSweep(NamedTuple):
    """What a sweep over the rows leaves for one bit.

    precision, shift
        New sites, [n].
    gamma, cavity
        Leave-one-out z-scores and cavity variances that the sites were matched with, [n].
    mean
        Posterior mean of the whitened inducing values, [r].
    """

    precision: Floats
    shift: Floats
    gamma: Floats
    cavity: Floats
    mean: Floats


def sweep_bit(
    Phis: Sequence[Floats],
    residual: Floats,
    signs: Signs,
    precision: Floats,
    shift: Floats,
    block_size: int = BLOCK,
    damping: float = 1.0,
) -> BitSweep:
    """Update every site of one bit once.

    Parameters
    ----------
    Phis
        Whitened features, in consecutive parts.
    residual, signs, precision, shift
        FITC residual, codes and sites of the bit, [n].
    block_size
        Rows between two factorisations.
    damping
        δ: a new site is (1 − δ) old + δ matched.
    """
    precision, shift = precision.copy(), shift.copy()
    gamma, cavity = np.zeros(len(signs)), np.zeros(len(signs))
    pieces = _pieces(Phis, block_size)
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
        sites, _ = ep.match(gamma[rows][:, None], signs[rows][:, None], c, residual[rows])
        # A site whose cavity is no distribution is skipped.
        moved = np.where(usable, damping * (sites.precision[:, 0] - precision[rows]), 0.0)
        precision[rows] += moved
        change = np.where(usable, damping * (sites.shift[:, 0] - shift[rows]), 0.0)
        shift[rows] += change
        Lambda += _signed_sum(Phi, moved)
        target += Phi.T @ change.astype(Phi.dtype)
    lower, _ = triangular.cholesky(Lambda)
    return BitSweep(precision, shift, gamma, cavity, cho_solve((lower, True), target, check_finite=False))


def _pieces(Phis: Sequence[Floats], block_size: int) -> list[tuple[slice, Floats]]:
    """Blocks of rows: where they stand among all rows, and their features."""
    pieces: list[tuple[slice, Floats]] = []
    start = 0
    for Phi in Phis:
        blocks = row_blocks(len(Phi), block_size)
        pieces.extend((slice(start + rows.start, start + rows.stop), Phi[rows]) for rows in blocks)
        start += len(Phi)
    return pieces


def _signed_sum(Phi: Floats, weights: Floats) -> Floats:
    """Phiᵀ diag(w) Phi for weights of either sign, [r, r]."""
    up, down = weights > 0, weights < 0
    return ep.precision_sum(Phi[up], weights[up]) - ep.precision_sum(Phi[down], -weights[down])
