"""Words and directions: chosen by a retrieval that is counted exactly, on predictions that leave each row out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.codes import packing
from gphash.evaluation import retrieval
from gphash.method import prior as priors
from gphash.method import words
from gphash.method.kernels import SquaredExponential
from gphash.method.words import Tally
from gphash.supervision import similarity


def random_signs(shape, generator):
    return np.where(generator.random(shape) < 0.5, -1, 1).astype(np.int8)


def supervised(kind, n, generator):
    """Random labels or tags of so many rows; some are like no other."""
    if kind == "labels":
        return similarity.from_labels(generator.integers(0, 5, n))
    return similarity.from_tags((generator.random((n, 4)) < 0.3).astype(int))


def by_evaluation(signs, signatures):
    return retrieval.mean_average_precision(packing.pack(signs > 0), signatures, signs.shape[1])


KINDS = pytest.mark.parametrize("kind", ["labels", "tags"])


class TestTally:
    @KINDS
    @settings(max_examples=25)
    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(6, 60), m=st.integers(1, 12))
    def test_its_quality_is_that_of_the_evaluation_before_and_after_changes(self, kind, seed, n, m):
        generator = np.random.default_rng(seed)
        signatures, signs = supervised(kind, n, generator), random_signs((n, m), generator)
        tally = Tally(signs, similarity.alike(signatures, signatures))
        if not (tally.precisions >= 0).any():
            assert tally.quality == 0
            return
        assert tally.quality == pytest.approx(by_evaluation(signs, signatures), abs=1e-12)
        for _ in range(10):
            bit = int(generator.integers(m))
            changed = tally.signs.copy()
            changed[generator.random(n) < generator.random(), bit] *= -1
            present = tally.signs.copy()
            before, promised = by_evaluation(present, signatures), by_evaluation(changed, signatures)
            taken = tally.take_if_better(bit, changed[:, bit])
            if abs(promised - before) > 1e-9:
                assert taken == (promised > before)
            assert tally.quality == pytest.approx(by_evaluation(tally.signs, signatures), abs=1e-12)
            np.testing.assert_array_equal(tally.signs, changed if taken else present)

    def test_distances_and_counts_stay_those_of_the_codes(self):
        generator = np.random.default_rng(0)
        signatures, signs = supervised("labels", 50, generator), random_signs((50, 6), generator)
        alike = similarity.alike(signatures, signatures)
        tally = Tally(signs, alike)
        while not tally.take_if_better(2, random_signs(50, generator)):
            pass
        fresh = Tally(tally.signs, alike)
        for name in ("cells", "counts", "precisions"):
            np.testing.assert_allclose(getattr(tally, name), getattr(fresh, name), atol=1e-12)

    def test_its_codes_are_its_own(self):
        signs = random_signs((20, 3), np.random.default_rng(1))
        given_signs = signs.copy()
        tally = Tally(signs, np.equal.outer(np.arange(20) % 2, np.arange(20) % 2))
        tally.take_if_better(0, np.where(np.arange(20) % 2, 1, -1).astype(np.int8))
        np.testing.assert_array_equal(signs, given_signs)

    def test_a_change_that_loses_much_is_refused_whatever_rows_are_left_unasked(self):
        y = np.arange(400) % 4
        signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], np.int8)[y]
        tally = Tally(signs, np.equal.outer(y, y))
        assert tally.quality == pytest.approx(1)
        assert not tally.take_if_better(0, random_signs(400, np.random.default_rng(2)))
        assert tally.quality == pytest.approx(1)

    def test_where_no_two_rows_are_similar_there_is_nothing_to_find(self):
        assert Tally(random_signs((10, 3), np.random.default_rng(0)), np.eye(10, dtype=bool)).quality == 0


class TestLeftOut:
    @pytest.mark.parametrize("power", [0.0, 0.05, 1.0])
    def test_it_is_ridge_regression_on_all_other_rows(self, power):
        generator = np.random.default_rng(3)
        X, targets = generator.normal(size=(40, 3)), generator.normal(size=(40, 2))
        prior = priors.build(SquaredExponential(1.0, 1.5), X[::4], power)
        found = words.left_out(words.smoother(prior, X), targets)
        Phi, residual = priors.features(prior, X)
        precision = words.first_precision(residual)
        np.testing.assert_allclose(precision, 1 / (2 + residual), atol=1e-12)  # variances add up
        for i in range(40):
            others = np.arange(40) != i
            A, tau = Phi[others], precision[others]
            weights = np.linalg.solve(
                np.eye(A.shape[1]) + A.T @ (tau[:, None] * A), A.T @ (tau[:, None] * targets[others])
            )
            np.testing.assert_allclose(found[i], Phi[i] @ weights, atol=1e-8)

    def test_a_single_column_is_a_column_of_many(self):
        generator = np.random.default_rng(4)
        X, targets = generator.normal(size=(30, 2)), generator.normal(size=(30, 3))
        smoother = words.smoother(priors.build(SquaredExponential(1.0, 2.0), X[:10]), X)
        np.testing.assert_allclose(words.left_out(smoother, targets[:, 1]), words.left_out(smoother, targets)[:, 1])

    def test_its_own_target_says_nothing_about_a_row(self):
        generator = np.random.default_rng(5)
        X, targets = generator.normal(size=(30, 2)), generator.normal(size=30)
        smoother = words.smoother(priors.build(SquaredExponential(1.0, 2.0), X[:10]), X)
        other = targets.copy()
        other[7] += 5
        assert words.left_out(smoother, other)[7] == pytest.approx(words.left_out(smoother, targets)[7])


def scored(n=200, c=6, seed=0):
    """Labels, and scores by which they can be told with some doubt."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, c, n)
    return similarity.from_labels(y), np.eye(c)[y] - 1 / c + 0.4 * generator.normal(size=(n, c))


