"""The squared-exponential kernel, k(x, x') = σ_f² exp(−‖x − x'‖² / (2 ℓ²)).

A kernel is a record of its hyper-parameters; the functions below evaluate it.
"""

from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.schema import Number, Record, Text

NAME = "squared exponential"
FIELDS = Record({"name": Text((NAME,)), "length_scale": Number(1e-18, 1e18), "signal_scale": Number(1e-6, 1e6)})
LONG = 100.0  # of ‖a‖²/2ℓ²; below, rounding is harmless


class SquaredExponential(NamedTuple):
    """Hyper-parameters of the kernel.

    length_scale
        ℓ, the distance over which function values stay correlated.
    signal_scale
        σ_f, the prior standard deviation of a latent function.
    """

    length_scale: float
    signal_scale: float

    def to_meta(self) -> dict[str, Any]:
        """What a file keeps."""
        return {"name": NAME, **self._asdict()}

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> "SquaredExponential":
        """The kernel of which `to_meta` gave this, and which keeps `FIELDS`."""
        return cls(meta["length_scale"], meta["signal_scale"])


def gram(kernel: SquaredExponential, A: Floats) -> Floats:
    """Kernel values of the rows of A with each other, exactly symmetric, [a, a]."""
    K = cross(kernel, A, A)
    K = (K + K.T) / 2
    np.fill_diagonal(K, diagonal(kernel))
    return K


class Landmarks(NamedTuple):
    """Rows that kernel values are wanted with, prepared once for many evaluations.

    augmented
        Rows (b/ℓ², log σ_f² − ‖b‖²/2ℓ², −1/2ℓ²), [b, d + 2]: their product with (a, 1, ‖a‖²) is log k(a, b).
    highest
        log σ_f², which log k(a, b) never exceeds but for rounding.
    """

    augmented: Floats
    highest: float


def landmarks(kernel: SquaredExponential, B: Floats) -> Landmarks:
    """Prepare rows B, [b, d], in their own precision."""
    half = 0.5 / kernel.length_scale**2
    augmented = np.empty((len(B), B.shape[1] + 2), B.dtype)
    augmented[:, :-2] = B * B.dtype.type(2 * half)
    augmented[:, -2] = 2 * np.log(kernel.signal_scale) - half * squared_norms(B)
    augmented[:, -1] = -half
    return Landmarks(augmented, 2 * float(np.log(kernel.signal_scale)))


def evaluate(landmarks: Landmarks, A: Floats) -> Floats:
    """Kernel values of the rows of A with the landmarks, [a, b], in A's precision."""
    # log k(a, b) = a·b/ℓ² + log σ_f² − ‖b‖²/2ℓ² − ‖a‖²/2ℓ², in one product: K is visited only once more.
    augmented = np.empty((len(A), A.shape[1] + 2), A.dtype)
    augmented[:, :-2] = A
    augmented[:, -2] = 1
    augmented[:, -1] = squared_norms(A)
    K: Floats = augmented @ landmarks.augmented.T
    if augmented[:, -1].max(initial=0.0) * -float(landmarks.augmented[0, -1]) > LONG:
        # Large terms that should cancel leave rounding behind, which the exponential must not blow up.
        np.minimum(K, K.dtype.type(landmarks.highest), out=K)
    np.exp(K, out=K)
    return K


def cross(kernel: SquaredExponential, A: Floats, B: Floats) -> Floats:
    """Kernel values of the rows of A with the rows of B, [a, b], in their precision."""
    return evaluate(landmarks(kernel, B), A)


def diagonal(kernel: SquaredExponential) -> float:
    """k(x, x), the same for every x."""
    return kernel.signal_scale**2


def squared_norms(A: Floats) -> Floats:
    """Squared Euclidean length of every row, [a]."""
    norms: Floats = np.einsum("ij,ij->i", A, A)
    return norms
