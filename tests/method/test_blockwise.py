"""The paper's solver, run to convergence, is dense EP: for the full process and, with sites mapped, for FITC."""

from dataclasses import astuple

import numpy as np
import pytest

from gphash.method import blockwise, ep
from gphash.method import prior as priors
from gphash.method.kernels import SquaredExponential
from tests import reference

KERNEL = SquaredExponential(0.8, 2.0)


def data(n=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    signs = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1, -1).astype(np.int8)
    return X, signs


def converge(Phis, residual, signs, sweeps=300, **options):
    precision, shift = np.full(len(signs), 0.5), 0.5 * signs
    for _ in range(sweeps):
        swept = blockwise.sweep_bit(Phis, residual, signs, precision, shift, **options)
        change = max(np.abs(swept.precision - precision).max(), np.abs(swept.shift - shift).max())
        precision, shift = swept.precision, swept.shift
        if change < 1e-12:
            return swept
    raise AssertionError(f"blockwise EP still moves by {change}")


@pytest.mark.parametrize("options", [{"block_size": 1}, {"block_size": 7}, {"damping": 0.6}])
def test_training_rows_as_inducing_inputs_reproduce_dense_ep_site_by_site(options):
    X, signs = data()
    Phi, residual = priors.features(priors.build(KERNEL, X, jitter=1e-14), X)
    swept = converge([Phi], residual, signs, **options)
    dense = reference.dense_ep(reference.squared_exponential(X, X, *astuple(KERNEL)), signs)
    np.testing.assert_allclose(swept.precision, dense.precision, atol=1e-6)
    np.testing.assert_allclose(swept.shift, dense.shift, atol=1e-6)
    np.testing.assert_allclose(Phi @ swept.mean, dense.mean, atol=1e-6)
    np.testing.assert_allclose(swept.cavity, dense.cavity_variance, atol=1e-6)
    np.testing.assert_allclose(swept.gamma, dense.cavity_mean / np.sqrt(1 + dense.cavity_variance), atol=1e-6)


def test_fitc_is_dense_ep_under_its_own_covariance():
    X, signs = data(35, seed=1)
    Phi, residual = priors.features(priors.build(KERNEL, X[::4] + 0.1, jitter=0.0), X)
    assert residual.max() > 0.5
    swept = converge([Phi], residual, signs)
    dense = reference.dense_ep(Phi @ Phi.T + np.diag(residual), signs)
    # Integrating a row's own noise s out of its site: τ_u = τ_f / (1 + s τ_f), and the same for ν.
    widened = 1 + residual * dense.precision
    np.testing.assert_allclose(swept.precision, dense.precision / widened, atol=1e-6)
    np.testing.assert_allclose(swept.shift, dense.shift / widened, atol=1e-6)


def test_parts_of_phi_are_rows_one_after_another():
    X, signs = data(30, seed=2)
    Phi, residual = priors.features(priors.build(KERNEL, X[:10]), X)
    start = np.full(30, 0.5), 0.5 * signs
    whole = blockwise.sweep_bit([Phi], residual, signs, *start, block_size=5)
    parts = blockwise.sweep_bit([Phi[:10], Phi[10:25], Phi[25:]], residual, signs, *start, block_size=5)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_array_equal(start[0], 0.5)


def test_mean_belongs_to_the_new_sites():
    X, signs = data(30, seed=3)
    Phi, residual = priors.features(priors.build(KERNEL, X[:10]), X)
    swept = blockwise.sweep_bit([Phi], residual, signs, np.full(30, 0.5), 0.5 * signs, block_size=4)
    Lambda = np.eye(10) + Phi.T @ np.diag(swept.precision) @ Phi
    np.testing.assert_allclose(swept.mean, np.linalg.solve(Lambda, Phi.T @ swept.shift), atol=1e-11)


def test_sites_match_the_cavities_that_are_reported():
    X, signs = data(30, seed=4)
    Phi, residual = priors.features(priors.build(KERNEL, X[:10]), X)
    swept = blockwise.sweep_bit([Phi], residual, signs, np.full(30, 0.5), 0.5 * signs, block_size=4)
    sites, _ = ep.match(swept.gamma[:, None], signs[:, None], swept.cavity, residual)
    np.testing.assert_allclose(swept.precision, sites.precision[:, 0], rtol=1e-10)
    np.testing.assert_allclose(swept.shift, sites.shift[:, 0], rtol=1e-10)


def test_a_site_whose_cavity_is_no_distribution_is_skipped():
    signs = np.array([1, -1, 1, -1, 1], np.int8)
    precision, shift = np.full(5, 0.5), 0.5 * signs
    precision[3], shift[3] = 1e18, 1e18  # so that v τ rounds to 1
    swept = blockwise.sweep_bit([2 * np.eye(5)], np.zeros(5), signs, precision, shift)
    assert (swept.precision[:3] != precision[:3]).all()
    assert (swept.precision[3], swept.shift[3]) == (1e18, 1e18)
    for array in swept:
        assert np.isfinite(array).all()


def test_float32_features_are_close_to_float64_features():
    X, signs = data(60, seed=6)
    kernel = SquaredExponential(1.0, 4.0)
    Phi, residual = priors.features(priors.build(kernel, X[:20]), X)
    exact = converge([Phi], residual, signs)
    precision, shift = np.full(60, 0.5), 0.5 * signs
    for _ in range(50):
        swept = blockwise.sweep_bit([Phi.astype(np.float32)], residual, signs, precision, shift)
        precision, shift = swept.precision, swept.shift
    np.testing.assert_allclose(precision, exact.precision, atol=1e-4)
    np.testing.assert_allclose(shift, exact.shift, atol=1e-4)
