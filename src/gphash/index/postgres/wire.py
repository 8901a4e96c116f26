"""Codes and numbers as PostgreSQL sends and takes them in binary: arrays, and rows of COPY.

A code is a bigint up to 64 bits, the code as a binary number, and a bit string beyond. psycopg would make a Python
object of every element, which takes far longer.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.index import engines
from gphash.index.engines import WORD

Octets: TypeAlias = NDArray[np.uint8]
Progress: TypeAlias = Callable[[int, int | None], None]

BIGINT, BIGINTS, BIT, BITS = 20, 1016, 1560, 1561  # numbers of the types, and of arrays of them
ROWS = 1 << 16  # sent at a time
SIGNATURE, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"  # no flags, nothing beyond


def column(n_bits: int) -> str:
    """Type of the column of codes."""
    return "bigint" if n_bits <= WORD else f"bit({n_bits})"


def elements(packed: Octets, n_bits: int) -> NDArray[Any]:
    """Packed codes, [n, bytes], as elements of an array or of a column, [n]."""
    return engines.as_bigint(packed, n_bits) if n_bits <= WORD else bit_strings(packed, n_bits)


def bit_strings(packed: Octets, n_bits: int) -> NDArray[Any]:
    """Packed codes, [n, bytes], as bit strings, however short they are, [n]."""
    found = np.empty(len(packed), [("length", ">i4"), ("octets", "u1", packed.shape[1:])])
    found["length"], found["octets"] = n_bits, packed
    return found


def code(packed: Octets, n_bits: int) -> int | str:
    """One packed code, [bytes], as a parameter."""
    if n_bits <= WORD:
        return int(engines.as_bigint(packed[None], n_bits)[0])
    return engines.as_text(packed[None], n_bits)[0]


def packed_of(found: NDArray[Any] | None, n_bits: int) -> Octets:
    """Packed codes, [n, bytes], from an array that was read; an aggregate of no rows gives None."""
    if found is None or not len(found):
        return np.empty((0, -(-n_bits // 8)), np.uint8)
    return engines.from_bigint(found, n_bits) if n_bits <= WORD else np.ascontiguousarray(found)


def rows(columns: tuple[NDArray[Any], ...], progress: Progress | None) -> Iterator[bytes]:
    """Rows of COPY from elements of their columns; `progress` hears how many have gone, and how many there are."""
    n = len(columns[0])
    yield SIGNATURE
    for start in range(0, n, ROWS):
        yield _sized([column[start : start + ROWS] for column in columns], [("count", ">i2")])
        if progress is not None:
            progress(min(start + ROWS, n), n)
    yield END


def _sized(columns: list[NDArray[Any]], fields: list[Any]) -> bytes:
    """Elements, each behind its size, in rows that begin with other fields, all of them the number of columns."""
    for number, one in enumerate(columns):
        fields = [*fields, (f"size_{number}", ">i4"), (f"value_{number}", one.dtype.newbyteorder(">"))]
    table = np.full(len(columns[0]), len(columns), fields)
    for number, one in enumerate(columns):
        table[f"size_{number}"], table[f"value_{number}"] = one.itemsize, one
    return table.tobytes()


def dump(found: NDArray[Any]) -> bytes:
    """Elements as an array of one dimension, or of none if it is empty; the statement says of what type it is."""
    kind = BIGINT if found.dtype.kind == "i" else BIT
    head = [1, 0, kind, len(found), 1] if len(found) else [0, 0, kind]
    return np.array(head, ">i4").tobytes() + _sized([found], [])


def load(data: Any) -> NDArray[Any]:
    """Elements of one size that are not null: numbers, [n], or packed codes, [n, bytes]."""
    octets = bytes(data)
    if len(octets) <= 20:  # five numbers come first, three if it is empty
        return np.empty(0, np.int64)
    kind, _, _, size = np.frombuffer(octets, ">i4", 4, 8)
    if kind == BIGINT:
        return np.frombuffer(octets, [("size", ">i4"), ("value", ">i8")], offset=20)["value"].astype(np.int64)
    bits = [("size", ">i4"), ("length", ">i4"), ("octets", "u1", (int(size) - 4,))]
    return np.frombuffer(octets, bits, offset=20)["octets"]
