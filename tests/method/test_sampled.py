"""What sampled codes know beside bits, learned from leave-one-out z-scores."""

import numpy as np
from scipy.special import expit, ndtr

from gphash import Pairs
from gphash.method import sampled
from gphash.supervision import similarity

N, M = 600, 8
RNG = np.random.default_rng(0)
WORDS = RNG.choice([-1.0, 1.0], (4, M))
Y = RNG.integers(0, 4, N)
GAMMA = 1.5 * WORDS[Y] + RNG.normal(size=(N, M))


def judged(n_pairs=8000, curve=(2.0, 1.0)):
    """Random pairs, similar with a probability that falls with the expected distance as a curve says."""
    i, j = RNG.integers(0, N, (2, n_pairs))
    i, j = i[i < j], j[i < j]
    apart = np.abs(ndtr(GAMMA[i]) - (GAMMA[j] >= 0)).sum(axis=1)
    keys, first = np.unique(i * N + j, return_index=True)
    return Pairs(i[first], j[first], np.where(RNG.random(len(keys)) < expit(curve[0] - curve[1] * apart[first]), 1, -1))


def test_the_curve_is_found_however_pairs_are_weighed():
    pairs = judged(60_000)
    found = [sampled.distances(GAMMA, similarity.from_pairs(pairs, N, balance), 0) for balance in (True, False)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    # One row of a pair made the judgement here, and both teach.
    np.testing.assert_allclose(found[0].expected, [2.0, 1.0], atol=0.25)
    assert 0 < found[0].hamming[1] < found[0].expected[1]


def test_the_mean_probability_is_the_share_of_similar_pairs():
    pairs = judged()
    reader = sampled.distances(GAMMA, similarity.from_pairs(pairs, N), 0)
    bits = (GAMMA >= 0).astype(float)
    told = reader.match(bits[pairs.i], bits[pairs.j])
    np.testing.assert_allclose(told.mean(), np.mean(np.array(pairs.similar) > 0), atol=1e-3)


def test_where_distances_mislead_they_say_nothing():
    pairs = judged(curve=(-3.0, -1.0))
    reader = sampled.distances(GAMMA, similarity.from_pairs(pairs, N), 0)
    share = np.mean(np.array(pairs.similar) > 0)
    for curve in (reader.expected, reader.hamming):
        np.testing.assert_allclose(curve, [np.log(share / (1 - share)), 0.0])


def test_two_pairs_are_enough_for_a_curve():
    reader = sampled.distances(GAMMA, similarity.from_pairs(Pairs([0, 1], [1, 2], [1, -1]), N), 0)
    assert np.isfinite(reader.expected).all()
    assert np.isfinite(reader.hamming).all()


def test_classes_are_read_from_soft_bits_and_from_codes():
    whole = similarity.from_labels(Y)
    soft, codes = sampled.classes(GAMMA[::2], whole[np.arange(0, N, 2)], whole)
    for reader, signs in ((soft, 2 * ndtr(GAMMA) - 1), (codes, np.sign(GAMMA))):
        told, nearest = reader.tell(signs[1::2]), (signs[1::2] @ WORDS.T).argmax(axis=1)
        right = (told.argmax(axis=1) == Y[1::2]).mean()
        assert right > (nearest == Y[1::2]).mean() - 0.02  # as good as whoever knows the words
        assert abs(told.max(axis=1).mean() - right) < 0.03
