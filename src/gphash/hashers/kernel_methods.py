"""Kernel hash functions, sign(k(x, Z) w + c): what the methods that learn one have in common, and the simplest.

They take the inducing inputs and the kernel of `GPHasher`, and choose their width (and the strength of their ridge) on
training rows alone, on a sample, by cross-validation of retrieval.

Kernelised locality-sensitive hashing (Kulis and Grauman, 2009) draws random hyperplanes in the kernel's feature space.
The mean of t random landmarks, whitened by the covariance of all p of them, is next to a Gaussian direction:

    K_c = H K H,   H = I − 1 1ᵀ/p,   w = K_c^{−1/2} e_S,   bit = sign(k_c(x) w)

e_S marks the t landmarks drawn for the bit. A row is centred as the landmarks are, k_c(x) = (k(x, Z) − k̄) H with k̄ the
mean of K's rows, so that the bit is the sign of k(x, Z) H w − k̄ H w: a kernel expansion with an offset.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats, Indices
from gphash.data.blocks import ArrayTable
from gphash.execution.local import Executor, SerialExecutor, row_blocks
from gphash.hashers import validation
from gphash.hashers.contract import Hasher
from gphash.method import inducing, kernels, scaling, selection
from gphash.method.hashing import HashFunction
from gphash.method.kernels import SquaredExponential
from gphash.schema import Maybe, Number, Rule

BLOCK = 2048
FOLDS = 3
MOST_MARKED = 30  # t
NOTHING = 1e-8  # of the largest eigenvalue


class Teaching(NamedTuple):
    """What a method learns its bits from, and with; K are kernel values with the inducing inputs, float32 [n, r]."""

    K: Floats
    supervision: Any
    ridge: float
    generator: np.random.Generator
    executor: Executor
    choosing: bool = False  # only to choose a length scale or ridge, so that haste does no harm


class Blocked:
    """Kernel values K, [n, r], and products with them by blocks of so many rows, in the precision of K."""

    def __init__(self, K: Floats, block: int, executor: Executor) -> None:
        self.K, self.executor, self.blocks = K, executor, row_blocks(len(K), block)

    def times(self, a: Floats) -> Floats:
        """K a, [n] or [n, m], as float64."""
        small = a.astype(self.K.dtype)
        parts = self.executor.collect(lambda rows: self.K[rows] @ small, self.blocks)
        return np.concatenate(list(parts)).astype(np.float64)

    def transposed(self, u: Floats) -> Floats:
        """Kᵀ u, [r] or [r, m]."""
        small = u.astype(self.K.dtype)
        return self.executor.sum(lambda rows: (self.K[rows].T @ small[rows],), self.blocks)[0]

    def moments(self) -> tuple[Floats, ...]:
        """Kᵀ K, [r, r], and the sums of the columns, [r]."""
        K = self.K
        return self.executor.sum(lambda rows: (K[rows].T @ K[rows], K[rows].sum(axis=0, dtype=np.float64)), self.blocks)


C = TypeVar("C")


def best(candidates: list[C], qualities: list[float]) -> C:
    """The candidate of the highest quality; the one in the middle, with a warning, if no quality is known."""
    if np.isnan(qualities).all():
        words = "the sample of rows has no similar ones, so length_scale and ridge could not be chosen."
        warnings.warn(words, UserWarning, stacklevel=6)
        return candidates[len(candidates) // 2]
    return candidates[int(np.nanargmax(qualities))]


def known_mean(qualities: Iterable[float]) -> float:
    """The mean of those that are known, NaN if none is."""
    return float(np.mean([one for one in qualities if not np.isnan(one)] or [np.nan]))


@dataclass(kw_only=True, eq=False, repr=False)
class KernelHasher(Hasher):
    """A method whose bits are the signs of kernel expansions; it learns them in `_bits`.

    The parameters are those of `Hasher`, and

    Parameters
    ----------
    n_inducing : int
        Number of inducing inputs ("anchors"), r.
    inducing : {"kmeans", "random"}
        Inducing inputs are k-means centres, or random rows.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    length_scale : float or "auto"
        ℓ of the squared-exponential kernel; "auto" chooses it by cross-validated retrieval on a sample of rows.

    Attributes
    ----------
    length_scale_ : float
        As given or as chosen.
    """

    RIDGES: ClassVar[tuple[float, ...]] = (0.0,)  # penalties on the weights that "auto" tries
    SAMPLE: ClassVar[int] = selection.SAMPLE  # rows and inducing inputs that choices are made with
    INDUCING: ClassVar[int] = selection.INDUCING
    LEARNED: ClassVar[Mapping[str, Rule]] = {"length_scale_": Maybe(Number())}

    n_inducing: int = validation.whole(1000)
    inducing: str = validation.one_of(*inducing.CHOICES)
    scaling: str = validation.one_of("unit", "centre")
    length_scale: float | str = validation.positive_or_auto()

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        generator = np.random.default_rng(seed)
        scaled = scaling.fit(X, self.scaling == "unit")
        Z = inducing.choose(ArrayTable(X), scaled, self.n_inducing, self.inducing, generator, executor)
        if (rows := self._rows(supervision, generator)) is not None:
            X, supervision = X[rows], supervision.among(rows)
        X = scaling.apply(scaled, X)
        length_scale, ridge = self._choose(X, supervision, Z, seed, executor)
        kernel = SquaredExponential(length_scale, 1.0)
        K = self._values(kernel, Z, X, executor)
        weights, offset = self._bits(Teaching(K, supervision, ridge, np.random.default_rng(seed), executor))
        function = HashFunction(scaled, kernel, Z, weights.astype(np.float32), offset.astype(np.float64))
        learned = {"hash_function_": function, "length_scale_": length_scale}
        return learned | ({"ridge_": ridge} if "ridge_" in self.LEARNED else {})

    def _rows(self, supervision: Any, generator: np.random.Generator) -> Indices | None:
        """Rows to learn from; None for all."""
        return None

    def _choose(self, X: Floats, supervision: Any, Z: Floats, seed: int, executor: Executor) -> tuple[float, float]:
        """ℓ and ridge with the best cross-validated retrieval on a sample of scaled rows; what is given is kept."""
        generator = np.random.default_rng([seed, 11])
        some = supervision.order(generator, selection.SAMPLE)[: self.SAMPLE]
        few = np.sort(generator.choice(len(Z), min(self.INDUCING, len(Z)), replace=False))
        ridge: Any = getattr(self, "ridge", "auto")
        lengths, ridges = [self.length_scale], self.RIDGES if ridge == "auto" else (ridge,)
        if self.length_scale == "auto":
            distance = kernels.median_distance(X[some])
            lengths = [distance * factor for factor in SquaredExponential.LENGTH_SCALES]
        candidates = [(float(length), float(ridge)) for length, ridge in product(lengths, ridges)]
        if len(candidates) == 1:
            return candidates[0]
        about = supervision.among(some)

        def quality(length_scale: float, ridge: float) -> float:
            K = self._values(SquaredExponential(length_scale, 1.0), Z[few], X[some], SerialExecutor())
            return self._validate(K, about, ridge, seed)

        return best(candidates, list(executor.collect(quality, *zip(*candidates, strict=True))))

    def _validate(self, K: Floats, supervision: Any, ridge: float, seed: int) -> float:
        """Retrieval among rows, or order of pairs, that were held out: the mean over folds."""
        return known_mean(selection.quality(judge, held) for _, held, judge in self._folds(K, supervision, ridge, seed))

    def _folds(self, K: Floats, supervision: Any, ridge: float, seed: int) -> Iterator[tuple[Floats, Floats, Any]]:
        """Margins of the rows learned from, margins of those held out, and the judge of these, for every fold."""
        generator = np.random.default_rng([seed, 12])
        for fold in range(FOLDS if supervision.complete else 1):
            kept, taught, judged, judge = supervision.hold_out(np.arange(len(K)) % FOLDS == fold, seed)
            weights, offset = self._bits(Teaching(K[kept], taught, ridge, generator, SerialExecutor(), True))
            yield K[kept] @ weights + offset, K[judged] @ weights + offset, judge

    def _values(self, kernel: SquaredExponential, Z: Floats, X: Floats, executor: Executor) -> Floats:
        """Kernel values to learn from: those of scaled rows with the inducing inputs, [n, r]."""
        landmarks = kernel.landmarks(Z.astype(X.dtype))
        K = np.empty((len(X), len(Z)), X.dtype)

        def fill(rows: slice) -> None:
            K[rows] = kernel.evaluate(landmarks, X[rows])

        list(executor.collect(fill, row_blocks(len(X), BLOCK)))
        return K

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        """Weights [r, m] and offset [m]."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, repr=False)
class KLSH(KernelHasher):
    """Kernelised locality-sensitive hashing: every bit is the side of a random hyperplane in the kernel's space.

    Learns from X alone. The parameters are those of `KernelHasher`, the landmarks being the inducing inputs: by default
    few random rows, as the theory assumes. "auto" takes the median distance between rows for the length scale.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    n_inducing: int = validation.whole(300)
    inducing: str = validation.one_of("random", "kmeans")

    def _choose(self, X: Floats, supervision: Any, Z: Floats, seed: int, executor: Executor) -> tuple[float, float]:
        if self.length_scale != "auto":
            return float(self.length_scale), 0.0
        some = np.random.default_rng([seed, 11]).permutation(len(X))[: selection.SAMPLE]
        return kernels.median_distance(X[some]), 0.0

    def _values(self, kernel: SquaredExponential, Z: Floats, X: Floats, executor: Executor) -> Floats:
        return kernel.gram(Z.astype(np.float64))

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        return random_hyperplanes(given.K, self.n_bits, given.generator)


def random_hyperplanes(K: Floats, n_bits: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights [p, m] and offset [m], from kernel values of the landmarks with each other, [p, p]."""
    p = len(K)
    means = K.mean(axis=0)
    centred = K - means - means[:, None] + means.mean()
    variances, axes = scipy.linalg.eigh(centred, check_finite=False)
    kept = variances > max(NOTHING * variances[-1], 0.0)
    root = axes[:, kept] / np.sqrt(variances[kept]) @ axes[:, kept].T
    n_marked = max(1, min(p // 4, MOST_MARKED))
    marked = np.zeros((p, n_bits))
    for bit in range(n_bits):
        marked[generator.choice(p, n_marked, replace=False), bit] = 1.0
    weights = root @ marked
    weights -= weights.mean(axis=0)
    # As encoding has them: what rounding takes from the weights must not unbalance the offset.
    rounded = weights.astype(np.float32).astype(np.float64)
    return rounded, -means @ rounded
