"""Supervised discrete hashing (Shen, Shen, Liu, Shen, 2015), with the squared loss.

    min over B ∈ {−1, 1}, W, P of ‖Y − B W‖² + λ ‖W‖² + ν ‖B − K P‖²

Y are indicators of classes or tags, and K are kernel values and a constant. W and P are least squares; a column of B
has a closed form given the others (discrete cyclic coordinate descent):

    B_k = sign(Q_k − B_{−k} W_{−k} w_k),   Q = ν K P + Y Wᵀ

With the small ν of the authors B is next to a function of Y, and the last P is a ridge regression on it.
"""

from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats
from gphash.baselines.kernel import KernelHasher, prepare_ridge
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor

LABEL_PENALTY = 1.0  # λ
FIT_PENALTY = 1e-5  # ν
SWEEPS = 5
DESCENTS = 10
TOLERANCE = 1e-5


class SDH(KernelHasher):
    """Supervised discrete hashing with the squared loss: codes from which a linear classifier reads the labels.

    Learns from labels or tags. The parameters are those of `KernelHasher`, and

    Parameters
    ----------
    ridge : float or "auto"
        Penalty of the regression from kernel values to codes; "auto" chooses it together with the length scale.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags")
    RIDGES: ClassVar[tuple[float, ...]] = (1e-3, 1e-2, 1e-1, 1.0)
    # A ridge that suits few rows and inducing inputs does not suit many.
    SAMPLE: ClassVar[int] = 5000
    INDUCING: ClassVar[int] = 1000

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_inducing: int = 1000,
        inducing: str = "kmeans",
        scaling: str = "unit",
        length_scale: float | str = "auto",
        ridge: float | str = "auto",
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
        self.ridge = ridge

    def _bits(
        self,
        K: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        assert isinstance(supervision, Signatures)
        Y = similarity.indicators(supervision)
        regression = prepare_ridge(K, ridge, executor)
        B = np.where(generator.random((len(K), self.n_bits)) < 0.5, -1.0, 1.0)
        weights, offset = regression.solve(B, executor)
        for _ in range(SWEEPS):
            predicted = regression.predict(weights, offset, executor)
            B = descend(B, Y, predicted)
            before = weights
            weights, offset = regression.solve(B, executor)
            if np.linalg.norm(weights - before) < TOLERANCE * np.linalg.norm(before):
                break
        return weights, offset


def descend(B: Floats, Y: Floats, predicted: Floats) -> Floats:
    """Codes that lower the objective, given predictions from the kernel values, until none changes."""
    n_bits = B.shape[1]
    W = scipy.linalg.solve(B.T @ B + LABEL_PENALTY * np.eye(n_bits), B.T @ Y, assume_a="pos")
    Q = FIT_PENALTY * predicted + Y @ W.T
    products = W @ W.T
    np.fill_diagonal(products, 0.0)
    B = np.asfortranarray(B)
    for _ in range(DESCENTS):
        changed = False
        for bit in range(n_bits):
            column = np.where(Q[:, bit] - B @ products[:, bit] >= 0, 1.0, -1.0)
            changed |= bool((column != B[:, bit]).any())
            B[:, bit] = column
        if not changed:
            break
    return B
