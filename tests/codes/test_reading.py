"""P(similar) is what its sums and products over classes say, and the same wherever a code is stored."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.codes import packing
from gphash.codes.reading import UNIT, CodeReader, rounded

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
