"""Blocked substitution against SciPy, and jitter."""

import numpy as np
import pytest
import scipy.linalg

from gphash.method import triangular


def lower(size, seed=0):
    A = np.random.default_rng(seed).normal(size=(size, size))
    return np.linalg.cholesky(A @ A.T / size + np.eye(size))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("size", [1, 127, 128, 129, 300])
def test_solve_rows_agrees_with_scipy(size, dtype, tolerance):
    L = lower(size)
    rows = np.random.default_rng(1).normal(size=(11, size)).astype(dtype)
    before = rows.copy()
    solved = triangular.solve_rows(triangular.factor(L, dtype), rows)
    assert solved.dtype == dtype
    expected = scipy.linalg.solve_triangular(L, before.astype(np.float64).T, lower=True).T
    np.testing.assert_allclose(solved, expected, atol=tolerance)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("size", [5, 128, 300])
def test_solve_rows_in_place(size):
    factor = triangular.factor(lower(size), np.float64)
    rows = np.random.default_rng(2).normal(size=(9, size))
    expected = triangular.solve_rows(factor, rows)
    assert triangular.solve_rows(factor, rows, out=rows) is rows
    np.testing.assert_array_equal(rows, expected)


def test_no_rows_at_all():
    assert triangular.solve_rows(triangular.factor(lower(130)), np.empty((0, 130), np.float32)).shape == (0, 130)


def test_a_positive_definite_matrix_gets_no_jitter():
    L = lower(20)
    found, jitter = triangular.cholesky(L @ L.T)
    assert jitter == 0
    np.testing.assert_allclose(found, L, atol=1e-12)


def test_a_given_jitter_that_suffices_is_kept():
    matrix = np.diag([1.0, 3.0])
    found, jitter = triangular.cholesky(matrix, 1e-3)
    assert jitter == 1e-3
    np.testing.assert_allclose(found @ found.T, matrix + 2e-3 * np.eye(2), rtol=1e-14)


@pytest.mark.parametrize(("smallest", "wanted"), [(-1e-8, 1e-7), (-1e-5, 1e-4), (-1e-12, 1e-11)])
def test_jitter_grows_tenfold_until_it_suffices(smallest, wanted):
    matrix = np.diag([1.0, 1.0, 1.0, smallest])  # the mean of the diagonal is 3/4
    found, jitter = triangular.cholesky(matrix)
    assert jitter == pytest.approx(wanted)
    np.testing.assert_allclose(found @ found.T, matrix + jitter * np.mean(np.diag(matrix)) * np.eye(4), atol=1e-15)


def test_jitter_starts_from_what_was_given():
    assert triangular.cholesky(np.diag([1.0, 1.0, 1.0, -1e-5]), 3e-6)[1] == pytest.approx(3e-5)


def test_a_matrix_beyond_repair_is_an_error():
    with pytest.raises(scipy.linalg.LinAlgError):
        triangular.cholesky(np.diag([1.0, -1.0]))
