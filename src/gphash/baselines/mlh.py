"""Minimal loss hashing (Norouzi, Fleet, 2011).

A pair whose codes h = sign(x W) and h' = sign(x' W) differ in d bits costs

    ℓ(d) = max(0, d − ρ + 1) / (m − ρ + 1) if similar,   max(0, ρ − d + 1) / (ρ + 1) if not

and W descends the mean, over pairs, of an upper bound of it,

    max over g, g' ∈ {−1, 1}ᵐ of [ℓ(d(g, g')) + g x W + g' x' W] − (h x W + h' x' W)

whose gradient is xᵀ (g − h) + x'ᵀ (g' − h') at the maximum. The maximum is exact: with a = x W and b = x' W, a bit is
worth |a + b| if the two codes agree in it and |a − b| if not, so for every number of differing bits those with the
largest |a − b| − |a + b| differ. Rows have a constant feature, whose weights are the offset.
"""

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from gphash import validation
from gphash.arrays import Floats, Indices
from gphash.baselines.linear import LinearHasher
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures

BATCH = 100
SIMILAR_SHARE = 0.5  # λ
MOMENTUM = 0.9
STEP = 0.5
DECAY = 1e-3
START = 0.3
BALANCE = 0.1
CLIP = 0.5
BATCHES = 8000
CHUNK = 100  # batches whose pairs are drawn together
DRAWS = 30


class MLH(LinearHasher):
    """Minimal loss hashing: hyperplanes that lower a hinge loss of Hamming distances between rows.

    The parameters are those of `LinearHasher`, and

    Parameters
    ----------
    radius : int or None
        ρ: similar rows are to differ in fewer bits than this, others in more; None for 35 % of the bits.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")

    def __init__(
        self,
        n_bits: int = 16,
        *,
        radius: int | None = None,
        scaling: str = "unit",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(n_bits, scaling=scaling, n_jobs=n_jobs, random_state=random_state)
        self.radius = radius

    def _check(self) -> None:
        super()._check()
        if self.radius is None:
            return
        validation.whole_number("radius", self.radius)
        if self.radius > self.n_bits:
            raise ValueError(f"radius={self.radius}; give at most the number of bits, {self.n_bits}.")

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        assert supervision is not None
        radius = max(1, round(0.35 * self.n_bits)) if self.radius is None else self.radius
        W = descend(X, pair_source(supervision), losses(self.n_bits, radius), generator)
        return W[:-1], W[-1]


def losses(n_bits: int, radius: int) -> Floats:
    """ℓ of dissimilar rows, then of similar ones, for 0 to m differing bits, [2, m + 1]."""
    distance = np.arange(n_bits + 1)
    apart = np.maximum(0, radius - distance + 1) / (radius + 1)
    return np.stack([apart, np.maximum(0, distance - radius + 1) / (n_bits - radius + 1)])


def infer(a: Floats, b: Floats, loss: Floats) -> tuple[Floats, Floats]:
    """Codes of pairs that maximise g a + g' b + ℓ, from margins [p, m] and losses [p, m + 1]; ±1 [p, m] each."""
    together, opposite = a + b, a - b
    gain = np.abs(opposite) - np.abs(together)
    order = np.argsort(-gain, axis=1, kind="stable")
    worth = loss.copy()
    worth[:, 1:] += np.cumsum(np.take_along_axis(gain, order, axis=1), axis=1)
    n_differ = worth.argmax(axis=1)
    differ = np.empty(a.shape, dtype=bool)
    np.put_along_axis(differ, order, np.arange(a.shape[1]) < n_differ[:, None], axis=1)
    first = signs(np.where(differ, opposite, together))
    return first, np.where(differ, -first, first)


def signs(margins: Floats) -> Floats:
    """Bits as ±1."""
    return np.where(margins >= 0, margins.dtype.type(1), margins.dtype.type(-1))


