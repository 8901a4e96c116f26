"""Kernel-based supervised hashing (Liu, Wang, Ji, Jiang, Chang, 2012).

    min over the codes B = sign(K A) of ‖B Bᵀ − m S₀‖²

S₀ is 1 for similar rows and −1 for dissimilar ones; columns of K are centred. Bits are learned one after another: with
the residual S = m S₀ − Σ y yᵀ over the bits y so far, the next one maximises yᵀ S y. It starts at the first eigenvector
of (Kᵀ S K) a = ω (Kᵀ K) a and descends, by Nesterov's accelerated gradient,

    g(a) = −qᵀ S q,   ∇g = −Kᵀ [S q ∘ (1 − q²)],   q = tanh(K a / 2)

S is never formed: rows of one class, or with one set of tags, have one row of S₀, so that a product costs O(l). With
judged pairs, S has entries for these alone, and is sparse: nothing is asked of the others. (The authors would ask for
orthogonal codes, S₀ = 0; when few pairs are known, that drowns them.)
"""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from gphash import selection, validation
from gphash.arrays import Floats, Indices
from gphash.baselines.kernel import KernelHasher
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor, row_blocks
from gphash.gp import triangular

BLOCK = 1280  # rows; four blocks of the 5,000 rows keep two or four threads busy
ITERATIONS = 500
FEW_ITERATIONS = 100  # while the length scale is chosen
TOLERANCE = 1e-2  # change of g per row below which descent ends
DOUBLINGS = 50
JITTER = 1e-8


class KSH(KernelHasher):
    """Kernel-based supervised hashing: inner products of codes that are near to m for similar rows, else to −m.

    The parameters are those of `KernelHasher`, and

    Parameters
    ----------
    n_labelled : int
        Number of rows to learn from, drawn at random, or along pairs; all if there are no more.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")
    _iterations: int = ITERATIONS

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_inducing: int = 1000,
        n_labelled: int = 5000,
        inducing: str = "kmeans",
        scaling: str = "unit",
        length_scale: float | str = "auto",
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
        self.n_labelled = n_labelled

    def _check(self) -> None:
        super()._check()
        validation.whole_number("n_labelled", self.n_labelled)

    def _rows(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> NDArray[np.int64] | None:
        assert supervision is not None
        order = selection.draw_order(supervision, len(X), generator)
        if isinstance(supervision, PairGraph) and len(order) > self.n_labelled > selection.SAMPLE:
            # The order follows pairs for a sample only; this one does to the end.
            first = breadth_first_order(_graph(supervision), order[0], return_predecessors=False)
            order = np.concatenate([first.astype(np.int64), order[~np.isin(order, first)]])
        return np.sort(order[: self.n_labelled])

    def _validate(self, K: Floats, supervision: Signatures | PairGraph, ridge: float, seed: int) -> float:
        hasty = copy.copy(self)
        hasty._iterations = FEW_ITERATIONS
        return super(KSH, hasty)._validate(K, supervision, ridge, seed)

    def _bits(
        self,
        K: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        assert supervision is not None
        mean = K.mean(axis=0, dtype=np.float64)
        centred, S = K - mean.astype(K.dtype), residual(supervision, self.n_bits)
        weights = learn(centred, S, self.n_bits, self._iterations, executor)
        return weights, -mean @ weights


class Residual(Protocol):
    """S = m S₀ − Σ y yᵀ, as products with it."""

    def times(self, q: Floats) -> Floats:
        """S q, [l]."""

    def between(self, K: Floats) -> Floats:
        """Kᵀ S K, [r, r]."""

    def less(self, y: Floats) -> Self:
        """The residual when one more bit is known, ±1 [l]."""


@dataclass(frozen=True)
class Grouped:
    """S of rows that fall into groups.

    groups
        The group of every row, [l].
    alike
        S₀ between groups, float32 [g, g]; None when rows are similar only within their group.
    n_groups
        g.
    n_bits
        m.
    codes
        Bits so far, ±1 [l, k].
    """

    groups: Indices
    alike: Floats | None
    n_groups: int
    n_bits: int
    codes: Floats

    def times(self, q: Floats) -> Floats:
        """S q, [l]."""
        sums: Floats = np.bincount(self.groups, q, self.n_groups).astype(np.float64, copy=False)
        mixed = self.n_bits * self._mix(sums)
        return np.asarray(mixed[self.groups] - self.codes @ (self.codes.T @ q))

    def between(self, K: Floats) -> Floats:
        """Kᵀ S K, [r, r]."""
        n_rows = len(self.groups)
        members = csr_array((np.ones(n_rows, K.dtype), (self.groups, np.arange(n_rows))), (self.n_groups, n_rows))
        sums, products = members @ K, K.T @ self.codes.astype(K.dtype)
        return np.asarray(self.n_bits * (sums.T @ self._mix(sums)) - products @ products.T, dtype=np.float64)

    def less(self, y: Floats) -> Self:
        """The residual when one more bit is known."""
        return replace(self, codes=np.asfortranarray(np.column_stack([self.codes, y])))

    def _mix(self, sums: Floats) -> Floats:
        return 2 * sums - sums.sum(axis=0) if self.alike is None else self.alike @ sums.astype(np.float32)


@dataclass(frozen=True)
class Judged:
    """S of judged pairs, sparse [l, l]."""

    entries: csr_array

    def times(self, q: Floats) -> Floats:
        """S q, [l]."""
        return np.asarray(self.entries @ q)

    def between(self, K: Floats) -> Floats:
        """Kᵀ S K, [r, r]."""
        return np.asarray(K.T @ (self.entries @ K), dtype=np.float64)

    def less(self, y: Floats) -> Self:
        """The residual when one more bit is known."""
        S = self.entries
        data = S.data - (np.repeat(y, np.diff(S.indptr)) * y[S.indices]).astype(S.dtype)
        return replace(self, entries=csr_array((data, S.indices, S.indptr), S.shape))


def residual(supervision: Signatures | PairGraph, n_bits: int) -> Residual:
    """S before the first bit, in the form that suits the supervision."""
    if isinstance(supervision, PairGraph):
        signs = np.where(supervision.similar == 1, n_bits, -n_bits).astype(np.float32)
        shape = (supervision.n_rows, supervision.n_rows)
        return Judged(csr_array((signs, supervision.partners, supervision.offsets), shape))
    sets, groups = np.unique(supervision.masks, axis=0, return_inverse=True)
    groups = groups.reshape(-1).astype(np.int64)
    alike = None
    if not supervision.exact:
        tags = similarity.indicators(Signatures(sets, False)).astype(np.float32)
        alike = np.where(tags @ tags.T > 0, np.float32(1), np.float32(-1))
    return Grouped(groups, alike, len(sets), n_bits, np.empty((len(groups), 0)))


def learn(K: Floats, S: Residual, n_bits: int, iterations: int, executor: Executor) -> Floats:
    """Weights of all bits, [r, m], from centred kernel values, [l, r]."""
    matrix = Blocked(K, executor)
    gram = matrix.gram()
    gram[np.diag_indices_from(gram)] += np.finfo(np.float64).tiny ** 0.5
    lower, _ = triangular.cholesky(gram, JITTER)
    weights = np.empty((K.shape[1], n_bits))
    for bit in range(n_bits):
        spectral = _spectral(S, lower, matrix)
        found = [(a, signs(matrix.times(a))) for a in (spectral, descend(matrix, S, spectral, iterations))]
        weights[:, bit], y = max(found, key=lambda pair: float(pair[1] @ S.times(pair[1])))
        S = S.less(y)
    return weights


def signs(u: Floats) -> Floats:
    """Bits as ±1."""
    return np.where(u >= 0, 1.0, -1.0)


def value(u: Floats, S: Residual) -> float:
    """The objective g, at u = K a, [l]."""
    q = np.tanh(u / 2)
    return -float(q @ S.times(q))


def slope(u: Floats, S: Residual) -> tuple[float, Floats]:
    """The objective g at u = K a, and its derivative by u, [l]."""
    q = np.tanh(u / 2)
    product = S.times(q)
    return -float(q @ product), -product * (1 - q * q)


def descend(matrix: "Blocked", S: Residual, start: Floats, iterations: int) -> Floats:
    """Weights that lower the objective, by Nesterov's gradient with a step that only ever shrinks, [r]."""
    a = before = start
    # K a of every point is kept: all steps are linear, so that one product with K and one with Kᵀ do for an iteration.
    u = u_before = matrix.times(start)
    last = value(u, S)
    speed, faster, beta = 0.0, 1.0, 1.0
    u_next, now = u, last
    for _ in range(iterations):
        momentum = (speed - 1) / faster
        v, u_v = a + momentum * (a - before), u + momentum * (u - u_before)
        here, by_u = slope(u_v, S)
        gradient = matrix.transposed(by_u)
        u_gradient = matrix.times(gradient)
        steepness = float(gradient @ gradient)
        for _ in range(DOUBLINGS):
            u_next = u_v - u_gradient / beta
            now = value(u_next, S)
            if now <= here - steepness / (2 * beta):
                break
            beta *= 2
        a, before = v - gradient / beta, a
        u, u_before = u_next, u
        if abs(now - last) <= TOLERANCE * len(u):
            break
        last = now
        speed, faster = faster, (1 + (1 + 4 * faster * faster) ** 0.5) / 2
    return a


