"""Bits from the probabilities of classes or tags: a kernel classifier, and words that its answers are quantised with.

    q = P(classes | x)^a,   bits = sign(q T + t)

The logits are kernel machines, k(x, Z) W + b. Classes that exclude each other share a soft-max; tags have a logistic
function each. With a = 1 and the words of classes for T, a bit is 1 where that is the more probable:

    classes   P(bit = 1) = Σ_c P(c | x) [T_c = 1]
    tags      the votes Σ_c T_c (y_c − mean) of independent tags are next to normal:  P(bit = 1) = Φ(mean / deviation)

A row's code must not depend on which rows it is encoded with: rows with a margin so near to zero that rounding could
decide its sign are computed again in float64, and there a margin is zero where only rounding could tell its sign.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats
from gphash.codes.packing import MOST_BITS
from gphash.method import hashing
from gphash.method.hashing import HashFunction
from gphash.method.kernels import Kernel
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Number, Schema

EXACT_ROUNDING = 1e-13  # of a float64 sum of products, relative to the sum of their absolute values
SURE = 1e-12  # the least deviation of votes

_MACHINE = hashing.SCHEMA.arrays
SCHEMA = Schema(
    {**hashing.SCHEMA.fields, "exclusive": Flag(), "power": Number(1e-3, 1e3)},
    {
        **{name: rule for name, rule in _MACHINE.items() if name not in ("weights", "offset")},
        "weights": Array("<f4", ("inducing inputs", "classes")),
        "bias": Array("<f8", ("classes",)),
        "directions": Array("<f8", ("classes", "bits")),
        "offset": Array("<f8", ("bits",)),
    },
    {**hashing.SCHEMA.sides, "classes": (1, 2**31), "bits": (1, MOST_BITS)},
)
"""What a file holds of quantised posteriors."""


@dataclass(frozen=True, eq=False)
class PosteriorFunction:
    """Everything needed to encode a row; the classifier is a kernel machine with a column per class."""

    classifier: HashFunction
    exclusive: bool  # whether a row has one class, or any tags
    power: float  # a
    directions: Floats  # T, one column per bit, [c, m]
    offset: Floats  # t, [m]

    def __repr__(self) -> str:
        c, m = self.directions.shape
        what = "classes" if self.exclusive else "tags"
        return f"PosteriorFunction({self.n_features} features → {c} {what} → {m} bits, {self.classifier.kernel})"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.offset)

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return self.classifier.n_features

    @property
    def kernel(self) -> Kernel:
        """Of the classifier."""
        return self.classifier.kernel

    @property
    def scaling(self) -> Scaling:
        """Of the classifier."""
        return self.classifier.scaling

    @property
    def has_probabilities(self) -> bool:
        """Whether probabilities of bits follow from those of classes: if these are a Gaussian process's."""
        return self.classifier.has_probabilities

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; zero where only rounding could tell the side."""
        return self._quantise(X, n_jobs)[1]

    def probabilities(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1), [n, m]; at least ½ exactly where the margin is not negative."""
        q, margin = self._quantise(X, n_jobs)
        if self.exclusive:
            chance = 0.5 + margin / 2
        else:
            from scipy.special import ndtr

            deviation = np.sqrt((q * (1 - q)) @ np.square(self.directions))
            chance = ndtr(margin / np.maximum(deviation, SURE))
        chance = np.clip(chance, 0.0, 1.0)
        return np.where(margin < 0, np.minimum(chance, np.nextafter(0.5, 0)), np.maximum(chance, 0.5))

    def classes(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """P(class | x), or P(tag | x), [n, c]."""
        return np.exp(log_posteriors(self.classifier.means(X, n_jobs), self.exclusive))

    def _quantise(self, X: Floats, n_jobs: int | None) -> tuple[Floats, Floats]:
        """Powers of posteriors, [n, c], and margins, [n, m]."""
        means, reach = self.classifier.means(X, n_jobs), np.abs(self.directions)
        # A soft-max changes by at most twice what logits do, all classes together.
        slack = 2 * self.power * float(self.classifier.doubt.max())
        q = powers(means, self.exclusive, self.power)
        margin: Floats = q @ self.directions + self.offset
        doubtful = np.flatnonzero((np.abs(margin) <= slack * reach.max()).any(axis=1))
        for rows in np.array_split(doubtful, -(-len(doubtful) // hashing.TILE)) if len(doubtful) else []:
            exact = powers(self.classifier.exact_means(X[rows]), self.exclusive, self.power)
            found = exact @ self.directions + self.offset
            smaller = slack * EXACT_ROUNDING / hashing.ROUNDING + EXACT_ROUNDING
            found[np.abs(found) <= smaller * (exact @ reach) + EXACT_ROUNDING * np.abs(self.offset)] = 0.0
            q[rows], margin[rows] = exact, found
        return q, margin

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta, arrays = self.classifier.content()
        own = {"bias": arrays.pop("offset"), "directions": self.directions, "offset": self.offset}
        return {**meta, "exclusive": self.exclusive, "power": self.power}, {**arrays, **own}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        schema.check(SCHEMA, meta, arrays)
        parts = {name: array for name, array in arrays.items() if name not in ("bias", "directions", "offset")}
        classifier = HashFunction.assemble(meta, {**parts, "offset": arrays["bias"]})
        return cls(classifier, meta["exclusive"], meta["power"], arrays["directions"], arrays["offset"])


def log_posteriors(logits: Floats, exclusive: bool) -> Floats:
    """Logarithms of the probabilities of classes, or of tags, [n, c]."""
    if exclusive:
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return np.asarray(-np.logaddexp(0.0, -logits))


def powers(logits: Floats, exclusive: bool, power: float) -> Floats:
    """Powers of these probabilities, [n, c]."""
    return np.asarray(np.exp(power * log_posteriors(logits, exclusive)))
