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
    """Pack bits, eight to a byte.

    Parameters
    ----------
    bits
        Zeros and ones, [n, m], boolean or integer.

    Returns
    -------
    packed
        [n, ⌈m/8⌉], spare bits zero.
    """
    array = _matrix(bits, "bits")
    if array.dtype.kind not in "biu":
        raise TypeError(f"bits has dtype {array.dtype}; wanted are booleans or integers")
    if array.dtype.kind != "b" and not np.all((array == 0) | (array == 1)):
        raise ValueError(
            f"bits has values from {array.min()} to {array.max()}; wanted are only 0 and 1 (from_signs takes ±1)"
        )
    return np.packbits(array.astype(bool, copy=False), axis=1)


def unpack(packed: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Undo `pack`.

    Parameters
    ----------
    packed
        Packed codes, [n, ⌈m/8⌉].
    n_bits
        The number of bits m, which the packed form does not tell.

    Returns
    -------
    bits
        Zeros and ones, [n, m].
    """
    return np.unpackbits(check_packed(packed, n_bits), axis=1, count=n_bits)


def from_signs(signs: ArrayLike) -> NDArray[np.uint8]:
    """Pack signs, +1 as bit 1 and -1 as bit 0.

    Parameters
    ----------
    signs
        Values ±1, [n, m], of any signed dtype.

    Returns
    -------
    packed
        [n, ⌈m/8⌉], spare bits zero.
    """
    array = _matrix(signs, "signs")
    if array.dtype.kind not in "if":
        raise TypeError(f"signs has dtype {array.dtype}; wanted are signed integers or floats")
    if not np.all((array == 1) | (array == -1)):
        raise ValueError(f"signs has values from {array.min()} to {array.max()}; wanted are only -1 and +1")
    return np.packbits(array > 0, axis=1)


def to_signs(packed: ArrayLike, n_bits: int) -> NDArray[np.int8]:
    """Undo `from_signs`.

    Parameters
    ----------
    packed
        Packed codes, [n, ⌈m/8⌉].
    n_bits
        The number of bits m, which the packed form does not tell.

    Returns
    -------
    signs
        Values ±1, [n, m].
    """
    signs = unpack(packed, n_bits).view(np.int8)
    signs *= 2
    signs -= 1
    return signs


def words(packed: ArrayLike) -> NDArray[np.uint64]:
    """Regroup packed bytes into machine words, for popcount kernels.

    The order of the bytes inside a word is the machine's; which bits two words differ in does not depend on it.

    Parameters
    ----------
    packed
        Packed codes, [n, ⌈m/8⌉].

    Returns
    -------
    words
        [n, ⌈m/64⌉], padded with zeros.
    """
    array = check_packed(packed)
    n, n_bytes = array.shape
    n_words = -(-n_bytes // 8)
    padded = np.zeros((n, 8 * n_words), dtype=np.uint8)
    padded[:, :n_bytes] = array
    return padded.view(np.uint64)


def check_packed(packed: ArrayLike, n_bits: int | None = None, name: str = "packed") -> NDArray[np.uint8]:
    """Make sure that an argument holds packed codes.

    Parameters
    ----------
    packed
        What was given for [n, ⌈m/8⌉].
    n_bits
        The number of bits m if it is known; the width and the spare bits are checked against it.
    name
        The argument's name in the error.

    Returns
    -------
    packed
        The same as an array.
    """
    array = _matrix(packed, name)
    if array.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {array.dtype}; wanted is uint8, eight bits per byte")
    if n_bits is None:
        return array
    if isinstance(n_bits, bool) or not isinstance(n_bits, int | np.integer):
        raise TypeError(f"n_bits is {n_bits!r}; wanted is an integer")
    if n_bits < 1:
        raise ValueError(f"n_bits is {n_bits}; wanted is at least 1")
    width = -(-n_bits // 8)
    if array.shape[1] != width:
        raise ValueError(f"{name} has {array.shape[1]} bytes per code; wanted are {width} for n_bits={n_bits}")
    spare = 8 * width - n_bits
    if np.any(array[:, -1] & ((1 << spare) - 1)):
        raise ValueError(f"{name} has ones in the {spare} spare bits after n_bits={n_bits}; wanted are zeros")
    return array


def _matrix(given: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(given)
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}; wanted are two dimensions, one code per row")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has shape {array.shape}; wanted is at least one column")
    return array
