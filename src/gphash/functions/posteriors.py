"""Signs of class posteriors seen from some directions: a kernel classifier's probabilities, quantised.

    q = P(classes | x)^a,   bits = sign(q T + t)

The logits are kernel machines, k(x, Z) W + b. Classes that exclude each other share a soft-max; tags have a logistic
function each. The power a is ½ for square roots.

Everything is computed in float64, and a margin is zero where only rounding could tell its sign: a row's code must not
depend on which rows it is encoded with.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats
from gphash.codes.packing import MOST_BITS
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.functions.projections import ROUNDING
from gphash.method import hashing, kernels
from gphash.method.hashing import HashFunction
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Number, Schema

TILE = 1024

_MACHINE = hashing.SCHEMA.arrays
SCHEMA = Schema(
    {**hashing.SCHEMA.fields, "exclusive": Flag(), "power": Number(1e-3, 1e3)},
    {
        "scaling_mean": _MACHINE["scaling_mean"],
        "Z": _MACHINE["Z"],
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

    has_probabilities: ClassVar[bool] = False  # of classes, but not of bits

    classifier: HashFunction
    exclusive: bool  # whether a row has one class, or any tags
    power: float  # a
    directions: Floats  # T, one column per bit, [c, m]
    offset: Floats  # t, [m]

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.offset)

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return self.classifier.n_features

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; zero where only rounding could tell the side."""
        slack = self.power * 2 * ROUNDING / hashing.ROUNDING * float(self.classifier.doubt.max())

        def work(rows: slice) -> Floats:
            q = powers(self.classifier.exact_means(X[rows]), self.exclusive, self.power)
            margin: Floats = q @ self.directions + self.offset
            doubt = (slack + ROUNDING) * (q @ np.abs(self.directions)) + ROUNDING * np.abs(self.offset)
            margin[np.abs(margin) <= doubt] = 0.0
            return margin

        with LocalExecutor(n_jobs) as executor:
            return np.concatenate(list(executor.collect(work, row_blocks(len(X), TILE))))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta, arrays = self.classifier.content()
        own = {"bias": arrays.pop("offset"), "directions": self.directions, "offset": self.offset}
        return {**meta, "exclusive": self.exclusive, "power": self.power}, {**arrays, **own}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        schema.check(SCHEMA, meta, arrays)
        scaled = Scaling(arrays["scaling_mean"], meta["unit_length"])
        machine = scaled, kernels.from_meta(meta["kernel"]), arrays["Z"], arrays["weights"], arrays["bias"]
        classifier = HashFunction(*machine)
        classifier.check_range()
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
