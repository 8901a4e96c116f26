"""The three forms of a code and the ways between them.

- ``signs``: ±1, [n, m], what training works with
- ``bits``: 0/1, [n, m], one byte per bit; bit 1 is sign +1
- ``packed``: [n, ⌈m/8⌉], eight bits per byte

Bit j of a code is bit j of its packed row in numpy's big-endian ``packbits`` order: bit 0 is the highest bit of the
first byte. The spare bits of the last byte are zero, so equal codes are equal bytes and Hamming distances need no mask.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_BITS = 1024
"""Of a code, wherever one is made, stored or searched for."""


def pack(bits: ArrayLike) -> NDArray[np.uint8]:
    """Pack bits, 0 and 1 or booleans, [n, m], eight to a byte, [n, ⌈m/8⌉]."""
    array = _matrix(bits, "bits")
    if array.dtype.kind not in "biu":
        raise TypeError(f"bits has dtype {array.dtype}; give booleans or integers.")
    if array.dtype.kind != "b" and not np.all((array == 0) | (array == 1)):
        raise ValueError(f"bits has values from {array.min()} to {array.max()}; give only 0 and 1.")
    return np.packbits(array.astype(bool, copy=False), axis=1)


def unpack(packed: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Bits of packed codes, 0 and 1, [n, m]; the packed form does not tell m."""
    return np.unpackbits(check_packed(packed, n_bits), axis=1, count=n_bits)


def words(packed: ArrayLike) -> NDArray[np.uint64]:
    """Packed bytes as machine words, padded with zeros, [n, ⌈m/64⌉].

    The order of the bytes inside a word is the machine's; which bits two words differ in does not depend on it.
    """
    array = check_packed(packed)
    padded = np.zeros((len(array), -(-array.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : array.shape[1]] = array
    return padded.view(np.uint64)


def check_packed(packed: ArrayLike, n_bits: int | None = None, name: str = "packed") -> NDArray[np.uint8]:
    """What was given for packed codes, as an array; width and spare bits must suit `n_bits` if that is known."""
    array = _matrix(packed, name)
    if array.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be uint8, eight bits per byte.")
    if n_bits is None:
        return array
    if isinstance(n_bits, bool) or not isinstance(n_bits, int | np.integer):
        raise TypeError(f"n_bits is {n_bits!r}; it must be an integer.")
    if n_bits < 1:
        raise ValueError(f"n_bits is {n_bits}; it must be at least 1.")
    width = -(-n_bits // 8)
    if array.shape[1] != width:
        raise ValueError(f"{name} has {array.shape[1]} bytes per code; it must have {width} for n_bits={n_bits}.")
    spare = 8 * width - n_bits
    if np.any(array[:, -1] & ((1 << spare) - 1)):
        raise ValueError(f"{name} has ones in the {spare} spare bits after n_bits={n_bits}; they must be zero.")
    return array


def _matrix(given: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} has shape {array.shape}; give one code per row, with at least one column.")
    return array
