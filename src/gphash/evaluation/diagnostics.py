"""What codes are like, apart from what they retrieve: calibration of bit probabilities, balance, entropy, buckets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats


class Calibration(NamedTuple):
    """How far bit probabilities can be believed: a reliability curve and its summary.

    predicted, observed
        Mean probability, and frequency of ones, in every bin, [b]; NaN in a bin without bits.
    counts
        Bits in every bin, [b].
    error
        Expected calibration error: mean of |observed − predicted|, weighted by the counts.
    """

    predicted: Floats
    observed: Floats
    counts: NDArray[np.int64]
    error: float


class Codes(NamedTuple):
    """How codes are distributed.

    balance
        Share of ones of every bit, [m].
    bit_entropy
        Entropy of every bit, in bits, [m].
    correlation
        Of every two bits over rows, [m, m]; 0 where a bit is constant.
    code_entropy
        Entropy of the distribution of codes, in bits.
    distinct
        Number of different codes.
    largest
        Rows that share the commonest code.
    """

    balance: Floats
    bit_entropy: Floats
    correlation: Floats
    code_entropy: float
    distinct: int
    largest: int


def dominant_codes(bits: NDArray[np.uint8], labels: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.uint8]]:
    """The commonest code of every class, as (classes [c], bits [c, m]); of equally common codes, the smallest."""
    labels = np.asarray(labels)
    classes = np.unique(labels)
    words = np.empty((len(classes), bits.shape[1]), dtype=np.uint8)
    for number, label in enumerate(classes):
        codes, counts = np.unique(bits[labels == label], axis=0, return_counts=True)
        words[number] = codes[counts.argmax()]
    return classes, words


def true_bits(labels: ArrayLike, classes: NDArray[np.generic], words: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bits that rows should have: those of the dominant code which their class got in training, [n, m]."""
    labels = np.asarray(labels)
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(f"labels hold {unknown.tolist()[0]!r}, a class that training has not seen.")
    return words[np.searchsorted(classes, labels)]


def calibrate(probabilities: Floats, bits: NDArray[np.uint8], n_bins: int = 20) -> Calibration:
    """Compare probabilities with true bits, [n, m] each, in bins of equal width."""
    probabilities, bits = np.asarray(probabilities), np.asarray(bits)
    if n_bins < 1:
        raise ValueError(f"n_bins={n_bins}; give at least 1.")
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("probabilities are not all between 0 and 1; give P(bit = 1) for every bit.")
    if probabilities.shape != bits.shape:
        raise ValueError(f"probabilities have shape {probabilities.shape} and bits {bits.shape}; they must agree.")
    # Sorted, so that sums do not depend on the order of rows.
    order = np.argsort(probabilities, axis=None)
    chances, truths = probabilities.ravel()[order].astype(np.float64), bits.ravel()[order].astype(np.float64)
    place = np.minimum((chances * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(place, chances, n_bins) / counts
        observed = np.bincount(place, truths, n_bins) / counts
    error = float(np.nansum(counts * np.abs(observed - predicted)) / max(counts.sum(), 1))
    return Calibration(predicted, observed, counts, error)


def describe_codes(bits: NDArray[np.uint8]) -> Codes:
    """Balance, entropy and correlation of bits, and the buckets that codes fall into, for bits [n, m]."""
    if bits.ndim != 2 or len(bits) == 0:
        raise ValueError(f"bits have shape {bits.shape}; give at least one row of bits [n, m].")
    n = len(bits)
    balance = bits.mean(axis=0)
    # n Σ b_i b_j − Σ b_i Σ b_j, whole numbers and thus exact in any order of rows.
    ones = bits.astype(np.float64)
    total = ones.sum(axis=0)
    covariance = n * (ones.T @ ones) - np.outer(total, total)
    spread = np.sqrt(np.diag(covariance))
    scale = np.outer(spread, spread)
    correlation = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    _, counts = np.unique(np.packbits(bits, axis=1), axis=0, return_counts=True)
    shares = counts / n
    return Codes(
        balance=balance,
        bit_entropy=_entropy(balance) + _entropy(1 - balance),
        correlation=correlation,
        code_entropy=float(_entropy(shares).sum()),
        distinct=len(counts),
        largest=int(counts.max()),
    )


def _entropy(shares: Floats) -> Floats:
    """−p log₂ p, which is 0 for p = 0."""
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    terms: Floats = 0 - shares * logs
    return terms
