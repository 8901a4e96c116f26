"""Methods that find codes for the training rows first, and then predict them by kernel ridge regression.

Supervised discrete hashing (Shen, Shen, Liu, Shen, 2015), with the squared loss:

    min over B ∈ {−1, 1}, W, P of ‖Y − B W‖² + λ ‖W‖² + ν ‖B − K P‖²

Y are indicators of classes or tags, and K are kernel values and a constant. W and P are least squares; a column of B
has a closed form given the others (discrete cyclic coordinate descent):

    B_k = sign(Q_k − B_{−k} W_{−k} w_k),   Q = ν K P + Y Wᵀ

With the small ν of the authors B is next to a function of Y, and the last P is a ridge regression on it. Most of what
this gains on class labels, fixed code words have already: rows of a Hadamard matrix, cut to m columns, one a class
(HC-SDH: Koutaki, Shirai, Ambai, 2018).

Latent factor hashing (Zhang, Zhang, Li, Guo, 2014) gives every row a latent vector u, whose signs are the code:

    P(rows i and l are similar) = σ(θ),   θ = uᵢᵀ uₗ / 2,   u ~ N(0, β I)

Since σ' ≤ ¼, the log posterior as a function of one row has a quadratic bound from below, and its maximum is a step of
Newton's method with a bounded Hessian, here for all rows at once, against a few rows Ω drawn anew every time:

    U ← U − G H⁻¹,   G = (S_Ω − σ(U U_Ωᵀ / 2)) U_Ω − U / β,   H = −U_Ωᵀ U_Ω / 8 − I / β

With judged pairs, a row steps against its own partners, by a Hessian of its own; these are few, so that the prior has
to hold vectors together (β is smaller).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from scipy.special import expit

from gphash.arrays import Floats, Indices
from gphash.compiled import jit
from gphash.execution.local import Executor, row_blocks
from gphash.functions.projections import LinearFunction
from gphash.hashers import validation
from gphash.hashers.kernel_methods import BLOCK, Blocked, KernelHasher, Teaching, best
from gphash.method import scaling, selection, triangular, words
from gphash.schema import Number, Rule
from gphash.supervision import similarity
from gphash.supervision.similarity import PairGraph, Signatures

LABEL_PENALTY = 1.0  # λ
FIT_PENALTY = 1e-5  # ν
SWEEPS = 5
DESCENTS = 10
TOLERANCE = 1e-5
PRIOR_VARIANCE = 30.0  # β
PAIRS_PRIOR_VARIANCE = 0.3  # β for judged pairs: with 30, ten or twenty partners per row leave codes at random
STEPS = 50  # of latent factors
COLUMNS = 64  # rows in Ω


@dataclass(kw_only=True, eq=False, repr=False)
class RidgeHasher(KernelHasher):
    """A kernel method that finds codes for the training rows first, and then predicts them by ridge regression.

    The parameters are those of `KernelHasher`, and

    Parameters
    ----------
    ridge : float or "auto"
        Penalty of the regression from kernel values to codes; "auto" chooses it together with the length scale.

    Attributes
    ----------
    ridge_ : float
        As given or as chosen.
    """

    RIDGES: ClassVar[tuple[float, ...]] = (1e-3, 1e-2, 1e-1, 1.0)
    # A ridge that suits few rows and inducing inputs does not suit many.
    SAMPLE: ClassVar[int] = 5000
    INDUCING: ClassVar[int] = 1000
    LEARNED: ClassVar[Mapping[str, Rule]] = {**KernelHasher.LEARNED, "ridge_": Number(0)}

    ridge: float | str = validation.positive_or_auto("auto", 1e-12, 1e12)


class SDH(RidgeHasher):
    """Supervised discrete hashing with the squared loss: codes from which a linear classifier reads the labels.

    Learns from labels or tags. The parameters are those of `RidgeHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags")

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        Y = similarity.indicators(given.supervision)
        regression = Ridge(given.K, given.ridge, given.executor)
        B = np.where(given.generator.random((len(given.K), self.n_bits)) < 0.5, -1.0, 1.0)
        weights, offset = regression.solve(B)
        for _ in range(SWEEPS):
            B = descend(B, Y, regression.times(weights) + offset)
            before = weights
            weights, offset = regression.solve(B)
            if np.linalg.norm(weights - before) < TOLERANCE * np.linalg.norm(before):
                break
        return weights, offset


class HadamardRidge(RidgeHasher):
    """Hadamard code words for classes, and kernel ridge regression to them. Learns from class labels.

    Published as HC-SDH by Koutaki, Shirai and Ambai ("Hadamard coding for supervised discrete hashing", 2018).
    The parameters are those of `RidgeHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels",)

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        classes = similarity.class_numbers(given.supervision)
        found = words.hadamard(int(classes.max()) + 1, self.n_bits, given.generator)
        return Ridge(given.K, given.ridge, given.executor).solve(found[classes].astype(np.float64))


