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

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from gphash.arrays import Floats, Indices
from gphash.execution.local import Executor
from gphash.hashers import validation
from gphash.hashers.kernel_methods import Blocked, KernelHasher, Teaching
from gphash.method import selection, triangular
from gphash.supervision import similarity
from gphash.supervision.similarity import PairGraph, Signatures

BLOCK = 1280  # rows; four blocks of the 5,000 rows keep two or four threads busy
ITERATIONS = 500
FEW_ITERATIONS = 100  # while the length scale is chosen
TOLERANCE = 1e-2  # change of g per row below which descent ends
DOUBLINGS = 50
JITTER = 1e-8


@dataclass(kw_only=True, eq=False, repr=False)
class KSH(KernelHasher):
    """Kernel-based supervised hashing: inner products of codes that are near to m for similar rows, else to −m.

    The parameters are those of `KernelHasher`, and

    Parameters
    ----------
    n_labelled : int
        Number of rows to learn from, drawn at random, or along pairs; all if there are no more.
    """

    n_labelled: int = validation.whole(5000)

    def _rows(self, supervision: Any, generator: np.random.Generator) -> Indices:
        order: Indices = supervision.order(generator, selection.SAMPLE)
        if supervision.form == "pairs" and len(order) > self.n_labelled > selection.SAMPLE:
            # The order follows pairs for a sample only; this one does to the end.
            matrix = _matrix(supervision, np.ones(len(supervision.partners), np.int8))
            first = breadth_first_order(matrix, order[0], return_predecessors=False)
            order = np.concatenate([first.astype(np.int64), order[~np.isin(order, first)]])
        return np.sort(order[: self.n_labelled])

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        mean = given.K.mean(axis=0, dtype=np.float64)
        centred, S = given.K - mean.astype(given.K.dtype), residual(given.supervision, self.n_bits)
        iterations = FEW_ITERATIONS if given.choosing else ITERATIONS
        weights = learn(centred, S, self.n_bits, iterations, given.executor)
        return weights, -mean @ weights


class Grouped(NamedTuple):
    """S = m S₀ − Σ y yᵀ of rows that fall into groups, as products with it."""

    groups: Indices  # the group of every row, [l]
    alike: Floats | None  # S₀ between groups, float32 [g, g]; None when rows are similar only within their group
    n_bits: int
    codes: Floats  # bits so far, ±1 [l, k]

    def times(self, q: Floats) -> Floats:
        """S q, [l]."""
        sums: Any = np.bincount(self.groups, q)
        return np.asarray((self.n_bits * self._mix(sums))[self.groups] - self.codes @ (self.codes.T @ q))

    def between(self, K: Floats) -> Floats:
        """Kᵀ S K, [r, r]."""
        members = csr_array((np.ones(len(K), K.dtype), (self.groups, np.arange(len(K)))))
        sums, products = members @ K, K.T @ self.codes.astype(K.dtype)
        return np.asarray(self.n_bits * (sums.T @ self._mix(sums)) - products @ products.T, dtype=np.float64)

    def less(self, y: Floats) -> Self:
        """S when one more bit is known, ±1 [l]."""
        return self._replace(codes=np.asfortranarray(np.column_stack([self.codes, y])))

    def _mix(self, sums: Floats) -> Floats:
        return 2 * sums - sums.sum(axis=0) if self.alike is None else self.alike @ sums.astype(np.float32)


class Judged(NamedTuple):
    """S of judged pairs, sparse [l, l], with the same products."""

    entries: csr_array

    def times(self, q: Floats) -> Floats:
        """S q."""
        return np.asarray(self.entries @ q)

    def between(self, K: Floats) -> Floats:
        """Kᵀ S K."""
        return np.asarray(K.T @ (self.entries @ K), dtype=np.float64)

    def less(self, y: Floats) -> Self:
        """S when one more bit is known."""
        S = self.entries
        data = S.data - (np.repeat(y, np.diff(S.indptr)) * y[S.indices]).astype(S.dtype)
        return self._replace(entries=csr_array((data, S.indices, S.indptr), S.shape))


