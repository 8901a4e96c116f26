"""Shared-factor EP: tilted moments by quadrature, cavities and means by dense algebra, the fixed point for one bit."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from gphash.method import ep, triangular
from gphash.method.ep import Shared, Sites
from tests import reference


def problem(n, r, m, seed=0):
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, r)) * 0.6
    signs = np.where(rng.random((n, m)) < 0.5, -1, 1).astype(np.int8)
    sites = Sites(rng.uniform(0.05, 1.0, (n, m)), rng.normal(size=(n, m)))
    return Phi, rng.uniform(0, 2, n), signs, sites


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("mean", [-12.0, -3.0, -0.4, 0.0, 1.0, 6.0])
@pytest.mark.parametrize(("variance", "residual"), [(0.01, 0.0), (1.0, 0.3), (9.0, 0.0), (250.0, 4.0)])
def test_cavity_times_site_has_the_moments_of_cavity_times_likelihood(mean, variance, residual, sign):
    gamma = mean / np.sqrt(1 + residual + variance)
    sites, score = ep.match(
        np.array([[gamma]]), np.array([[sign]], np.int8), np.array([variance]), np.array([residual])
    )
    log_normaliser, first, second = reference.tilted_moments(mean, variance, sign, 1 + residual)
    precision = 1 / variance + sites.precision[0, 0]
    assert 1 / precision == pytest.approx(second, rel=1e-8)
    assert (mean / variance + sites.shift[0, 0]) / precision == pytest.approx(first, rel=1e-8, abs=1e-9)
    assert score[0] == pytest.approx(log_normaliser, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("variance", [0.0, 0.01, 1.0, 400.0])
def test_sites_stay_finite_for_scores_far_out(variance):
    gamma = np.array([[-100.0, -40.0, -30.0, 0.0, 30.0, 40.0, 100.0]])
    for sign in (-1, 1):
        sites, score = ep.match(gamma, np.full(gamma.shape, sign, np.int8), np.array([variance]), np.array([0.2]))
        for array in (*sites, score):
            assert np.isfinite(array).all()
        assert (sites.precision >= 0).all()


def test_match_takes_cavities_of_every_bit():
    rng = np.random.default_rng(1)
    _, residual, signs, _ = problem(6, 3, 4)
    gamma, cavity = rng.normal(size=(6, 4)), rng.uniform(0.1, 3, (6, 4))
    sites, score = ep.match(gamma, signs, cavity, residual)
    for j in range(4):
        alone, own = ep.match(gamma[:, [j]], signs[:, [j]], cavity[:, j], residual)
        np.testing.assert_array_equal(sites.precision[:, [j]], alone.precision)
        np.testing.assert_array_equal(sites.shift[:, [j]], alone.shift)
        np.testing.assert_array_equal(score[j], own[0])
    np.testing.assert_allclose(score, log_ndtr(signs * gamma).sum(axis=0), rtol=1e-12)


def test_precision_sum_and_shared_factor_agree_with_dense_algebra():
    Phi, _, _, sites = problem(40, 9, 3)
    precision = sites.precision.mean(axis=1)
    total = ep.precision_sum(Phi, precision)
    np.testing.assert_allclose(total, Phi.T @ np.diag(precision) @ Phi, atol=1e-12)
    lower = ep.shared_factor(total, np.float64).lower
    np.testing.assert_allclose(lower @ lower.T, np.eye(9) + total, atol=1e-12)


def test_share_takes_a_rows_own_site_away():
    Phi, _, _, sites = problem(25, 8, 3)
    precision = sites.precision.mean(axis=1)
    factor = ep.shared_factor(ep.precision_sum(Phi, precision), np.float64)
    shared = ep.share(factor, Phi, precision)
    for i in range(25):
        without = precision.copy()
        without[i] = 0
        Lambda = np.eye(8) + Phi.T @ np.diag(without) @ Phi
        assert shared.cavity[i] == pytest.approx(Phi[i] @ np.linalg.solve(Lambda, Phi[i]), rel=1e-10)


def test_share_of_a_row_of_zeros_has_no_variance_and_huge_precisions_stay_finite():
    Phi, _, _, _ = problem(5, 4, 1)
    Phi[2] = 0
    precision = np.array([1.0, 1e20, 1.0, 1.0, 1e-20])
    shared = ep.share(ep.shared_factor(ep.precision_sum(Phi, precision), np.float64), Phi, precision)
    assert shared.cavity[2] == 0
    assert np.isfinite(shared.cavity).all()
    assert (shared.cavity >= 0).all()


def test_leave_one_out_is_the_cavity_score():
    rng = np.random.default_rng(2)
    _, residual, _, sites = problem(12, 5, 3)
    mean, cavity = rng.normal(size=(12, 3)), rng.uniform(0.1, 3, 12)
    gamma = ep.leave_one_out(mean, sites, Shared(np.zeros(12), cavity), residual)
    marginal = 1 / (1 / cavity[:, None] + sites.precision)
    cavity_mean = cavity[:, None] * (mean / marginal - sites.shift)
    np.testing.assert_allclose(gamma, cavity_mean / np.sqrt(1 + residual + cavity)[:, None], rtol=1e-10, atol=1e-12)


def test_initial_sites_lean_half_towards_the_codes():
    signs = np.array([[1, -1], [-1, 1]], np.int8)
    sites = ep.initial_sites(signs)
    np.testing.assert_array_equal(sites.precision, 0.5)
    np.testing.assert_array_equal(sites.shift, [[0.5, -0.5], [-0.5, 0.5]])


class MeansProblem:
    """Bits with sites far apart, so that the shared factor is only a preconditioner."""

    def __init__(self, r=20, seed=3):
        self.Phi, _, _, sites = problem(80, r, 6, seed)
        self.precision = sites.precision * np.array([0.1, 0.5, 1, 2, 4, 8])
        self.shift = sites.shift
        self.factor = ep.shared_factor(ep.precision_sum(self.Phi, self.precision.mean(axis=1)), np.float64)
        self.applied = 0

    def apply(self, direction):
        self.applied += 1
        return self.Phi.T @ (self.precision * (self.Phi @ direction))

    def solve(self, mean, steps, tolerance):
        latent = self.Phi @ mean
        gradient = self.Phi.T @ (self.shift - self.precision * latent)
        energy = (self.precision * latent**2).sum(axis=0)
        return ep.solve_means(self.apply, gradient, mean, energy, self.factor, steps, tolerance)

    def exact(self):
        return np.stack(
            [np.linalg.solve(self.system(j), self.Phi.T @ self.shift[:, j]) for j in range(self.precision.shape[1])],
            axis=1,
        )

    def system(self, j):
        return np.eye(self.Phi.shape[1]) + self.Phi.T @ np.diag(self.precision[:, j]) @ self.Phi


@pytest.mark.parametrize("warm", [False, True])
def test_means_converge_to_the_exact_solution_of_every_bits_own_system(warm):
    means = MeansProblem()
    start = np.random.default_rng(4).normal(size=(20, 6)) if warm else np.zeros((20, 6))
    before = start.copy()
    np.testing.assert_allclose(means.solve(start, 100, 1e-13), means.exact(), atol=1e-10)
    np.testing.assert_array_equal(start, before)


def test_every_step_brings_every_mean_nearer_in_the_norm_of_its_precision():
    means = MeansProblem()
    exact, errors = means.exact(), []
    for steps in range(8):
        rest = means.solve(np.zeros((20, 6)), steps, 0.0) - exact
        errors.append([rest[:, j] @ means.system(j) @ rest[:, j] for j in range(6)])
    assert (np.diff(errors, axis=0) < 0).all()


def test_conjugate_directions_need_no_more_steps_than_inducing_inputs():
    means = MeansProblem(r=5)
    means.factor = triangular.factor(np.eye(5), np.float64)  # no help from a preconditioner
    np.testing.assert_allclose(means.solve(np.zeros((5, 6)), 5, 0.0), means.exact(), atol=1e-12)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_means_stop_early_at_the_tolerance(tolerance):
    means = MeansProblem()
    found, exact = means.solve(np.zeros((20, 6)), 100, tolerance), means.exact()
    assert means.applied < 25
    for j in range(6):
        rest = found[:, j] - exact[:, j]
        # The error is estimated in the norm of the shared precision, which is eight times off at most here.
        assert rest @ means.system(j) @ rest <= 64 * tolerance**2 * (exact[:, j] @ means.system(j) @ exact[:, j])


def test_means_that_are_right_already_are_left_alone():
    means = MeansProblem()
    exact = means.exact()
    np.testing.assert_array_equal(means.solve(exact, 10, 1e-3), exact)
    assert means.applied == 0


def test_no_data_means_no_mean():
    factor = triangular.factor(np.eye(3), np.float64)
    zeros = np.zeros((3, 2))
    np.testing.assert_array_equal(ep.solve_means(lambda p: 0 * p, zeros, zeros, np.zeros(2), factor, 5, 1e-3), zeros)


def test_one_bit_has_the_fixed_point_of_dense_ep():
    Phi, _, signs, _ = problem(18, 18, 1, seed=5)
    sites, residual = ep.initial_sites(signs), np.zeros(18)
    for _ in range(120):
        precision = sites.precision[:, 0]
        factor = ep.shared_factor(ep.precision_sum(Phi, precision), np.float64)
        lower = factor.lower
        mean = Phi @ np.linalg.solve(lower @ lower.T, Phi.T @ sites.shift)
        gamma = ep.leave_one_out(mean, sites, ep.share(factor, Phi, precision), residual)
        matched, _ = ep.match(gamma, signs, ep.share(factor, Phi, precision).cavity, residual)
        sites = Sites(*(0.5 * (old + new) for old, new in zip(sites, matched, strict=True)))
    dense = reference.dense_ep(Phi @ Phi.T, signs[:, 0])
    np.testing.assert_allclose(sites.precision[:, 0], dense.precision, atol=1e-8)
    np.testing.assert_allclose(sites.shift[:, 0], dense.shift, atol=1e-8)
    np.testing.assert_allclose(gamma[:, 0], dense.cavity_mean / np.sqrt(1 + dense.cavity_variance), atol=1e-8)


def test_a_site_of_weight_w_counts_w_times():
    rng = np.random.default_rng(3)
    gamma, signs = rng.normal(size=(5, 3)), np.where(rng.random((5, 3)) < 0.5, -1, 1).astype(np.int8)
    cavity, residual, weights = rng.random(5) + 0.1, rng.random(5), np.array([1.0, 2.0, 0.5, 7.0, 1.0])
    once, _ = ep.match(gamma, signs, cavity, residual)
    often, score = ep.match(gamma, signs, cavity, residual, weights)
    for single, several in zip(once, often, strict=True):
        np.testing.assert_allclose(several, weights[:, None] * single, rtol=1e-12)
    single = [ep.match(gamma[[i]], signs[[i]], cavity[[i]], residual[[i]])[1] for i in range(5)]
    np.testing.assert_allclose(score, weights @ np.array(single), rtol=1e-12)
