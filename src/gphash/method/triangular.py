"""Triangular factors: a Cholesky that finds its own jitter, and a solve for many rows at once, without the GIL."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from gphash.arrays import Floats

PANEL = 128


class Factor(NamedTuple):
    """A lower triangular matrix L, ready to solve with."""

    lower: Floats  # L itself, [r, r], float64
    panels: Floats  # L in the precision of the rows to solve for, [r, r]
    inverses: tuple[Floats, ...]  # of the diagonal blocks of L, one per panel of columns


def factor(lower: Floats, dtype: np.dtype[Any] | type = np.float32) -> Factor:
    """Prepare L for solves with rows of the given precision."""
    blocks = (lower[start : start + PANEL, start : start + PANEL] for start in range(0, len(lower), PANEL))
    inverses = (scipy.linalg.solve_triangular(block, np.eye(len(block)), lower=True) for block in blocks)
    return Factor(lower, lower.astype(dtype), tuple(inverse.astype(dtype) for inverse in inverses))


def light(factor: Factor) -> Factor:
    """The factor without L in float64: all that rows need, and a third of the bytes to send."""
    return factor._replace(lower=factor.panels)


def solve_rows(factor: Factor, rows: Floats, out: Floats | None = None) -> Floats:
    """L⁻¹ x for every row x, [n, r], by blocked substitution made of matrix products; `out` may be `rows` itself."""
    solved = np.empty_like(rows) if out is None else out
    for panel, inverse in enumerate(factor.inverses):
        start = panel * PANEL
        stop = start + len(inverse)
        # x_p = L_pp⁻¹ (k_p − Σ_{q<p} L_pq x_q)
        rest = rows[:, start:stop]
        if start:
            rest = rest - solved[:, :start] @ factor.panels[start:stop, :start].T
        solved[:, start:stop] = rest @ inverse.T
    return solved


def cholesky(matrix: Floats, jitter: float = 0.0, largest: float = 1e-2) -> tuple[Floats, float]:
    """Lower Cholesky factor of a symmetric matrix, [r, r], and the jitter that it needed.

    Jitter is added to the diagonal as a share of its mean: ten times more whenever the factorisation fails, until it
    exceeds `largest`.
    """
    diagonal = np.diag(matrix).astype(np.float64)
    while True:
        try:
            shifted = np.array(matrix, np.float64, order="F")  # as LAPACK has it, to be overwritten
            np.fill_diagonal(shifted, diagonal + jitter * diagonal.mean())
            return scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False), jitter
        except scipy.linalg.LinAlgError:
            jitter = max(10 * jitter, 1e-12)
            if jitter > largest:
                raise
