"""Sums that are the same to the last bit, wherever their terms are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gphash.execution.sums import Sum
from tests.execution.test_local import tree_sum


def terms(n, seed=0):
    """Numbers of very different sizes, so that the order of addition shows."""
    rng = np.random.default_rng(seed)
    return [((rng.normal(size=3) * 10.0 ** rng.integers(-9, 9)).astype(np.float32), rng.normal()) for _ in range(n)]


@given(st.integers(1, 70), st.data())
def test_any_division_of_the_terms_gives_the_same_sum(n, data):
    whole = terms(n)
    owners = data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    parts = [Sum((i, whole[i]) for i in range(n) if owners[i] == owner) for owner in range(5)]
    merged = Sum()
    for place in data.draw(st.permutations(range(5))):
        merged.merge(parts[place])
    for found, expected, position in zip(merged.total(), Sum(enumerate(whole)).total(), (0, 1), strict=True):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(found, tree_sum([np.float64(term[position]) for term in whole]))


def test_neighbours_that_are_together_are_kept_as_few_nodes():
    assert len(Sum((i, (1.0,)) for i in range(64, 128)).nodes) == 1
    assert len(Sum((i, (1.0,)) for i in range(48, 101)).nodes) == 4


def test_merging_leaves_its_parts_alone():
    one, other = Sum(enumerate(terms(2))), Sum((i + 2, term) for i, term in enumerate(terms(2, 1)))
    before = [np.array(part) for part in other.nodes[1, 1]]
    Sum().merge(one).merge(other).total()
    for kept, part in zip(before, other.nodes[1, 1], strict=True):
        np.testing.assert_array_equal(kept, part)


def test_an_empty_sum_is_empty():
    assert Sum().total() == ()