def residual(supervision: Any, n_bits: int) -> Grouped | Judged:
    """S before the first bit, in the form that suits the supervision."""
    if supervision.form == "pairs":
        signs = np.where(supervision.similar == 1, n_bits, -n_bits).astype(np.float32)
        return Judged(_matrix(supervision, signs))
    sets, groups = np.unique(supervision.masks, axis=0, return_inverse=True)
    groups = groups.reshape(-1).astype(np.int64)
    alike = None
    if not supervision.exact:
        tags = similarity.indicators(Signatures(sets, False)).astype(np.float32)
        alike = np.where(tags @ tags.T > 0, np.float32(1), np.float32(-1))
    return Grouped(groups, alike, n_bits, np.empty((len(groups), 0)))


def learn(K: Floats, S: Grouped | Judged, n_bits: int, iterations: int, executor: Executor) -> Floats:
    """Weights of all bits, [r, m], from centred kernel values, [l, r]."""
    matrix = Blocked(K, BLOCK, executor)
    gram, _ = matrix.moments()
    gram[np.diag_indices_from(gram)] += np.finfo(np.float64).tiny ** 0.5
    lower, _ = triangular.cholesky(gram, JITTER)
    weights = np.empty((K.shape[1], n_bits))
    for bit in range(n_bits):
        spectral = _spectral(S, lower, matrix)
        starts = spectral, descend(matrix, S, spectral, iterations)
        found = [(a, np.where(matrix.times(a) >= 0, 1.0, -1.0)) for a in starts]
        weights[:, bit], y = max(found, key=lambda pair: float(pair[1] @ S.times(pair[1])))
        S = S.less(y)
    return weights


def objective(u: Floats, S: Grouped | Judged) -> tuple[float, Floats]:
    """The objective g at u = K a, and its derivative by u, [l]."""
    q = np.tanh(u / 2)
    product = S.times(q)
    return -float(q @ product), -product * (1 - q * q)


def descend(matrix: Blocked, S: Grouped | Judged, start: Floats, iterations: int) -> Floats:
    """Weights that lower the objective, by Nesterov's gradient with a step that only ever shrinks, [r]."""
    a = before = start
    # K a of every point is kept: all steps are linear, so that one product with K and one with Kᵀ do for an iteration.
    u = u_before = u_next = matrix.times(start)
    last = now = objective(u, S)[0]
    speed, faster, beta = 0.0, 1.0, 1.0
    for _ in range(iterations):
        momentum = (speed - 1) / faster
        v, u_v = a + momentum * (a - before), u + momentum * (u - u_before)
        here, by_u = objective(u_v, S)
        gradient = matrix.transposed(by_u)
        u_gradient = matrix.times(gradient)
        steepness = float(gradient @ gradient)
        for _ in range(DOUBLINGS):
            u_next = u_v - u_gradient / beta
            now, _ = objective(u_next, S)
            if now <= here - steepness / (2 * beta):
                break
            beta *= 2
        a, before, u, u_before = v - gradient / beta, a, u_next, u
        if abs(now - last) <= TOLERANCE * len(u):
            break
        last = now
        speed, faster = faster, (1 + (1 + 4 * faster * faster) ** 0.5) / 2
    return a


def _spectral(S: Grouped | Judged, lower: Floats, matrix: Blocked) -> Floats:
    """The first eigenvector of Kᵀ S K by L Lᵀ = Kᵀ K, scaled so that K a has length √l, [r]."""
    solve = partial(scipy.linalg.solve_triangular, lower, lower=True, check_finite=False)
    whitened = solve(solve(S.between(matrix.K)).T)
    last = len(whitened) - 1
    _, vectors = scipy.linalg.eigh(whitened, subset_by_index=[last, last], check_finite=False)
    a = solve(vectors[:, 0], trans="T")
    length = float(np.linalg.norm(matrix.times(a)))
    return np.asarray(a * (len(matrix.K) ** 0.5 / length if length > 0 else 1.0))


def _matrix(graph: PairGraph, values: Any) -> csr_array:
    """A sparse matrix with these values in the places of the pairs, [n, n]."""
    return csr_array((values, graph.partners, graph.offsets), shape=(graph.n_rows, graph.n_rows))
