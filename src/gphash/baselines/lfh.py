"""Latent factor hashing (Zhang, Zhang, Li, Guo, 2014).

Every row has a latent vector u, and

    P(rows i and l are similar) = σ(θ),   θ = uᵢᵀ uₗ / 2,   u ~ N(0, β I)

Since σ' ≤ ¼, the log posterior as a function of one row has a quadratic bound from below, and its maximum is a step of
Newton's method with a bounded Hessian, here for all rows at once, against a few rows Ω drawn anew every time:

    U ← U − G H⁻¹,   G = (S_Ω − σ(U U_Ωᵀ / 2)) U_Ω − U / β,   H = −U_Ωᵀ U_Ω / 8 − I / β

With judged pairs, a row steps against its own partners, by a Hessian of its own; these are few, so that the prior has
to hold vectors together (β is smaller). The signs of U are the codes, and ridge regression predicts those of new rows.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from gphash import selection, validation
from gphash.arrays import Floats, Indices
from gphash.baselines.kernel import BLOCK, KernelHasher, prepare_ridge
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.compiled import jit
from gphash.execution.local import Executor, LocalExecutor, row_blocks
from gphash.features import scaling
from gphash.functions.linear import LinearFunction

FEATURES = ("kernel", "linear")
PRIOR_VARIANCE = 30.0  # β
PAIRS_PRIOR_VARIANCE = 0.3  # β for judged pairs: with 30, ten or twenty partners per row leave codes at random
ITERATIONS = 50
COLUMNS = 64  # rows in Ω


class LFH(KernelHasher):
    """Latent factor hashing: codes from a logistic model of which rows are similar.

    The parameters are those of `KernelHasher`, and

    Parameters
    ----------
    features : {"kernel", "linear"}
        What predicts the codes of new rows: kernel values with the inducing inputs, or the scaled features themselves;
        then the parameters of inducing inputs and kernel are not used.
    ridge : float or "auto"
        Penalty of the regression from features to codes; "auto" chooses it together with the length scale.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")
    RIDGES: ClassVar[tuple[float, ...]] = (1e-3, 1e-2, 1e-1, 1.0)
    # A ridge that suits few rows and inducing inputs does not suit many.
    SAMPLE: ClassVar[int] = 5000
    INDUCING: ClassVar[int] = 1000

    hash_function_: Any

    def __init__(
        self,
        n_bits: int = 16,
        *,
        features: str = "kernel",
        n_inducing: int = 1000,
        inducing: str = "kmeans",
        scaling: str = "unit",
        length_scale: float | str = "auto",
        ridge: float | str = "auto",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_bits,
            n_inducing=n_inducing,
            inducing=inducing,
            scaling=scaling,
            length_scale=length_scale,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.features = features
        self.ridge = ridge

    def _check(self) -> None:
        super()._check()
        validation.one_of("features", self.features, FEATURES)

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        self._check()
        if self.features == "kernel":
            return super()._learn(X, y)
        seed = validation.seed(self.random_state)
        rows = validation.features(self, X, reset=True)
        supervision = self._supervision(y, len(rows), balance_pairs=True)
        scaled = scaling.fit(rows, self.scaling == "unit")
        X_scaled = scaling.apply(scaled, rows)
        with LocalExecutor(self.n_jobs) as executor:
            ridge = self._choose_ridge(X_scaled, supervision, seed, executor)
            weights, offset = self._bits(X_scaled, supervision, ridge, np.random.default_rng(seed), executor)
        function = LinearFunction(scaled, np.ascontiguousarray(weights, np.float64), offset.astype(np.float64))
        return {"hash_function_": function, "ridge_": ridge}

    def _choose_ridge(self, X: Floats, supervision: Signatures | PairGraph, seed: int, executor: Executor) -> float:
        """The ridge with the best cross-validated retrieval on a sample of scaled rows, unless it is given."""
        if self.ridge != "auto":
            return float(self.ridge)
        some = selection.draw_order(supervision, len(X), np.random.default_rng([seed, 11]))[: self.SAMPLE]
        about = similarity.among(supervision, some) if isinstance(supervision, PairGraph) else supervision[some]
        qualities = list(executor.collect(lambda ridge: self._validate(X[some], about, ridge, seed), self.RIDGES))
        return self.RIDGES[int(np.argmax(qualities))]

    def _bits(
        self,
        K: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        assert supervision is not None
        if isinstance(supervision, PairGraph):
            # The other rows have no code to predict.
            named = np.flatnonzero(np.diff(supervision.offsets))
            if len(named) < len(K):
                K, supervision = K[named], similarity.among(supervision, named)
        U = latent(supervision, len(K), self.n_bits, generator, executor)
        return prepare_ridge(K, ridge, executor).solve(np.where(U >= 0, 1.0, -1.0), executor)


def latent(
    supervision: Signatures | PairGraph, n_rows: int, n_bits: int, generator: np.random.Generator, executor: Executor
) -> Floats:
    """Latent vectors of all rows, float32 [n, m]."""
    U = generator.standard_normal((n_rows, n_bits), dtype=np.float32)
    blocks = row_blocks(n_rows, BLOCK)
    for _ in range(ITERATIONS):
        if isinstance(supervision, PairGraph):
            graph, before = supervision, U
            stepped = executor.collect(lambda rows: step_by_pairs(before, graph, rows), blocks)  # noqa: B023
        else:
            about, before = supervision, U
            columns = np.sort(generator.choice(n_rows, min(COLUMNS, n_rows), replace=False))
            stepped = executor.collect(lambda rows: step(before, about, columns, rows), blocks)  # noqa: B023
        U = np.concatenate(list(stepped))
    return U


def step(U: Floats, signatures: Signatures, columns: Indices, rows: slice) -> Floats:
    """One step of some rows against those in `columns`, leaving out each against itself, [b, m]."""
    mine, theirs = U[rows], U[columns]
    error = similarity.alike(signatures[rows], signatures[columns]) - expit(mine @ theirs.T / 2)
    inside = (columns >= rows.start) & (columns < rows.stop)
    error[columns[inside] - rows.start, inside] = 0
    gradient = error @ theirs - mine / PRIOR_VARIANCE
    curvature = theirs.T @ theirs / 8 + np.eye(U.shape[1], dtype=U.dtype) / PRIOR_VARIANCE
    return mine + np.linalg.solve(curvature, gradient.T).T


def step_by_pairs(U: Floats, graph: PairGraph, rows: slice) -> Floats:
    """One step of some rows against their partners, [b, m]."""
    mine = U[rows]
    gradient, curvature = _sums(U, graph.offsets, graph.partners, graph.similar, graph.weights, rows.start, rows.stop)
    gradient -= mine / PAIRS_PRIOR_VARIANCE
    curvature += np.eye(U.shape[1]) / PAIRS_PRIOR_VARIANCE
    return np.asarray(mine + np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0], dtype=U.dtype)


@jit
def _sums(U: Any, offsets: Any, partners: Any, similar: Any, weights: Any, start: int, stop: int) -> Any:
    """Gradients, [b, m], and curvatures, [b, m, m], of the likelihood of rows from `start` to `stop`."""
    n_bits = U.shape[1]
    gradient = np.zeros((stop - start, n_bits))
    curvature = np.zeros((stop - start, n_bits, n_bits))
    for i in range(start, stop):
        for p in range(offsets[i], offsets[i + 1]):
            partner = partners[p]
            theta = 0.0
            for j in range(n_bits):
                theta += U[i, j] * U[partner, j]
            error = weights[p] * (similar[p] - 1 / (1 + np.exp(-theta / 2)))
            for j in range(n_bits):
                gradient[i - start, j] += error * U[partner, j]
                scaled = weights[p] / 8 * U[partner, j]
                for k in range(n_bits):
                    curvature[i - start, j, k] += scaled * U[partner, k]
    return gradient, curvature
