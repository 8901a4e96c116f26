"""From answers to bits: questions, probabilities that mean what they say, and how sure bits are."""

import numpy as np
import pytest
from scipy.special import softmax

from gphash.execution.local import LocalExecutor, SerialExecutor
from gphash.method import decoding, readout
from gphash.method.hashing import HashFunction
from gphash.method.kernels import SquaredExponential
from gphash.method.scaling import Scaling
from gphash.supervision import similarity
from tests.method.test_readout import gaussian_answers

TAGS = np.array([[1, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0]])


class TestQuestions:
    def test_every_class_has_one_and_its_rows_answer_yes(self):
        y = np.array(["b", "a", "c", "a"])
        found = decoding.questions(similarity.from_labels(y), 0)
        np.testing.assert_array_equal(found, np.where(y[:, None] == ["a", "b", "c"], 1, -1))
        assert found.dtype == np.int8

    def test_every_tag_that_some_row_has_has_one(self):
        found = decoding.questions(similarity.from_tags(TAGS), 0)
        np.testing.assert_array_equal(found, 2 * TAGS[:, [0, 2, 3]] - 1)

    def test_rows_without_a_label_are_asked_nothing_new(self):
        known = np.array([True, False, True, True, False])
        found = decoding.questions(similarity.from_labels([0, 7, 1, 0, 8], known), 0)
        np.testing.assert_array_equal(found[known], [[1, -1], [-1, 1], [1, -1]])
        assert found.shape == (5, 2)
        assert (found[~known] == -1).all()

    def test_of_very_many_classes_they_are_about_groups(self):
        y = np.tile(np.arange(300), 2)
        found = decoding.questions(similarity.from_labels(y), 0)
        assert found.shape == (600, decoding.MOST_QUESTIONS)
        np.testing.assert_array_equal(found[:300], found[300:])
        assert len(np.unique(found, axis=0)) == 300  # no two classes answer alike
        np.testing.assert_array_equal(found, decoding.questions(similarity.from_labels(y), 0))


class TestTruth:
    def test_columns_are_classes_of_all_rows_even_where_some_rows_lack_them(self):
        whole = similarity.from_labels([0, 1, 2, 1])
        np.testing.assert_array_equal(decoding.truth(whole[[3, 0]], whole), [[0, 1, 0], [1, 0, 0]])

    def test_columns_are_tags_of_all_rows_even_where_some_rows_lack_them(self):
        whole = similarity.from_tags(TAGS)
        np.testing.assert_array_equal(decoding.truth(whole[[1, 2]], whole), TAGS[[1, 2]][:, [0, 2, 3]])

    def test_rows_without_a_label_have_no_class_and_make_none(self):
        whole = similarity.from_labels([5, 5, 6, 9], np.array([True, True, True, False]))
        np.testing.assert_array_equal(decoding.truth(whole, whole), [[1, 0], [1, 0], [0, 1], [0, 0]])


class TestImportance:
    def test_classes_have_the_shares_that_they_have_among_all_rows(self):
        whole = similarity.from_labels(np.repeat([0, 1, 2], [90, 9, 1]))
        some = whole[np.r_[:10, 90:99, 99]]
        found = decoding.importance(some, whole)
        shares = np.bincount(some.masks[:, 0].astype(int), found) / found.sum()
        np.testing.assert_allclose(shares, [0.9, 0.09, 0.01])
        assert found.mean() == pytest.approx(1)

    def test_all_rows_count_once(self):
        whole = similarity.from_labels(np.repeat([0, 1], [30, 5]))
        np.testing.assert_allclose(decoding.importance(whole, whole), 1)
        tags = similarity.from_tags(TAGS)
        np.testing.assert_array_equal(decoding.importance(tags[[0, 1]], tags), 1)

    def test_weights_of_rows_count_too(self):
        whole = similarity.from_labels(np.arange(40) % 2).weighted(np.where(np.arange(40) % 4 < 2, 1.0, 3.0))
        found = decoding.importance(whole, whole)
        np.testing.assert_allclose(found / found[0], np.where(np.arange(40) % 4 < 2, 1, 3))


class TestNarrow:
    def test_a_tag_on_too_many_rows_is_left_out(self):
        tags = np.zeros((30, 3), int)
        tags[:20, 0], tags[:5, 1], tags[5:9, 2] = 1, 1, 1
        found = decoding.narrow(similarity.from_tags(tags))
        expected = similarity.from_tags(tags * [0, 1, 1])
        np.testing.assert_array_equal(similarity.alike(found, found), similarity.alike(expected, expected))

    def test_if_all_tags_are_broad_they_stay(self):
        given = similarity.from_tags(np.tile([[1, 0], [0, 1]], (10, 1)))
        assert decoding.narrow(given) is given

    def test_narrow_tags_and_labels_stay(self):
        for given in (similarity.from_tags(np.eye(9, dtype=int)), similarity.from_labels(np.zeros(9))):
            assert decoding.narrow(given) is given


def machine(n_questions):
    """A kernel machine that answers at random; of its answers, nothing is asked here."""
    generator = np.random.default_rng(6)
    Z, weights = generator.normal(size=(5, 3)), generator.normal(size=(5, n_questions))
    scaling = Scaling(np.zeros(3), True)
    return HashFunction(
        scaling, SquaredExponential(1.0, 1.0), Z.astype(np.float32), weights.astype(np.float32), np.zeros(n_questions)
    )


class TestLearn:
    @staticmethod
    def learn(n_bits=8, seeds=(0,), executor=None):
        y, answers, _ = gaussian_answers(600, np.full(5, 0.2), spread=0.5)
        labels = similarity.from_labels(y)
        function = decoding.learn(answers, labels, labels, n_bits, seeds, machine(5), executor or SerialExecutor())[0]
        return function, labels, y, answers

    def test_logits_are_those_of_the_read_out_of_what_the_machine_answers(self):
        function, _, y, answers = self.learn()
        readings = [readout.fit(answers, np.eye(5)[y], True, np.ones(len(y)), ridge)[0] for ridge in readout.RIDGES]
        rows = np.random.default_rng(7).normal(size=(20, 3))
        logits, answered = function.classifier.exact_means(rows), machine(5).exact_means(rows)
        assert min(np.abs(logits - answered @ one.weights - one.bias).max() for one in readings) < 0.02
        np.testing.assert_allclose(function.classes(rows), softmax(logits, axis=1), atol=1e-4)

    def test_every_class_has_a_word_of_its_own(self):
        function, labels, y, _ = self.learn()
        codes = decoding.true_codes(function, labels, labels)
        assert codes.shape == (600, 8)
        assert len(np.unique(np.column_stack([y, codes]), axis=0)) == 5
        assert len(np.unique(codes, axis=0)) == 5

    def test_it_is_the_same_on_any_number_of_threads(self):
        with LocalExecutor(2) as threads:
            one, other = self.learn(seeds=(0, 1))[0], self.learn(seeds=(0, 1), executor=threads)[0]
        for mine, theirs in zip(one.content()[1].values(), other.content()[1].values(), strict=True):
            np.testing.assert_array_equal(mine, theirs)

    @pytest.mark.parametrize("n_bits", [1, 3, 40])
    def test_there_may_be_few_bits_or_many(self, n_bits):
        function = self.learn(n_bits)[0]
        assert function.directions.shape == (5, n_bits)
        assert function.has_probabilities
