"""Linear hash functions, sign(x W + c)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.features import scaling
from gphash.features.scaling import Scaling
from gphash.hamming.packing import MOST_BITS
from gphash.schema import Array, Flag, Schema

TILE = 4096
ROUNDING = 1e-13  # of a float64 sum of products, relative to the sum of their absolute values

SCHEMA = Schema(
    {"unit_length": Flag()},
    {
        "scaling_mean": scaling.MEAN,
        "weights": Array("<f8", ("features", "bits")),
        "offset": Array("<f8", ("bits",)),
    },
    {"bits": (1, MOST_BITS), "features": (1, 2**31)},
)
"""What a file holds of a linear function."""


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """Everything needed to encode a row.

    scaling
        From raw to scaled features.
    weights
        W, one column per bit, float64 [d, m].
    offset
        c, float64 [m].
    """

    form: ClassVar[str] = "linear"
    has_probabilities: ClassVar[bool] = False

    scaling: Scaling
    weights: Floats
    offset: Floats

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.weights.shape[1])

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return int(self.weights.shape[0])

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """Signed distances from the hyperplanes, [n, m]; zero where only rounding could tell the side."""
        # A row's bits must not depend on the rows around it, and products round by a row's place among them.
        slack = ROUNDING * np.sqrt(np.square(self.weights).sum(axis=0))
        fixed = ROUNDING * np.abs(self.offset)

        def project(rows: slice) -> Floats:
            scaled = scaling.apply(self.scaling, X[rows], np.float64)
            margin: Floats = scaled @ self.weights + self.offset
            length = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
            margin[np.abs(margin) <= slack * length + fixed] = 0.0
            return margin

        with LocalExecutor(n_jobs) as executor:
            return np.concatenate(list(executor.collect(project, row_blocks(len(X), TILE))))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        arrays = {"scaling_mean": self.scaling.mean, "weights": self.weights, "offset": self.offset}
        return {"unit_length": self.scaling.unit_length}, arrays


def restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> LinearFunction:
    """A linear function from its content; a FaultError says what is wrong with that."""
    schema.check(SCHEMA, meta, arrays)
    return LinearFunction(Scaling(arrays["scaling_mean"], meta["unit_length"]), arrays["weights"], arrays["offset"])
