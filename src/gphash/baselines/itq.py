"""Iterative quantisation (Gong and Lazebnik, 2011): principal components, rotated towards the corners of a cube.

    min over B ∈ {−1, 1}, R orthogonal of ‖B − V R‖²

V are the first m principal components. B = sign(V R) given R; R = Q Pᵀ given B, with the singular value decomposition
Bᵀ V = P S Qᵀ. Neither step can raise the objective.
"""

from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.baselines.linear import LinearHasher
from gphash.baselines.pcah import principal_components
from gphash.coding.similarity import PairGraph, Signatures

ITERATIONS = 50


class ITQ(LinearHasher):
    """Iterative quantisation: the signs of principal components after a rotation that loses least by taking signs.

    Learns from X alone. At most as many bits as X has features. The parameters are those of `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        self._restrict_bits(X)
        W, offset = principal_components(X, self.n_bits)
        R = rotation(X @ W + offset, generator, ITERATIONS)
        return W @ R, offset @ R


def rotation(V: Floats, generator: np.random.Generator, iterations: int) -> Floats:
    """The rotation R [m, m] from a random start that brings rows V R, [n, m], near to codes of ±1."""
    m = V.shape[1]
    R: Floats = scipy.linalg.svd(generator.standard_normal((m, m)), check_finite=False)[0]
    for _ in range(iterations):
        B = np.where(V @ R >= 0, 1.0, -1.0)
        P, _, Qt = scipy.linalg.svd(B.T @ V, check_finite=False)
        R = Qt.T @ P.T
    return R
