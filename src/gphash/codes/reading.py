"""How probable it is that two rows are similar: that they have the same class, or share a tag.

A query is known by the probabilities of its classes or tags, p; an item by its code b ∈ {−1, 1}^m alone, which is read
by a soft-max, or for tags by a logistic function each:

    r = softmax(b V + v),   P(similar) = Σ_c p_c r_c            classes
    r = σ(b V + v),         P(similar) = 1 − Π_t (1 − p_t r_t)   tags

Probabilities are rounded to multiples of 2⁻²⁴, and V and v, where they are learned, to multiples of 2⁻³⁰. Sums are
then exact in any order, and products are taken in the order of the tags, so that the same code has the same probability
wherever it is stored. That tags are independent
is an assumption: of tags that come together, P(similar) is too high.

With judged pairs there are no classes. There P(similar) falls with the number of bits that differ: with the expected
number for a query whose bits are known in probability, and with the Hamming distance for one that is a code itself.

    P(similar) = σ(a − b · distance)                             pairs
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.codes import packing

UNIT = 2.0**-24
WEIGHT_UNIT = 2.0**-30
READ = 1 << 16  # codes at a time


class CodeReader(NamedTuple):
    """Reads codes, and compares queries with them."""

    weights: Floats  # V, [m, c]
    bias: Floats  # v, [c]
    exclusive: bool  # whether a row has one class, or any tags

    @property
    def n_classes(self) -> int:
        """How many classes or tags there are."""
        return len(self.bias)

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.weights)

    def rounded(self) -> "CodeReader":
        """The same, so that sums of weights are exact."""
        weights, bias = (rounded(part, WEIGHT_UNIT) for part in self[:2])
        return self._replace(weights=weights, bias=bias)

    def tell(self, signs: Floats) -> Floats:
        """P(class), or P(tag), from bits as −1 to 1, [n, m], sure or soft: [n, c]."""
        return np.exp(log_posteriors(signs @ self.weights + self.bias, self.exclusive))

    def read(self, packed: NDArray[np.uint8]) -> Floats:
        """P(class | code), or P(tag | code), of packed codes, [n, c]."""
        found = np.empty((len(packed), self.n_classes))
        for start in range(0, len(packed), READ):
            bits = packing.unpack(packed[start : start + READ], self.n_bits)
            found[start : start + READ] = rounded(self.tell(2.0 * bits - 1))
        return found

    def compare(self, classes: Floats, read: Floats) -> Floats:
        """P(similar) of queries with such classes, [q, c], and codes as `read` gave them, [n, c]: [q, n]."""
        asked = rounded(classes)
        if self.exclusive:
            return np.asarray(np.minimum(asked @ read.T, 1.0))
        unlike = np.ones((len(asked), len(read)))
        for tag in range(self.n_classes):
            unlike *= 1 - np.outer(asked[:, tag], read[:, tag])
        return np.asarray(1 - unlike)

    def match(self, first: Floats, second: Floats) -> Floats:
        """P(similar) of codes and others, one by one, as `read` gave them, [n, c] each: [n]."""
        both = first * second
        return np.asarray(np.minimum(both.sum(axis=1), 1) if self.exclusive else 1 - np.prod(1 - both, axis=1))

    def check(self, classes: ArrayLike) -> Floats:
        """Probabilities of classes or tags, [q, c], as users give them."""
        given = np.asarray(classes)
        if given.ndim != 2 or given.shape[1] != self.n_classes or given.dtype.kind != "f":
            what = f"has dtype {given.dtype} and shape {given.shape}"
            raise ValueError(f"queries {what}; give the probabilities of classes, [q, {self.n_classes}].")
        if not ((given >= 0) & (given <= 1)).all():
            raise ValueError("queries has NaN or values outside of 0 to 1; give the probabilities of classes.")
        if self.exclusive and (np.abs(given.sum(axis=1) - 1) > 1e-3 + self.n_classes * UNIT).any():
            raise ValueError("queries has rows that do not sum to 1; give the probabilities of classes.")
        return np.asarray(given, np.float64)


class DistanceReader(NamedTuple):
    """Compares queries with codes by distance: how probably a pair like those judged is judged similar.

    Free bits, which no pair has taught, are left out.
    """

    expected: Floats  # a and b of expected distances, [2]; b is not negative
    hamming: Floats  # the same of Hamming distances
    n_taught: int  # bits that pairs have taught, the first ones
    n_bits: int  # length of a code

    def read(self, packed: NDArray[np.uint8]) -> Floats:
        """Bits of packed codes, 0 or 1, [n, m]."""
        return packing.unpack(packed, self.n_bits).astype(np.float64)

    def compare(self, chances: Floats, read: Floats) -> Floats:
        """P(similar) of queries with such P(bit = 1), [q, m], and codes as `read` gave them, [n, m]: [q, n]."""
        asked, bits = rounded(chances)[:, : self.n_taught], read[:, : self.n_taught]
        return self._tell(asked, asked.sum(axis=1)[:, None] + bits.sum(axis=1) - 2 * asked @ bits.T)

    def match(self, first: Floats, second: Floats) -> Floats:
        """P(similar) of codes and others, one by one, as `read` gave them, [n, m] each: [n]."""
        one = first[:, : self.n_taught]
        return self._tell(one, np.abs(one - second[:, : self.n_taught]).sum(axis=1)[:, None])[:, 0]

    def blurred(self, chances: Floats) -> Floats:
        """The same queries so that the expected distance orders as P(similar) does: nothing is known of free bits."""
        return np.where(np.arange(self.n_bits) < self.n_taught, rounded(chances), 0.5)

    def judge(self, chances: Floats, distances: Floats) -> Floats:
        """P(similar) of `blurred` queries, [q, m], and items at such expected distances from them, [q, k]."""
        return self._tell(chances[:, : self.n_taught], distances - 0.5 * (self.n_bits - self.n_taught))

    def _tell(self, asked: Floats, distances: Floats) -> Floats:
        sure = ((asked == 0) | (asked == 1)).all(axis=1)  # a code
        a, b = np.where(sure[:, None], self.hamming, self.expected).T[:, :, None]
        return np.asarray(np.exp(-np.logaddexp(0.0, b * distances - a)))

    def check(self, chances: ArrayLike) -> Floats:
        """P(bit = 1) of queries, [q, m], as users give them."""
        given = np.asarray(chances)
        if given.ndim != 2 or given.shape[1] != self.n_bits or given.dtype.kind != "f":
            what = f"has dtype {given.dtype} and shape {given.shape}"
            raise ValueError(f"queries {what}; the model has learned from pairs: give P(bit = 1), [q, {self.n_bits}].")
        if not ((given >= 0) & (given <= 1)).all():
            raise ValueError("queries has NaN or values outside of 0 to 1; give P(bit = 1) for every bit.")
        return np.asarray(given, np.float64)


Reader = CodeReader | DistanceReader
"""What tells how probable it is that rows and codes are similar."""


def rounded(values: Floats, unit: float = UNIT) -> Floats:
    """Numbers as multiples of a unit."""
    return np.asarray(np.rint(values / unit) * unit)


def log_posteriors(logits: Floats, exclusive: bool) -> Floats:
    """Logarithms of the probabilities of classes, or of tags, [n, c]."""
    if exclusive:
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return np.asarray(-np.logaddexp(0.0, -logits))
