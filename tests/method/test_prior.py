"""Whitened features: Phi Phiᵀ is what the inducing inputs explain of K."""

from dataclasses import astuple

import numpy as np
import pytest
import scipy.linalg

from gphash.data.blocks import ArrayTable
from gphash.execution.local import SerialExecutor
from gphash.method import blockwise, ep, hashing, training
from gphash.method import prior as priors
from gphash.method.kernels import SquaredExponential
from gphash.method.scaling import Scaling
from gphash.method.training import Settings
from gphash.supervision import similarity
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


class TestPower:
    """Power EP: α is the share of what inducing inputs do not explain that counts as a row's own noise."""

    @staticmethod
    def problem(power, seed=8):
        """Prior, rows, K, Q and residual by hand, and the exact posterior for random sites."""
        X, Z = 0.4 * rows(40, seed), 0.4 * rows(8, seed + 1)
        kernel = astuple(KERNEL)
        Kuu, Kfu = (reference.squared_exponential(A, Z, *kernel) for A in (Z, X))
        Q = Kfu @ scipy.linalg.solve(Kuu, Kfu.T, assume_a="pos")
        return priors.build(KERNEL, Z, power, jitter=0.0), X, Q, KERNEL.signal_scale**2 - np.diag(Q)

    @staticmethod
    def posterior(prior, X, seed=10):
        """Random sites of the whitened inducing values, and the hash function from them."""
        generator = np.random.default_rng(seed)
        Phi, _ = priors.features(prior, X)
        precision, shift = generator.uniform(0.1, 2.0, len(X)), generator.normal(size=len(X))
        factor = ep.shared_factor(ep.precision_sum(Phi, precision), np.float64)
        mean = np.linalg.solve(np.eye(Phi.shape[1]) + Phi.T @ (precision[:, None] * Phi), Phi.T @ shift)
        scaling = Scaling(np.zeros(X.shape[1]), False)
        return priors.hash_function(scaling, prior, mean[:, None], factor), precision

    def test_one_is_the_residual_of_fitc(self):
        prior, X, _, left = self.problem(1.0)
        np.testing.assert_allclose(priors.features(prior, X)[1], left, atol=1e-10)
        assert left.max() > 1

    @pytest.mark.parametrize("power", [0.0, 0.05, 0.5])
    def test_less_is_a_share_of_it(self, power):
        prior, X, _, left = self.problem(power)
        np.testing.assert_allclose(priors.features(prior, X)[1], power * left, atol=1e-10)

    def test_one_gives_the_variance_of_fitc(self):
        """The variance k(x, x) − ‖Uᵀ k(Z, x)‖² with U Uᵀ = L⁻ᵀ (I − Λ⁻¹) L⁻¹, from scratch."""
        prior, X, _, _ = self.problem(1.0)
        function, precision = self.posterior(prior, X)
        Z, kernel = prior.Z, astuple(KERNEL)
        lower = scipy.linalg.cholesky(reference.squared_exponential(Z, Z, *kernel), lower=True)
        Phi = scipy.linalg.solve_triangular(lower, reference.squared_exponential(Z, X, *kernel), lower=True).T
        Lambda = np.eye(len(Z)) + Phi.T @ (precision[:, None] * Phi)
        inner = scipy.linalg.solve_triangular(lower, np.eye(len(Z)), lower=True)
        UU = inner.T @ (np.eye(len(Z)) - scipy.linalg.inv(Lambda)) @ inner
        new = 0.4 * rows(30, 11)
        k = reference.squared_exponential(new, Z, *kernel)
        expected = KERNEL.signal_scale**2 - np.einsum("ir,rs,is->i", k, UU, k)
        np.testing.assert_allclose(hashing.predict(function, new)[1], expected, atol=1e-4)
        assert function.uncertainty.power == 1.0
        assert function.uncertainty.n_lowering == len(Z)

    def test_zero_is_the_variational_limit(self):
        """No row has noise of its own, and nothing is uncertain but the inducing values."""
        prior, X, _, _ = self.problem(0.0)
        Phi, residual = priors.features(prior, X)
        assert (residual == 0).all()
        function, precision = self.posterior(prior, X)
        new = 0.4 * rows(30, 11)
        phi, _ = priors.features(prior, new)
        Lambda = np.eye(Phi.shape[1]) + Phi.T @ (precision[:, None] * Phi)
        expected = np.einsum("ir,ri->i", phi, np.linalg.solve(Lambda, phi.T))
        np.testing.assert_allclose(hashing.predict(function, new)[1], expected, atol=1e-4)
        assert function.uncertainty.n_lowering == 0
        far = 100 + rows(5, 12)  # where inducing inputs say nothing
        assert hashing.predict(function, far)[1] == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("power", [0.0, 0.05, 0.5, 1.0])
    def test_far_from_everything_a_share_of_the_prior_is_left(self, power):
        prior, X, _, _ = self.problem(power)
        function, _ = self.posterior(prior, X)
        np.testing.assert_allclose(hashing.predict(function, 100 + X)[1], power * KERNEL.diagonal, atol=1e-6)

    @pytest.mark.parametrize("power", [0.0, 0.05, 0.5, 1.0])
    def test_training_and_prediction_are_one_gaussian_process(self, power):
        """Dense EP with covariance Q + α diag(K − Q), its predictions included."""
        prior, X, Q, left = self.problem(power)
        signs = np.where(X[:, 0] > 0, 1, -1).astype(np.int8)
        Phi, residual = priors.features(prior, X)
        precision, shift = np.full(len(X), 0.5), 0.5 * signs
        for _ in range(300):
            swept = blockwise.sweep_bit([Phi], residual, signs, precision, shift)
            precision, shift = swept.precision, swept.shift
        factor = ep.shared_factor(ep.precision_sum(Phi, precision), np.float64)
        scaling = Scaling(np.zeros(X.shape[1]), False)
        function = priors.hash_function(scaling, prior, swept.mean[:, None], factor)

        K = Q + power * np.diag(left)
        dense = reference.dense_ep(K, signs)
        new = 0.4 * rows(25, 13)
        phi, _ = priors.features(prior._replace(power=1.0), new)
        explained = (phi**2).sum(axis=1)
        own = explained + power * (KERNEL.diagonal - explained)
        gain = np.linalg.solve(K + np.diag(1 / dense.precision), Phi @ phi.T)
        mean, variance = hashing.predict(function, new)
        np.testing.assert_allclose(mean[:, 0], (dense.shift / dense.precision) @ gain, atol=2e-3)
        np.testing.assert_allclose(variance, own - ((Phi @ phi.T) * gain).sum(axis=0), atol=2e-3)

    def test_training_uses_one_power_from_beginning_to_end(self, monkeypatch):
        build, used = priors.build, set()

        def note(kernel, Z, power=1.0, jitter=priors.JITTER):
            used.add(power)
            return build(kernel, Z, power, jitter)

        monkeypatch.setattr(priors, "build", note)
        X, labels = rows(60, 14, np.float32), similarity.from_labels(np.arange(60) % 2)
        settings = Settings(4, codes="sampled", n_inducing=20, power=0.3, n_starts=1, max_sweeps=2)
        found = training.train(ArrayTable(X), labels, settings, SerialExecutor())
        assert used == {0.3}
        assert found.function.uncertainty.power == 0.3
