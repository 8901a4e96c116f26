"""Kernels against loops and against scikit-learn, and each of them from training to a file and back."""

from dataclasses import astuple, dataclass
from functools import partial

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from gphash import GPHasher, load
from gphash.method import kernels, scaling
from gphash.method.kernels import KERNELS, Exponential, Kernel, Matern32, SquaredExponential
from tests import digits, reference

KERNEL = SquaredExponential(0.7, 3.0)
LIKE = {
    "squared-exponential": RBF,
    "matern-3/2": partial(Matern, nu=1.5),
    "exponential": partial(Matern, nu=0.5),
}
ALL = pytest.mark.parametrize("name", list(LIKE))


@dataclass(frozen=True)
class Cauchy(Kernel):
    """A kernel of somebody else's."""

    name = "cauchy"

    def correlation(self, squared):
        """1 / (1 + r²)."""
        return 1 / (1 + squared)


@pytest.fixture
def cauchy(monkeypatch):
    monkeypatch.setattr(KERNELS, "_things", dict(KERNELS._things))
    return KERNELS.register("cauchy", Cauchy)


def rows(n, d, seed, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def test_the_squared_exponential_agrees_with_loops():
    A, B = rows(7, 5, 0), rows(4, 5, 1)
    expected = reference.squared_exponential(A, B, *astuple(KERNEL))
    np.testing.assert_allclose(KERNEL.evaluate(KERNEL.landmarks(B), A), expected, rtol=1e-11)


@ALL
def test_names_are_those_that_files_keep(name):
    kernel = KERNELS[name](0.7, 3.0)
    meta = kernels.to_meta(kernel)
    kernels.rule().check(meta, "kernel")
    assert meta["name"] == name
    assert kernels.from_meta(meta) == kernel


@ALL
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_values_agree_with_scikit_learn_in_the_precision_of_the_rows(name, dtype, tolerance):
    A, B = rows(7, 5, 0, dtype), rows(4, 5, 1, dtype)
    kernel = KERNELS[name](0.7, 3.0)
    K = kernel.evaluate(kernel.landmarks(B), A)
    assert K.dtype == dtype
    assert K.shape == (7, 4)
    np.testing.assert_allclose(K, 9 * LIKE[name](0.7)(A.astype(float), B.astype(float)), atol=9 * tolerance)


@ALL
def test_gram_is_exactly_symmetric_and_positive_semidefinite(name):
    A, kernel = rows(40, 2, 2), KERNELS[name](0.7, 3.0)
    K = kernel.gram(A)
    np.testing.assert_allclose(K, 9 * LIKE[name](0.7)(A), atol=1e-6)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 9.0)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * 9 * 40


@ALL
def test_distant_rows_have_no_covariance_and_equal_rows_all_of_it(name):
    A, kernel = np.array([[0.0, 0.0], [1e3, 0.0]]), KERNELS[name](0.7, 3.0)
    np.testing.assert_allclose(kernel.evaluate(kernel.landmarks(A), A), 9 * np.eye(2), rtol=1e-9)
    assert kernel.diagonal == 9.0


@ALL
def test_equal_rows_are_exact_in_float32(name):
    A = rows(50, 30, 5, np.float32)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    kernel = KERNELS[name](1.0, 1.0)
    K = kernel.evaluate(kernel.landmarks(A), A)
    np.testing.assert_allclose(np.diag(K), 1, atol=2e-6 if name == "squared-exponential" else 1e-7)


@ALL
def test_landmarks_are_prepared_once_for_any_rows(name):
    B, kernel = rows(5, 4, 3), KERNELS[name](0.7, 3.0)
    landmarks = kernel.landmarks(B)
    for A in (rows(3, 4, 4), np.zeros((0, 4)), B):
        assert kernel.evaluate(landmarks, A).shape == (len(A), 5)


@pytest.mark.parametrize("name", ["matern-3/2", "exponential", "cauchy"])
@pytest.mark.parametrize("kind", ["labels", "pairs"])
def test_training_goes_on_and_ends_in_a_file_with_any_kernel(tmp_path, cauchy, name, kind):
    X = digits.X[:200]
    y = digits.y[:200] if kind == "labels" else digits.pairs(200, 3000)
    given = {**digits.QUICK, "kernel": name, "length_scale": "auto", "max_sweeps": 6}

    def stop(sweep):
        if sweep.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GPHasher(**given).fit(X, y, checkpoint=tmp_path / "run", callback=stop)
    hasher = GPHasher(**given).fit(X, y)
    resumed = GPHasher(**given).fit(X, y, checkpoint=tmp_path / "run")
    assert resumed.fingerprint_ == hasher.fingerprint_
    distance = kernels.median_distance(scaling.apply(hasher.hash_function_.scaling, X))
    factors = np.array(KERNELS[name].LENGTH_SCALES)
    assert np.isclose(hasher.length_scale_ / distance, factors, rtol=1e-4).any()
    hasher.save(tmp_path / "model")
    read = load(tmp_path / "model")
    assert read.hash_function_.kernel == hasher.hash_function_.kernel
    np.testing.assert_array_equal(read.encode(digits.X), hasher.encode(digits.X))
    np.testing.assert_array_equal(read.bit_probabilities(digits.X), hasher.bit_probabilities(digits.X))
    assert hasher.score(digits.X[200:600], digits.y[200:600]) > 0.4


@pytest.mark.parametrize("kernel", [Matern32, Exponential])
def test_a_code_does_not_depend_on_its_neighbours(kernel):
    hasher = GPHasher(**digits.QUICK, kernel=KERNELS.name_of(kernel), max_sweeps=6).fit(digits.X[:200], digits.y[:200])
    together = hasher.encode(digits.X[:300])
    np.testing.assert_array_equal(np.concatenate([hasher.encode(row[None]) for row in digits.X[:300]]), together)


def test_a_model_with_a_kernel_that_is_not_there_is_refused(tmp_path, cauchy):
    GPHasher(**digits.QUICK, kernel="cauchy", max_sweeps=3).fit(digits.X[:100], digits.y[:100]).save(tmp_path / "m")
    del KERNELS._things["cauchy"]
    with pytest.raises(ValueError, match=r"kernel.*'cauchy'.* registered kernel"):
        load(tmp_path / "m")


@pytest.mark.parametrize("kernel", ["rbf", None, 3])
def test_an_unknown_kernel_is_refused(kernel):
    with pytest.raises(ValueError, match=r"kernel=.*'squared-exponential'"):
        GPHasher(kernel=kernel).fit(digits.X[:50], digits.y[:50])
