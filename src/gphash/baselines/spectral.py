"""Spectral hashing (Weiss, Torralba, Fergus, 2008): standing waves along the principal components.

On rows spread evenly over a box with edges R_i, the smoothest codes are signs of the eigenfunctions of the Laplacian,

    cos(k π (v_i − a_i) / R_i)   with eigenvalue (k π / R_i)²,   k = 1, 2, …

v are principal components, a and R the minimum and the range of each over the training rows. The m waves of smallest
eigenvalue, of one component each, are the bits: a long component gets several.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import schema, validation
from gphash.arrays import Floats, Indices
from gphash.baselines.pcah import principal_components
from gphash.coding.similarity import Pairs
from gphash.contract import Hasher
from gphash.execution.local import LocalExecutor, count_jobs, row_blocks
from gphash.features import scaling
from gphash.features.scaling import Scaling
from gphash.hamming.packing import MOST_BITS
from gphash.schema import Array, Flag, Schema

TILE = 4096
ROUNDING = 1e-13  # of a float64 sum of products, relative to the sum of their absolute values
NOTHING = 1e-10  # of the longest row: a range that is none but for rounding

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


class SpectralHashing(Hasher):
    """Spectral hashing: every bit is the sign of a standing wave along a principal component. Learns from X alone.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        As other methods have; nothing is random here.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    hash_function_: SinusoidFunction

    def __init__(
        self,
        n_bits: int = 16,
        *,
        scaling: str = "unit",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.scaling = scaling
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        self._check()
        features = validation.features(self, X, reset=True)
        scaled = scaling.fit(features, self.scaling == "unit")
        with LocalExecutor(self.n_jobs):  # one BLAS thread: the same sums on any machine
            rows = scaling.apply(scaled, features, np.float64)
            directions, _ = principal_components(rows, min(self.n_bits, rows.shape[1]))
            components = rows @ directions
        least, extent = components.min(axis=0), np.ptp(components, axis=0)
        wide = extent > NOTHING * np.sqrt(np.square(rows).sum(axis=1).max())
        if not wide.any():
            raise ValueError("X has rows that are all the same once scaled, and no wave can tell them apart.")
        modes = smoothest_waves(extent[wide], self.n_bits)
        return {
            "hash_function_": SinusoidFunction(
                scaled, np.ascontiguousarray(directions[:, wide]), least[wide], extent[wide], *modes
            )
        }

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        validation.seed(self.random_state)
        count_jobs(self.n_jobs)

    @classmethod
    def _restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> SinusoidFunction:
        return restore(meta, arrays)


def smoothest_waves(extent: Floats, n_waves: int) -> tuple[Indices, Indices]:
    """Dimension and frequency of the waves of smallest eigenvalue in a box, [m] each; longer edges first on a tie."""
    # The longest edge alone has m waves, so that no frequency above m can be among the smallest.
    frequency = np.arange(1, n_waves + 1)
    roots = frequency / extent[:, None]
    first = np.argsort(roots, axis=None, kind="stable")[:n_waves]
    dimension, place = np.unravel_index(first, roots.shape)
    return dimension.astype(np.int64), frequency[place].astype(np.int64)
