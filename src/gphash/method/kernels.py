"""Kernels: how alike two rows are before anything is learned.

    squared exponential   k(x, x') = σ_f² exp(−r² / 2)                   r = ‖x − x'‖ / ℓ
    Matérn 3/2            k(x, x') = σ_f² (1 + √3 r) exp(−√3 r)
    exponential           k(x, x') = σ_f² exp(−r)

A kernel is a record of its hyper-parameters. To add one that depends on r alone, subclass `Kernel`, say how values
fall with r², and register the class in `KERNELS` under its name (docs/extending.md has an example).
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from gphash.arrays import Floats
from gphash.registry import Registry
from gphash.schema import Number, Record, Rule, Text

LONG = 100.0  # of ‖a‖²/2ℓ²; below, rounding is harmless


@dataclass(frozen=True)
class Kernel:
    """A covariance of latent functions, with its hyper-parameters.

    Distances are computed in float64: next to zero, where a rough kernel is steepest, float32 would leave four digits.
    """

    length_scale: float  # ℓ, the distance over which function values stay correlated
    signal_scale: float  # σ_f, the prior standard deviation of a latent function

    # What a file may say about its hyper-parameters.
    RULES: ClassVar[dict[str, Rule]] = {"length_scale": Number(1e-18, 1e18), "signal_scale": Number(1e-6, 1e6)}
    # Candidates for ℓ, times the median distance between rows.
    LENGTH_SCALES: ClassVar[tuple[float, ...]] = (0.35, 0.5, 0.7)

    def correlation(self, squared: Floats) -> Floats:
        """k/σ_f² for squared distances r² in units of ℓ², [a, b]."""
        raise NotImplementedError

    @property
    def diagonal(self) -> float:
        """k(x, x), the same for every x."""
        return self.signal_scale**2

    def landmarks(self, B: Floats) -> Floats:
        """Rows [b, d], prepared to be compared with many others: their product with (a, 1, ‖a‖²) is r², [b, d + 2]."""
        half = 0.5 / self.length_scale**2
        B = B.astype(np.float64)
        return np.column_stack([-4 * half * B, 2 * half * squared_norms(B), np.full(len(B), 2 * half)])

    def evaluate(self, landmarks: Floats, A: Floats) -> Floats:
        """Kernel values of the rows of A with the landmarks, [a, b], in A's precision."""
        squared = np.maximum(_augmented(A.astype(np.float64)) @ landmarks.T, 0)  # never negative but for rounding
        return (self.diagonal * self.correlation(squared)).astype(A.dtype, copy=False)

    def gram(self, A: Floats) -> Floats:
        """Kernel values of the rows of A with each other, exactly symmetric, [a, a]."""
        K = self.evaluate(self.landmarks(A), A)
        K = (K + K.T) / 2
        np.fill_diagonal(K, self.diagonal)
        return K

    def rounding(self, longest: float) -> float:
        """How many times float32's precision a float32 value may be off, relative to k(x, x); `longest` is max ‖z‖².

        Here rows alone are rounded, which moves them by so many lengths ℓ.
        """
        return max(1.0, float(longest**0.5) / self.length_scale)


KERNELS: Registry[type[Kernel]] = Registry(
    "kernel",
    {
        "squared-exponential": "gphash.method.kernels:SquaredExponential",
        "matern-3/2": "gphash.method.kernels:Matern32",
        "exponential": "gphash.method.kernels:Exponential",
    },
)


def rule() -> Rule:
    """A kernel in a file: a registered name, and hyper-parameters that its own rules allow."""

    def is_right(value: Any) -> bool:
        try:
            return isinstance(value, dict) and KERNELS.find(value.get("name")) is not None
        except ValueError:
            return False

    return Rule(
        f"a registered kernel ({', '.join(KERNELS)})",
        is_right,
        lambda value: ((Record({"name": Text(), **KERNELS[value["name"]].RULES}), value, ""),),
    )


def to_meta(kernel: Kernel) -> dict[str, Any]:
    """What a file keeps of a kernel."""
    return {"name": KERNELS.name_of(type(kernel)), **asdict(kernel)}


def from_meta(meta: dict[str, Any]) -> Kernel:
    """The kernel of which `to_meta` gave this; `rule` has checked it."""
    return KERNELS.find(meta["name"])(**{name: value for name, value in meta.items() if name != "name"})


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """k = σ_f² exp(−r²/2): smooth functions, and the fastest to evaluate."""

    def landmarks(self, B: Floats) -> Floats:
        """Rows in their own precision: their product with (a, 1, ‖a‖²) is log k(a, b)."""
        # log k(a, b) = a·b/ℓ² + log σ_f² − ‖b‖²/2ℓ² − ‖a‖²/2ℓ², in one product: K is visited only once more.
        half = 0.5 / self.length_scale**2
        constant = 2 * np.log(self.signal_scale) - half * squared_norms(B)
        rows = np.column_stack([B * B.dtype.type(2 * half), constant, np.full(len(B), -half)])
        return rows.astype(B.dtype, order="C")

    def evaluate(self, landmarks: Floats, A: Floats) -> Floats:
        """Kernel values of the rows of A with the landmarks, [a, b], in A's precision."""
        augmented = _augmented(A)
        K: Floats = augmented @ landmarks.T
        if augmented[:, -1].max(initial=0.0) * -float(landmarks[0, -1]) > LONG:
            # Large terms that should cancel leave rounding behind, which the exponential must not blow up.
            np.minimum(K, K.dtype.type(2 * float(np.log(self.signal_scale))), out=K)
        np.exp(K, out=K)
        return K

    def rounding(self, longest: float) -> float:
        """The logarithm of k is a difference of terms as large as this."""
        return max(1.0, longest / self.length_scale**2 / 2)


@dataclass(frozen=True)
class Matern32(Kernel):
    """k = σ_f² (1 + √3 r) exp(−√3 r): functions that have one derivative."""

    LENGTH_SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)

    def correlation(self, squared: Floats) -> Floats:
        """(1 + √3 r) exp(−√3 r)."""
        r = np.sqrt(3 * squared)
        return (1 + r) * np.exp(-r)


@dataclass(frozen=True)
class Exponential(Kernel):
    """k = σ_f² exp(−r): functions that are continuous and no more."""

    LENGTH_SCALES = (0.7, 1.0, 1.4, 2.0, 2.8)

    def correlation(self, squared: Floats) -> Floats:
        """exp(−r)."""
        return np.exp(-np.sqrt(squared))


def _augmented(A: Floats) -> Floats:
    """(a, 1, ‖a‖²) of every row a, [a, d + 2]."""
    rows = np.empty((len(A), A.shape[1] + 2), A.dtype)
    rows[:, :-2] = A
    rows[:, -2] = 1
    rows[:, -1] = squared_norms(A)
    return rows


def squared_norms(A: Floats) -> Floats:
    """Squared Euclidean length of every row, [a]."""
    norms: Floats = np.einsum("ij,ij->i", A, A)
    return norms


def median_distance(X: Floats) -> float:
    """Median distance between rows (at most a few hundred of them), leaving equal rows out; 1 if all are equal."""
    X = X[:512].astype(np.float64)
    norms = squared_norms(X)
    squared = np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0)
    different = squared[squared > 1e-12 * max(float(norms.max(initial=0)), 1e-300)]
    return float(np.sqrt(np.median(different))) if len(different) else 1.0
