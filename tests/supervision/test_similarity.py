"""Signatures and pair lists against the n × n matrix that they stand for."""

import numpy as np
import pytest

from gphash.supervision import similarity
from gphash.supervision.similarity import Pairs


def matrix(graph):
    """A pair list as a matrix of 0, +1 and −1, and its weights."""
    s, w = np.zeros((graph.n_rows, graph.n_rows)), np.zeros((graph.n_rows, graph.n_rows))
    for row in range(graph.n_rows):
        for p in range(graph.offsets[row], graph.offsets[row + 1]):
            assert s[row, graph.partners[p]] == 0, "a pair stands twice"
            s[row, graph.partners[p]] = 1 if graph.similar[p] else -1
            w[row, graph.partners[p]] = graph.weights[p]
    return s, w


@pytest.mark.parametrize(
    "y", [[3, 1, 3, 7, 1], ["b", "a", "b", "c", "a"], [0.5, -1.0, 0.5, 2.0, -1.0], [1, 0, 1, 1, 0]]
)
def test_equal_labels_are_similar(y):
    signatures = similarity.from_labels(y)
    assert signatures.exact
    assert signatures.masks.shape == (5, 1)
    np.testing.assert_array_equal(similarity.alike(signatures, signatures), np.equal.outer(np.array(y), np.array(y)))


def test_many_classes_stay_apart():
    signatures = similarity.from_labels(np.arange(1000))
    np.testing.assert_array_equal(similarity.alike(signatures[:50], signatures), np.eye(50, 1000, dtype=bool))


