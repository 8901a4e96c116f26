"""SDH and Hadamard code words with ridge regression, and LSH: what they compute, and scikit-learn's contract."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gphash.execution.local import SerialExecutor
from gphash.hashers import LSH, SDH, HadamardRidge
from gphash.hashers.ridge_methods import FIT_PENALTY, LABEL_PENALTY, Ridge, descend
from gphash.method.words import hadamard
from tests import digits


@pytest.mark.slow
@parametrize_with_checks(
    [
        LSH(n_bits=2),
        SDH(n_bits=2, n_inducing=10, length_scale=1.0, ridge=0.1),
        HadamardRidge(n_bits=2, n_inducing=10, length_scale=1.0, ridge=0.1),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 16), (2, 2), (16, 16), (10, 64), (21, 32)])
def test_code_words_differ_in_half_of_the_bits_where_a_hadamard_matrix_allows(n_classes, n_bits):
    words = hadamard(n_classes, n_bits, np.random.default_rng(0)).astype(int)
    distances = (n_bits - words @ words.T) // 2
    assert (distances[~np.eye(n_classes, dtype=bool)] == n_bits // 2).all()


@pytest.mark.parametrize(("n_classes", "n_bits", "least"), [(10, 8, 2), (10, 24, 10), (3, 2, 1), (100, 12, 1)])
def test_other_code_words_are_far_apart(n_classes, n_bits, least):
    words = hadamard(n_classes, n_bits, np.random.default_rng(0)).astype(int)
    assert set(np.unique(words)) == {-1, 1}
    distances = (n_bits - words @ words.T) // 2
    assert distances[~np.eye(n_classes, dtype=bool)].min() >= least


def objective(B, Y, predicted):
    """What SDH minimises over B, with the best W."""
    W = np.linalg.solve(B.T @ B + LABEL_PENALTY * np.eye(B.shape[1]), B.T @ Y)
    fit = np.square(Y - B @ W).sum() + LABEL_PENALTY * np.square(W).sum()
    return fit + FIT_PENALTY * np.square(B - predicted).sum()


@pytest.mark.parametrize("seed", range(5))
def test_descent_lowers_the_objective_of_sdh_and_ends_where_no_bit_of_a_row_helps(seed):
    generator = np.random.default_rng(seed)
    Y = np.eye(4)[generator.integers(4, size=40)]
    B = np.where(generator.random((40, 6)) < 0.5, -1.0, 1.0)
    predicted = generator.normal(size=B.shape)
    after = descend(B, Y, predicted)
    assert objective(after, Y, predicted) < objective(B, Y, predicted)
    W = np.linalg.solve(B.T @ B + LABEL_PENALTY * np.eye(6), B.T @ Y)

    def given_w(codes):
        return np.square(Y - codes @ W).sum() + FIT_PENALTY * np.square(codes - predicted).sum()

    for row in range(0, 40, 7):
        for bit in range(6):
            other = after.copy()
            other[row, bit] *= -1
            assert given_w(other) >= given_w(after) - 1e-9


def test_ridge_regression_is_that_of_the_normal_equations():
    generator = np.random.default_rng(0)
    K, targets = generator.random((50, 8)), np.where(generator.random((50, 3)) < 0.5, -1.0, 1.0)
    weights, offset = Ridge(K, 0.1, SerialExecutor()).solve(targets)
    design = np.column_stack([K, np.ones(50)])
    wanted = np.linalg.solve(design.T @ design + 0.1 * np.eye(9), design.T @ targets)
    np.testing.assert_allclose(np.vstack([weights, offset]), wanted, atol=1e-8)


def test_width_and_ridge_are_chosen_from_training_rows_and_kept_when_given():
    chosen = HadamardRidge(8, n_inducing=50, random_state=0).fit(digits.X[:300], digits.y[:300])
    assert chosen.ridge_ in HadamardRidge.RIDGES
    assert chosen.length_scale_ > 0
    given = HadamardRidge(8, n_inducing=50, length_scale=0.7, ridge=0.5, random_state=0)
    given.fit(digits.X[:300], digits.y[:300])
    assert (given.length_scale_, given.ridge_) == (0.7, 0.5)


@pytest.mark.filterwarnings("ignore:n_inducing")
def test_classes_of_one_row_each_leave_nothing_to_choose_by():
    with pytest.warns(UserWarning, match="could not be chosen"):
        HadamardRidge(4, n_inducing=5, random_state=0).fit(digits.X[:20], np.arange(20))


@pytest.mark.parametrize("value", [0, -1, "much"])
def test_a_bad_ridge_is_named(value):
    with pytest.raises(ValueError, match="ridge="):
        SDH(4, n_inducing=5, ridge=value).fit(digits.X[:50], digits.y[:50])
