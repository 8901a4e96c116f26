"""How probable it is that two rows are similar: that they have the same class, or share a tag.

A query is known by the probabilities of its classes or tags, p; an item by its code b ∈ {−1, 1}^m alone, which is read
by a soft-max, or for tags by a logistic function each:

    r = softmax(b V + v),   P(similar) = Σ_c p_c r_c            classes
    r = σ(b V + v),         P(similar) = 1 − Π_t (1 − p_t r_t)   tags

Probabilities are rounded to multiples of 2⁻²⁴, and V and v, where they are learned, to multiples of 2⁻³⁰. Sums are
then exact in any order, and products are taken in the order of the tags, so that the same code has the same probability
wherever it is stored. That tags are independent
is an assumption: of tags that come together, P(similar) is too high.
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

    def read(self, packed: NDArray[np.uint8]) -> Floats:
        """P(class | code), or P(tag | code), of packed codes, [n, c]."""
        found = np.empty((len(packed), self.n_classes))
        for start in range(0, len(packed), READ):
            bits = packing.unpack(packed[start : start + READ], len(self.weights))
            logits = (2.0 * bits - 1) @ self.weights + self.bias
            found[start : start + READ] = rounded(np.exp(log_posteriors(logits, self.exclusive)))
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


def rounded(values: Floats, unit: float = UNIT) -> Floats:
    """Numbers as multiples of a unit."""
    return np.asarray(np.rint(values / unit) * unit)


def log_posteriors(logits: Floats, exclusive: bool) -> Floats:
    """Logarithms of the probabilities of classes, or of tags, [n, c]."""
    if exclusive:
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return np.asarray(-np.logaddexp(0.0, -logits))
