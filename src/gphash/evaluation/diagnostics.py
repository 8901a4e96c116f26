"""What codes are like, apart from what they retrieve: calibration of bit probabilities, balance, entropy, buckets.

What these functions give goes into reports as it is.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats

BINS = 20  # of probabilities


def dominant_codes(bits: NDArray[np.uint8], labels: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.uint8]]:
    """The commonest code of every class, as (classes [c], bits [c, m]); of equally common codes, the smallest."""
    classes, members = np.unique(np.asarray(labels), return_inverse=True)
    words = np.empty((len(classes), bits.shape[1]), dtype=np.uint8)
    for number in range(len(classes)):
        codes, counts = np.unique(bits[members == number], axis=0, return_counts=True)
        words[number] = codes[counts.argmax()]
    return classes, words


def calibrate(probabilities: Floats, bits: NDArray[np.uint8]) -> dict[str, Any]:
    """Compare probabilities with true bits, [n, m] each, in bins of equal width; see `calibration`."""
    # Sorted, so that sums do not depend on the order of rows.
    order = np.argsort(probabilities, axis=None)
    return calibration(*binned(probabilities.ravel()[order], bits.ravel()[order], np.ones(bits.size)))


def binned(probabilities: Floats, truths: NDArray[Any], counts: NDArray[Any]) -> Floats:
    """How often, how probable in sum, and how often true things are, in bins of their probability, [3, BINS]."""
    chances, often = probabilities.ravel().astype(np.float64), counts.ravel().astype(np.float64)
    place = np.minimum((chances * BINS).astype(np.int64), BINS - 1)
    return np.stack([np.bincount(place, often * values, BINS) for values in (1.0, chances, truths.ravel())])


def calibration(counts: Floats, predicted: Floats, observed: Floats) -> dict[str, Any]:
    """The error, the mean of |observed − predicted|, weighted by counts, and its curve, from sums of `binned`.

    The curve has the mean probability, the frequency of what is true (NaN where there is nothing) and the counts.
    """
    with np.errstate(invalid="ignore"):
        predicted, observed = predicted / counts, observed / counts
    error = float(np.nansum(counts * np.abs(observed - predicted)) / max(counts.sum(), 1))
    curve = {"predicted": predicted, "observed": observed, "counts": counts.astype(np.int64)}
    return {"calibration_error": error, "curve": curve}


def describe_codes(bits: NDArray[np.uint8]) -> dict[str, Any]:
    """Balance, entropy and correlation of bits, and the buckets that codes fall into, for bits [n, m].

    Entropies are in bits. The correlation of two bits over rows, [m, m], is 0 where one of them is constant.
    """
    if bits.ndim != 2 or len(bits) == 0:
        raise ValueError(f"bits have shape {bits.shape}; give at least one row of bits [n, m].")
    n, ones, balance = len(bits), bits.astype(np.float64), bits.mean(axis=0)
    # n Σ b_i b_j − Σ b_i Σ b_j, whole numbers and thus exact in any order of rows.
    covariance = n * (ones.T @ ones) - np.outer(ones.sum(axis=0), ones.sum(axis=0))
    spread = np.sqrt(np.diag(covariance))
    scale = np.outer(spread, spread)
    correlation = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    between = np.abs(correlation[~np.eye(len(balance), dtype=bool)])
    _, counts = np.unique(np.packbits(bits, axis=1), axis=0, return_counts=True)
    entropy = _entropy(balance) + _entropy(1 - balance)
    return {
        "distinct_codes": len(counts),
        "largest_bucket": int(counts.max()),
        "code_entropy": float(_entropy(counts / n).sum()),
        "bit_entropy": entropy.mean(),
        "bit_correlation": between.mean() if len(between) else 0.0,
        "bits": {"balance": balance, "entropy": entropy, "correlation": correlation},
    }


def _entropy(shares: Floats) -> Floats:
    """−p log₂ p, which is 0 for p = 0."""
    return np.asarray(0 - shares * np.log2(shares, out=np.zeros_like(shares), where=shares > 0))