def n_repeated(scores, directions):
    """Pairs of bits that are the same or opposite, and bits that never change."""
    signs = np.where(np.asarray(scores, np.float32) @ directions.astype(np.float32) >= 0, 1, -1)
    product = np.abs(signs.T @ signs) == len(signs)
    return int(np.triu(product, 1).sum() + (np.abs(signs.sum(axis=0)) == len(signs)).sum())


class TestSearch:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("n_bits", [4, 8, 16])
    def test_it_never_lowers_the_quality_and_repeats_no_bit(self, n_bits, seed):
        signatures, scores = scored(seed=seed)
        alike = similarity.alike(signatures, signatures)
        first = words.rotation(scores, n_bits, np.random.default_rng(seed))
        first = words.distinct(scores, first, np.random.default_rng(seed))
        begun = by_evaluation(np.where(scores.astype(np.float32) @ first.astype(np.float32) >= 0, 1, -1), signatures)
        found, promise = words.search(scores, alike, first, seed, 200)
        signs = np.where(scores.astype(np.float32) @ found.astype(np.float32) >= 0, 1, -1)
        assert promise == pytest.approx(by_evaluation(signs, signatures), abs=1e-9)
        assert promise > begun
        assert n_repeated(scores, found) == 0

    def test_more_proposals_do_not_lower_it(self):
        signatures, scores = scored()
        alike = similarity.alike(signatures, signatures)
        first = words.hadamard(6, 8, np.random.default_rng(0)).astype(np.float64)
        promises = [words.search(scores, alike, first, 0, n)[1] for n in (0, 50, 100, 200)]
        assert promises == sorted(promises)

    def test_the_same_seed_finds_the_same(self):
        signatures, scores = scored()
        alike = similarity.alike(signatures, signatures)
        first = words.rotation(scores, 8, np.random.default_rng(0))
        one, other, third = (words.search(scores, alike, first, seed, 100)[0] for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, other)
        assert (one != third).any()

    def test_bits_that_repeat_others_are_drawn_anew(self):
        _, scores = scored()
        generator = np.random.default_rng(0)
        one = words.rotation(scores, 3, generator)
        directions = np.column_stack([one, one[:, 0], -one[:, 1], np.zeros(6)])
        assert n_repeated(scores, directions) > 0
        found = words.distinct(scores, directions, generator)
        assert n_repeated(scores, found) == 0
        assert len(np.unique(found, axis=1).T) == 6

    def test_bits_that_cannot_but_repeat_stay(self):
        """Of two classes, and scores that sum to zero, there is one bit only."""
        scores = np.where(np.arange(40) % 2, 1.0, -1.0)[:, None] * [1.0, -1.0]
        found = words.distinct(scores, np.ones((2, 4)), np.random.default_rng(0))
        assert found.shape == (2, 4)


