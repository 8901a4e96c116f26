"""P(similar) is what its sums and products over classes say, and the same wherever a code is stored."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.codes import packing
from gphash.codes.reading import UNIT, CodeReader, DistanceReader, rounded

M, C = 11, 5


def reader(exclusive, seed=0, n_classes=C):
    generator = np.random.default_rng(seed)
    return CodeReader(generator.normal(size=(M, n_classes)), generator.normal(size=n_classes), exclusive)


def codes(n, seed=1):
    return packing.pack(np.random.default_rng(seed).random((n, M)) < 0.5)


def beliefs(n, exclusive, seed=2):
    chances = np.random.default_rng(seed).random((n, C))
    return chances / chances.sum(axis=1, keepdims=True) if exclusive else chances


def by_hand(one, classes, packed):
    """P(similar) of one query and one code, with Python's own numbers."""
    signs = [2 * int(bit) - 1 for bit in packing.unpack(packed[None], M)[0]]
    logits = [
        sum(s * w for s, w in zip(signs, column, strict=True)) + b
        for column, b in zip(one.weights.T, one.bias, strict=True)
    ]
    if one.exclusive:
        total = sum(map(math.exp, logits))
        return sum(p * math.exp(logit) / total for p, logit in zip(classes, logits, strict=True))
    return 1 - math.prod(1 - p / (1 + math.exp(-logit)) for p, logit in zip(classes, logits, strict=True))


@pytest.mark.parametrize("exclusive", [True, False])
def test_it_is_the_sum_over_classes_or_the_chance_of_a_common_tag(exclusive):
    one, packed, asked = reader(exclusive), codes(20), beliefs(4, exclusive)
    found = one.compare(asked, one.read(packed))
    expected = [[by_hand(one, query, code) for code in packed] for query in asked]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert ((found >= 0) & (found <= 1)).all()


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 40))
def test_it_does_not_depend_on_what_else_is_compared(seed, exclusive, n_classes):
    generator = np.random.default_rng(seed)
    one, packed = reader(exclusive, seed, n_classes), codes(17, seed)
    asked = generator.dirichlet(np.ones(n_classes), 3)
    together = one.compare(asked, one.read(packed))
    for row in range(3):
        for place in (0, 5, 16):
            alone = one.compare(asked[row : row + 1], one.read(packed[place : place + 1]))
            assert alone[0, 0] == together[row, place]


def test_probabilities_are_multiples_that_a_short_float_holds():
    read = reader(True).read(codes(50))
    np.testing.assert_array_equal(read / UNIT, np.rint(read / UNIT))
    np.testing.assert_array_equal(read.astype(np.float32).astype(np.float64), read)
    np.testing.assert_array_equal(rounded(np.array([0.0, 1.0])), [0.0, 1.0])


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (np.ones((2, C + 1)) / 6, "has dtype float64 and shape"),
        (np.ones(C) / C, "give the probabilities of classes"),
        (np.ones((2, C), int), "has dtype int64"),
        (np.full((1, C), np.nan), "NaN or values outside of 0 to 1"),
        (np.full((1, C), 1.5), "NaN or values outside of 0 to 1"),
    ],
)
def test_bad_beliefs_are_refused(given_, message):
    with pytest.raises(ValueError, match=message):
        reader(True).check(given_)


class TestByDistance:
    """P(similar) of models of judged pairs."""

    ONE = DistanceReader(np.array([2.0, 1.5]), np.array([1.0, 0.5]), M, M)

    def test_it_falls_with_the_expected_distance_and_for_codes_with_the_hamming_distance(self):
        chances, packed = np.random.default_rng(0).random((4, M)), codes(6)
        found = self.ONE.compare(chances, self.ONE.read(packed))
        for row, asked in enumerate(rounded(chances)):
            for column, bits in enumerate(packing.unpack(packed, M)):
                apart = sum(1 - p if bit else p for p, bit in zip(asked, bits, strict=True))
                assert found[row, column] == pytest.approx(1 / (1 + math.exp(1.5 * apart - 2.0)))
        sure = self.ONE.compare(self.ONE.read(codes(4, 5)), self.ONE.read(packed))
        for row, asked in enumerate(packing.unpack(codes(4, 5), M)):
            for column, bits in enumerate(packing.unpack(packed, M)):
                assert sure[row, column] == pytest.approx(1 / (1 + math.exp(0.5 * (asked != bits).sum() - 1.0)))

    def test_one_by_one_it_is_the_same(self):
        first, second = self.ONE.read(codes(30)), self.ONE.read(codes(30, 7))
        np.testing.assert_array_equal(self.ONE.match(first, second), np.diag(self.ONE.compare(first, second)))

    def test_free_bits_count_for_nothing(self):
        joined = self.ONE._replace(n_taught=M - 4)
        chances, packed = np.random.default_rng(0).random((4, M)), codes(20)
        other, flipped = chances.copy(), packing.pack(packing.unpack(packed, M) ^ (np.arange(M) >= M - 4))
        other[:, -4:] = 1 - other[:, -4:]
        found = joined.compare(chances, joined.read(packed))
        np.testing.assert_array_equal(joined.compare(other, joined.read(flipped)), found)

    def test_far_away_it_is_zero_and_no_warning(self):
        steep = self.ONE._replace(expected=np.array([0.0, 1e17]))
        assert (steep.compare(np.full((1, M), 0.4), steep.read(codes(3))) == 0).all()

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (np.full((1, M + 1), 0.5), r"the model has learned from pairs: give P\(bit = 1\), \[q, 11\]"),
            (np.zeros((1, 2), np.uint8), "queries has dtype uint8"),
            (np.full((1, M), np.nan), "queries has NaN or values outside of 0 to 1"),
            (np.full((1, M), 1.5), "queries has NaN or values outside of 0 to 1"),
        ],
    )
    def test_what_is_no_probability_is_refused(self, wrong, message):
        with pytest.raises(ValueError, match=message):
            self.ONE.check(wrong)
