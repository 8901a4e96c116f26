"""Principal component hashing: the signs of the first principal components.

    C = (1/n) Σ (x − μ)(x − μ)ᵀ,   C W = W diag(variances),   bits = sign((x − μ) W)

W are the m orthonormal eigenvectors of the largest variances; μ is the mean of the rows after scaling.
"""

from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.baselines.linear import LinearHasher
from gphash.coding.similarity import PairGraph, Signatures


class PCAH(LinearHasher):
    """Principal component hashing: every bit is the sign of a principal component. Learns from X alone.

    At most as many bits as X has features. The parameters are those of `LinearHasher`; nothing is random.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        self._restrict_bits(X)
        return principal_components(X, self.n_bits)


def principal_components(X: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Weights W [d, c] and offset [c] of the first principal components X W + offset, by falling variance."""
    mean, C = moments(X)
    d = len(C)
    _, axes = scipy.linalg.eigh(C, subset_by_index=[d - n_components, d - 1], check_finite=False)
    W = orient(axes[:, ::-1])
    return W, -mean @ W


def moments(X: Floats) -> tuple[Floats, Floats]:
    """Mean [d] and covariance [d, d] of rows that are nearly centred, without a centred copy of them."""
    mean = X.mean(axis=0)
    return mean, X.T @ X / len(X) - np.outer(mean, mean)


def orient(W: Floats) -> Floats:
    """The same directions [d, c], each with its largest weight positive: eigenvectors have no sign of their own."""
    largest = W[np.abs(W).argmax(axis=0), np.arange(W.shape[1])]
    return W * np.where(largest < 0, -1.0, 1.0)
