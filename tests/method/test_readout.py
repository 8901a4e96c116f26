"""Logistic regression of classes and tags: probabilities that mean what they say, whatever the answers look like."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from gphash.method import posteriors, readout


def gaussian_answers(n, shares, seed=0, spread=1.0):
    """Classes, answers to a question for each, and how probable the answers make every class."""
    generator = np.random.default_rng(seed)
    c = len(shares)
    y = generator.choice(c, n, p=shares)
    centres = 2 * np.eye(c) - 1
    answers = centres[y] + spread * generator.normal(size=(n, c))
    squared = ((answers[:, None] - centres) ** 2).sum(axis=2)
    return y, answers, softmax(np.log(shares) - squared / (2 * spread**2), axis=1)


class TestReadOut:
    def test_classes_are_as_probable_as_they_are(self):
        shares = np.array([0.6, 0.3, 0.1])
        y, answers, _ = gaussian_answers(4000, shares)
        found = readout.fit(answers, np.eye(3)[y], True, np.ones(len(y)))[0]
        fresh_y, fresh, expected = gaussian_answers(20_000, shares, seed=1)
        P = np.exp(posteriors.log_posteriors(fresh @ found.weights + found.bias, True))
        assert np.abs(P - expected).mean() < 0.015
        # Calibrated: of all that is said to be so probable, so much comes true.
        for low in (0.05, 0.25, 0.45, 0.65, 0.85):
            near = (low <= P) & (low + 0.1 > P)
            assert np.eye(3)[fresh_y][near].mean() == pytest.approx(P[near].mean(), abs=0.03)

    def test_tags_are_as_probable_as_they_are(self):
        generator = np.random.default_rng(2)
        mixing, bias = np.array([[3.0, 0.5], [-0.5, 2.0]]), np.array([-1.0, 0.5])
        answers = generator.normal(size=(6000, 2))
        expected = expit(answers @ mixing + bias)
        told = (generator.random(expected.shape) < expected).astype(float)
        found = readout.fit(answers, told, False, np.ones(len(answers)))[0]
        P = np.exp(posteriors.log_posteriors(answers @ found.weights + found.bias, False))
        assert np.abs(P - expected).mean() < 0.02

    def test_answers_may_be_in_any_unit(self):
        y, answers, _ = gaussian_answers(2000, np.full(4, 0.25))
        told, weights = np.eye(4)[y], np.ones(len(y))
        given = told, True, weights
        one, other = (readout.fit(answers * unit, *given)[0] for unit in (1.0, 1e4))
        np.testing.assert_allclose(other.weights * 1e4, one.weights, atol=2e-2)
        np.testing.assert_allclose(other.bias, one.bias, atol=2e-2)

    def test_a_weight_counts_like_so_many_rows(self):
        y, answers, _ = gaussian_answers(600, np.array([0.5, 0.5]))
        twice = np.where(y == 1, 3.0, 1.0)
        found = readout.fit(answers, np.eye(2)[y], True, twice, ridge=10.0)[0]
        again = np.repeat(np.arange(len(y)), twice.astype(int))
        expected = readout.fit(answers[again], np.eye(2)[y][again], True, np.ones(len(again)), ridge=10.0)[0]
        P, Q = (posteriors.powers(answers @ one.weights + one.bias, True, 1.0) for one in (found, expected))
        np.testing.assert_allclose(P, Q, atol=5e-3)

    @pytest.mark.parametrize("exclusive", [True, False])
    def test_codes_that_are_equal_are_one_row(self, exclusive):
        generator = np.random.default_rng(5)
        X = np.where(generator.random((400, 4)) < 0.5, -1.0, 1.0)
        told = np.eye(3)[generator.integers(0, 3, 400)] if exclusive else (generator.random((400, 3)) < 0.3) * 1.0
        weights = generator.random(400)
        grouped, means, _, total, _ = readout._grouped(readout.Regression(X, told, exclusive, weights))
        assert len(grouped) == 16
        assert total.sum() == pytest.approx(weights.sum())
        logits = generator.normal(size=(4, 3))
        one, other = (
            w @ posteriors.likelihood(rows @ logits, truth, exclusive)[0]
            for rows, truth, w in ((X, told, weights), (grouped, means, total))
        )
        assert one == pytest.approx(other)

    def test_questions_about_groups_tell_classes_too(self):
        generator = np.random.default_rng(3)
        y = generator.integers(0, 20, 4000)
        groups = np.where(generator.random((20, 12)) < 0.5, -1.0, 1.0)
        answers = groups[y] + 0.5 * generator.normal(size=(4000, 12))
        found = readout.fit(answers, np.eye(20)[y], True, np.ones(4000))[0]
        assert ((answers @ found.weights + found.bias).argmax(axis=1) == y).mean() > 0.9

    @pytest.mark.parametrize("unchanging", [0.0, 0.7, -1e6])
    def test_answers_that_never_change_do_no_harm(self, unchanging):
        y, answers, _ = gaussian_answers(500, np.full(3, 1 / 3))
        more = np.column_stack([answers, np.full(500, unchanging)])
        found, expected = (readout.fit(rows, np.eye(3)[y], True, np.ones(500))[0] for rows in (more, answers))
        P, Q = (
            np.exp(posteriors.log_posteriors(rows @ one.weights + one.bias, True))
            for rows, one in ((more, found), (answers, expected))
        )
        np.testing.assert_allclose(P, Q, atol=1e-3)

    def test_with_hardly_a_penalty_it_is_multinomial_regression(self):
        y, answers, _ = gaussian_answers(3000, np.array([0.5, 0.3, 0.2]), spread=1.5)
        found, ridge = readout.fit(answers, np.eye(3)[y], True, np.ones(3000), ridge=1e-3)
        assert ridge == 1e-3
        expected = LogisticRegression(C=1e4, tol=1e-8, max_iter=1000).fit(answers, y).predict_proba(answers)
        P = np.exp(posteriors.log_posteriors(answers @ found.weights + found.bias, True))
        np.testing.assert_allclose(P, expected, atol=5e-3)
