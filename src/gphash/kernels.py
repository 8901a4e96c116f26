"""The squared-exponential kernel, k(x, x') = σ_f² exp(−‖x − x'‖² / (2 ℓ²)).

A kernel is a record of its hyper-parameters; the functions below evaluate it.
"""

from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats


class SquaredExponential(NamedTuple):
    """Hyper-parameters of the kernel.

    length_scale
        ℓ, the distance over which function values stay correlated.
    signal_scale
        σ_f, the prior standard deviation of a latent function.
    """

    length_scale: float
    signal_scale: float


def gram(kernel: SquaredExponential, A: Floats) -> Floats:
    """Kernel values of the rows of A with each other, exactly symmetric, [a, a]."""
    K = cross(kernel, A, A)
    K = (K + K.T) / 2
    np.fill_diagonal(K, diagonal(kernel))
    return K


def cross(kernel: SquaredExponential, A: Floats, B: Floats) -> Floats:
    """Kernel values of the rows of A with the rows of B, [a, b], in A's precision."""
    # −‖a − b‖² / 2ℓ² = a·b/ℓ² − ‖a‖²/2ℓ² − ‖b‖²/2ℓ², and log σ_f² rides along with b's part.
    inverse = 1.0 / kernel.length_scale**2
    K = A @ (B * A.dtype.type(inverse)).T
    K += log_scale(kernel, B).astype(A.dtype)
    K -= (squared_norms(A) * (inverse / 2)).astype(A.dtype)[:, None]
    np.exp(K, out=K)
    return K


def diagonal(kernel: SquaredExponential) -> float:
    """k(x, x), the same for every x."""
    return kernel.signal_scale**2


def log_scale(kernel: SquaredExponential, B: Floats) -> Floats:
    """What b alone adds to log k(a, b): log σ_f² − ‖b‖²/2ℓ², [b]."""
    scale: Floats = 2 * np.log(kernel.signal_scale) - squared_norms(B) / (2 * kernel.length_scale**2)
    return scale


def squared_norms(A: Floats) -> Floats:
    """Squared Euclidean length of every row, [a]."""
    norms: Floats = np.einsum("ij,ij->i", A, A)
    return norms
