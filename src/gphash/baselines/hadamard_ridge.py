"""Fixed code words and kernel ridge regression: the baseline to beat on class labels.

Every class gets a row of a Hadamard matrix, cut to m columns, as its code word; the bits of other rows are predicted by
ridge regression on kernel values. There is nothing to iterate: most of what supervised hashing gains on class labels,
this has already.
"""

from typing import ClassVar

import numpy as np
import scipy.linalg

from gphash.arrays import Floats, Signs
from gphash.baselines.kernel import prepare_ridge
from gphash.baselines.sdh import SDH
from gphash.coding import similarity
from gphash.coding.similarity import PairGraph, Signatures
from gphash.execution.local import Executor

DRAWS = 200


class HadamardRidge(SDH):
    """Hadamard code words for classes, and kernel ridge regression to them. Learns from class labels.

    The parameters are those of `SDH`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels",)

    def _bits(
        self,
        K: Floats,
        supervision: Signatures | PairGraph | None,
        ridge: float,
        generator: np.random.Generator,
        executor: Executor,
    ) -> tuple[Floats, Floats]:
        assert isinstance(supervision, Signatures)
        classes = similarity.class_numbers(supervision)
        words = code_words(int(classes.max()) + 1, self.n_bits, generator)
        return prepare_ridge(K, ridge, executor).solve(words[classes].astype(np.float64), executor)


def code_words(n_classes: int, n_bits: int, generator: np.random.Generator) -> Signs:
    """Words of ±1 far from each other, [n_classes, n_bits]: the best of many random cuts of a Hadamard matrix."""
    order = 1 << int(max(n_bits, n_classes)).bit_length()
    hadamard = scipy.linalg.hadamard(order, dtype=np.int8)
    best: Signs | None = None
    best_spread = (-np.inf, -np.inf)
    for _ in range(DRAWS):
        rows = generator.choice(order, n_classes, replace=False)
        # The first column is constant.
        columns = 1 + generator.choice(order - 1, n_bits, replace=False)
        words = hadamard[np.ix_(rows, columns)]
        distances = (n_bits - words.astype(np.int64) @ words.T) // 2
        apart = distances[~np.eye(n_classes, dtype=bool)]
        balance = np.abs(words.sum(axis=0, dtype=np.int64)).mean()
        spread = (float(apart.min()), -float(balance))
        if spread > best_spread:
            best, best_spread = words, spread
    assert best is not None
    return best
