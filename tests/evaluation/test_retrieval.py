"""Grouped rankings against loops over explicit rankings, whatever the codes, the supervision and the protocol."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.evaluation import retrieval
from gphash.evaluation.retrieval import Queries
from gphash.supervision import similarity
from tests import reference

DEPTHS = (1, 2, 5, 17, 1000)


class Case(NamedTuple):
    """Queries and stored rows; the same when each query is left out of its own ranking."""

    bits: np.ndarray
    chances: np.ndarray
    marks: np.ndarray
    stored_bits: np.ndarray
    stored_marks: np.ndarray
    leave_one_out: bool

    @property
    def n_bits(self):
        return self.bits.shape[1]

    def signatures(self):
        joint = np.concatenate([self.marks, self.stored_marks])
        made = similarity.from_tags(joint) if joint.ndim == 2 else similarity.from_labels(joint)
        return made[: len(self.marks)], made[len(self.marks) :]

    def queries(self):
        own, others = self.signatures()
        queries = Queries(np.packbits(self.bits, axis=1), own, self.leave_one_out)
        return queries, retrieval.store(np.packbits(self.stored_bits, axis=1), others)

    def by_hamming(self, radius=2, depths=DEPTHS, n_jobs=1):
        return retrieval.measure(*self.queries(), self.n_bits, radius, depths, n_jobs)

    def by_expected(self, depths=DEPTHS, n_jobs=1):
        queries, stored = self.queries()
        unsure = queries._replace(probabilities=self.chances)
        return retrieval.measure(unsure, stored, self.n_bits, depths=depths, n_jobs=n_jobs)

    def rankings(self, distance):
        """Distances and relevance of the candidates of every query, pair by pair."""
        similar = reference.shared_tag if self.marks.ndim == 2 else reference.same_label
        for q in range(len(self.bits)):
            rows = [row for row in range(len(self.stored_bits)) if not (self.leave_one_out and row == q)]
            yield (
                np.array([distance(q, row) for row in rows]),
                np.array([similar(self.marks[q], self.stored_marks[row]) for row in rows], dtype=bool),
            )

    def hamming_rankings(self):
        return self.rankings(lambda q, row: reference.hamming_distance(self.bits[q], self.stored_bits[row]))

    def expected_rankings(self):
        return self.rankings(lambda q, row: reference.expected_distance(self.chances[q], self.stored_bits[row]))


def make(seed, n_bits, n_queries, n_stored, supervision="labels", spread=0.5, leave_one_out=False):
    """A random case.

    Bits differ from those of a few centres with probability `spread`: 0 makes all codes equal to a centre's. Bit
    probabilities are multiples of 1/64, so that sums of them are exact and ties are ties for every summation.
    """
    rng = np.random.default_rng(seed)
    n = n_queries + n_stored
    centres = rng.integers(0, 2, (rng.integers(1, 4), n_bits))
    bits = (centres[rng.integers(len(centres), size=n)] ^ (rng.random((n, n_bits)) < spread)).astype(np.uint8)
    if supervision == "labels":
        marks = rng.integers(0, 4, n)
    elif supervision == "singletons":
        marks = np.arange(n)
    else:
        n_tags = {"tags": 5, "many tags": 150}[supervision]
        marks = (rng.random((n, n_tags)) < 1.5 / n_tags).astype(int)
        marks[rng.random(n) < 0.2] = 0
    chances = np.where(bits == 1, rng.integers(32, 65, bits.shape), rng.integers(0, 32, bits.shape)) / 64
    if leave_one_out:
        half = slice(0, n_queries)
        return Case(bits[half], chances[half], marks[half], bits[half], marks[half], True)
    first, second = slice(0, n_queries), slice(n_queries, None)
    return Case(bits[first], chances[first], marks[first], bits[second], marks[second], False)


cases = st.builds(
    make,
    seed=st.integers(0, 2**32 - 1),
    n_bits=st.integers(1, 130),
    n_queries=st.integers(1, 7),
    n_stored=st.integers(1, 25),
    supervision=st.sampled_from(["labels", "singletons", "tags", "many tags"]),
    spread=st.sampled_from([0.0, 0.02, 0.2, 0.5]),
    leave_one_out=st.booleans(),
)
depths = st.lists(st.integers(1, 40), max_size=4).map(sorted)


AT_K = {"map_at_k": "average_precision_at", "precision_at_k": "precision_at", "recall_at_k": "recall_at"}


def agrees(found, wanted):
    """Whether every figure is that of the references, one per query."""
    np.testing.assert_allclose(found["map"], [one.average_precision for one in wanted], rtol=0, atol=1e-12)
    for name, other in AT_K.items():
        columns = np.array([getattr(one, other) for one in wanted]).reshape(len(wanted), -1)
        np.testing.assert_allclose(found[name], columns, rtol=0, atol=1e-12)


def same(first, second, order=slice(None)):
    """Whether two measurements are equal to the last bit, the second's queries taken in some order."""
    for name in first.keys() & second.keys():
        np.testing.assert_array_equal(first[name], second[name][order])


