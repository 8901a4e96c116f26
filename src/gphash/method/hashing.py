"""Kernel machines: what a row's code is computed from, for Gaussian processes (section 2.4 of the paper) and others.

    mean_j(x) = k(x, Z) w_j + c_j,   variance(x) = α k(x, x) + Σ_u ± (U_uᵀ k(Z, x))²
    P(bit_j = 1) = Φ(mean_j / √(1 + variance)),   bit_j = [mean_j ≥ 0]
    P(class | x) = softmax((2 P(bit = 1) − 1) A + a)                          for tags a logistic function each

with w_j = L⁻ᵀ b_j, and U diag(±1) Uᵀ = L⁻ᵀ (Λ̄⁻¹ − α I) L⁻¹ from the prior's whitening L and the shared factor Λ̄:
a share α of what the inducing inputs leave open, and what the data leave open of the inducing values. The offset c is
zero for Gaussian processes; other kernel methods, which know no U, may have one. Sampled codes say what they know of
classes or tags by a read-out of soft bits; those of judged pairs know P(similar) by distance (`codes.reading`).

Rows with a mean so near to zero that rounding could decide its sign are computed again in float64: a row's code must
not depend on which rows it is encoded with.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Rows, widened
from gphash.codes.packing import MOST_BITS
from gphash.codes.reading import CodeReader, DistanceReader, Reader
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.method import kernels, scaling
from gphash.method.kernels import Kernel
from gphash.method.scaling import Scaling
from gphash.schema import Array, Flag, Maybe, Number, Record, Schema, Text, Whole

TILE = 1024
ROUNDING = 2e-7  # of a sum of float32 kernel values times weights, relative to the sum of their absolute values

SCHEMA = Schema(
    {
        "unit_length": Flag(),
        "kernel": kernels.rule(),
        "uncertainty": Maybe(Record({"power": Number(0, 1), "n_lowering": Whole(0, 2**31)})),
    },
    {
        **scaling.ARRAYS,
        "Z": Array("<f4", ("inducing inputs", "dimensions")),
        "weights": Array("<f4", ("inducing inputs", "bits")),
        "offset": Array("<f8", ("bits",)),
        "uncertainty": Array("<f4", ("inducing inputs", "inducing inputs"), optional=True),
    },
    {"bits": (1, MOST_BITS), **dict.fromkeys(("features", "dimensions", "inducing inputs"), (1, 2**31))},
)
"""What a file holds of a hash function that does not read codes."""

PARTS = {
    "pairs": {name: Array("<f8", (2,)) for name in ("expected_curve", "hamming_curve")},
    "classes": {
        **dict.fromkeys(("soft_weights", "code_weights"), Array("<f8", ("bits", "classes"))),
        **dict.fromkeys(("soft_bias", "code_bias"), Array("<f8", ("classes",))),
    },
}
PARTS["tags"] = PARTS["classes"]
"""Arrays of what reads codes, by what they are compared by."""


class Uncertainty(NamedTuple):
    """What the variance of a row is computed from."""

    power: float  # α
    columns: Floats  # U, float32 [r, r]
    n_lowering: int  # the first so many columns lower the variance, the others raise it


class ClassReading(NamedTuple):
    """What sampled codes say of classes or tags."""

    soft: CodeReader  # of queries, by their soft bits 2 P(bit = 1) − 1
    codes: CodeReader  # of items, by their codes


@dataclass(frozen=True, eq=False)
class HashFunction:
    """Everything needed to encode a row."""

    scaling: Scaling
    kernel: Kernel
    Z: Floats  # inducing inputs, scaled, float32 [r, d], or [r, q] with a metric
    weights: Floats  # w, one column per bit, float32 [r, m]
    offset: Floats  # c, one number per bit, float64 [m]
    uncertainty: Uncertainty | None = None  # None if the method knows none
    reading: ClassReading | DistanceReader | None = None  # None if nobody taught it to read codes

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is derived from them is made again when needed."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        r, q = self.Z.shape
        through = "" if self.scaling.metric is None else f" → {q} dimensions"
        path = f"{self.n_features} features{through} → {self.n_bits} bits"
        return f"HashFunction({path}, {r} inducing inputs, {self.kernel})"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.weights.shape[1])

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return len(self.scaling.mean)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """Predictive means of the latent functions, [n, m]; their signs are the bits."""
        return _resolve(self, X, self.means(X, n_jobs))

    def means(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """The same to float32's precision: `doubt` says where that does not tell the sign."""
        return self.look(X, n_jobs)[0]

    def look(self, X: Rows, n_jobs: int | None = 1) -> tuple[Floats, Floats]:
        """These means, and how near the nearest inducing input is, as a correlation, [n]."""

        def seen(rows: Floats) -> tuple[Floats, Floats]:
            mean, K = _mean(self, rows)
            return mean, K.max(axis=1) / self.kernel.diagonal

        mean, nearness = _by_tiles(seen, X, n_jobs)
        return mean, nearness

    @property
    def has_probabilities(self) -> bool:
        """Whether the method knows how certain bits are."""
        return self.uncertainty is not None

    def probabilities(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1), [n, m]; at least ½ exactly where the margin is not negative."""
        from scipy.special import ndtr  # takes longer to import than most rows to encode

        mean, variance = _by_tiles(lambda rows: predict(self, rows), X, n_jobs)
        mean = _resolve(self, X, mean)
        probability: Floats = ndtr(mean / np.sqrt(1 + variance)[:, None])
        # Next to zero, Φ rounds to ½, which is the 1 bit's.
        return np.where(mean < 0, np.minimum(probability, np.nextafter(0.5, 0)), probability)

    def classes(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(class | soft bits), or P(tag | soft bits), [n, c]; only a function that was taught classes knows it."""
        return self.tell(self.probabilities(X, n_jobs))

    def tell(self, chances: Floats) -> Floats:
        """The same from P(bit = 1), [n, m]."""
        assert isinstance(self.reading, ClassReading)
        return self.reading.soft.tell(2 * chances - 1)

    def reader(self) -> Reader | None:
        """What compares rows with codes; None if there is nothing."""
        return self.reading.codes if isinstance(self.reading, ClassReading) else self.reading

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta = {"unit_length": self.scaling.unit_length, "kernel": kernels.to_meta(self.kernel)}
        arrays = scaling.arrays(self.scaling) | {"Z": self.Z, "weights": self.weights, "offset": self.offset}
        if isinstance(self.reading, DistanceReader):
            meta["reads"] = "pairs"
            arrays |= {"expected_curve": self.reading.expected, "hamming_curve": self.reading.hamming}
        elif self.reading is not None:
            soft, codes = self.reading
            meta["reads"] = "classes" if codes.exclusive else "tags"
            arrays |= {"soft_weights": soft.weights, "soft_bias": soft.bias}
            arrays |= {"code_weights": codes.weights, "code_bias": codes.bias}
        if self.uncertainty is None:
            return {**meta, "uncertainty": None}, arrays
        power, columns, n_lowering = self.uncertainty
        about = {"power": power, "n_lowering": n_lowering}
        return {**meta, "uncertainty": about}, {**arrays, "uncertainty": columns}

    def exact_means(self, X: Floats) -> Floats:
        """Predictive means of a few rows in float64, [n, m]."""
        landmarks, weights = self.exact
        K = self.kernel.evaluate(landmarks, scaling.apply(self.scaling, widened(X), np.float64))
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
        kind = meta.get("reads")
        if kind is None:
            schema.check(SCHEMA, meta, arrays)
            return cls.assemble(meta, arrays)
        Text(tuple(PARTS)).check(kind, "reads")
        more, sides = PARTS[kind], {**SCHEMA.sides, "classes": (1, 2**31)}
        schema.check(Schema({**SCHEMA.fields, "reads": Text()}, {**SCHEMA.arrays, **more}, sides), meta, arrays)
        if meta["uncertainty"] is None:
            raise schema.FaultError("it reads codes, and does not know how probable bits are")
        machine = cls.assemble(meta, arrays)
        return replace(machine, reading=_reading(kind, arrays, machine.n_bits))

    @classmethod
    def assemble(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The same from content that has been checked."""
        scaled = scaling.restore(meta["unit_length"], arrays, arrays["Z"].shape[1])
        about, columns = meta["uncertainty"], arrays.get("uncertainty")
        if (about is None) != (columns is None):
            raise schema.FaultError("of its 'uncertainty', one part is missing")
        uncertainty = None
        if columns is not None:
            if about["n_lowering"] > columns.shape[1]:
                raise schema.FaultError(f"the field 'n_lowering' is more than the {columns.shape[1]} columns there are")
            uncertainty = Uncertainty(about["power"], columns, about["n_lowering"])
        own = arrays["Z"], arrays["weights"], arrays["offset"]
        function = cls(scaled, kernels.from_meta(meta["kernel"]), *own, uncertainty)
        function.check_range()
        return function

    def check_range(self) -> None:
        """Raise a FaultError if kernel values would overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            if not (np.isfinite(self.landmarks).all() and np.isfinite(self.doubt).all()):
                raise schema.FaultError("the inducing inputs 'Z' are too far apart for the length scale of the kernel")


def _reading(kind: str, arrays: dict[str, NDArray[Any]], n_bits: int) -> ClassReading | DistanceReader:
    """What reads codes, from arrays that have been checked."""
    if kind == "pairs":
        curves = arrays["expected_curve"], arrays["hamming_curve"]
        if min(curve[1] for curve in curves) < 0:
            raise schema.FaultError("by one of its curves, P(similar) grows with the distance")
        return DistanceReader(*curves, n_bits, n_bits)
    parts = [(arrays[f"{part}_weights"], arrays[f"{part}_bias"]) for part in ("soft", "code")]
    return ClassReading(*(CodeReader(*part, kind == "classes").rounded() for part in parts))


def predict(function: HashFunction, X: Floats) -> tuple[Floats, Floats]:
    """Predictive means, [n, m], and variance, the same for all bits, [n], to float32's precision."""
    assert function.uncertainty is not None
    mean, K = _mean(function, X)
    power, columns, n_lowering = function.uncertainty
    parts = K @ columns
    raised, lowered = (kernels.squared_norms(part) for part in (parts[:, n_lowering:], parts[:, :n_lowering]))
    variance = power * function.kernel.diagonal + (raised.astype(np.float64) - lowered)
    return mean, np.maximum(variance, 0.0)


def _mean(function: HashFunction, X: Floats) -> tuple[Floats, Floats]:
    """Predictive means, [n, m], and the kernel values that they are from, float32 [n, r]."""
    K = function.kernel.evaluate(function.landmarks, scaling.apply(function.scaling, X))
    return (K @ function.weights).astype(np.float64) + function.offset, K


def _resolve(function: HashFunction, X: Rows, mean: Floats) -> Floats:
    """Compute the means of rows with a sign in doubt again, in float64."""
    doubtful = np.flatnonzero((np.abs(mean) < function.doubt).any(axis=1))
    if len(doubtful):
        for rows in np.array_split(doubtful, -(-len(doubtful) // TILE)):
            mean[rows] = function.exact_means(X[rows])
    return mean


def _by_tiles(work: Callable[[Floats], tuple[Floats, ...]], X: Rows, n_jobs: int | None) -> tuple[Floats, ...]:
    """Apply `work` to tiles of rows and put the parts of its results together."""
    tiles = row_blocks(len(X), TILE)
    if len(tiles) == 1:
        return work(widened(X[tiles[0]]))
    with LocalExecutor(n_jobs) as executor:
        results = list(executor.collect(lambda rows: work(widened(X[rows])), tiles))
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))
