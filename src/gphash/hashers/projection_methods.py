"""Methods that look at scaled rows from some directions: sides of hyperplanes, sign(x W + c), and standing waves.

Principal component hashing takes the signs of the first m principal components. With the mean μ of the scaled rows,

    C = (1/n) Σ (x − μ)(x − μ)ᵀ,   C W = W diag(variances),   bits = sign((x − μ) W)

Iterative quantisation (Gong and Lazebnik, 2011) rotates these, V, towards the corners of a cube, by turns for B and R:

    min over B ∈ {−1, 1}, R orthogonal of ‖B − V R‖²:   B = sign(V R),   R = Q Pᵀ with Bᵀ V = P S Qᵀ

With labels or tags, whose indicators are Y, canonical variates take the place of principal components, each direction
counting as much as it has to do with Y (C are covariances, ρ canonical correlations):

    C_xy (C_yy + r_y I)⁻¹ C_yx w = ρ² (C_xx + r_x I) w,   V = X (ρ_1 w_1, …, ρ_m w_m),   bits = sign(V R)

The regularisers are 10⁻⁴ of the mean variance of a column, so that neither the unit of the features nor the number of
rows matters. Y has few directions: of c classes, c − 1. The other columns of V are zero, and the rotation spreads the
few over all the bits.

Spectral hashing (Weiss, Torralba, Fergus, 2008): on rows spread evenly over a box with edges R_i, the smoothest codes
are signs of the eigenfunctions of the Laplacian,

    cos(k π (v_i − a_i) / R_i)   with eigenvalue (k π / R_i)²,   k = 1, 2, …

v are principal components, a and R the minimum and the range of each over the training rows. The m waves of smallest
eigenvalue, of one component each, are the bits: a long component gets several.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats, Indices
from gphash.execution.local import Executor
from gphash.functions.model import Function
from gphash.functions.projections import LinearFunction, SinusoidFunction
from gphash.hashers import validation
from gphash.hashers.contract import Hasher
from gphash.method import scaling, words
from gphash.method.scaling import Scaling
from gphash.supervision import similarity

ITERATIONS = 50
REGULARISER = 1e-4  # of the mean variance
UNRELATED = 1e-6  # a correlation that is none but for rounding
FLAT = 1e-10  # of the longest row: a range that is none but for rounding


@dataclass(kw_only=True, eq=False, repr=False)
class LinearHasher(Hasher):
    """A method that looks at scaled rows from some directions, which it learns in `_directions`.

    The parameters are those of `Hasher`, and

    Parameters
    ----------
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    """

    scaling: str = validation.one_of("unit", "centre")

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        scaled = scaling.fit(X, self.scaling == "unit")
        rows = scaling.apply(scaled, X, np.float64)
        return {"hash_function_": self._function(scaled, rows, supervision, np.random.default_rng(seed))}

    def _function(self, scaled: Scaling, X: Floats, supervision: Any, generator: np.random.Generator) -> Function:
        """The hash function, from scaled rows [n, d]: by default hyperplanes."""
        weights, offset = self._directions(X, supervision, generator)
        return LinearFunction(scaled, np.ascontiguousarray(weights), offset)

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Weights [d, m] and offset [m], from scaled rows [n, d]."""
        raise NotImplementedError

    def _restrict_bits(self, X: Floats) -> None:
        """Refuse more bits than the features have directions."""
        if self.n_bits > X.shape[1]:
            raise ValueError(f"n_bits={self.n_bits}, but X has {X.shape[1]} feature(s); give at most as many bits.")


class LSH(LinearHasher):
    """Locality-sensitive hashing (Charikar, 2002): every bit is the side of a random hyperplane that a row is on.

    Learns from X alone, and only its mean; what every learned code has to beat. The parameters are those of
    `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        return generator.standard_normal((X.shape[1], self.n_bits)), np.zeros(self.n_bits)


class PCAH(LinearHasher):
    """Principal component hashing: every bit is the sign of a principal component. Learns from X alone.

    At most as many bits as X has features. The parameters are those of `LinearHasher`; nothing is random.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        self._restrict_bits(X)
        return principal_components(X, self.n_bits)


