"""Familiarity is a conformal p-value, and cuts keep their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.codes import trust
from gphash.codes.trust import LEVELS, Trust


def learned(generator, n=800):
    cuts = np.linspace(0.4, 0.97, len(LEVELS))
    near, sure = generator.random(n), generator.random(n) ** 2
    return Trust(*trust.learn(near, sure), cuts, cuts[::-1].copy(), np.full(1, 0.3))


def test_of_rows_like_those_of_training_a_share_has_at_most_that_familiarity():
    """Of many references, a share α has a p-value of α or less; it is never zero."""
    generator = np.random.default_rng(0)
    found = np.concatenate(
        [learned(generator).familiarity(generator.random(200), generator.random(200) ** 2) for _ in range(40)]
    )
    assert found.min() > 0
    assert found.max() <= 1
    for share in (0.025, 0.05, 0.1, 0.5):
        assert (found <= share).mean() == pytest.approx(share, abs=0.012)


@pytest.mark.parametrize("n", [19, 39, 100, 200])
def test_few_references_do_not_make_rows_strange(n):
    generator = np.random.default_rng(0)
    found = np.concatenate(
        [learned(generator, n).familiarity(generator.random(50), generator.random(50) ** 2) for _ in range(400)]
    )
    for share in (0.05, 0.1, 0.2):
        assert (found <= share).mean() < share + 0.005


def test_what_is_far_and_unsure_is_strange():
    one = learned(np.random.default_rng(1))
    strange, usual = one.familiarity(np.array([0.001, 0.9]), np.array([0.0001, 0.9]))
    assert strange < 0.01
    assert usual > 0.5
    assert one.nothing(strange, 0.9)
    assert one.nothing(usual, 0.2)
    assert one.nothing(usual, None)
    assert not one.nothing(usual, 0.9)
    assert not one.nothing(None, 0.9)


def test_what_is_probably_similar_is_not_nothing():
    """On easy data the first hits of the trial all have a probability of 1, and .99 is less than that."""
    easy = learned(np.random.default_rng(1))._replace(least_probability=np.array([1.0]))
    assert not easy.nothing(0.9, 0.99)
    assert not easy.nothing(None, 0.5)
    assert easy.nothing(0.9, 0.49)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_nearer_and_the_surer_the_more_familiar(values, near, sure, more):
    one = Trust(*trust.learn(np.array(values), np.array(values[::-1])), *(np.ones(len(LEVELS)),) * 2, np.zeros(1))
    first, second = one.familiarity(np.array([near, max(near, more)]), np.array([sure, max(sure, more)]))
    assert 0 < first <= second <= 1


@given(st.floats(0, 1), st.floats(0, 1))
def test_who_asks_for_more_gets_another_cut(a, b):
    one = learned(np.random.default_rng(2))
    low, high = sorted((a, b))
    assert one.cut("precision", low) <= one.cut("precision", high)
    assert one.cut("recall", low) >= one.cut("recall", high)


def test_between_two_levels_the_higher_one_holds():
    one = learned(np.random.default_rng(2))
    for kind in ("precision", "recall"):
        assert one.cut(kind, 0.91) == one.cut(kind, 0.925) != one.cut(kind, 0.9)
        assert one.cut(kind, 0.1) == one.cut(kind, 0.5)
    assert one.cut("precision", 0.995) > 1  # nothing is promised so much
    assert one.cut("recall", 0.995) == 0


def test_many_references_become_fewer():
    values = np.random.default_rng(3).random(5000)
    few = trust.reference(values)
    assert len(few) == trust.REFERENCES
    assert (few[0], few[-1]) == (values.min(), values.max())
    np.testing.assert_allclose(np.quantile(few, [0.1, 0.5, 0.9]), np.quantile(values, [0.1, 0.5, 0.9]), atol=0.002)
