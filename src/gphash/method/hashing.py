"""Kernel machines: what a row's code is computed from, for Gaussian processes (section 2.4 of the paper) and others.

    mean_j(x) = k(x, Z) w_j + c_j,   variance(x) = k(x, x) − ‖Uᵀ k(Z, x)‖²
    P(bit_j = 1) = Φ(mean_j / √(1 + variance)),   bit_j = [mean_j ≥ 0]

with w_j = L⁻ᵀ b_j, and U Uᵀ = L⁻ᵀ (I − Λ̄⁻¹) L⁻¹ from the prior's whitening L and the shared factor Λ̄. The
offset c is zero for Gaussian processes; other kernel methods, which know no U, may have one.

Rows with a mean so near to zero that rounding could decide its sign are computed again in float64: a row's code must
not depend on which rows it is encoded with.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats
from gphash.codes.packing import MOST_BITS
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.method import kernels, scaling
from gphash.method.kernels import Kernel
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Schema

TILE = 1024
ROUNDING = 2e-7  # of a sum of float32 kernel values times weights, relative to the sum of their absolute values

SCHEMA = Schema(
    {"unit_length": Flag(), "kernel": kernels.rule()},
    {
        "scaling_mean": scaling.MEAN,
        "Z": Array("<f4", ("inducing inputs", "features")),
        "weights": Array("<f4", ("inducing inputs", "bits")),
        "offset": Array("<f8", ("bits",)),
        "uncertainty": Array("<f4", ("inducing inputs", "inducing inputs"), optional=True),
    },
    {"bits": (1, MOST_BITS), "features": (1, 2**31), "inducing inputs": (1, 2**31)},
)
"""What a file holds of a hash function."""


@dataclass(frozen=True, eq=False)
class HashFunction:
    """Everything needed to encode a row."""

    scaling: Scaling
    kernel: Kernel
    Z: Floats  # inducing inputs, scaled, float32 [r, d]
    weights: Floats  # w, one column per bit, float32 [r, m]
    offset: Floats  # c, one number per bit, float64 [m]
    uncertainty: Floats | None = None  # U, float32 [r, r]; None if the method knows none

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is derived from them is made again when needed."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        r, d = self.Z.shape
        return f"HashFunction({d} features → {self.n_bits} bits, {r} inducing inputs, {self.kernel})"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.weights.shape[1])

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return int(self.Z.shape[1])

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """Predictive means of the latent functions, [n, m]; their signs are the bits."""
        (mean,) = _by_tiles(lambda rows: _mean(self, rows)[:1], X, n_jobs)
        return _resolve(self, X, mean)

    @property
    def has_probabilities(self) -> bool:
        """Whether the method knows how certain bits are."""
        return self.uncertainty is not None

    def probabilities(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1), [n, m]; at least ½ exactly where the margin is not negative."""
        from scipy.special import ndtr  # takes longer to import than most rows to encode

        mean, variance = _by_tiles(lambda rows: predict(self, rows), X, n_jobs)
        mean = _resolve(self, X, mean)
        probability: Floats = ndtr(mean / np.sqrt(1 + variance)[:, None])
        # Next to zero, Φ rounds to ½, which is the 1 bit's.
        return np.where(mean < 0, np.minimum(probability, np.nextafter(0.5, 0)), probability)

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta = {"unit_length": self.scaling.unit_length, "kernel": kernels.to_meta(self.kernel)}
        arrays = {"scaling_mean": self.scaling.mean, "Z": self.Z, "weights": self.weights, "offset": self.offset}
        return meta, arrays if self.uncertainty is None else {**arrays, "uncertainty": self.uncertainty}

    def exact_means(self, X: Floats) -> Floats:
        """Predictive means of a few rows in float64, [n, m]."""
        landmarks, weights = self.exact
        K = self.kernel.evaluate(landmarks, scaling.apply(self.scaling, X, np.float64))
        return np.asarray(K @ weights + self.offset)

    @cached_property
    def landmarks(self) -> Floats:
        """Inducing inputs prepared for float32 rows."""
        return self.kernel.landmarks(self.Z)

    @cached_property
    def exact(self) -> tuple[Floats, Floats]:
        """Inducing inputs and weights for float64 rows."""
        return self.kernel.landmarks(self.Z.astype(np.float64)), self.weights.astype(np.float64)

    @cached_property
    def doubt(self) -> Floats:
        """How near to zero a float32 mean may be before its sign is in doubt, [m]."""
        longest = float(np.max(kernels.squared_norms(self.Z), initial=0.0))
        sums = self.kernel.diagonal * np.abs(self.weights).sum(axis=0, dtype=np.float64)
        return np.asarray(ROUNDING * (self.kernel.rounding(longest) * sums + np.abs(self.offset)))

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Hash function from its content; a FaultError says what is wrong with that."""
        schema.check(SCHEMA, meta, arrays)
        scaled = Scaling(arrays["scaling_mean"], meta["unit_length"])
        own = {name: array for name, array in arrays.items() if name != "scaling_mean"}
        function = cls(scaled, kernels.from_meta(meta["kernel"]), **own)
        function.check_range()
        return function

    def check_range(self) -> None:
        """Raise a FaultError if kernel values would overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            if not (np.isfinite(self.landmarks).all() and np.isfinite(self.doubt).all()):
                raise schema.FaultError("the inducing inputs 'Z' are too far apart for the length scale of the kernel")


def predict(function: HashFunction, X: Floats) -> tuple[Floats, Floats]:
    """Predictive means, [n, m], and variance, the same for all bits, [n], to float32's precision."""
    assert function.uncertainty is not None
    mean, K = _mean(function, X)
    explained = kernels.squared_norms(K @ function.uncertainty).astype(np.float64)
    return mean, np.maximum(function.kernel.diagonal - explained, 0.0)


def _mean(function: HashFunction, X: Floats) -> tuple[Floats, Floats]:
    """Predictive means, [n, m], and the kernel values that they are from, float32 [n, r]."""
    K = function.kernel.evaluate(function.landmarks, scaling.apply(function.scaling, X))
    return (K @ function.weights).astype(np.float64) + function.offset, K


def _resolve(function: HashFunction, X: Floats, mean: Floats) -> Floats:
    """Compute the means of rows with a sign in doubt again, in float64."""
    doubtful = np.flatnonzero((np.abs(mean) < function.doubt).any(axis=1))
    if len(doubtful):
        for rows in np.array_split(doubtful, -(-len(doubtful) // TILE)):
            mean[rows] = function.exact_means(X[rows])
    return mean


def _by_tiles(work: Callable[[Floats], tuple[Floats, ...]], X: Floats, n_jobs: int | None) -> tuple[Floats, ...]:
    """Apply `work` to tiles of rows and put the parts of its results together."""
    tiles = row_blocks(len(X), TILE)
    if len(tiles) == 1:
        return work(X)
    with LocalExecutor(n_jobs) as executor:
        results = list(executor.collect(lambda rows: work(X[rows]), tiles))
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))