class ITQ(LinearHasher):
    """Iterative quantisation: the signs of principal components after a rotation that loses least by taking signs.

    Learns from X alone. At most as many bits as X has features. The parameters are those of `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        self._restrict_bits(X)
        return rotated(X, *principal_components(X, self.n_bits), generator)


class CCAITQ(LinearHasher):
    """Iterative quantisation of the directions of X that correlate with Y. Learns from labels or tags.

    At most as many bits as X has features; warns if there are more than directions that correlate. The parameters are
    those of `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags")

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        self._restrict_bits(X)
        directions, correlations = canonical_directions(X, similarity.indicators(supervision))
        useful = min(int((correlations > UNRELATED).sum()), self.n_bits)
        if useful < self.n_bits:
            words = f"n_bits={self.n_bits}, but only {useful} directions of X correlate with y; bits share them."
            warnings.warn(words, UserWarning, stacklevel=6)  # at whoever called fit
        W = np.zeros((X.shape[1], self.n_bits))
        W[:, :useful] = directions[:, :useful] * correlations[:useful]
        return rotated(X, W, -X.mean(axis=0) @ W, generator)


class SpectralHashing(LinearHasher):
    """Spectral hashing: every bit is the sign of a standing wave along a principal component. Learns from X alone.

    The parameters are those of `LinearHasher`; nothing is random.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _function(self, scaled: Scaling, X: Floats, supervision: Any, generator: np.random.Generator) -> Function:
        directions, _ = principal_components(X, min(self.n_bits, X.shape[1]))
        components = X @ directions
        least, extent = components.min(axis=0), np.ptp(components, axis=0)
        wide = extent > FLAT * np.sqrt(np.square(X).sum(axis=1).max())
        if not wide.any():
            raise ValueError("X has rows that are all the same once scaled, and no wave can tell them apart.")
        modes = smoothest_waves(extent[wide], self.n_bits)
        return SinusoidFunction(scaled, np.ascontiguousarray(directions[:, wide]), least[wide], extent[wide], *modes)


def principal_components(X: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Weights W [d, c] and offset [c] of the first principal components X W + offset, by falling variance."""
    mean, C = moments(X)
    d = len(C)
    _, axes = scipy.linalg.eigh(C, subset_by_index=[d - n_components, d - 1], check_finite=False)
    W = orient(axes[:, ::-1])
    return W, -mean @ W


def moments(X: Floats) -> tuple[Floats, Floats]:
    """Mean [d] and covariance [d, d] of rows that are nearly centred, without a centred copy of them."""
    mean = X.mean(axis=0)
    return mean, X.T @ X / len(X) - np.outer(mean, mean)


def orient(W: Floats) -> Floats:
    """The same directions [d, c], each with its largest weight positive: eigenvectors have no sign of their own."""
    largest = W[np.abs(W).argmax(axis=0), np.arange(W.shape[1])]
    return W * np.where(largest < 0, -1.0, 1.0)


def rotated(X: Floats, W: Floats, offset: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Directions and offset turned so that taking signs loses least."""
    R = rotation(X @ W + offset, generator)
    return W @ R, offset @ R


def rotation(
    V: Floats, generator: np.random.Generator, iterations: int = ITERATIONS, n_bits: int | None = None
) -> Floats:
    """The rotation R [k, m] from a random start that brings rows V R, [n, m], near to codes of ±1.

    If there are more bits than columns of V, [n, k], R has orthonormal rows: the rotation of V with columns of zeros.
    """
    k, m = V.shape[1], n_bits or V.shape[1]
    R: Floats = scipy.linalg.svd(generator.standard_normal((m, m)), check_finite=False)[0][:k]
    return words.rotated(V, R, iterations)


def canonical_directions(X: Floats, Y: Floats) -> tuple[Floats, Floats]:
    """Directions w of X [d, min(d, c)], of unit regularised variance, and their correlations with Y, [n, c], falling.

    With C_xx + r_x I = L Lᵀ and C_yy + r_y I = M Mᵀ, the correlations are the singular values of L⁻¹ C_xy M⁻ᵀ.
    """
    x_mean, C_xx = moments(X)
    y_mean, C_yy = moments(Y)
    C_xy = X.T @ Y / len(X) - np.outer(x_mean, y_mean)
    L, M = _factor(C_xx), _factor(C_yy)
    solve = partial(scipy.linalg.solve_triangular, lower=True, check_finite=False)
    left, correlations, _ = scipy.linalg.svd(solve(M, solve(L, C_xy).T).T, full_matrices=False, check_finite=False)
    return orient(solve(L, left, trans="T")), correlations


def _factor(C: Floats) -> Floats:
    """Cholesky factor of a regularised covariance."""
    variance = float(np.trace(C)) / len(C)
    regularised = C + REGULARISER * (variance if variance > 0 else 1.0) * np.eye(len(C))
    lower: Floats = scipy.linalg.cholesky(regularised, lower=True, check_finite=False)
    return lower


def smoothest_waves(extent: Floats, n_waves: int) -> tuple[Indices, Indices]:
    """Dimension and frequency of the waves of smallest eigenvalue in a box, [m] each; longer edges first on a tie."""
    # The longest edge alone has m waves, so that no frequency above m can be among the smallest.
    frequency = np.arange(1, n_waves + 1)
    roots = frequency / extent[:, None]
    first = np.argsort(roots, axis=None, kind="stable")[:n_waves]
    dimension, place = np.unravel_index(first, roots.shape)
    return dimension.astype(np.int64), frequency[place].astype(np.int64)
