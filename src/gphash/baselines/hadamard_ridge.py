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
    """Words of ±1 far from each other, [n_classes, n_bits].

    Random rows of a Hadamard matrix of that many columns, any two of which differ in half of the bits, if there is one
    with enough rows; else the best of many random cuts of a larger one.
    """
    order = 1 << (max(n_bits, n_classes) - 1).bit_length()
    hadamard = scipy.linalg.hadamard(order, dtype=np.int8)
    if order == n_bits:
        return np.asarray(hadamard[generator.choice(order, n_classes, replace=False)])
    best: Signs | None = None
    best_spread = (-np.inf, -np.inf)
    for _ in range(DRAWS):
        rows = generator.choice(order, n_classes, replace=False)
        words = hadamard[np.ix_(rows, generator.choice(order, n_bits, replace=False))]
        distances = (n_bits - words.astype(np.int64) @ words.T) // 2
        apart = distances[~np.eye(n_classes, dtype=bool)]
        spread = (float(apart.min()), float(apart.mean()))
        if spread > best_spread:
            best, best_spread = words, spread
    assert best is not None
    return best
