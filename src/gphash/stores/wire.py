"""Codes and numbers as PostgreSQL sends and takes them in binary: elements of arrays, and rows of COPY."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.index import engines
from gphash.index.engines import WORD

Kind: TypeAlias = Literal["bigint", "bit"]
Octets: TypeAlias = NDArray[np.uint8]

BIGINT, BIGINTS, BIT, BITS = 20, 1016, 1560, 1561  # numbers of the types, and of arrays of them
ROWS = 1 << 16  # sent at a time
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, nothing beyond
END = b"\xff\xff"


class Form(NamedTuple):
    """How a store keeps codes.

    n_bits
        Length of a code.
    kind
        "bigint", the code as a binary number, up to 64 bits; or "bit".
    """

    n_bits: int
    kind: Kind

    @property
    def column(self) -> str:
        """Type of the column."""
        return "bigint" if self.kind == "bigint" else f"bit({self.n_bits})"

    @property
    def n_bytes(self) -> int:
        """Of a packed code."""
        return -(-self.n_bits // 8)


class Bigints(bytes):
    """An array of bigint, as sent."""


class Bits(bytes):
    """An array of bit strings, as sent."""


class Bit(bytes):
    """A bit string, as sent."""


def form(n_bits: int, kind: Kind | None = None) -> Form:
    """How codes of some length are kept: as numbers if they fit, unless told otherwise."""
    return Form(n_bits, kind or ("bigint" if n_bits <= WORD else "bit"))


def bigints(numbers: NDArray[Any]) -> Bigints:
    """Numbers, [n], as an array."""
    return Bigints(_array(BIGINT, _big_endian(numbers)))


def codes(packed: Octets, how: Form) -> Bigints | Bits:
    """Packed codes, [n, bytes], as an array."""
    return (Bigints if how.kind == "bigint" else Bits)(
        _array(BIGINT if how.kind == "bigint" else BIT, elements(packed, how))
    )


def code(packed: Octets, how: Form) -> int | Bit:
    """One packed code, [bytes], as a parameter."""
    if how.kind == "bigint":
        return int(engines.as_bigint(packed[None], how.n_bits)[0])
    return Bit(elements(packed[None], how)[0].tobytes())


def elements(packed: Octets, how: Form) -> Octets:
    """Packed codes, [n, bytes], without their sizes, [n, w]."""
    if how.kind == "bigint":
        return _big_endian(engines.as_bigint(packed, how.n_bits))
    length = np.broadcast_to(_big_endian(np.array([how.n_bits]))[:, 4:], (len(packed), 4))
    return np.concatenate([length, packed], axis=1)


def packed_of(found: Octets, how: Form) -> Octets:
    """Undo `elements`."""
    if how.kind == "bigint":
        return engines.from_bigint(numbers_of(found), how.n_bits)
    return np.ascontiguousarray(found[:, 4:]) if len(found) else np.empty((0, how.n_bytes), np.uint8)


def numbers_of(found: Octets) -> NDArray[np.int64]:
    """Elements of an array of bigint, [n]."""
    return np.ascontiguousarray(found).view(">i8").ravel().astype(np.int64) if len(found) else np.empty(0, np.int64)


def read_array(data: bytes) -> Octets:
    """Elements of an array of one dimension whose elements have one size and are not null, [n, w]."""
    octets = np.frombuffer(data, np.uint8)
    if not octets[:4].any():  # an empty array has no dimension
        return np.empty((0, 0), np.uint8)
    n = int.from_bytes(data[12:16])
    return octets[20:].reshape(n, -1)[:, 4:]


def items(ids: NDArray[np.int64], packed: Octets, how: Form) -> Iterator[bytes]:
    """Rows (id, code) for COPY in binary; all but the first and the last of what comes are `ROWS` rows each."""
    return _rows(len(ids), lambda part: (_big_endian(ids[part]), elements(packed[part], how)))


def counts(packed: Octets, sizes: NDArray[np.int64], how: Form) -> Iterator[bytes]:
    """Rows (code, n), likewise."""
    return _rows(len(sizes), lambda part: (elements(packed[part], how), _big_endian(sizes[part])))


def _rows(n: int, fields: Callable[[slice], tuple[Octets, ...]]) -> Iterator[bytes]:
    yield SIGNATURE
    for start in range(0, n, ROWS):
        some = [_sized(field) for field in fields(slice(start, start + ROWS))]
        count = np.broadcast_to(np.array([0, len(some)], np.uint8), (len(some[0]), 2))
        yield np.concatenate([count, *some], axis=1).tobytes()
    yield END


def _big_endian(numbers: NDArray[Any]) -> Octets:
    return np.ascontiguousarray(numbers, ">i8").view(np.uint8).reshape(len(numbers), 8)


def _sized(found: Octets) -> Octets:
    """Elements with their size before them, [n, 4 + w]."""
    size = np.frombuffer(found.shape[1].to_bytes(4), np.uint8)
    return np.concatenate([np.broadcast_to(size, (len(found), 4)), found], axis=1)


def _array(element: int, found: Octets) -> bytes:
    dimensions = [1, 0, element, len(found), 1] if len(found) else [0, 0, element]
    return np.array(dimensions, ">i4").tobytes() + _sized(found).tobytes()
