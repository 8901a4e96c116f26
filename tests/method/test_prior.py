"""Whitened features: Phi Phiᵀ is what the inducing inputs explain of K."""

from dataclasses import astuple

import numpy as np
import pytest

from gphash.method import prior as priors
from gphash.method.kernels import SquaredExponential
from tests import reference

KERNEL = SquaredExponential(0.6, 2.0)


def rows(n, seed, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(dtype)


def test_training_rows_as_inducing_inputs_give_the_full_process():
    X = rows(50, 0)
    Phi, residual = priors.features(priors.build(KERNEL, X, jitter=0.0), X)
    np.testing.assert_allclose(Phi @ Phi.T, reference.squared_exponential(X, X, *astuple(KERNEL)), atol=1e-12)
    np.testing.assert_allclose(residual, 0, atol=1e-12)


def test_phi_phi_is_the_nystroem_approximation():
    X, Z = rows(40, 1), rows(10, 2)
    Phi, residual = priors.features(priors.build(KERNEL, Z, jitter=0.0), X)
    Kfu, Kuu = (
        reference.squared_exponential(X, Z, *astuple(KERNEL)),
        reference.squared_exponential(Z, Z, *astuple(KERNEL)),
    )
    Q = Kfu @ np.linalg.solve(Kuu, Kfu.T)
    np.testing.assert_allclose(Phi @ Phi.T, Q, atol=1e-12)
    np.testing.assert_allclose(residual, KERNEL.signal_scale**2 - np.diag(Q), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length_scale", [0.05, 0.6, 5.0, 100.0])
def test_residual_is_never_negative(length_scale, dtype):
    X, kernel = rows(300, 3, dtype), SquaredExponential(length_scale, 4.0)
    Phi, residual = priors.features(priors.build(kernel, X[:150]), X)
    assert Phi.dtype == dtype
    assert residual.dtype == np.float64
    assert np.isfinite(Phi).all()
    assert residual.min() >= 0
    assert residual.max() <= 16.0


@pytest.mark.parametrize("jitter", [0.0, priors.JITTER])
def test_duplicates_among_inducing_inputs_only_cost_jitter(jitter):
    X, Z = rows(30, 4), rows(8, 5)
    doubled = priors.build(KERNEL, np.concatenate([Z, Z, Z[:3]]), jitter=jitter)
    assert 0 < doubled.jitter <= 1e-5
    Phi, residual = priors.features(doubled, X)
    single, alone = priors.features(priors.build(KERNEL, Z, jitter=0.0), X)
    np.testing.assert_allclose(Phi @ Phi.T, single @ single.T, atol=1e-3)
    np.testing.assert_allclose(residual, alone, atol=1e-3)


def test_float32_rows_are_close_to_float64_rows():
    X, Z = rows(60, 6), rows(20, 7)
    Phi, residual = priors.features(priors.build(KERNEL, Z), X)
    small, rest = priors.features(priors.build(KERNEL, Z.astype(np.float32)), X.astype(np.float32))
    np.testing.assert_allclose(small @ small.T, Phi @ Phi.T, atol=1e-4)
    np.testing.assert_allclose(rest, residual, atol=1e-4)