@given(case=cases, depths=depths, radius=st.integers(0, 6))
@settings(max_examples=150)
def test_rankings_by_hamming_distance_are_those_of_the_loops(case, depths, radius):
    found = case.by_hamming(radius, depths)
    rankings = list(case.hamming_rankings())
    agrees(found, [reference.quality_by_position(*one, depths) for one in rankings])
    within = [reference.precision_within(*one, radius) for one in rankings]
    np.testing.assert_allclose(found["precision_within_radius"], within, rtol=0, atol=1e-12)


@given(case=cases, depths=depths)
@settings(max_examples=150)
def test_rankings_by_expected_distance_are_those_of_the_loops(case, depths):
    found = case.by_expected(depths)
    agrees(found, [reference.quality_by_position(*one, depths) for one in case.expected_rankings()])
    assert "precision_within_radius" not in found


@given(
    ranking=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=6),
    depths=st.lists(st.integers(1, 8), max_size=3),
)
def test_positions_tell_the_same_as_all_orders(ranking, depths):
    distances, relevant = np.array([d for d, _ in ranking]), np.array([r for _, r in ranking], dtype=bool)
    by_position = reference.quality_by_position(distances, relevant, depths)
    over_orders = reference.quality_over_orders(distances, relevant, depths)
    for mine, other in zip(by_position, over_orders, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_large_ties_keep_the_precision(leave_one_out):
    case = make(0, 12, 20, 3000, spread=0.1, leave_one_out=False)
    if leave_one_out:
        case = make(1, 12, 200, 1, spread=0.1, leave_one_out=True)
    depths = (1, 10, 100, 1000)
    agrees(case.by_hamming(2, depths), [reference.quality_by_position(*one, depths) for one in case.hamming_rankings()])
    agrees(case.by_expected(depths), [reference.quality_by_position(*one, depths) for one in case.expected_rankings()])


@given(case=cases, seed=st.integers(0, 99))
def test_the_order_of_rows_changes_no_figure(case, seed):
    rng = np.random.default_rng(seed)
    mine = rng.permutation(len(case.bits))
    theirs = mine if case.leave_one_out else rng.permutation(len(case.stored_bits))
    shuffled = Case(
        case.bits[mine],
        case.chances[mine],
        case.marks[mine],
        case.stored_bits[theirs],
        case.stored_marks[theirs],
        case.leave_one_out,
    )
    same(shuffled.by_hamming(), case.by_hamming(), mine)
    same(shuffled.by_expected(), case.by_expected(), mine)


@given(case=cases)
@settings(max_examples=25)
def test_certain_probabilities_rank_as_hamming_distance_does(case):
    certain = case._replace(chances=case.bits.astype(np.float64))
    by_hamming, by_expected = certain.by_hamming(), certain.by_expected()
    same(by_expected, by_hamming)


@pytest.mark.parametrize("n_bits", [8, 16, 31, 64, 130])
def test_rounding_breaks_no_tie_of_nearly_certain_bits(n_bits):
    case = make(0, n_bits, 12, 60)
    noise = np.random.default_rng(1).uniform(0, 1e-15, case.bits.shape)
    nearly = case._replace(chances=np.abs(case.bits - noise))
    by_hamming, by_expected = nearly.by_hamming(), nearly.by_expected()
    same(by_expected, by_hamming)


@pytest.mark.parametrize("n_bits", [2, 16, 48])
def test_bits_of_equal_probability_tie(n_bits):
    """One differing bit of m costs the same whichever it is, though sums run over bytes in different orders."""
    stored = np.eye(n_bits, dtype=np.uint8)
    chances = np.full((1, n_bits), 0.1)
    bits = np.zeros((1, n_bits), dtype=np.uint8)
    case = Case(bits, chances, np.zeros(1, int), stored, (np.arange(n_bits) >= n_bits // 2).astype(int), False)
    assert case.by_expected(depths=(1,))["precision_at_k"].tolist() == [[0.5]]


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("supervision", ["labels", "tags"])
def test_a_perfect_ranking_has_1(supervision, leave_one_out):
    classes = np.repeat(np.arange(4), 9)
    bits = np.unpackbits(np.array([0, 15, 51, 85], dtype=np.uint8)[classes][:, None], axis=1)
    marks = np.eye(4, dtype=int)[classes] if supervision == "tags" else classes
    case = Case(bits, np.abs(bits - 0.125), marks, bits, marks, leave_one_out)
    n_relevant = 8 if leave_one_out else 9
    for found in (case.by_hamming(0, (1, n_relevant, 30)), case.by_expected((1, n_relevant, 30))):
        np.testing.assert_allclose(found["map"], 1, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found["map_at_k"], 1, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            found["precision_at_k"], np.tile([1, 1, n_relevant / 30], (36, 1)), rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(found["recall_at_k"], np.tile([1 / n_relevant, 1, 1], (36, 1)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(case.by_hamming(0)["precision_within_radius"], 1)


@pytest.mark.parametrize("n_bits", [1, 8, 70])
def test_a_constant_code_has_the_base_rate(n_bits):
    n, r = 50, 20
    stored = np.ones((n, n_bits), dtype=np.uint8)
    query = np.zeros((1, n_bits), dtype=np.uint8)
    case = Case(query, np.full((1, n_bits), 0.25), np.zeros(1, int), stored, (np.arange(n) >= r).astype(int), False)
    # The average precision of a random order: (s n + (1 − s) H(n)) / n with s = (r − 1)/(n − 1).
    s = (r - 1) / (n - 1)
    expected = (s * n + (1 - s) * math.fsum(1 / k for k in range(1, n + 1))) / n
    for found in (case.by_hamming(n_bits, (1, 7, 50)), case.by_expected((1, 7, 50))):
        assert found["map"][0] == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(found["precision_at_k"], r / n, rtol=0, atol=1e-15)
        np.testing.assert_allclose(found["recall_at_k"], [[1 / n, 7 / n, 1]], rtol=0, atol=1e-15)
    assert case.by_hamming(n_bits)["precision_within_radius"][0] == r / n


def test_an_empty_ball_counts_0():
    case = Case(
        np.zeros((1, 8), np.uint8), np.zeros((1, 8)), np.zeros(1, int), np.ones((3, 8), np.uint8), np.zeros(3), False
    )
    assert case.by_hamming(7)["precision_within_radius"].tolist() == [0]
    assert case.by_hamming(8)["precision_within_radius"].tolist() == [1]


def test_one_row_left_out_of_itself_finds_nothing():
    bits = np.ones((1, 9), dtype=np.uint8)
    case = Case(bits, np.full((1, 9), 0.75), np.zeros(1, int), bits, np.zeros(1, int), True)
    for found in (case.by_hamming(), case.by_expected()):
        assert np.isnan(found["map"]).tolist() == [True]
        assert np.isnan([found["map_at_k"], found["recall_at_k"]]).all()
        assert not found["precision_at_k"].any()


def test_queries_with_nothing_to_find_are_left_out_of_means():
    bits = np.ones((4, 9), dtype=np.uint8)
    case = Case(bits, np.full((4, 9), 0.75), np.array([0, 0, 1, 2]), bits, np.array([0, 0, 1, 2]), True)
    for found in (case.by_hamming(), case.by_expected()):
        assert np.isnan(found["map"]).tolist() == [False, False, True, True]
        assert found["recall_at_k"][:2, -1].tolist() == [1, 1]


def test_depths_beyond_the_database_are_cut():
    case = make(0, 8, 5, 20)
    for found in (case.by_hamming(depths=(3, 20, 21, 10**9)), case.by_expected(depths=(3, 20, 21, 10**9))):
        assert (found["precision_at_k"][:, 1] == found["precision_at_k"][:, 3]).all()
        assert (found["recall_at_k"][:, 1:] == 1).all()


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_threads_change_nothing(leave_one_out):
    case = make(3, 20, 3 * retrieval.QUERIES + 5, 400, spread=0.2, leave_one_out=leave_one_out)
    same(case.by_hamming(n_jobs=1), case.by_hamming(n_jobs=3))
    same(case.by_expected(n_jobs=1), case.by_expected(n_jobs=3))


def test_rows_are_grouped_by_code_and_signature():
    bits = np.array([[0, 1], [0, 1], [1, 1], [0, 1]], dtype=np.uint8)
    stored = retrieval.store(np.packbits(bits, axis=1), similarity.from_labels([5, 6, 5, 5]))
    assert stored.n_rows == 4
    assert stored.packed.tolist() == [[64], [192]]
    assert stored.offsets.tolist() == [0, 2, 3]
    assert stored.counts.tolist() == [2, 1, 1]


def test_more_distinct_codes_than_a_sort_key_holds_are_refused(monkeypatch):
    monkeypatch.setattr(retrieval, "INDEX_BITS", 2)
    case = make(0, 30, 2, 20)
    with pytest.raises(ValueError, match="20 distinct codes; it must have fewer than 4"):
        case.by_expected()
