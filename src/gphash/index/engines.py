"""Codes in the forms that databases and other engines take; docs/engines.md has a recipe for every engine.

Everywhere the first bit of a code comes first: it is the highest bit of the first byte, the highest digit of the number
and the first character of the text. Distances do not depend on that, round trips do.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing
from gphash.index import buckets as bucketing

WORD = 64  # bits that a SQL integer holds


def as_bigint(packed: ArrayLike, n_bits: int) -> NDArray[np.int64]:
    """Packed codes of up to 64 bits, [n, bytes], as the signed integers of databases, [n].

    A code is read as a binary number whose highest digit is the first bit. Codes of 64 bits that begin with 1 are
    negative, in two's complement; all others are not.
    """
    _check_word(n_bits)
    words = bucketing.to_words(packing.check_packed(packed, n_bits), n_bits)
    spare = 8 * words.dtype.itemsize - n_bits
    return (words.astype(np.uint64) >> np.uint64(spare)).view(np.int64)


def from_bigint(numbers: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_bigint`: packed codes, [n, bytes]."""
    _check_word(n_bits)
    given = np.asarray(numbers)
    if given.size == 0:
        given = given.astype(np.int64)
    if given.ndim != 1 or given.dtype.kind != "i":
        raise ValueError(f"numbers is {given.dtype} of shape {given.shape}; give signed integers, [n].")
    if n_bits < WORD and len(given) and (given.min() < 0 or given.max() >= 1 << n_bits):
        raise ValueError(f"numbers goes from {given.min()} to {given.max()}; {n_bits} bits hold 0 to 2^{n_bits} - 1.")
    left = given.astype(np.int64).view(np.uint64) << np.uint64(WORD - n_bits)
    return np.ascontiguousarray(left.astype(">u8").view(np.uint8).reshape(len(given), 8)[:, : -(-n_bits // 8)])


def as_text(packed: ArrayLike, n_bits: int) -> list[str]:
    """Codes as zeros and ones, "0101…", which is what PostgreSQL, pgvector and DuckDB read as bit strings."""
    digits = packing.unpack(packed, n_bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def _check_word(n_bits: int) -> None:
    if not 1 <= n_bits <= WORD:
        raise ValueError(f"n_bits={n_bits!r}; a 64-bit integer holds 1 to {WORD} bits.")
