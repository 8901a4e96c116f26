"""Signs of standing waves along some directions, cos(k π (v − a) / R), as spectral hashing has them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Indices
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
        "directions": Array("<f8", ("features", "components")),
        "least": Array("<f8", ("components",)),
        "extent": Array("<f8", ("components",), least=1e-200),
        "dimension": Array("<i8", ("bits",)),
        "frequency": Array("<i8", ("bits",), least=1, most=MOST_BITS),
    },
    {"bits": (1, MOST_BITS), "features": (1, 2**31), "components": (1, 2**31)},
)
"""What a file holds of such a function."""


@dataclass(frozen=True, eq=False)
class SinusoidFunction:
    """Everything needed to encode a row.

    scaling
        From raw to scaled features.
    directions
        Principal directions, float64 [d, c].
    least
        a, the smallest value of each component, [c].
    extent
        R, its range, [c].
    dimension
        The component that each bit is a wave of, int64 [m].
    frequency
        k, the half waves of each bit within the range, int64 [m].
    """

    form: ClassVar[str] = "sinusoids"
    has_probabilities: ClassVar[bool] = False

    scaling: Scaling
    directions: Floats
    least: Floats
    extent: Floats
    dimension: Indices
    frequency: Indices

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.dimension)

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return int(self.directions.shape[0])

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """Heights of the waves, [n, m]; zero where only rounding could tell the sign."""
        # A row's bits must not depend on the rows around it, and products round by a row's place among them.
        steepness = np.pi * self.frequency / self.extent[self.dimension]

        def wave(rows: slice) -> Floats:
            scaled = scaling.apply(self.scaling, X[rows], np.float64)
            along = (scaled @ self.directions - self.least)[:, self.dimension]
            margin = np.cos(along * steepness)
            length = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
            reach = length + np.abs(self.least[self.dimension])
            margin[np.abs(margin) <= ROUNDING * (1 + reach * steepness)] = 0.0
            return margin

        with LocalExecutor(n_jobs) as executor:
            return np.concatenate(list(executor.collect(wave, row_blocks(len(X), TILE))))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        arrays = {
            "scaling_mean": self.scaling.mean,
            "directions": self.directions,
            "least": self.least,
            "extent": self.extent,
            "dimension": self.dimension,
            "frequency": self.frequency,
        }
        return {"unit_length": self.scaling.unit_length}, arrays


def restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> SinusoidFunction:
    """The function from its content; a FaultError says what is wrong with that."""
    sizes = schema.check(SCHEMA, meta, arrays)
    schema.check_values("dimension", arrays["dimension"], 0, sizes["components"] - 1)
    parts = (arrays[name] for name in ("directions", "least", "extent", "dimension", "frequency"))
    return SinusoidFunction(Scaling(arrays["scaling_mean"], meta["unit_length"]), *parts)
