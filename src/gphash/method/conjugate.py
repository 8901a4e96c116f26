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
STEPS, TOLERANCE = 12, 1e-2  # of conjugate gradients for least squares; relative error at which they end
NEWTON, NEWTON_STEPS = 25, 4  # of Laplace's method at most; of conjugate gradients within one of them
CONVERGED = 0.1  # relative change of the site precisions at which Laplace's method ends
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
    drawn = np.random.default_rng(seed).permutation(len(signs))
    return Asked(signs, 1 + drawn % n_folds if n_folds else np.zeros_like(drawn))


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
        self._root = prior.root.panels
        gram, _ = scipy.linalg.get_lapack_funcs(("lauum",), (self._root,))[0](np.asfortranarray(self._root), lower=1)
        self._gram = gram  # Lᵀ L, its lower half
        self._made: tuple[float, Factor] | None = None

    def least_squares(self, precision: float) -> Solved:
        """Answers as if true ones were values seen with noise of this precision; heavy rows count like the mean."""
        tile = self._tile

        def see(block: RowBlock, own: Asked) -> tuple[Sites, tuple[Floats, ...]]:
            share = np.full(own.signs.shape, precision)
            if block.weights is not None:
                share *= np.minimum(block.weights, 1.0)[:, None]
            sites = _masked(Sites(*map(tile, (share, share * own.signs))), own)
            return sites, _slope(block, sites, np.zeros(sites.shift.shape))

        sites, slope = self.executor.map_and_sum(see, self.rows, self.asked)
        return self._solved(self._solve(sites, slope, np.zeros((len(self._gram), self.n_columns)), STEPS))

    def laplace(self, watch: Callable[[Sweep], None] = lambda _: None) -> Solved:
        """Answers under the likelihood Φ(y h), by Newton's method; `watch` sees every step as a sweep."""
        tile, began = self._tile, time.perf_counter()
        mean: Floats = np.zeros((len(self._gram), self.n_columns))
        sites, slope = self.executor.map_and_sum(lambda block, own: _begin(block, own, tile), self.rows, self.asked)
        for number in range(1, NEWTON + 1):
            mean = self._solve(sites, slope, mean, NEWTON_STEPS)
            weights = self._weights(mean)

            def match(block: RowBlock, own: Asked, before: Sites) -> tuple[Sites, tuple[Floats, ...]]:
                latent, nothing = (block.Phi @ weights).astype(np.float64), np.zeros(len(own.signs))  # noqa: B023
                new, _ = ep.match(latent, tile(own.signs), nothing, nothing, block.weights)
                new, left_out = _masked(new, own), own.folds > 0
                score = log_ndtr(own.signs * _own(latent, own))[left_out].sum()
                change = np.abs(new.precision - before.precision).sum()
                counts = np.array([left_out.sum() * own.signs.shape[1], score, change, before.precision.sum()])
                return new, (*_slope(block, new, latent), counts)

            sites, (gradient, energy, precision, counts) = self.executor.map_and_sum(
                match, self.rows, self.asked, sites
            )
            slope = gradient, energy, precision
            n_scored, score, moved, total = counts.tolist()
            change, seconds, began = moved / total if total else 0.0, time.perf_counter() - began, time.perf_counter()
            watch(Sweep(number, 0, score / n_scored, change, False, True, seconds))
            if change <= CONVERGED:
                break
        return self._solved(self._solve(sites, slope, mean, NEWTON_STEPS))

    def _solve(self, sites: Sequence[Sites], slope: Sequence[Floats], mean: Floats, steps: int) -> Floats:
        """Means for these sites, from older ones at which `slope` is the sum of `_slope`."""
        gradient, energy, total = slope

        def product(direction: Floats) -> Floats:
            """The map p_j ↦ L⁻¹ Kᵀ diag(τ_j) K L⁻ᵀ p_j for all columns together."""
            pushed = self._weights(direction)

            def push(block: RowBlock, own: Sites) -> tuple[Floats]:
                return (block.Phi.T @ (own.precision * (block.Phi @ pushed)).astype(np.float32),)

            return self._whiten(self.executor.sum(push, self.rows, sites)[0])

        factor = self._factor(float(total))
        return ep.solve_means(product, self._whiten(gradient), mean, energy, factor, steps, TOLERANCE)

    def _solved(self, mean: Floats) -> Solved:
        """Means for all rows, and what rows of some blocks are answered by the fold that left them out."""
        weights = self._weights(mean)
        rows, asked = ([every[number] for number in self.some] for every in (self.rows, self.asked))
        found = self.executor.collect(lambda block, own: _own(block.Phi @ weights, own), rows, asked)
        return Solved(mean[:, : self.n_questions], np.concatenate(list(found)).astype(np.float64))

    def _factor(self, total: float) -> Factor:
        """What preconditions the sum of mean precisions; made anew when that has moved far."""
        if self._made is None or not 1 / STALE <= total / self._made[0] <= STALE:
            self._made = None  # so that two are never kept
            matrix = self._gram * np.float32(total / len(self._gram))
            matrix.flat[:: len(matrix) + 1] += 1
            lower = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
            self._made = total, Factor(lower, lower, ())
        return self._made[1]

    def _weights(self, mean: Floats) -> Floats:
        """L⁻ᵀ v in single precision."""
        return _triangular(self._root, mean, "T")

    def _whiten(self, columns: Floats) -> Floats:
        """L⁻¹ x in single precision."""
        return _triangular(self._root, columns, "N")


def _begin(block: RowBlock, own: Asked, tile: Callable[[Floats], Floats]) -> tuple[Sites, tuple[Floats, ...]]:
    """Sites before the first step, and their slope at means of zero."""
    sites = _masked(Sites(*map(tile, ep.initial_sites(own.signs))), own)
    return sites, _slope(block, sites, np.zeros(sites.shift.shape))


def _slope(block: RowBlock, sites: Sites, latent: Floats) -> tuple[Floats, Floats, Floats]:
    """Kᵀ(ν − τ μ), [r, columns]; Σ τ μ², [columns]; and Σ τ̄."""
    pull = sites.precision * latent
    gradient = block.Phi.T @ (sites.shift - pull).astype(np.float32)
    return gradient, np.einsum("im,im->m", pull, latent), np.array(sites.precision.mean(axis=1).sum())


def _triangular(lower: Floats, columns: Floats, trans: str) -> Floats:
    columns = columns.astype(np.float32)
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
