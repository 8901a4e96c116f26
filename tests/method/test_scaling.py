"""Centre, length, and small differences between large numbers."""

import numpy as np
import pytest

from gphash.method import scaling


def test_training_rows_are_centred():
    X = np.random.default_rng(0).normal(5, 2, (50, 4))
    fitted = scaling.fit(X, unit_length=False)
    np.testing.assert_allclose(fitted.mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(scaling.apply(fitted, X, np.float64).mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(scaling.apply(fitted, X, np.float64), X - X.mean(axis=0), atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_unit_length_and_keep_their_direction(dtype):
    X = np.random.default_rng(1).normal(size=(50, 4))
    scaled = scaling.apply(scaling.fit(X), X, dtype)
    assert scaled.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, rtol=1e-6)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose((scaled * centred).sum(axis=1), np.linalg.norm(centred, axis=1), rtol=1e-6)


def test_a_row_at_the_centre_stays_zero():
    X = np.array([[1.0, 2.0], [3.0, 6.0], [2.0, 4.0]])
    scaled = scaling.apply(scaling.fit(X), X)
    np.testing.assert_array_equal(scaled[2], 0)
    assert np.isfinite(scaled).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_large_offset_does_not_drown_the_differences(dtype):
    small = np.random.default_rng(2).normal(size=(200, 5))
    X = (small + 10_000.0).astype(dtype)
    exact = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    # float32 rows resolve 0.001 at this offset: that much, and no more, may be lost.
    np.testing.assert_allclose(scaling.apply(scaling.fit(X), X), exact, atol=1e-6 if dtype is np.float64 else 3e-3)


def test_the_mean_of_many_float32_rows_does_not_drift():
    X = np.full((200_000, 1), 0.1, dtype=np.float32)
    assert scaling.fit(X).mean[0] == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_integers_are_scaled_like_numbers():
    X = np.random.default_rng(3).integers(0, 255, (20, 3), dtype=np.uint8)
    fitted = scaling.fit(X)
    np.testing.assert_allclose(scaling.apply(fitted, X), scaling.apply(fitted, X.astype(np.float64)), atol=1e-6)


def test_input_rows_are_left_alone():
    X = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)
    before = X.copy()
    scaling.apply(scaling.fit(X), X)
    np.testing.assert_array_equal(X, before)
