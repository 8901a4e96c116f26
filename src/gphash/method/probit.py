"""The normal cumulative distribution Φ for numba loops: what EP and Gibbs need of it, finite for |z| beyond 40."""

import math
from typing import Any

from gphash.compiled import jit

_ROOT_HALF = math.sqrt(0.5)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_TAIL = -30.0  # beyond it 0.5 erfc loses digits, then underflows; the asymptotic series is exact there


@jit(inline="always")
def _inverse_mills_tail(z: float) -> float:
    """Φ(z) √(2π) exp(z²/2) for z far below zero, by its asymptotic series."""
    w = 1.0 / (z * z)
    return -(1.0 - w * (1.0 - 3.0 * w * (1.0 - 5.0 * w * (1.0 - 7.0 * w)))) / z


@jit
def log_cdf(z: Any) -> Any:
    """Log Φ(z)."""
    if z > 5.0:
        return math.log1p(-0.5 * math.erfc(z * _ROOT_HALF))
    if z > _TAIL:
        return math.log(0.5 * math.erfc(-z * _ROOT_HALF))
    return -0.5 * z * z - _LOG_ROOT_TWO_PI + math.log(_inverse_mills_tail(z))


@jit
def hazard(z: Any) -> Any:
    """φ(z) / Φ(z), the derivative of log Φ."""
    if z > _TAIL:
        return math.exp(-0.5 * z * z - _LOG_ROOT_TWO_PI) / (0.5 * math.erfc(-z * _ROOT_HALF))
    return 1.0 / _inverse_mills_tail(z)


@jit
def log_odds(z: Any) -> Any:
    """Log Φ(z) − log Φ(−z)."""
    return log_cdf(z) - log_cdf(-z)


ROUGHLY = 0.004  # how wrong `rough_log_odds` can be


@jit(inline="always")
def rough_log_odds(z: Any) -> Any:
    """Log Φ(z) − log Φ(−z) by a polynomial, at a twentieth of the time; exact where that does not reach."""
    if abs(z) > 6.0:
        return log_odds(z)
    w = z * z
    return z * (1.5969651 + w * (0.07464822 + w * (-0.00090391386 + w * 7.372043e-06)))
