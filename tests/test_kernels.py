"""The kernel against loops over pairs of rows."""

import numpy as np
import pytest

from gphash import kernels
from gphash.kernels import SquaredExponential
from tests import reference

KERNEL = SquaredExponential(0.7, 3.0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_cross_agrees_with_loops_in_the_precision_of_its_rows(dtype, tolerance):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(7, 5)).astype(dtype), rng.normal(size=(4, 5)).astype(dtype)
    K = kernels.cross(KERNEL, A, B)
    assert K.dtype == dtype
    assert K.shape == (7, 4)
    np.testing.assert_allclose(K, reference.squared_exponential(A, B, *KERNEL), atol=9 * tolerance)


def test_gram_agrees_with_loops_and_is_exactly_symmetric():
    A = np.random.default_rng(1).normal(size=(30, 6))
    K = kernels.gram(KERNEL, A)
    np.testing.assert_allclose(K, reference.squared_exponential(A, A, *KERNEL), atol=1e-12)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 9.0)


def test_gram_is_positive_semidefinite():
    A = np.random.default_rng(2).normal(size=(40, 2))
    assert np.linalg.eigvalsh(kernels.gram(KERNEL, A)).min() > -1e-12 * 9 * 40


def test_distant_rows_have_no_covariance_and_equal_rows_all_of_it():
    A = np.array([[0.0, 0.0], [1e3, 0.0]])
    np.testing.assert_allclose(kernels.cross(KERNEL, A, A), 9 * np.eye(2), rtol=1e-9)
    assert kernels.diagonal(KERNEL) == 9.0


def test_landmarks_are_prepared_once_for_any_rows():
    rng = np.random.default_rng(3)
    B = rng.normal(size=(5, 4))
    landmarks = kernels.landmarks(KERNEL, B)
    for A in (rng.normal(size=(3, 4)), np.zeros((0, 4)), B):
        expected = reference.squared_exponential(A, B, *KERNEL)
        np.testing.assert_allclose(kernels.evaluate(landmarks, A), expected, rtol=1e-11)