@dataclass(kw_only=True, eq=False, repr=False)
class LFH(RidgeHasher):
    """Latent factor hashing: codes from a logistic model of which rows are similar.

    The parameters are those of `RidgeHasher`, and

    Parameters
    ----------
    features : {"kernel", "linear"}
        What predicts the codes of new rows: kernel values with the inducing inputs, or the scaled features themselves;
        then the parameters of inducing inputs and kernel are not used, and `length_scale_` is None.
    """

    features: str = validation.one_of("kernel", "linear")

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        if self.features == "kernel":
            return super()._train(X, supervision, seed, executor)
        scaled = scaling.fit(X, self.scaling == "unit")
        rows, ridge = scaling.apply(scaled, X), self.ridge
        if ridge == "auto":
            some = supervision.order(np.random.default_rng([seed, 11]), selection.SAMPLE)[: self.SAMPLE]
            about = supervision.among(some)
            qualities = executor.collect(lambda ridge: self._validate(rows[some], about, ridge, seed), self.RIDGES)
            ridge = best([*self.RIDGES], list(qualities))
        ridge = float(ridge)
        weights, offset = self._bits(Teaching(rows, supervision, ridge, np.random.default_rng(seed), executor))
        function = LinearFunction(scaled, np.ascontiguousarray(weights, np.float64), offset.astype(np.float64))
        return {"hash_function_": function, "length_scale_": None, "ridge_": ridge}

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        K, supervision = given.K, given.supervision
        if supervision.form == "pairs":
            # Rows that no pair names have no code to predict.
            named = np.flatnonzero(np.diff(supervision.offsets))
            K, supervision = K[named], supervision.among(named)
        U = latent(supervision, len(K), self.n_bits, given.generator, given.executor)
        return Ridge(K, given.ridge, given.executor).solve(np.where(U >= 0, 1.0, -1.0))


class Ridge(Blocked):
    """Least squares on kernel values and a constant, factored once; the penalty holds for the constant as well."""

    def __init__(self, K: Floats, penalty: float, executor: Executor) -> None:
        super().__init__(K, BLOCK, executor)
        gram, sums = self.moments()
        normal = np.block([[gram, sums[:, None]], [sums, len(K)]])
        normal[np.diag_indices_from(normal)] += penalty
        self.lower, _ = triangular.cholesky(normal)

    def solve(self, signs: Floats) -> tuple[Floats, Floats]:
        """Weights [r, m] and offset [m] whose predictions are nearest to these ±1, [n, m]."""
        right = np.vstack([self.transposed(signs), signs.sum(axis=0)])
        solved: Floats = scipy.linalg.cho_solve((self.lower, True), right, check_finite=False)
        return solved[:-1], solved[-1]


def descend(B: Floats, Y: Floats, predicted: Floats) -> Floats:
    """Codes that lower the objective, given predictions from the kernel values, until none changes."""
    n_bits = B.shape[1]
    W = scipy.linalg.solve(B.T @ B + LABEL_PENALTY * np.eye(n_bits), B.T @ Y, assume_a="pos")
    Q = FIT_PENALTY * predicted + Y @ W.T
    products = W @ W.T
    np.fill_diagonal(products, 0.0)
    B = np.asfortranarray(B)
    for _ in range(DESCENTS):
        changed = False
        for bit in range(n_bits):
            column = np.where(Q[:, bit] - B @ products[:, bit] >= 0, 1.0, -1.0)
            changed |= bool((column != B[:, bit]).any())
            B[:, bit] = column
        if not changed:
            break
    return B


def latent(supervision: Any, n_rows: int, n_bits: int, generator: np.random.Generator, executor: Executor) -> Floats:
    """Latent vectors of all rows, float32 [n, m]."""
    U = generator.standard_normal((n_rows, n_bits), dtype=np.float32)
    blocks = row_blocks(n_rows, BLOCK)
    for _ in range(STEPS):
        if supervision.form == "pairs":
            move = partial(step_by_pairs, U, supervision)
        else:
            columns = np.sort(generator.choice(n_rows, min(COLUMNS, n_rows), replace=False))
            move = partial(step, U, supervision, columns)
        U = np.concatenate(list(executor.collect(move, blocks)))
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
