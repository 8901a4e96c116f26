"""Bits from the probabilities of classes or tags: a kernel classifier, and directions that its answers are seen from.

    q = P(classes | x)^a,   margins = q T + t,   bits = sign(margins)

The logits are kernel machines, k(x, Z) W + b. Classes that exclude each other share a soft-max; tags have a logistic
function each. This P is for classes as they were weighed in training. For classes as often as they occur,
P'(c | x) ∝ P(c | x) e^{s_c} with a shift s. A row of which everything is known has a true code, and so every bit a
probability:

    classes   a class has the word sign(T_c + t):   P(bit = 1) = Σ_c P'(c | x) [word_c = 1]
    tags      with a = 1, the margin is the mean of a sum of independent terms:   P(bit = 1) = Φ(margin / deviation)

Bits are chosen to retrieve well, not to be the most probable ones: with a below 1, a second class that is hardly less
probable than the first has its say. So a bit of 1 may have a probability somewhat below ½.

And a code, read again, says how probable classes are of rows that have it. Two rows are similar if they have the same
class, or share a tag; the query is known by its features, and an item by its code b ∈ {−1, 1}^m alone:

    P(c | b) = softmax(b V + v)                                    for tags a logistic function each
    classes   P(similar) = Σ_c P'(c | x) P(c | b)
    tags      P(similar) = 1 − Π_t (1 − P(t | x) P(t | b))

A row's code must not depend on which rows it is encoded with: rows with a margin so near to zero that rounding could
decide its sign are computed again in float64, and there a margin is zero where only rounding could tell its sign.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Rows
from gphash.codes import reading, trust
from gphash.codes.packing import MOST_BITS
from gphash.codes.reading import CodeReader, log_posteriors
from gphash.codes.trust import Trust
from gphash.method import hashing
from gphash.method.hashing import HashFunction
from gphash.method.kernels import Kernel
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Number, Schema

LEAST_DEVIATION = 1e-12
EXACT_ROUNDING = 1e-13  # of a float64 sum of products, relative to the sum of their absolute values

_MACHINE = hashing.SCHEMA.arrays
SCHEMA = Schema(
    {**hashing.SCHEMA.fields, "exclusive": Flag(), "power": Number(1e-3, 1e3), "calibrated": Flag()},
    {
        **{name: rule for name, rule in _MACHINE.items() if name not in ("weights", "offset")},
        "weights": Array("<f4", ("inducing inputs", "classes")),
        "bias": Array("<f8", ("classes",)),
        "shift": Array("<f8", ("classes",)),
        "directions": Array("<f8", ("classes", "bits")),
        "offset": Array("<f8", ("bits",)),
    },
    {**hashing.SCHEMA.sides, "classes": (1, 2**31), "bits": (1, MOST_BITS)},
)
"""What a file holds of quantised posteriors."""

_CODES = {"code_weights": Array("<f8", ("bits", "classes")), "code_bias": Array("<f8", ("classes",))}
READING = SCHEMA._replace(arrays={**SCHEMA.arrays, **_CODES, **trust.ARRAYS}, sides={**SCHEMA.sides, **trust.SIDES})
"""The same if it can read codes."""


class Seen(NamedTuple):
    """All that is known of rows, from one look at them."""

    margins: Floats  # [n, m]
    chances: Floats  # P(bit = 1), [n, m]
    classes: Floats  # P(class | x), or P(tag | x), [n, c]
    familiarity: Floats  # [n]


class Reading(NamedTuple):
    """Logits of classes or tags from something else: answers, or codes ±1."""

    weights: Floats  # [q, c]
    bias: Floats  # [c]

    def rounded(self) -> "Reading":
        """The same, so that sums of weights are exact."""
        return Reading(*(reading.rounded(part, reading.WEIGHT_UNIT) for part in self))


@dataclass(frozen=True, eq=False)
class PosteriorFunction:
    """Everything needed to encode a row; the classifier is a kernel machine with a column per class."""

    classifier: HashFunction
    exclusive: bool  # whether a row has one class, or any tags
    power: float  # a
    directions: Floats  # T, one column per bit, [c, m]
    offset: Floats  # t, [m]
    shift: Floats  # s, [c]
    reading: Reading | None = None  # V and v, of codes; None if probabilities of classes are not calibrated
    trust: Trust | None = None  # what may be promised; None without a reading

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
        """Whether the method knows how probable bits, and classes, are."""
        return self.reading is not None

    @property
    def words(self) -> NDArray[np.uint8]:
        """Codes of rows that are sure to have one class or tag and no other, bits, [c, m]."""
        return (self.directions + self.offset >= 0).astype(np.uint8)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; zero where only rounding could tell the side."""
        return self._margins(X, self.classifier.means(X, n_jobs))

    def _margins(self, X: Rows, means: Floats) -> Floats:
        reach = np.abs(self.directions)
        # A soft-max changes by at most twice what logits do, all classes together.
        slack = 2 * self.power * float(self.classifier.doubt.max())
        q = powers(means, self.exclusive, self.power)
        margin: Floats = q @ self.directions + self.offset
        doubtful = np.flatnonzero((np.abs(margin) <= slack * (q @ reach) + hashing.ROUNDING * slack).any(axis=1))
        for rows in np.array_split(doubtful, -(-len(doubtful) // hashing.TILE)) if len(doubtful) else []:
            exact = powers(self.classifier.exact_means(X[rows]), self.exclusive, self.power)
            found = exact @ self.directions + self.offset
            smaller = slack * EXACT_ROUNDING / hashing.ROUNDING + EXACT_ROUNDING
            found[np.abs(found) <= smaller * (exact @ reach) + EXACT_ROUNDING * np.abs(self.offset)] = 0.0
            margin[rows] = found
        return margin

    def probabilities(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1) of the row's true code, [n, m]."""
        return self._chances(self.classes(X, n_jobs))

    def _chances(self, p: Floats) -> Floats:
        if self.exclusive:
            chance: Floats = p @ self.words
        else:
            from scipy.special import ndtr  # takes longer to import than most rows to encode

            deviation = np.sqrt((p * (1 - p)) @ np.square(self.directions))
            chance = ndtr((p @ self.directions + self.offset) / np.maximum(deviation, LEAST_DEVIATION))
        return np.clip(chance, 0.0, 1.0)

    def classes(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(class | x), or P(tag | x), [n, c]."""
        return self.believe(self.classifier.means(X, n_jobs))

    def believe(self, logits: Floats) -> Floats:
        """The same from logits of classes as they were weighed in training."""
        return np.exp(log_posteriors(logits + self.shift, self.exclusive))

    def look(self, X: Rows, n_jobs: int | None = 1) -> Seen:
        """Everything about rows."""
        assert self.trust is not None
        means, nearness = self.classifier.look(X, n_jobs)
        p = self.believe(means)
        familiarity = self.trust.familiarity(nearness, sureness(p, self.exclusive))
        return Seen(self._margins(X, means), self._chances(p), p, familiarity)

    def reader(self) -> CodeReader:
        """What reads codes, and tells how probable it is that rows are similar."""
        assert self.reading is not None
        return CodeReader(self.reading.weights, self.reading.bias, self.exclusive)

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta, arrays = self.classifier.content()
        own = {"bias": arrays.pop("offset"), "shift": self.shift}
        own |= {"directions": self.directions, "offset": self.offset}
        if self.reading is not None:
            own |= {"code_weights": self.reading.weights, "code_bias": self.reading.bias}
        if self.trust is not None:
            own |= self.trust._asdict()
        about = {"exclusive": self.exclusive, "power": self.power, "calibrated": self.reading is not None}
        return {**meta, **about}, {**arrays, **own}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        reads = meta.get("calibrated") is True
        schema.check(READING if reads else SCHEMA, meta, arrays)
        parts = {name: array for name, array in arrays.items() if name in _MACHINE}
        classifier = HashFunction.assemble(meta, {**parts, "offset": arrays["bias"]})
        own = arrays["directions"], arrays["offset"], arrays["shift"]
        reading = Reading(arrays["code_weights"], arrays["code_bias"]).rounded() if reads else None
        promised = Trust(**{name: arrays[name] for name in trust.ARRAYS}) if reads else None
        return cls(classifier, meta["exclusive"], meta["power"], *own, reading, promised)


def sureness(classes: Floats, exclusive: bool) -> Floats:
    """How probably two rows with the same beliefs are similar, [n]."""
    same = np.square(classes)
    return np.asarray(same.sum(axis=1) if exclusive else 1 - np.prod(1 - same, axis=1))


def likelihood(logits: Floats, truth: Floats, exclusive: bool) -> tuple[Floats, Floats]:
    """Log-probability of the true classes, or of all tags as they are, [n], and its gradient by the logits, [n, c].

    The truth is 0 or 1, [n, c].
    """
    log_p = log_posteriors(logits, exclusive)
    found = np.einsum("nc,nc->n", truth, log_p)
    if not exclusive:
        found += np.einsum("nc,nc->n", 1 - truth, log_p - logits)  # log(1 − p) = log p − logit
    return found, truth - np.exp(log_p)


def powers(logits: Floats, exclusive: bool, power: float) -> Floats:
    """Powers of these probabilities, [n, c]."""
    return np.asarray(np.exp(power * log_posteriors(logits, exclusive)))
