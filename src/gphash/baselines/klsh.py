"""Kernelised locality-sensitive hashing (Kulis and Grauman, 2009): random hyperplanes in the kernel's feature space.

The mean of t random landmarks, whitened by the covariance of all p of them, is next to a Gaussian direction:

    K_c = H K H,   H = I − 1 1ᵀ/p,   w = K_c^{−1/2} e_S,   bit = sign(k_c(x) w)

e_S marks the t landmarks drawn for the bit. A row is centred as the landmarks are, k_c(x) = (k(x, Z) − k̄) H with k̄ the
mean of K's rows, so that the bit is the sign of k(x, Z) H w − k̄ H w: a kernel expansion with an offset.
"""

from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash import kernels, selection
from gphash.arrays import Floats
from gphash.baselines.kernel import Choice, KernelHasher
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor
from gphash.kernels import SquaredExponential

MOST_MARKED = 30  # t
NOTHING = 1e-8  # of the largest eigenvalue


class KLSH(KernelHasher):
    """Kernelised locality-sensitive hashing: every bit is the side of a random hyperplane in the kernel's space.

    Learns from X alone. The parameters are those of `KernelHasher`, the landmarks being the inducing inputs: by default
    few random rows, as the theory wants. "auto" takes the median distance between rows for the length scale.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_inducing: int = 300,
        inducing: str = "random",
        scaling: str = "unit",
        length_scale: float | str = "auto",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_bits,
            n_inducing=n_inducing,
            inducing=inducing,
            scaling=scaling,
            length_scale=length_scale,
            n_jobs=n_jobs,
            random_state=random_state,
        )

    def _choose(
        self, X: Floats, supervision: Signatures | PairGraph | None, Z: Floats, seed: int, executor: Executor
    ) -> Choice:
        if self.length_scale != "auto":
            return Choice(float(self.length_scale), 0.0)
        some = np.random.default_rng([seed, 11]).permutation(len(X))[: selection.SAMPLE]
        return Choice(selection.median_distance(X[some]), 0.0)

    def _expand(
        self,
        kernel: SquaredExponential,
        Z: Floats,
        X: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        return random_hyperplanes(kernels.gram(kernel, Z.astype(np.float64)), self.n_bits, generator)


def random_hyperplanes(K: Floats, n_bits: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights [p, m] and offset [m], from kernel values of the landmarks with each other, [p, p]."""
    p = len(K)
    means = K.mean(axis=0)
    centred = K - means - means[:, None] + means.mean()
    variances, axes = scipy.linalg.eigh(centred, check_finite=False)
    kept = variances > max(NOTHING * variances[-1], 0.0)
    root = axes[:, kept] / np.sqrt(variances[kept]) @ axes[:, kept].T
    n_marked = max(1, min(p // 4, MOST_MARKED))
    marked = np.zeros((p, n_bits))
    for bit in range(n_bits):
        marked[generator.choice(p, n_marked, replace=False), bit] = 1.0
    weights = root @ marked
    weights -= weights.mean(axis=0)
    # As encoding has them: what rounding takes from the weights must not unbalance the offset.
    rounded = weights.astype(np.float32).astype(np.float64)
    return rounded, -means @ rounded
