"""Classifier codes: what the classifier minimises, how posteriors become bits, and how good the codes are."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import gphash
from gphash.execution.local import SerialExecutor
from gphash.hashers import ClassifierCodes, HadamardRidge, classifier_codes
from gphash.hashers.classifier_codes import Quantiser
from gphash.hashers.kernel_methods import Teaching
from gphash.method import posteriors
from gphash.supervision import similarity
from tests import digits

SMALL = {"n_inducing": 60, "length_scale": 0.5, "ridge": 0.01, "random_state": 0}


@pytest.mark.slow
@parametrize_with_checks([ClassifierCodes(n_bits=2, n_inducing=10, length_scale=1.0, ridge=0.1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def taught(K, supervision, ridge):
    given = Teaching(K, supervision, ridge, np.random.default_rng(0), SerialExecutor())
    return ClassifierCodes(4)._bits(given)


def test_the_classifier_is_the_logistic_regression_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(classifier_codes, "UNTIL", {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9})
    K, y = digits.X[:200, 20:30].astype(np.float64), digits.y[:200] % 3
    weights, offset = taught(K, similarity.from_labels(y), 0.5)
    design = np.column_stack([K, np.ones(200)])  # the penalty holds for the constant as well
    known = LogisticRegression(C=2.0, fit_intercept=False, max_iter=5000, tol=1e-10).fit(design, y)
    wanted = known.predict_proba(design)
    np.testing.assert_allclose(softmax(K @ weights + offset, axis=1), wanted, atol=1e-4)


def test_tags_have_a_logistic_regression_each(monkeypatch):
    monkeypatch.setattr(classifier_codes, "UNTIL", {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9})
    K, tags = digits.X[:150, 20:26].astype(np.float64), digits.tags[:150]
    weights, offset = taught(K, similarity.from_tags(tags), 0.5)
    design = np.column_stack([K, np.ones(150)])
    for column, own in zip(tags.T, np.vstack([weights, offset]).T, strict=True):

        def objective(w, column=column):
            p = expit(design @ w)
            return -np.log(np.where(column == 1, p, 1 - p)).sum() + 0.25 * w @ w

        assert np.abs(approx_fprime(own, objective)).max() < 1e-2


@pytest.mark.parametrize("exclusive", [True, False])
def test_posteriors_are_probabilities_whatever_the_logits(exclusive):
    logits = np.array([[0.0, 0.0, 0.0], [1e4, -1e4, 0.0], [-1e30, 1e30, 3.0], [700.0, 710.0, -5.0]])
    p = posteriors.powers(logits, exclusive, 1.0)
    wanted = softmax(logits, axis=1) if exclusive else expit(logits)
    np.testing.assert_allclose(p, wanted, atol=1e-12)
    np.testing.assert_allclose(posteriors.powers(logits, exclusive, 0.5), np.sqrt(wanted), atol=1e-7)


@pytest.mark.parametrize("way", classifier_codes.WAYS)
@pytest.mark.parametrize("n_bits", [2, 4, 16])
def test_sure_posteriors_of_different_classes_get_different_codes(way, n_bits):
    logits = np.repeat(40 * np.eye(4), 5, axis=0)
    found = {
        tuple(map(tuple, np.unique(Quantiser(way, 0.5, start).margins(logits, logits, True, n_bits, 0) >= 0, axis=0)))
        for start in range(8)
    }
    assert max(map(len, found)) >= min(4, n_bits + 1)


def test_codes_are_nearly_as_good_as_the_strongest_baseline_on_digits():
    train, test = slice(0, 900), slice(900, 1400)
    scores = {}
    for method in (ClassifierCodes, HadamardRidge):
        hasher = method(16, n_inducing=200, random_state=0).fit(digits.X[train], digits.y[train])
        scores[method] = hasher.score(digits.X[test], digits.y[test])
    assert 0.9 < scores[ClassifierCodes] <= 1
    assert scores[ClassifierCodes] > scores[HadamardRidge] - 0.04


def test_a_file_keeps_what_was_chosen(tmp_path):
    hasher = ClassifierCodes(12, **SMALL).fit(digits.X[:300], digits.y[:300])
    hasher.save(tmp_path / "x.gph")
    again = gphash.load(tmp_path / "x.gph")
    assert (again.quantiser_, again.power_, again.ridge_) == (hasher.quantiser_, hasher.power_, 0.01)
    np.testing.assert_array_equal(again.transform(digits.X[300:400]), hasher.transform(digits.X[300:400]))


def test_one_tag_has_codes():
    tags = np.column_stack([digits.y[:200] < 5, np.zeros(200)]).astype(int)  # nobody has the second
    codes = ClassifierCodes(4, **SMALL).fit(digits.X[:200], tags).transform(digits.X[:200])
    assert len(np.unique(codes, axis=0)) == 2
