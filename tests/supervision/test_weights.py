"""How often rows count: by class, by row, and not at all."""

import numpy as np
import pytest

from gphash.supervision import similarity, targets, weights
from gphash.supervision.similarity import Pairs

y = np.repeat(["a", "b", "c"], [6, 3, 1])


def weighted(y, class_weight=None, sample_weight=None):
    return targets.supervision(y, len(y), True, "Anything", (), class_weight, sample_weight)


def test_nothing_said_leaves_every_row_once():
    assert weighted(y).row_weights is None
    assert weighted(np.arange(6) % 2, "balanced").row_weights is None


@pytest.mark.parametrize(
    ("given", "totals"),
    [
        ("balanced", [1, 1, 1]),
        ("auto", [6 / 306, 3 / 303, 1 / 301]),
        ({"a": 2, "c": 12}, [12, 3, 12]),
        ({"b": 0}, [6, 0, 1]),
    ],
)
def test_weights_of_classes(given, totals):
    found = weighted(y, given)
    sums = np.array([found.row_weights[y == name].sum() for name in "abc"])
    np.testing.assert_allclose(sums / sums.sum(), np.array(totals) / np.sum(totals))
    assert found.row_weights[found.row_weights > 0].mean() == pytest.approx(1)


def test_weights_of_rows_and_classes_multiply():
    found = weighted(np.arange(4) % 2, {0: 3}, [1, 1, 2, 0])
    np.testing.assert_allclose(found.row_weights, np.array([3, 1, 6, 0]) * 3 / 10)
    np.testing.assert_array_equal(found.known, [0, 1, 2])


def test_tags_have_weights_of_rows_only():
    tags = np.array([[1, 0], [0, 1], [1, 0]])
    np.testing.assert_allclose(weighted(tags, "auto", [2, 1, 0]).row_weights, [4 / 3, 2 / 3, 0])
    with pytest.raises(
        ValueError, match=r"class_weight='balanced', but y has no classes; for tags, give sample_weight"
    ):
        weighted(tags, "balanced")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sample_weight": np.ones(9)}, r"sample_weight has shape \(9,\) and X has 10 rows"),
        ({"sample_weight": np.ones((10, 1))}, r"sample_weight has shape \(10, 1\)"),
        ({"sample_weight": [1.0] * 9 + [-1]}, "sample_weight is -1 at row 9; give finite numbers of at least 0"),
        ({"sample_weight": [np.nan] + [1.0] * 9}, "sample_weight is nan at row 0"),
        ({"sample_weight": [np.inf] + [1.0] * 9}, "sample_weight is inf at row 0"),
        ({"sample_weight": ["much"] * 10}, "sample_weight holds something that is no number"),
        ({"sample_weight": np.zeros(10)}, "sample_weight is zero for all rows that have a label"),
        ({"class_weight": {"d": 2}}, "class_weight names the class 'd', which y does not have"),
        ({"class_weight": {"a": 0, "b": 0, "c": 0}}, "is zero for all classes of y"),
        ({"class_weight": {"a": 0, "b": 0}}, "y has one class only"),
    ],
)
def test_bad_weights_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        weighted(y, **given)


def test_pairs_have_no_weights_of_rows():
    pairs = similarity.from_pairs(Pairs([0, 1], [1, 2], [1, -1]), 3)
    assert weights.weigh(pairs, "auto", None) is pairs
    for given in (("balanced", None), (None, np.ones(3))):
        with pytest.raises(ValueError, match="was given, but y is a list of pairs"):
            weights.weigh(pairs, *given)


class TestPulls:
    def test_a_class_pulls_in_proportion_to_the_root_of_its_rows(self):
        signatures = similarity.from_labels(np.repeat([0, 1, 2], [90, 9, 1]))
        pulls = signatures.pulls()
        sums = np.bincount(np.repeat([0, 1, 2], [90, 9, 1]), pulls)
        np.testing.assert_allclose(sums / sums[2], [90**0.5, 3, 1], rtol=1e-4)
        assert pulls.mean() == pytest.approx(1, rel=1e-4)

    def test_some_rows_pull_for_their_whole_class(self):
        signatures = similarity.from_labels(np.repeat([0, 1], [90, 10]))
        sums = np.bincount(np.repeat([0, 1], 10), signatures[np.r_[:10, 90:100]].pulls())
        assert sums[0] / sums[1] == pytest.approx(3, rel=1e-4)

    def test_classes_of_equal_size_pull_alike(self):
        np.testing.assert_allclose(similarity.from_labels(np.arange(30) % 3).pulls(), 1, rtol=1e-12)

    def test_the_first_rows_are_of_all_classes(self):
        labels = np.repeat(np.arange(101), [10_000, *[4] * 100])
        order = similarity.from_labels(labels).order(np.random.default_rng(0), 100)
        assert sorted(order) == list(range(len(labels)))
        assert len(np.unique(labels[order[:1000]])) == 101
