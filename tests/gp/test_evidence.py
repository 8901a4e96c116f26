"""EP's log evidence against dense EP, integration and closed forms."""

import math

import numpy as np
import pytest

from gphash.gp import blockwise, evidence
from gphash.gp.ep import Sites
from tests import reference


def converged(Phi, residual, signs):
    precision, shift = np.full(signs.shape, 0.5), 0.5 * signs
    for j in range(signs.shape[1]):
        change = np.inf
        while change > 1e-12:
            swept = blockwise.sweep_bit([Phi], residual, signs[:, j], precision[:, j], shift[:, j], block_size=4)
            change = np.abs(swept.precision - precision[:, j]).max()
            precision[:, j], shift[:, j] = swept.precision, swept.shift
    return Sites(precision, shift)


def log_evidence(Phi, residual, signs):
    return evidence.log_evidence(Phi, residual, signs, converged(Phi, residual, signs))


def tiny(n, scale, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n)) * scale
    return A, A @ A.T, np.where(rng.random((n, 1)) < 0.5, -1, 1).astype(np.int8)


@pytest.mark.parametrize("sign", [-1, 1])
def test_one_row_is_exact(sign):
    found = log_evidence(np.array([[1.7, -0.3]]), np.array([0.4]), np.array([[sign]], np.int8))
    assert found[0] == pytest.approx(math.log(0.5), abs=1e-8)


@pytest.mark.parametrize("residual", [0.0, 0.7])
def test_rows_that_do_not_interact_are_exact(residual):
    signs = np.array([[1], [-1], [1]], np.int8)
    found = log_evidence(np.diag([0.5, 2.0, 4.0]), np.full(3, residual), signs)
    assert found[0] == pytest.approx(3 * math.log(0.5), abs=1e-8)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_integral_over_a_grid_is_the_closed_form(n, seed):
    _, K, signs = tiny(n, 0.8, seed)
    by_grid = reference.log_evidence_by_integration(K, signs[:, 0])
    assert by_grid == pytest.approx(reference.log_evidence_by_angles(K, signs[:, 0]), abs=1e-9)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_few_rows_are_close_to_integration(n, seed):
    A, K, signs = tiny(n, 0.8, seed)
    found = log_evidence(A, np.zeros(n), signs)[0]
    assert found == pytest.approx(reference.log_evidence_by_integration(K, signs[:, 0]), abs=5e-3)


@pytest.mark.parametrize("n", [2, 3])
def test_weak_interaction_is_next_to_exact(n):
    A, K, signs = tiny(n, 0.15, 7)
    found = log_evidence(A, np.zeros(n), signs)[0]
    assert found == pytest.approx(reference.log_evidence_by_integration(K, signs[:, 0]), abs=1e-6)


def test_what_inducing_inputs_leave_out_is_noise_of_the_rows_own():
    A, K, signs = tiny(3, 0.8, 8)
    residual = np.array([0.0, 0.5, 2.0])
    found = log_evidence(A, residual, signs)[0]
    exact = reference.log_evidence_by_integration(K + np.diag(residual), signs[:, 0])
    assert found == pytest.approx(exact, abs=5e-3)
    assert found == pytest.approx(reference.dense_ep(K + np.diag(residual), signs[:, 0]).log_evidence, abs=1e-8)


def test_every_bit_agrees_with_dense_ep():
    rng = np.random.default_rng(9)
    Phi = rng.normal(size=(20, 20)) * 0.5
    signs = np.where(rng.random((20, 3)) < 0.5, -1, 1).astype(np.int8)
    found = log_evidence(Phi, np.zeros(20), signs)
    expected = [reference.dense_ep(Phi @ Phi.T, signs[:, j]).log_evidence for j in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_a_row_of_zeros_adds_a_fair_coin():
    A, _, signs = tiny(3, 0.8, 10)
    Phi, more = np.concatenate([A, np.zeros((1, 3))]), np.concatenate([signs, [[1]]]).astype(np.int8)
    found = log_evidence(Phi, np.zeros(4), more)[0]
    assert found == pytest.approx(log_evidence(A, np.zeros(3), signs)[0] + math.log(0.5), abs=1e-8)


def test_codes_that_follow_the_features_have_more_evidence():
    X = np.linspace(-2, 2, 12)
    Phi = np.stack([X, np.ones(12)], axis=1)
    orderly, mixed = np.where(X > 0, 1, -1), np.where(np.arange(12) % 2, 1, -1)
    found = log_evidence(Phi, np.zeros(12), np.stack([orderly, mixed], axis=1).astype(np.int8))
    assert found[0] > found[1] + 3