class TestRotation:
    @pytest.mark.parametrize(("c", "m"), [(3, 8), (8, 8), (10, 4), (2, 1)])
    def test_it_is_orthogonal_as_far_as_it_can_be(self, c, m):
        scores = np.random.default_rng(0).normal(size=(100, c))
        T = words.rotation(scores, m, np.random.default_rng(1))
        assert T.shape == (c, m)
        product = T.T @ T if m <= c else T @ T.T
        np.testing.assert_allclose(product, np.eye(min(c, m)), atol=1e-10)

    def test_signs_are_nearer_to_rotated_scores_than_without(self):
        generator = np.random.default_rng(2)
        turn = np.linalg.qr(generator.normal(size=(6, 6)))[0]
        scores = random_signs((500, 6), generator) @ turn + 0.05 * generator.normal(size=(500, 6))

        def error(T):
            return np.square(np.where(scores @ T >= 0, 1, -1) - scores @ T).mean()

        assert error(words.rotation(scores, 6, generator)) < 0.5 * error(np.eye(6))


class TestHadamard:
    @pytest.mark.parametrize(("n_words", "n_bits"), [(2, 2), (3, 4), (10, 16), (16, 16), (20, 64)])
    def test_any_two_words_differ_in_half_of_the_bits(self, n_words, n_bits):
        found = words.hadamard(n_words, n_bits, np.random.default_rng(0)).astype(int)
        assert found.shape == (n_words, n_bits)
        np.testing.assert_array_equal(found @ found.T, n_bits * np.eye(n_words))

    @pytest.mark.parametrize(("n_words", "n_bits"), [(10, 12), (10, 24), (100, 32), (5, 7)])
    def test_otherwise_words_are_as_far_apart_as_random_ones_at_least(self, n_words, n_bits):
        generator = np.random.default_rng(0)

        def nearest(found):
            distances = (n_bits - found.astype(int) @ found.T) // 2
            return distances[~np.eye(n_words, dtype=bool)].min()

        found = words.hadamard(n_words, n_bits, generator)
        assert found.shape == (n_words, n_bits)
        assert (np.abs(found) == 1).all()
        assert nearest(found) >= max(nearest(random_signs((n_words, n_bits), generator)) for _ in range(20))

    @pytest.mark.parametrize(("n_words", "n_bits"), [(1, 1), (2, 1), (1, 5), (200, 3)])
    def test_there_are_words_for_any_number(self, n_words, n_bits):
        assert words.hadamard(n_words, n_bits, np.random.default_rng(0)).shape == (n_words, n_bits)


def test_a_row_is_spelled_with_the_word_of_its_class():
    generator = np.random.default_rng(0)
    y = np.r_[np.arange(4), generator.integers(0, 4, 30)]
    table = words.hadamard(4, 8, generator)
    np.testing.assert_array_equal(words.spell(words.votes(similarity.from_labels(y)), table), table[y])


def test_rare_tags_decide_before_common_ones():
    tags = np.zeros((20, 2), int)
    tags[:, 0], tags[:2, 1] = 1, 1
    tags[19] = 0
    codes = words.spell(words.votes(similarity.from_tags(tags)), np.array([[1, 1], [-1, 1]], np.int8))
    np.testing.assert_array_equal(codes[0], [-1, 1])  # has both
    np.testing.assert_array_equal(codes[5], [1, 1])


class TestInOrder:
    @KINDS
    @settings(max_examples=15)
    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(8, 40), m=st.integers(1, 6))
    def test_every_bit_is_the_best_behind_those_before_it(self, kind, seed, n, m):
        generator = np.random.default_rng(seed)
        signatures, signs = supervised(kind, n, generator), random_signs((n, m), generator)
        alike = similarity.alike(signatures, signatures)
        found = words.in_order(signs, alike).tolist()
        assert sorted(found) == list(range(m))
        if not (alike.sum(axis=1) > 1).any():
            return
        for place in range(m):
            promised = [by_evaluation(signs[:, [*found[:place], bit]], signatures) for bit in found[place:]]
            assert promised[0] == pytest.approx(max(promised), abs=1e-12)

    def test_beyond_the_first_bits_they_stay_in_their_order(self, monkeypatch):
        monkeypatch.setattr(words, "FIRST", 3)
        generator = np.random.default_rng(0)
        signatures, signs = supervised("labels", 50, generator), random_signs((50, 12), generator)
        found = words.in_order(signs, similarity.alike(signatures, signatures)).tolist()
        assert found[3:] == sorted(found[3:])

    def test_bits_that_tell_classes_apart_come_before_noise(self):
        labels = np.arange(60) % 4
        generator = np.random.default_rng(0)
        noise = random_signs((60, 5), generator)
        telling = np.where(np.stack([labels % 2, labels // 2], axis=1), 1, -1).astype(np.int8)
        signatures = similarity.from_labels(labels)
        found = words.in_order(np.hstack([noise, telling]), similarity.alike(signatures, signatures))
        assert sorted(found[:2]) == [5, 6]
