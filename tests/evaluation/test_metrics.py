"""Average precision against the mean over all orders within ties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.evaluation import metrics
from tests import reference


@given(ranking=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_average_precision_is_the_mean_over_all_orders_within_ties(ranking):
    distances, relevant = np.array([d for d, _ in ranking]), np.array([r for _, r in ranking])
    expected = reference.average_precision_over_orders(distances, relevant)
    assert metrics.average_precision([distances], [relevant])[0] == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(ranking=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_average_precision_does_not_depend_on_the_order_of_rows(ranking, seed):
    distances, relevant = np.array([d for d, _ in ranking]), np.array([r for _, r in ranking])
    order = np.random.default_rng(seed).permutation(len(ranking))
    shuffled = metrics.average_precision([distances[order]], [relevant[order]])
    np.testing.assert_array_equal(metrics.average_precision([distances], [relevant]), shuffled)


@pytest.mark.parametrize(
    ("distances", "relevant", "expected"),
    [
        ([1, 2, 3, 4], [1, 1, 0, 0], 1.0),
        ([1, 2, 3, 4], [0, 0, 1, 1], (1 / 3 + 2 / 4) / 2),
        ([4, 3, 2, 1], [1, 0, 0, 1], (1 + 2 / 4) / 2),
        ([0, 0], [1, 0], 0.75),
        ([0, 0, 0], [1, 1, 1], 1.0),
        ([1, 2, 3], [0, 0, 0], np.nan),
        ([0.5, np.inf], [1, 0], 1.0),
    ],
)
def test_average_precision_by_hand(distances, relevant, expected):
    assert metrics.average_precision([distances], [relevant])[0] == pytest.approx(expected, nan_ok=True)


def test_every_query_is_scored_by_itself_and_the_mean_leaves_out_queries_with_nothing_to_find():
    distances = np.array([[1, 2], [1, 2], [1, 2]])
    relevant = np.array([[True, False], [False, True], [False, False]])
    np.testing.assert_allclose(metrics.average_precision(distances, relevant), [1, 0.5, np.nan])
    assert metrics.mean_average_precision(distances, relevant) == pytest.approx(0.75)
