"""What sampled codes know beside bits, from leave-one-out z-scores γ, which EP gives away; see `codes.reading`.

If a row were new, P(bit = 1) would be Φ(γ), and its bits the signs of γ. With labels or tags, a logistic read-out
learns classes from soft bits, 2 Φ(γ) − 1, for queries, and from bits, for items. With judged pairs, a logistic
regression learns P(similar) from the expected distance between one row's soft bits and the other's bits, and from the
Hamming distance. Pairs count alike here, however `balance_pairs` weighs them: P(similar) is for pairs as they occur in
the list.
"""

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices
from gphash.codes.reading import CodeReader, DistanceReader
from gphash.method import decoding, readout
from gphash.method.hashing import ClassReading
from gphash.supervision.similarity import PairGraph, Signatures

PAIRS = 200_000  # at most, that teach P(similar)


def classes(gamma: Floats, some: Signatures, whole: Signatures) -> ClassReading:
    """What codes say of classes or tags, from some rows, [s, m], which have these signatures among those of all."""
    told, often = decoding.truth(some, whole).astype(np.float64), decoding.occurrence(some, whole)

    def read(answers: Floats) -> CodeReader:
        found, _ = readout.fit(answers, told, whole.exact, often)
        return CodeReader(*found, whole.exact).rounded()

    return ClassReading(read(2 * _chances(gamma) - 1), read(np.where(gamma >= 0, 1.0, -1.0)))


def distances(gamma: Floats, graph: PairGraph, seed: int) -> DistanceReader:
    """P(similar) by distance, from all rows, [s, m], and the pairs of them that were judged."""
    owners = graph.owners
    once = np.flatnonzero(owners < graph.partners)
    once = np.random.default_rng([seed, 45]).permutation(once)[:PAIRS]
    first, second, told = owners[once], graph.partners[once], graph.similar[once]
    chances, bits = _chances(gamma), (gamma >= 0).astype(np.float64)

    def apart(asked: Floats, i: Indices, j: Indices) -> Floats:
        return np.asarray(np.abs(asked[i] - bits[j]).sum(axis=1))  # bits are 0 or 1, so that this is what to expect

    expected = np.concatenate([apart(chances, first, second), apart(chances, second, first)])
    curves = _curve(expected, np.tile(told, 2)), _curve(apart(bits, first, second), told)
    return DistanceReader(*curves, gamma.shape[1], gamma.shape[1])


def _curve(distances: Floats, told: NDArray[np.uint8]) -> Floats:
    """The curve P(similar) = σ(a − b · distance): a and b, [2]."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression().fit(distances[:, None], told)
    if found.coef_[0, 0] < 0:
        return np.array([found.intercept_[0], -found.coef_[0, 0]])
    share = told.mean()  # codes have learned nothing, so that distances say nothing
    return np.array([np.log(share / (1 - share)), 0.0])


def _chances(gamma: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(gamma))
