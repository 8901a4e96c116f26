"""Φ, its hazard and its log-odds against SciPy, and where double precision is strained."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr

from gphash.method import probit

GRID = np.concatenate([np.linspace(-100, 100, 4001), [-30 - 1e-9, -30, -30 + 1e-9, 5 - 1e-9, 5 + 1e-9, 0.0]])


def evaluate(function, z):
    return np.array([function(value) for value in z])


def test_log_cdf_agrees_with_scipy():
    np.testing.assert_allclose(evaluate(probit.log_cdf, GRID), log_ndtr(GRID), rtol=1e-9, atol=1e-300)


def test_hazard_is_density_over_cdf():
    expected = np.exp(-0.5 * GRID**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(GRID))
    np.testing.assert_allclose(evaluate(probit.hazard, GRID), expected, rtol=1e-9, atol=1e-300)


def test_hazard_is_the_slope_of_log_cdf():
    z, step = np.linspace(-45, 8, 500), 1e-5
    slope = (evaluate(probit.log_cdf, z + step) - evaluate(probit.log_cdf, z - step)) / (2 * step)
    np.testing.assert_allclose(evaluate(probit.hazard, z), slope, rtol=1e-5, atol=1e-9)


def test_hazard_keeps_within_the_bounds_of_mills_ratio():
    x = np.concatenate([np.linspace(0.1, 100, 2000), [30 - 1e-9, 30 + 1e-9]])
    hazard = evaluate(probit.hazard, -x)
    assert np.all(hazard > x)
    assert np.all(hazard < (x + np.sqrt(x**2 + 4)) / 2)


def test_log_odds_is_odd_and_grows():
    z = np.linspace(-100, 100, 4001)
    odds = evaluate(probit.log_odds, z)
    np.testing.assert_array_equal(odds, -evaluate(probit.log_odds, -z))
    np.testing.assert_allclose(odds, log_ndtr(z) - log_ndtr(-z), rtol=1e-9, atol=1e-12)
    assert np.all(np.diff(odds) > 0)


@pytest.mark.parametrize("z", [-100.0, -40.0, -38.5, 38.5, 40.0, 100.0])
@pytest.mark.parametrize("function", [probit.log_cdf, probit.hazard, probit.log_odds])
def test_everything_is_finite_far_out(function, z):
    assert math.isfinite(function(z))


def test_values_at_zero():
    assert probit.log_cdf(0.0) == pytest.approx(math.log(0.5), rel=1e-15)
    assert probit.hazard(0.0) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-15)
    assert probit.log_odds(0.0) == 0.0


def test_log_cdf_is_never_positive_and_ends_at_zero():
    assert probit.log_cdf(40.0) == 0.0
    assert np.all(evaluate(probit.log_cdf, GRID) <= 0)


def test_rough_log_odds_are_no_further_off_than_they_say():
    z = np.concatenate([GRID, np.linspace(-6.01, 6.01, 20001)])
    errors = evaluate(probit.rough_log_odds, z) - evaluate(probit.log_odds, z)
    assert np.abs(errors).max() <= probit.ROUGHLY
