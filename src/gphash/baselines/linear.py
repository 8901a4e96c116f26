"""Linear hash functions, sign(x W + c), and what the methods that learn one have in common."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import schema, validation
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.contract import Hasher
from gphash.execution.local import LocalExecutor, count_jobs, row_blocks
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


class LinearHasher(Hasher):
    """A method whose bits are the sides of hyperplanes; it learns them in `_directions`.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        Seed of everything random.
    """

    hash_function_: LinearFunction

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
        generator = np.random.default_rng(validation.seed(self.random_state))
        features = validation.features(self, X, reset=True)
        supervision = self._supervision(y, len(features), balance_pairs=True) if self.takes else None
        scaled = scaling.fit(features, self.scaling == "unit")
        with LocalExecutor(self.n_jobs):  # one BLAS thread: the same sums on any machine
            weights, offset = self._directions(scaling.apply(scaled, features, np.float64), supervision, generator)
        return {"hash_function_": LinearFunction(scaled, np.ascontiguousarray(weights), offset)}

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        count_jobs(self.n_jobs)

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Weights [d, m] and offset [m], from scaled rows [n, d]."""
        raise NotImplementedError

    def _restrict_bits(self, X: Floats) -> None:
        """Refuse more bits than the features have directions."""
        if self.n_bits > X.shape[1]:
            raise ValueError(
                f"n_bits={self.n_bits}, but X has {X.shape[1]} feature(s), and {type(self).__name__} takes one "
                "direction of them per bit; give at most as many bits."
            )

    @classmethod
    def _restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> LinearFunction:
        return restore(meta, arrays)
