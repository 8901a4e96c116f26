"""Hash functions that look at scaled rows from some directions: the sides of hyperplanes, and standing waves.

    linear:      sign(x W + c)
    sinusoids:   sign(cos(k π (v − a) / R)),   v = x D,   as spectral hashing has them

A row's bits must not depend on the rows around it, and products round by a row's place among them. So a margin is zero
where only rounding could tell its sign.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Indices, Rows, widened
from gphash.codes.packing import MOST_BITS
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.method import scaling
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Schema

TILE = 4096
ROUNDING = 1e-13  # of a float64 sum of products, relative to the sum of their absolute values
SIDES = {"bits": (1, MOST_BITS), "features": (1, 2**31), "components": (1, 2**31)}


def _schema(**own: Array) -> Schema:
    return Schema({"unit_length": Flag()}, {"scaling_mean": scaling.MEAN, **own}, SIDES)


@dataclass(frozen=True, eq=False)
class Projection:
    """What both have in common; an array of the schema is a field of the same name."""

    SCHEMA: ClassVar[Schema]
    has_probabilities: ClassVar[bool] = False

    scaling: Scaling

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return len(self.scaling.mean)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; zero where only rounding could tell the side."""

        def work(rows: slice) -> Floats:
            scaled = scaling.apply(self.scaling, widened(X[rows]), np.float64)
            margin, doubt = self._project(scaled, np.sqrt(np.square(scaled).sum(axis=1, keepdims=True)))
            margin[np.abs(margin) <= doubt] = 0.0
            return margin

        with LocalExecutor(n_jobs) as executor:
            return np.concatenate(list(executor.collect(work, row_blocks(len(X), TILE))))

    def _project(self, scaled: Floats, length: Floats) -> tuple[Floats, Floats]:
        """Margins of scaled rows, which are so long [n, 1], and how much of them may be rounding, [n, m] each."""
        raise NotImplementedError

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        arrays = {name: getattr(self, name) for name in self.SCHEMA.arrays if name != "scaling_mean"}
        return {"unit_length": self.scaling.unit_length}, {"scaling_mean": self.scaling.mean, **arrays}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        schema.check(cls.SCHEMA, meta, arrays)
        own = {name: array for name, array in arrays.items() if name != "scaling_mean"}
        return cls(Scaling(arrays["scaling_mean"], meta["unit_length"]), **own)


@dataclass(frozen=True, eq=False)
class LinearFunction(Projection):
    """Sides of hyperplanes."""

    SCHEMA: ClassVar[Schema] = _schema(weights=Array("<f8", ("features", "bits")), offset=Array("<f8", ("bits",)))

    weights: Floats  # W, one column per bit, [d, m]
    offset: Floats  # c, [m]

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.offset)

    def _project(self, scaled: Floats, length: Floats) -> tuple[Floats, Floats]:
        slack = ROUNDING * np.sqrt(np.square(self.weights).sum(axis=0))
        return scaled @ self.weights + self.offset, slack * length + ROUNDING * np.abs(self.offset)


@dataclass(frozen=True, eq=False)
class SinusoidFunction(Projection):
    """Standing waves along directions."""

    SCHEMA: ClassVar[Schema] = _schema(
        directions=Array("<f8", ("features", "components")),
        least=Array("<f8", ("components",)),
        extent=Array("<f8", ("components",), least=1e-200),
        dimension=Array("<i8", ("bits",)),
        frequency=Array("<i8", ("bits",), least=1, most=MOST_BITS),
    )

    directions: Floats  # D, principal directions, [d, c]
    least: Floats  # a, the smallest value of each component, [c]
    extent: Floats  # R, its range, [c]
    dimension: Indices  # the component that each bit is a wave of, [m]
    frequency: Indices  # k, the half waves of each bit within the range, [m]

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.dimension)

    def _project(self, scaled: Floats, length: Floats) -> tuple[Floats, Floats]:
        steepness = np.pi * self.frequency / self.extent[self.dimension]
        along = (scaled @ self.directions - self.least)[:, self.dimension]
        reach = length + np.abs(self.least[self.dimension])
        return np.cos(along * steepness), ROUNDING * (1 + reach * steepness)

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; every bit must be a wave of a component that there is."""
        made = super().restore(meta, arrays)
        schema.check_values("dimension", made.dimension, 0, len(made.extent) - 1)
        return made
