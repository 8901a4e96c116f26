"""The hash function: the one trained artefact, and what it computes for new rows (section 2.4 of the paper).

    mean_j(x) = k(x, Z) w_j,   variance(x) = k(x, x) − ‖Uᵀ k(Z, x)‖²,   P(bit_j = 1) = Φ(mean_j / √(1 + variance)),   bit_j = [mean_j ≥ 0]

with w_j = L⁻ᵀ b_j, and U Uᵀ = L⁻ᵀ (I − Λ̄⁻¹) L⁻¹ from the prior's whitening L and the shared factor Λ̄.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtr

from gphash import kernels
from gphash.arrays import Floats
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.features import scaling
from gphash.features.scaling import Scaling
from gphash.gp import triangular
from gphash.gp.prior import Prior
from gphash.gp.triangular import Factor
from gphash.hamming import packing
from gphash.kernels import SquaredExponential

TILE = 1024
ROWS_ALIGNED = 32


class HashFunction(NamedTuple):
    """Everything needed to encode a row.

    scaling
        From raw to scaled features.
    kernel
        The squared-exponential kernel.
    Z
        Inducing inputs, scaled, float32 [r, d].
    weights
        w, one column per bit, float32 [r, m].
    uncertainty
        U, lower triangular, float32 [r, r].
    """

    scaling: Scaling
    kernel: SquaredExponential
    Z: Floats
    weights: Floats
    uncertainty: Floats

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.weights.shape[1])


def build(scaling: Scaling, prior: Prior, mean: Floats, factor: Factor) -> HashFunction:
    """Hash function from the posterior: means of the whitened inducing values, [r, m], and shared factor."""
    root = prior.root.lower
    weights = scipy.linalg.solve_triangular(root, mean, lower=True, trans="T", check_finite=False)
    # L⁻ᵀ (I − Λ̄⁻¹) L⁻¹, what the data have taught about the inducing values.
    unwhitened = scipy.linalg.solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
    spread = scipy.linalg.solve_triangular(factor.lower, unwhitened, lower=True, check_finite=False)
    explained = unwhitened.T @ unwhitened - spread.T @ spread
    uncertainty, _ = triangular.cholesky((explained + explained.T) / 2)
    return HashFunction(
        scaling,
        prior.kernel,
        prior.Z.astype(np.float32),
        weights.astype(np.float32),
        uncertainty.astype(np.float32),
    )


def predict(function: HashFunction, scaled: Floats) -> tuple[Floats, Floats]:
    """Predictive means, [n, m], and variance, [n], of rows that are scaled already, in float64."""
    return _predict(function, kernels.cross(function.kernel, scaled, function.Z))


def _predict(function: HashFunction, K: Floats) -> tuple[Floats, Floats]:
    mean = (K @ function.weights).astype(np.float64)
    explained = kernels.squared_norms(K @ function.uncertainty).astype(np.float64)
    return mean, np.maximum(kernels.diagonal(function.kernel) - explained, 0.0)


def latent_means(function: HashFunction, X: Floats, n_jobs: int | None = 1) -> Floats:
    """Predictive means of the latent functions, float32 [n, m]; their signs are the bits."""
    return _by_tiles(lambda K: K @ function.weights, function, X, n_jobs)


def bits(function: HashFunction, X: Floats, n_jobs: int | None = 1) -> NDArray[np.uint8]:
    """Codes as 0/1, [n, m]."""
    return (latent_means(function, X, n_jobs) >= 0).astype(np.uint8)


def encode(function: HashFunction, X: Floats, n_jobs: int | None = 1) -> NDArray[np.uint8]:
    """Packed codes, [n, ⌈m/8⌉]."""
    return packing.pack(bits(function, X, n_jobs))


def probabilities(function: HashFunction, X: Floats, n_jobs: int | None = 1) -> Floats:
    """P(bit = 1), float64 [n, m]."""

    def chance(K: Floats) -> Floats:
        mean, variance = _predict(function, K)
        probability: Floats = ndtr(mean / np.sqrt(1 + variance)[:, None])
        return probability

    return _by_tiles(chance, function, X, n_jobs)


def _by_tiles(predict: Callable[[Floats], Floats], function: HashFunction, X: Floats, n_jobs: int | None) -> Floats:
    """Apply `predict` to the kernel values of X tile by tile."""

    def tile(rows: slice) -> Floats:
        scaled = scaling.apply(function.scaling, X[rows])
        count = len(scaled)
        # BLAS treats the last few rows of a matrix differently, in the last digit. With only full groups of rows, the code of a
        # row never depends on which rows it is encoded with.
        if spare := -count % ROWS_ALIGNED:
            scaled = np.concatenate([scaled, np.zeros((spare, scaled.shape[1]), scaled.dtype)])
        return predict(kernels.cross(function.kernel, scaled, function.Z))[:count]

    tiles = row_blocks(len(X), TILE)
    with LocalExecutor(n_jobs if len(tiles) > 1 else 1) as executor:
        return np.concatenate(list(executor.collect(tile, tiles)))