@pytest.mark.parametrize("n_tags", [1, 7, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float64])
def test_rows_that_share_a_tag_are_similar(n_tags, dtype):
    rng = np.random.default_rng(n_tags)
    tags = (rng.random((40, n_tags)) < 2 / n_tags).astype(dtype)
    tags[0] = 0
    tags[1, -1] = 1
    tags[2, -1] = 1
    signatures = similarity.from_tags(tags)
    assert not signatures.exact
    assert signatures.masks.shape == (40, -(-n_tags // 64))
    expected = tags.astype(int) @ tags.astype(int).T > 0
    found = similarity.alike(signatures, signatures)
    np.testing.assert_array_equal(found, expected)
    assert found[1, 2]
    assert not found[0].any()


def test_signatures_of_some_rows():
    signatures = similarity.from_labels([0, 1, 2, 1])
    some = signatures[np.array([3, 1])]
    assert some.exact
    np.testing.assert_array_equal(some.masks[:, 0], [1, 1])
    np.testing.assert_array_equal(similarity.alike(some, signatures), [[False, True, False, True]] * 2)


def test_pairs_stand_in_both_directions_in_order_of_rows_and_partners():
    graph = similarity.from_pairs(Pairs([3, 0, 2], [1, 2, 1], [1, -1, -1]), 5, balance=False)
    assert graph.n_rows == 5
    np.testing.assert_array_equal(graph.offsets, [0, 1, 3, 5, 6, 6])
    np.testing.assert_array_equal(graph.partners, [2, 2, 3, 0, 1, 1])
    np.testing.assert_array_equal(graph.similar, [0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(graph.weights, 1)


@pytest.mark.parametrize("balance", [False, True])
def test_a_pair_counts_once_however_often_and_in_whichever_order_it_is_given(balance):
    once = similarity.from_pairs(Pairs([0, 1, 2], [1, 2, 3], [1, -1, -1]), 4, balance)
    often = similarity.from_pairs(
        Pairs([0, 1, 0, 1, 2, 3, 2], [1, 0, 1, 2, 1, 2, 3], [1, 1, 1, -1, -1, -1, -1]), 4, balance
    )
    for one, other in zip(once.parts().values(), often.parts().values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_random_pairs_are_the_matrix_they_stand_for():
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 30, (2, 200))
    i, j = i[i != j], j[i != j]
    judged = np.triu(np.where(rng.random((30, 30)) < 0.3, 1, -1), 1)
    judged = judged + judged.T
    s, w = matrix(similarity.from_pairs(Pairs(i, j, judged[i, j]), 30, balance=False))
    expected = np.zeros((30, 30))
    expected[i, j] = expected[j, i] = 0
    for a, b in zip(i, j, strict=True):
        expected[a, b] = expected[b, a] = judged[a, b]
    np.testing.assert_array_equal(s, expected)
    np.testing.assert_array_equal(w, expected != 0)


def test_balance_gives_both_signs_the_same_mass_and_keeps_the_total():
    graph = similarity.from_pairs(Pairs([0, 0, 0, 0], [1, 2, 3, 4], [1, -1, -1, -1]), 5)
    similar = graph.similar == 1
    assert graph.weights[similar].sum() == pytest.approx(graph.weights[~similar].sum())
    assert graph.weights.sum() == pytest.approx(8)


def test_pairs_among_some_rows_are_numbered_anew():
    graph = similarity.from_pairs(Pairs([0, 0, 1, 2, 3], [1, 4, 2, 3, 4], [1, -1, 1, -1, 1]), 6)
    s, w = matrix(graph)
    for rows in (np.array([4, 0, 3]), np.array([5, 2]), np.arange(6), np.array([1, 5, 4, 3, 2, 0])):
        some = graph.among(rows)
        assert some.n_rows == len(rows)
        for found, whole in zip(matrix(some), (s, w), strict=True):
            np.testing.assert_array_equal(found, whole[np.ix_(rows, rows)])


def test_selected_pairs_keep_their_rows_and_weights():
    graph = similarity.from_pairs(Pairs([0, 0, 1, 2, 3], [1, 4, 2, 3, 4], [1, -1, 1, -1, 1]), 6)
    for keep in (graph.similar == 1, graph.similar == 0, np.zeros(10, bool), np.ones(10, bool)):
        some = graph.select(keep)
        assert some.n_rows == 6
        kept = {True: 1, False: -1}
        signs = {kept[bool(value)] for value in graph.similar[keep]}
        for found, whole in zip(matrix(some), matrix(graph), strict=True):
            np.testing.assert_array_equal(found, np.where(np.isin(matrix(graph)[0], list(signs)), whole, 0))


def taught(signatures):
    signatures.check_teaches()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: taught(similarity.from_labels([4, 4])), "y has one class only; hashing needs at least 2 classes"),
        (lambda: similarity.from_tags([1, 0]), r"tags y have shape \(2,\); give a 0/1 matrix"),
        (lambda: similarity.from_tags([[0, 2]]), r"tags y hold 2; give a matrix .* of 0 and 1 only"),
        (lambda: similarity.from_tags([[0.0, np.nan]]), "tags y hold nan; give a matrix"),
        (lambda: taught(similarity.from_tags([[0, 0], [0, 0]])), "tags y are all 0, so no two rows are similar"),
        (lambda: taught(similarity.from_tags([[0, 1], [1, 1]])), "tag 1 of y is on every row"),
        (lambda: taught(similarity.from_tags(np.eye(90, dtype=int)[[70, 70]])), "tag 70 of y is on every row"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1], [1, -1]), 3), r"lengths 2, 1 and \(2,\); they must agree"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, 2], [1]), 3), r"lengths 2, 2 and \(1,\)"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, 2], [[1], [-1]]), 3), r"lengths 2, 2 and \(2, 1\)"),
        (lambda: similarity.from_pairs(Pairs([0], [1], 1), 3), r"lengths 1, 1 and \(\)"),
        (lambda: similarity.from_pairs(Pairs([], [], []), 3), "pairs are empty"),
        (
            lambda: similarity.from_pairs(Pairs([0, 1], [1, 2], [1, 0]), 3),
            r"pairs.similar holds 0; give \+1 .alike. or -1",
        ),
        (lambda: similarity.from_pairs(Pairs([0, 2], [1, 2], [1, -1]), 3), "pairs name row 2 with itself"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, 0], [1, -1]), 3), "rows 0 and 1 both alike and unlike"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, 2], [1, 1]), 3), "pairs are all alike; give some of both"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, 2], [-1, -1]), 3), "pairs are all unlike"),
        (
            lambda: similarity.from_pairs(Pairs([0, 3], [1, 2], [1, -1]), 3),
            "pairs.i names row 3, but X has rows 0 to 2",
        ),
        (lambda: similarity.from_pairs(Pairs([0, 1], [1, -1], [1, -1]), 3), "pairs.j names row -1"),
        (lambda: similarity.from_pairs(Pairs([0.0, 1.0], [1, 2], [1, -1]), 3), "pairs.i has shape .* dtype float64"),
        (lambda: similarity.from_pairs(Pairs([0, 1], [[1, 2]], [1, -1]), 3), r"pairs.j has shape \(1, 2\)"),
        (lambda: similarity.from_pairs(Pairs([True, False], [1, 2], [1, -1]), 3), "pairs.i has shape .* dtype bool"),
    ],
)
def test_errors_say_what_was_given(call, message):
    with pytest.raises(ValueError, match=message):
        call()
