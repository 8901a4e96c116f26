"""Kernel hash functions, sign(k(x, Z) w + c), and what the methods that learn one have in common.

They take the inducing inputs and the kernel of `GPHasher`, and choose their width (and, if they have one, the strength
of their ridge) as it does: on training rows alone, on a sample of the same size with as many inducing inputs, by
cross-validation of retrieval.
"""

import warnings
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from gphash import kernels, selection, validation
from gphash.arrays import Floats
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.contract import Hasher
from gphash.datasets.blocks import ArrayTable
from gphash.execution.local import Executor, LocalExecutor, SerialExecutor, count_jobs, row_blocks
from gphash.features import inducing, scaling
from gphash.functions.kernel import HashFunction
from gphash.gp import triangular
from gphash.kernels import SquaredExponential
from gphash.schema import Number, Record

BLOCK = 2048
FOLDS = 3


class Choice(NamedTuple):
    """What is chosen on a sample.

    length_scale
        ℓ of the kernel.
    ridge
        Penalty on the weights; 0 for methods without.
    """

    length_scale: float
    ridge: float


class KernelHasher(Hasher):
    """A method whose bits are the signs of kernel expansions; it learns them in `_bits`.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    n_inducing : int
        Number of inducing inputs ("anchors"), r.
    inducing : {"kmeans", "random"}
        Inducing inputs are k-means centres, or random rows.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    length_scale : float or "auto"
        ℓ of the squared-exponential kernel; "auto" chooses it by cross-validated retrieval on a sample of rows.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        Seed of everything random.

    Attributes
    ----------
    hash_function_ : HashFunction
        All that encoding needs.
    length_scale_ : float
        As given or as chosen.
    """

    RIDGES: ClassVar[tuple[float, ...]] = (0.0,)
    """Penalties on the weights that "auto" tries."""

    SAMPLE: ClassVar[int] = selection.SAMPLE
    INDUCING: ClassVar[int] = selection.INDUCING
    """Rows and inducing inputs that choices are made with."""

    hash_function_: HashFunction

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_inducing: int = 1000,
        inducing: str = "kmeans",
        scaling: str = "unit",
        length_scale: float | str = "auto",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.scaling = scaling
        self.length_scale = length_scale
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        self._check()
        seed = validation.seed(self.random_state)
        generator = np.random.default_rng(seed)
        features = validation.features(self, X, reset=True)
        supervision = self._supervision(y, len(features), balance_pairs=True) if self.takes else None
        scaled = scaling.fit(features, self.scaling == "unit")
        with LocalExecutor(self.n_jobs) as executor:
            Z = inducing.choose(ArrayTable(features), scaled, self.n_inducing, self.inducing, generator, executor)
            rows = self._rows(features, supervision, generator)
            part = features if rows is None else features[rows]
            about = supervision if rows is None else _select(supervision, rows)
            X_scaled = scaling.apply(scaled, part)
            choice = self._choose(X_scaled, about, Z, seed, executor)
            kernel = SquaredExponential(choice.length_scale, 1.0)
            weights, offset = self._expand(
                kernel, Z, X_scaled, about, choice.ridge, np.random.default_rng(seed), executor
            )
        function = HashFunction(scaled, kernel, Z, weights.astype(np.float32), offset.astype(np.float64))
        learned = {"hash_function_": function, "length_scale_": choice.length_scale}
        return learned | ({"ridge_": choice.ridge} if len(self.RIDGES) > 1 else {})

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        validation.whole_number("n_inducing", self.n_inducing)
        validation.one_of("inducing", self.inducing, inducing.CHOICES)
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        validation.positive_or_auto("length_scale", self.length_scale, 1e-6, 1e6)
        if len(self.RIDGES) > 1:
            validation.positive_or_auto("ridge", self.ridge, 1e-12, 1e12)
        count_jobs(self.n_jobs)

    def _rows(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> NDArray[np.int64] | None:
        """Rows to learn from; None for all."""
        return None

    def _choose(
        self, X: Floats, supervision: Signatures | PairGraph | None, Z: Floats, seed: int, executor: Executor
    ) -> Choice:
        """Width and ridge with the best cross-validated retrieval on a sample of scaled rows; what is given is kept."""
        assert supervision is not None
        generator = np.random.default_rng([seed, 11])
        order = selection.draw_order(supervision, len(X), generator)
        some = order[: self.SAMPLE]
        few = np.sort(generator.choice(len(Z), min(self.INDUCING, len(Z)), replace=False))
        given = self.length_scale, getattr(self, "ridge", "auto")
        distance = selection.median_distance(X[some])
        lengths = [distance * factor for factor in selection.LENGTH_SCALES] if given[0] == "auto" else [given[0]]
        ridges = self.RIDGES if given[1] == "auto" else [given[1]]
        candidates = [Choice(float(length), float(ridge)) for length, ridge in product(lengths, ridges)]
        if len(candidates) == 1:
            return candidates[0]
        about = _select(supervision, some)

        def quality(choice: Choice) -> float:
            K = features_of(SquaredExponential(choice.length_scale, 1.0), Z[few], X[some], SerialExecutor())
            return self._validate(K, about, choice.ridge, seed)

        qualities = list(executor.collect(quality, candidates))
        if np.isnan(qualities).all():
            warnings.warn(
                "no sample of rows holds similar ones, so that length_scale (and ridge) could not be chosen; "
                "the middle of the candidates is taken.",
                UserWarning,
                stacklevel=4,
            )
            return candidates[len(candidates) // 2]
        return candidates[int(np.nanargmax(qualities))]

    def _validate(self, K: Floats, supervision: Signatures | PairGraph, ridge: float, seed: int) -> float:
        """Retrieval among rows, or order of pairs, that were held out: the mean over folds."""
        generator = np.random.default_rng([seed, 12])
        if isinstance(supervision, PairGraph):
            kept, judge = selection.hold_out_pairs(supervision, seed)
            weights, offset = self._bits(K, kept, ridge, generator, SerialExecutor())
            return selection.separation(np.where(K @ weights + offset >= 0, 1, -1).astype(np.int8), judge)
        found = []
        for fold in range(FOLDS):
            held = np.arange(len(K)) % FOLDS == fold
            weights, offset = self._bits(K[~held], supervision[~held], ridge, generator, SerialExecutor())
            found.append(selection.retrieval(K[held] @ weights + offset, supervision[held]))
        return float(np.mean([one for one in found if not np.isnan(one)] or [np.nan]))

    def _expand(
        self,
        kernel: SquaredExponential,
        Z: Floats,
        X: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        """Weights [r, m] and offset [m], from scaled rows [n, d]: by default `_bits` of their kernel values."""
        return self._bits(features_of(kernel, Z, X, executor), supervision, ridge, generator, executor)

    def _bits(
        self,
        K: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        """Weights [r, m] and offset [m], from kernel values with the inducing inputs, float32 [n, r]."""
        raise NotImplementedError

    LEARNED: ClassVar[Record] = Record(
        {"length_scale_": Number(), "ridge_": Number(0)}, optional=("length_scale_", "ridge_")
    )

    def _remarks(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("length_scale_", "ridge_") if hasattr(self, name)}


def features_of(kernel: SquaredExponential, Z: Floats, X: Floats, executor: Executor) -> Floats:
    """Kernel values of scaled rows with the inducing inputs, [n, r]."""
    landmarks = kernels.landmarks(kernel, Z.astype(X.dtype))
    K = np.empty((len(X), len(Z)), X.dtype)

    def fill(rows: slice) -> None:
        K[rows] = kernels.evaluate(landmarks, X[rows])

    list(executor.collect(fill, row_blocks(len(X), BLOCK)))
    return K


class Ridge(NamedTuple):
    """Least squares on kernel values and a constant, factored once for many right-hand sides.

    K
        Kernel values, [n, r].
    lower
        Cholesky factor of [K 1]ᵀ[K 1] + ridge, [r + 1, r + 1].
    """

    K: Floats
    lower: Floats

    def solve(self, targets: Floats, executor: Executor) -> tuple[Floats, Floats]:
        """Weights [r, m] and offset [m] whose predictions are nearest to the targets, [n, m]."""
        blocks = row_blocks(len(self.K), BLOCK)
        products, sums = executor.sum(
            lambda rows: (self.K[rows].T @ targets[rows].astype(self.K.dtype), targets[rows].sum(axis=0)), blocks
        )
        right = np.vstack([products, sums])
        solved: Floats = scipy.linalg.cho_solve((self.lower, True), right, check_finite=False)
        return solved[:-1], solved[-1]

    def predict(self, weights: Floats, offset: Floats, executor: Executor) -> Floats:
        """Predictions for the rows themselves, [n, m]."""
        small = weights.astype(self.K.dtype)
        blocks = row_blocks(len(self.K), BLOCK)
        return np.concatenate(list(executor.collect(lambda rows: self.K[rows] @ small, blocks))) + offset


def prepare_ridge(K: Floats, ridge: float, executor: Executor) -> Ridge:
    """Factor the normal equations; the penalty holds for the constant as well."""
    blocks = row_blocks(len(K), BLOCK)
    gram, sums = executor.sum(lambda rows: (K[rows].T @ K[rows], K[rows].sum(axis=0, dtype=np.float64)), blocks)
    normal = np.block([[gram, sums[:, None]], [sums[None, :], np.full((1, 1), float(len(K)))]])
    normal[np.diag_indices_from(normal)] += ridge
    return Ridge(K, triangular.cholesky(normal)[0])


def _select(supervision: Signatures | PairGraph | None, rows: NDArray[np.int64]) -> Any:
    """Supervision of some rows, renumbered."""
    if supervision is None or isinstance(supervision, Signatures):
        return None if supervision is None else supervision[rows]
    return similarity.among(supervision, rows)
