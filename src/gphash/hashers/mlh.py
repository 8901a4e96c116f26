"""Minimal loss hashing (Norouzi, Fleet, 2011).

A pair whose codes h = sign(x W) and h' = sign(x' W) differ in d bits costs

    ℓ(d) = max(0, d − ρ + 1) / (m − ρ + 1) if similar,   max(0, ρ − d + 1) / (ρ + 1) if not

and W descends the mean, over pairs, of an upper bound of it,

    max over g, g' ∈ {−1, 1}ᵐ of [ℓ(d(g, g')) + g x W + g' x' W] − (h x W + h' x' W)

whose gradient is xᵀ (g − h) + x'ᵀ (g' − h') at the maximum. The maximum is exact: with a = x W and b = x' W, a bit is
worth |a + b| if the two codes agree in it and |a − b| if not, so for every number of differing bits those with the
largest |a − b| − |a + b| differ. Rows have a constant feature, whose weights are the offset.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.hashers import validation
from gphash.hashers.projection_methods import LinearHasher
from gphash.supervision import similarity
from gphash.supervision.similarity import Signatures

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


@dataclass(kw_only=True, eq=False, repr=False)
class MLH(LinearHasher):
    """Minimal loss hashing: hyperplanes that lower a hinge loss of Hamming distances between rows.

    The parameters are those of `LinearHasher`, and

    Parameters
    ----------
    radius : int or None
        ρ: similar rows are to differ in fewer bits than this, others in more; None for 35 % of the bits.
    """

    radius: int | None = validation.whole(None)

    def check_parameters(self) -> None:
        """Refuse bad parameters."""
        super().check_parameters()
        if self.radius is not None and self.radius > self.n_bits:
            raise ValueError(f"radius={self.radius}; give at most the number of bits, {self.n_bits}.")

    def _directions(self, X: Floats, supervision: Any, generator: np.random.Generator) -> tuple[Floats, Floats]:
        radius = max(1, round(0.35 * self.n_bits)) if self.radius is None else self.radius
        W = descend(X, pair_sources(supervision), losses(self.n_bits, radius), generator)
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


def descend(X: Floats, sources: "tuple[Source, Source]", loss: Floats, generator: np.random.Generator) -> Floats:
    """Weights [d + 1, m], the offset last, by stochastic gradient descent with momentum and a step that decays."""
    n_bits = loss.shape[1] - 1
    rows = np.column_stack([X, np.ones(len(X))]).astype(np.float32)
    loss = loss.astype(np.float32)
    W = np.zeros((rows.shape[1], n_bits), np.float32)
    W[:-1] = START * generator.standard_normal((X.shape[1], n_bits))
    W[-1] = -np.median(rows @ W, axis=0)
    velocity = np.zeros_like(W)
    for start in range(0, BATCHES, CHUNK):
        i, j, similar = draw(*sources, CHUNK * BATCH, generator)
        for batch in range(CHUNK):
            some = slice(batch, None, CHUNK)
            x = rows[np.concatenate([i[some], j[some]])]
            margins = x @ W
            half = len(x) // 2
            wanted = np.concatenate(infer(margins[:half], margins[half:], loss[similar[some]]))
            gradient = x.T @ (wanted - signs(margins)) / half + DECAY * W
            # Bits of even odds: their mean margin is drawn to zero.
            gradient[-1] += BALANCE * np.clip(margins.mean(axis=0), -CLIP, CLIP)
            step = STEP * (1 - (start + batch) / BATCHES)
            velocity = MOMENTUM * velocity - step * gradient
            W += velocity
    return W.astype(np.float64)


Source = Callable[[int, np.random.Generator], Indices]
"""Draws so many pairs, [2, p]."""


def draw(similar: Source, dissimilar: Source, count: int, generator: np.random.Generator) -> Indices:
    """So many pairs in random order, half of them similar if there are enough others: rows i, j, and 1 or 0, [3, p]."""
    far = dissimilar(count - round(SIMILAR_SHARE * count), generator)
    near = similar(count - far.shape[1], generator)
    marks = np.repeat([1, 0], [near.shape[1], far.shape[1]])
    return np.vstack([np.concatenate([near, far], axis=1), marks])[:, generator.permutation(count)]


def pair_sources(supervision: Any) -> tuple[Source, Source]:
    """What draws similar pairs, and what draws dissimilar ones; those of a list are all equally likely."""
    if supervision.form != "pairs":
        return similar_rows(supervision), partial(dissimilar_rows, supervision)
    pairs = np.stack([supervision.owners, supervision.partners])

    def listed(mark: int) -> Source:
        some = pairs[:, supervision.similar == mark]
        return lambda count, generator: some[:, generator.integers(0, some.shape[1], count)]

    return listed(1), listed(0)


def similar_rows(signatures: Signatures) -> Source:
    """Draws a row and another with its class, or with one of its tags; it may meet itself, which teaches nothing."""
    if signatures.exact:
        rows, tags = np.arange(len(signatures.masks)), similarity.class_numbers(signatures)
    else:
        rows, tags = np.nonzero(similarity.indicators(signatures))
    owners, first, n_tags = np.unique(rows, return_index=True, return_counts=True)
    members, n_members = rows[np.argsort(tags, kind="stable")], np.bincount(tags)
    begin = np.cumsum(n_members) - n_members

    def similar(count: int, generator: np.random.Generator) -> Indices:
        number = generator.integers(0, len(owners), count)
        tag = tags[first[number] + generator.integers(0, n_tags[number])]
        return np.stack([owners[number], members[begin[tag] + generator.integers(0, n_members[tag])]])

    return similar


def dissimilar_rows(signatures: Signatures, count: int, generator: np.random.Generator) -> Indices:
    """Rows of different classes, or without a tag in common, [2, p]; fewer if they are very rare."""
    masks = signatures.masks
    found = np.empty((2, 0), dtype=np.int64)
    for _ in range(DRAWS):
        i, j = generator.integers(0, len(masks), (2, count))
        differ = masks[i] != masks[j] if signatures.exact else masks[i] & masks[j] == 0
        keep = differ.any(axis=1) if signatures.exact else differ.all(axis=1) & (i != j)
        found = np.concatenate([found, np.stack([i[keep], j[keep]])], axis=1)
        if found.shape[1] >= count:
            break
    return found[:, :count]