def descend(X: Floats, source: "Source", loss: Floats, generator: np.random.Generator) -> Floats:
    """Weights [d + 1, m], the offset last, by stochastic gradient descent with momentum and a step that decays."""
    n_bits = loss.shape[1] - 1
    rows = np.column_stack([X, np.ones(len(X))]).astype(np.float32)
    loss = loss.astype(np.float32)
    W = np.zeros((rows.shape[1], n_bits), np.float32)
    W[:-1] = START * generator.standard_normal((X.shape[1], n_bits))
    W[-1] = -np.median(rows @ W, axis=0)
    velocity = np.zeros_like(W)
    for start in range(0, BATCHES, CHUNK):
        chunk = draw(source, CHUNK * BATCH, generator)
        for batch in range(CHUNK):
            some = slice(batch, None, CHUNK)
            x = rows[np.concatenate([chunk.i[some], chunk.j[some]])]
            margins = x @ W
            half = len(x) // 2
            wanted = np.concatenate(infer(margins[:half], margins[half:], loss[chunk.similar[some]]))
            gradient = x.T @ (wanted - signs(margins)) / half + DECAY * W
            # Bits of even odds: their mean margin is drawn to zero.
            gradient[-1] += BALANCE * np.clip(margins.mean(axis=0), -CLIP, CLIP)
            step = STEP * (1 - (start + batch) / BATCHES)
            velocity = MOMENTUM * velocity - step * gradient
            W += velocity
    return W.astype(np.float64)


class Drawn(NamedTuple):
    """Pairs: row numbers, and 1 where they are similar, [p] each."""

    i: Indices
    j: Indices
    similar: Indices


class Source(Protocol):
    """Where pairs are drawn from."""

    def similar(self, count: int, generator: np.random.Generator) -> Indices:
        """Similar pairs, [2, p]."""

    def dissimilar(self, count: int, generator: np.random.Generator) -> Indices:
        """Dissimilar pairs, [2, p]; none if there are none to be found."""


def draw(source: Source, count: int, generator: np.random.Generator) -> Drawn:
    """So many pairs in random order, a share of them similar."""
    n_similar = round(SIMILAR_SHARE * count)
    far = source.dissimilar(count - n_similar, generator)
    near = source.similar(count - far.shape[1], generator)
    i, j = np.concatenate([near, far], axis=1)
    marks = np.repeat([1, 0], [near.shape[1], far.shape[1]])
    order = generator.permutation(len(i))
    return Drawn(i[order], j[order], marks[order])


class JudgedPairs:
    """Pairs from a list; each is as likely as any other of its kind."""

    def __init__(self, graph: PairGraph) -> None:
        pairs = np.stack([graph.owners, graph.partners])
        self._alike, self._apart = pairs[:, graph.similar == 1], pairs[:, graph.similar == 0]

    def similar(self, count: int, generator: np.random.Generator) -> Indices:
        """Similar pairs, [2, p]."""
        return self._alike[:, generator.integers(0, self._alike.shape[1], count)]

    def dissimilar(self, count: int, generator: np.random.Generator) -> Indices:
        """Dissimilar pairs, [2, p]."""
        return self._apart[:, generator.integers(0, self._apart.shape[1], count)]


class SignedRows:
    """Pairs of rows with labels or tags: a similar one is a row and another with its class or with one of its tags."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        if signatures.exact:
            rows, tags = np.arange(len(signatures.masks)), similarity.class_numbers(signatures)
        else:
            rows, tags = np.nonzero(similarity.indicators(signatures))
        self._rows, first, self._n_tags = np.unique(rows, return_index=True, return_counts=True)
        self._first, self._tags = first, tags
        self._members = rows[np.argsort(tags, kind="stable")]
        self._n_members = np.bincount(tags)
        self._begin = np.cumsum(self._n_members) - self._n_members

    def similar(self, count: int, generator: np.random.Generator) -> Indices:
        """Similar pairs, [2, p]; a row may meet itself, which teaches nothing."""
        number = generator.integers(0, len(self._rows), count)
        tag = self._tags[self._first[number] + generator.integers(0, self._n_tags[number])]
        partner = self._members[self._begin[tag] + generator.integers(0, self._n_members[tag])]
        return np.stack([self._rows[number], partner])

    def dissimilar(self, count: int, generator: np.random.Generator) -> Indices:
        """Dissimilar pairs, [2, p]; fewer if they are very rare."""
        masks = self._signatures.masks
        found = np.empty((2, 0), dtype=np.int64)
        for _ in range(DRAWS):
            i, j = generator.integers(0, len(masks), (2, count))
            differ = masks[i] != masks[j] if self._signatures.exact else masks[i] & masks[j] == 0
            keep = differ.any(axis=1) if self._signatures.exact else differ.all(axis=1) & (i != j)
            found = np.concatenate([found, np.stack([i[keep], j[keep]])], axis=1)
            if found.shape[1] >= count:
                break
        return found[:, :count]


def pair_source(supervision: Signatures | PairGraph) -> Source:
    """Where to draw pairs from."""
    return JudgedPairs(supervision) if isinstance(supervision, PairGraph) else SignedRows(supervision)
