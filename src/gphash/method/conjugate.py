"""Answers to fixed questions with many inducing inputs: no factor of all rows, and folds in place of cavities.

Shared-factor EP whitens all rows and factors their sum, n r² operations each time, because cavities need variances.
With many inducing inputs that is nearly all of training. Means alone need less: rows keep plain kernel values K, and
conjugate gradients solve for the whitened means v = Lᵀ w,

    (I + L⁻¹ Kᵀ diag(τ_j) K L⁻ᵀ) v_j = L⁻¹ Kᵀ ν_j,

in passes of n r operations a column. What preconditions them is made of the inducing inputs alone, which stand for all
rows (Rudi, Carratino and Rosasco 2017): K_uu diag(·) K_uu for Kᵀ diag(τ) K, and so I + (Σ τ̄ / r) Lᵀ L.

Sites are those of least squares, or of Laplace's method: EP's with a cavity variance of zero, around the present means.
Leave-one-out answers, which EP gets from cavities, come from folds: every question has a column for all rows, and one
for each fold that leaves out its rows. They share every pass. Only rows that teach the read-out are dealt out to folds.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import log_ndtr

from gphash.arrays import Floats, Indices, Signs
from gphash.execution.local import Executor
from gphash.method import ep
from gphash.method.ep import Sites
from gphash.method.prior import Prior
from gphash.method.state import RowBlock, Sweep
from gphash.method.triangular import Factor

LEFT_OUT = 0.2  # share of all rows, about, that a fold leaves out
STEPS, FIRST_STEPS = 20, 5  # of conjugate gradients at most; as long as Laplace's method is far from its end
TOLERANCE, LAST_TOLERANCE = 5e-2, 1e-2  # relative error of means at which they end; of those that are handed on
NEWTON = 25  # steps of Laplace's method at most
FAR, CONVERGED = 0.3, 0.1  # relative change of the site precisions from which Laplace's method is far from it; its end
STALE = 2.0  # how far the sum of the precisions may move, as a factor, before it is preconditioned anew


class Asked(NamedTuple):
    """What is learned of the rows of a block."""

    signs: Signs  # true answers, [b, q]
    folds: Indices  # the fold that leaves a row out, counted from 1; 0 if none does, [b]


class Solved(NamedTuple):
    """Means of every question, and what rows are answered that were left out."""

    mean: Floats  # of the whitened inducing values, [r, q]
    left_out: Floats  # of the rows of some blocks, [s, q]


def count_folds(n_dealt: int, n_rows: int) -> int:
    """How many folds so many rows of all are dealt out to."""
    return max(2, round(n_dealt / (LEFT_OUT * n_rows)))


def deal(signs: Signs, n_folds: int, seed: Sequence[int]) -> Asked:
    """The rows of a block, dealt out to folds; to none of them if there are none."""
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(signs))
    # Blocks do not all begin with the same fold, or there would be one only if each had a single row.
    return Asked(signs, 1 + (drawn + generator.integers(n_folds)) % n_folds if n_folds else np.zeros_like(drawn))


class Solver:
    """Learns all questions together, over row blocks that hold kernel values in place of Phi."""

    def __init__(
        self,
        rows: Sequence[RowBlock],
        asked: Sequence[Asked],
        some: Sequence[int],
        shape: tuple[int, int],
        prior: Prior,
        executor: Executor,
    ) -> None:
        """`some` blocks have rows that folds leave out; the shape is the number of questions, and of folds."""
        self.rows, self.asked, self.some, self.executor = rows, asked, some, executor
        self.n_questions, self.n_columns = shape[0], shape[0] * (shape[1] + 1)
        self._tile = partial(np.tile, reps=shape[1] + 1)  # columns of all questions, again for each fold
        self._root = prior.root.lower
        (multiply,) = scipy.linalg.get_lapack_funcs(("lauum",), (prior.root.panels,))
        self._gram, _ = multiply(np.asfortranarray(prior.root.panels), lower=1)  # Lᵀ L, its lower half
        self._made: tuple[float, Factor] | None = None

    def least_squares(self, precision: float) -> Solved:
        """Answers as if true ones were values seen with noise of this precision; heavy rows count like the mean."""
        tile = self._tile

        def see(block: RowBlock, own: Asked) -> tuple[Floats, tuple[Floats, ...]]:
            share = np.full(own.signs.shape, precision)
            if block.weights is not None:
                share *= np.minimum(block.weights, 1.0)[:, None]
            sites = _masked(Sites(*map(tile, (share, share * own.signs))), own)
            return sites.precision.astype(np.float32), _slope(block, sites, np.zeros(sites.shift.shape))

        precisions, slope = self.executor.map_and_sum(see, self.rows, self.asked)
        return self._solved(
            self._solve(precisions, slope, np.zeros((len(self._gram), self.n_columns)), STEPS, LAST_TOLERANCE)
        )

    def laplace(
        self, watch: Callable[[Sweep, Floats], None] = lambda *_: None, begun: tuple[int, Floats | None] = (0, None)
    ) -> Solved:
        """Answers under the likelihood Φ(y h), by Newton's method.

        `watch` sees every step as a sweep, with the means, [r, columns]. `begun` is how many steps were taken before,
        and what they came to.
        """
        done, mean = begun
        precisions, slope, _ = self._match(mean, None)
        mean = np.zeros((len(self._gram), self.n_columns)) if mean is None else mean
        change = np.inf
        for number in range(done + 1, NEWTON + 1):
            began = time.perf_counter()
            mean = self._solve(precisions, slope, mean, FIRST_STEPS if change > FAR else STEPS, TOLERANCE)
            precisions, slope, (n_scored, score, moved, total) = self._match(mean, precisions)
            change, seconds = moved / total if total else 0.0, time.perf_counter() - began
            watch(Sweep(number, 0, score / n_scored, change, False, True, seconds), mean)
            if change <= CONVERGED:
                break
        return self._solved(self._solve(precisions, slope, mean, STEPS, LAST_TOLERANCE))

    def _match(
        self, mean: Floats | None, older: Sequence[Floats] | None
    ) -> tuple[Sequence[Floats], Sequence[Floats], list[float]]:
        """Site precisions around the means, or before there are any, [b, columns]; and the sum of `_slope`.

        And how many rows are left out times questions, their score, |change of τ|, and the τ before.
        """
        tile, weights = self._tile, None if mean is None else self._weights(mean)

        def match(block: RowBlock, own: Asked, before: Floats | None) -> tuple[Floats, tuple[Floats, ...]]:
            nothing, columns = np.zeros(len(own.signs)), tile(own.signs)
            latent = np.zeros(columns.shape) if weights is None else (block.Phi @ weights).astype(np.float64)
            if weights is not None:
                new, _ = ep.match(latent, columns, nothing, nothing, block.weights)
            else:
                often = 1.0 if block.weights is None else block.weights[:, None]
                new = Sites(*(part * often for part in ep.initial_sites(columns)))
            new, left_out = _masked(new, own), own.folds > 0
            score = log_ndtr(own.signs * _own(latent, own))[left_out].sum()
            moved = 0.0 if before is None else np.abs(new.precision - before).sum()
            total = 0.0 if before is None else before.sum(dtype=np.float64)
            counts = np.array([left_out.sum() * own.signs.shape[1], score, moved, total])
            return new.precision.astype(np.float32), (*_slope(block, new, latent), counts)

        known = [None] * len(self.rows) if older is None else older
        precisions, sums = self.executor.map_and_sum(match, self.rows, self.asked, known)
        return precisions, sums[:-1], sums[-1].tolist()

    def _solve(
        self,
        precisions: Sequence[Floats],
        slope: Sequence[Floats],
        mean: Floats,
        steps: int,
        tolerance: float,
    ) -> Floats:
        """Means for sites of these precisions, from older ones at which `slope` is the sum of `_slope`."""
        gradient, energy, total = slope

        def product(direction: Floats) -> Floats:
            """The map p_j ↦ L⁻¹ Kᵀ diag(τ_j) K L⁻ᵀ p_j for all columns together."""
            pushed = self._weights(direction)

            def push(block: RowBlock, precision: Floats) -> tuple[Floats]:
                return (block.Phi.T @ (precision * (block.Phi @ pushed)),)

            return self._whiten(self.executor.sum(push, self.rows, precisions)[0])

        factor = self._factor(float(total))
        return ep.solve_means(product, self._whiten(gradient), mean, energy, factor, steps, tolerance)

    def _solved(self, mean: Floats) -> Solved:
        """Means for all rows, and what rows of some blocks are answered by the fold that left them out."""
        weights = self._weights(mean)
        rows, asked = ([every[number] for number in self.some] for every in (self.rows, self.asked))
        found = self.executor.collect(lambda block, own: _own(block.Phi @ weights, own), rows, asked)
        return Solved(mean[:, : self.n_questions], np.concatenate(list(found)).astype(np.float64))

    def _factor(self, total: float) -> Factor:
        """What preconditions the sum of mean precisions; made anew when that has moved far."""
        if not np.isfinite(total):
            raise ValueError(
                "conjugate gradients have lost their precision: signal_scale or length_scale is too large for them. "
                "Give smaller ones, or solver='shared'."
            )
        if self._made is None or not 1 / STALE <= total / self._made[0] <= STALE:
            self._made = None  # so that two are never kept
            self._made = total, _preconditioner(self._gram, total / len(self._gram))
        return self._made[1]

    def _weights(self, mean: Floats) -> Floats:
        """L⁻ᵀ v, computed in double precision: weights are large where inducing inputs are close, and cancel."""
        return _triangular(self._root, mean, "T").astype(np.float32)

    def _whiten(self, columns: Floats) -> Floats:
        """L⁻¹ x."""
        return _triangular(self._root, columns, "N")


def _preconditioner(gram: Floats, times: float) -> Factor:
    """The factor of I + c G, from the lower half of G; it may be inexact, so the diagonal is raised if need be."""
    jitter = 0.0
    while True:
        matrix = gram * np.float32(times)
        diagonal = np.diag(matrix).copy()
        np.fill_diagonal(matrix, diagonal + 1 + np.float32(jitter * diagonal.mean()))
        try:
            lower = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
            return Factor(lower, lower, ())
        except scipy.linalg.LinAlgError:
            jitter = max(10 * jitter, 1e-6)
            if not jitter <= 1:  # not even the identity would help
                raise


def _slope(block: RowBlock, sites: Sites, latent: Floats) -> tuple[Floats, Floats, Floats]:
    """Kᵀ(ν − τ μ), [r, columns]; Σ τ μ², [columns]; and Σ τ̄."""
    pull = sites.precision * latent
    gradient = block.Phi.T @ (sites.shift - pull).astype(np.float32)
    return gradient, np.einsum("im,im->m", pull, latent), np.array(sites.precision.mean(axis=1).sum())


def _triangular(lower: Floats, columns: Floats, trans: str) -> Floats:
    columns = columns.astype(np.float64)
    return np.asarray(scipy.linalg.solve_triangular(lower, columns, lower=True, trans=trans, check_finite=False))


def _masked(sites: Sites, own: Asked) -> Sites:
    """The same sites, with rows counting for nothing in the fold that leaves them out."""
    rows = np.flatnonzero(own.folds)
    for part in sites:
        part.reshape(len(part), -1, own.signs.shape[1])[rows, own.folds[rows]] = 0
    return sites


def _own(latent: Floats, own: Asked) -> Floats:
    """Latent values by the fold that left a row out, [b, q]."""
    columns = latent.reshape(len(latent), -1, own.signs.shape[1])
    return np.asarray(columns[np.arange(len(latent)), own.folds])
