"""Hamming distances, exact and expected.

Between two codes: d(a, b) = Σ_j [a_j ≠ b_j], the number of ones in a XOR b.

Between a code that is known only in probability, P_j = P(bit j is 1), and a code b:

    E d = Σ_j b_j (1 − P_j) + (1 − b_j) P_j = Σ_j P_j + Σ_j b_j (1 − 2 P_j)

whose second form is one matrix product for all pairs.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing

_ROWS, _COLUMNS = 16, 4096  # half a megabyte of 64-bit words: such a block stays in the second-level cache
_CODES = 16384  # unpacked at once, as float32


def pairwise(packed_a: ArrayLike, packed_b: ArrayLike) -> NDArray[np.uint16]:
    """Hamming distances between all pairs of packed codes, [q, ⌈m/8⌉] and [n, ⌈m/8⌉]: [q, n]."""
    bytes_a = packing.check_packed(packed_a, name="packed_a")
    bytes_b = packing.check_packed(packed_b, name="packed_b")
    if bytes_a.shape[1] != bytes_b.shape[1]:
        raise ValueError(f"packed_b has {bytes_b.shape[1]} bytes per code; give {bytes_a.shape[1]} as in packed_a.")
    if 8 * bytes_a.shape[1] > np.iinfo(np.uint16).max:
        raise ValueError(f"packed_a has {bytes_a.shape[1]} bytes per code; give at most 8191.")

    words_a = packing.words(bytes_a)
    words_b = np.ascontiguousarray(packing.words(bytes_b).T)
    distances = np.zeros((words_a.shape[0], words_b.shape[1]), dtype=np.uint16)
    for row in range(0, distances.shape[0], _ROWS):
        for column in range(0, distances.shape[1], _COLUMNS):
            block = distances[row : row + _ROWS, column : column + _COLUMNS]
            for word_a, word_b in zip(
                words_a[row : row + _ROWS].T, words_b[:, column : column + _COLUMNS], strict=True
            ):
                block += np.bitwise_count(word_a[:, None] ^ word_b)
    return distances


def expected(probabilities: ArrayLike, packed: ArrayLike, n_bits: int) -> NDArray[np.float32]:
    """Expected Hamming distances of P(bit j is 1), [q, m], to packed codes of m bits, [n, ⌈m/8⌉]: [q, n], 0 to m."""
    codes = packing.check_packed(packed, n_bits)
    chances = np.asarray(probabilities)
    if chances.ndim != 2 or chances.shape[1] != n_bits:
        raise ValueError(f"probabilities has shape {chances.shape}; give [q, {n_bits}] for n_bits={n_bits}.")
    if chances.dtype.kind != "f":
        raise TypeError(f"probabilities has dtype {chances.dtype}; give floats.")
    if not np.all((chances >= 0) & (chances <= 1)):
        raise ValueError(f"probabilities has values from {chances.min()} to {chances.max()}; give 0 to 1.")

    # Small [q, m] terms in float64, the large product in float32.
    offset = chances.sum(axis=1, dtype=np.float64).astype(np.float32)[:, None]
    slope = (1 - 2 * chances.astype(np.float64)).astype(np.float32)
    distances = np.empty((chances.shape[0], codes.shape[0]), dtype=np.float32)
    for start in range(0, codes.shape[0], _CODES):
        bits = np.unpackbits(codes[start : start + _CODES], axis=1, count=n_bits).astype(np.float32)
        distances[:, start : start + _CODES] = slope @ bits.T
    distances += offset
    return np.clip(distances, 0, n_bits, out=distances)  # rounding may step over the bounds of a distance