@dataclass(frozen=True)
class Blocked:
    """Products with K, [l, r], by blocks of rows."""

    K: Floats
    executor: Executor

    def times(self, a: Floats) -> Floats:
        """K a, [l], in float64."""
        small = a.astype(self.K.dtype)
        parts = self.executor.collect(lambda rows: self.K[rows] @ small, row_blocks(len(self.K), BLOCK))
        return np.concatenate(list(parts)).astype(np.float64)

    def transposed(self, u: Floats) -> Floats:
        """Kᵀ u, [r], in float64."""
        small = u.astype(self.K.dtype)
        return self.executor.sum(lambda rows: (small[rows] @ self.K[rows],), row_blocks(len(self.K), BLOCK))[0]

    def gram(self) -> Floats:
        """Kᵀ K, [r, r], in float64."""
        return self.executor.sum(lambda rows: (self.K[rows].T @ self.K[rows],), row_blocks(len(self.K), BLOCK))[0]


def _spectral(S: Residual, lower: Floats, matrix: Blocked) -> Floats:
    """The first eigenvector of Kᵀ S K by L Lᵀ = Kᵀ K, scaled so that K a has length √l, [r]."""
    half = scipy.linalg.solve_triangular(lower, S.between(matrix.K), lower=True, check_finite=False)
    whitened = scipy.linalg.solve_triangular(lower, half.T, lower=True, check_finite=False)
    last = len(whitened) - 1
    _, vectors = scipy.linalg.eigh(whitened, subset_by_index=[last, last], check_finite=False)
    a = scipy.linalg.solve_triangular(lower, vectors[:, 0], lower=True, trans="T", check_finite=False)
    length = float(np.linalg.norm(matrix.times(a)))
    return np.asarray(a * (len(matrix.K) ** 0.5 / length if length > 0 else 1.0))


def _graph(graph: PairGraph) -> csr_array:
    """Judged pairs as a sparse matrix of ones, [n, n]."""
    ones = np.ones(len(graph.partners), np.int8)
    return csr_array((ones, graph.partners, graph.offsets), shape=(graph.n_rows, graph.n_rows))
