"""Vectors that a collection keeps beside its codes: what candidates that codes have found are ordered by.

A stored row is a mark (4 bytes), a scale (float32) and the values (float16 or int8); the vector is scale × values. The
scale of float16 is a power of two, so that rows of any size keep their precision; that of int8 is the largest value
over 127. The mark is a checksum of the item's number, the scale and the values. Files are mapped, and only the rows
that are asked for are read: each of them tells by itself whether it is whole, and whose it is.
"""

import os
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import container, schema
from gphash.arrays import Floats
from gphash.container import FormatError
from gphash.execution.spill import Spill
from gphash.schema import FaultError, Text, Whole

KIND, ENDING = "vectors", ".vectors"
FORMS: dict[str, np.dtype[Any]] = {"float16": np.dtype("<f2"), "int8": np.dtype("i1")}
METRICS = ("cosine", "dot")
HEAD = 8  # bytes of mark and scale
INFINITE = 0x7C00  # bits of float16 that are all set in what is no finite number
LARGEST = 127  # of int8; −128 has no counterpart
LEAST_SCALE = 2.0**-120  # far above what float32 cannot divide by
MOST_FEATURES = 1 << 24
AGAIN = "make the collection again, or get it from where it was made"

Rows = NDArray[np.uint8]


class VectorKind(NamedTuple):
    """How vectors are stored, "float16" or "int8", and what orders candidates, "cosine" or "dot"."""

    form: str
    metric: str = METRICS[0]

    @classmethod
    def of(cls, form: Any, metric: Any = METRICS[0]) -> "VectorKind | None":
        """What users ask for; None for no vectors."""
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r}; give {' or '.join(map(repr, METRICS))}.")
        if form is None:
            return None
        if form not in FORMS:
            raise ValueError(f"vectors={form!r}; give {' or '.join(map(repr, FORMS))}.")
        return cls(form, metric)

    def n_bytes(self, n_features: int) -> int:
        """Length of a stored row."""
        return HEAD + n_features * FORMS[self.form].itemsize


TOLD = schema.Record({"form": Text(tuple(FORMS)), "metric": Text(METRICS)})
"""What a file, or a database, says of a `VectorKind`."""


def pack(X: ArrayLike, form: str) -> Rows:
    """Rows [n, d] as they are stored, but for their marks, uint8 [n, bytes]."""
    rows = np.asarray(X)
    rows = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1, initial=0.0).astype(np.float64)
    if form == "int8":
        scales = np.maximum(largest / LARGEST, LEAST_SCALE).astype(np.float32)
    else:
        scales = np.ldexp(1.0, np.frexp(np.maximum(largest, LEAST_SCALE))[1]).astype(np.float32)
    scales[largest == 0] = 1
    values = rows / scales[:, None].astype(rows.dtype)
    if form == "int8":
        values = np.clip(np.rint(values), -LARGEST, LARGEST)
    stored = np.zeros((len(rows), VectorKind(form).n_bytes(rows.shape[1])), np.uint8)
    stored[:, 4:HEAD] = scales.astype("<f4")[:, None].view(np.uint8)
    stored[:, HEAD:] = np.ascontiguousarray(values.astype(FORMS[form])).view(np.uint8)
    return stored


def seal(rows: Rows, numbers: NDArray[np.int64]) -> Rows:
    """Rows that know whose they are: their marks are set."""
    rows[:, :4] = _marks(rows, numbers)[:, None].view(np.uint8)
    return rows


def check(rows: Rows, numbers: NDArray[np.int64], form: str, place: object) -> Rows:
    """Rows that are as they were written, and whose numbers are these; a FormatError names where they come from."""
    wrong = np.flatnonzero(np.ascontiguousarray(rows[:, :4]).view("<u4")[:, 0] != _marks(rows, numbers))
    if len(wrong):
        raise FormatError(f"{str(place)!r} is damaged: the vector of {numbers[wrong[0]]} is not as it was; {AGAIN}")
    # Whoever can write a file can make its marks, too.
    scales = np.ascontiguousarray(rows[:, 4:HEAD]).view("<f4")
    short = np.ascontiguousarray(rows[:, HEAD:]).view("<u2") if form == "float16" else np.zeros(1, np.uint16)
    if not np.isfinite(scales).all() or (short & INFINITE == INFINITE).any():
        raise FormatError(f"{str(place)!r} is damaged: a vector holds NaN or infinity; {AGAIN}")
    return rows


def _marks(rows: Rows, numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
    begun = np.ascontiguousarray(numbers, "<i8")
    whole = np.concatenate([begun[:, None].view(np.uint8), rows[:, 4:]], axis=1)
    content, width = whole.reshape(-1).data, whole.shape[1]
    return np.fromiter(
        (zlib.crc32(content[place : place + width]) for place in range(0, len(content), width)), "<u4", len(rows)
    )


def unpack(rows: Rows, form: str) -> Floats:
    """Vectors [n, d] of stored rows."""
    scales, values = _parts(rows, form)
    return values * scales[:, None]


def _parts(rows: Rows, form: str) -> tuple[Floats, Floats]:
    """Scales, [n], and values, [n, d]."""
    scales = np.ascontiguousarray(rows[:, 4:HEAD]).view("<f4")[:, 0].astype(np.float64)
    return scales, np.ascontiguousarray(rows[:, HEAD:]).view(FORMS[form]).astype(np.float64)


def directions(vectors: Floats) -> Floats:
    """The same with length 1, but for those that are zero."""
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def scores(query: Floats, rows: Rows, kind: VectorKind) -> Floats:
    """Cosines, or dot products, of a row [d] and stored rows; equal rows have equal scores.

    The cosine of a vector that is zero is 0.
    """
    asked, (scales, values) = np.asarray(query, np.float64), _parts(rows, kind.form)
    # Not a matrix product, which does not promise the same order of sums for every row.
    dots: Floats = np.einsum("ij,j->i", values, asked)
    if kind.metric == "dot":
        return dots * scales
    squares = np.einsum("ij,ij->i", values, values) * np.square(asked).sum()
    lengths = np.sqrt(squares)  # the scales cancel
    cosines: Floats = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
    return np.clip(cosines, -1, 1)


class VectorWriter:
    """Writes a file of so many vectors, which come in pieces; use it in a `with` statement."""

    def __init__(self, path: Path, n_rows: int, n_features: int, kind: VectorKind) -> None:
        self.path, self.n_rows, self.kind = path, n_rows, kind
        self._width = kind.n_bytes(n_features)
        self._meta: dict[str, str | int] = {"form": kind.form, "n_features": n_features}
        self._numbers, self._done = np.empty(n_rows, np.int64), 0

    def __enter__(self) -> Self:
        self._spill = Spill().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._spill.__exit__(*error)

    def passing(self, pieces: Iterable[Any], numbers: NDArray[np.int64]) -> Iterator[Any]:
        """The same pieces of rows; each is kept once whoever reads it has taken it for good, and asks for the next."""
        for piece in pieces:
            yield piece
            own = numbers[self._done : self._done + len(piece)]
            self.add(own, seal(pack(piece, self.kind.form), own))

    def add(self, numbers: NDArray[np.int64], rows: Rows) -> None:
        """Take stored rows."""
        self._numbers[self._done : self._done + len(numbers)] = numbers
        self._spill.write(self._done * self._width, rows)
        self._done += len(numbers)

    def finish(self) -> str:
        """Write the file, whole or not at all, and return its fingerprint."""
        shape = (self.n_rows, self._width)
        rows = self._spill.read(0, shape, np.uint8) if self.n_rows else np.empty(shape, np.uint8)
        return container.write(self.path, KIND, self._meta, {"numbers": self._numbers, "rows": rows})


class VectorFile:
    """A file of vectors, mapped."""

    def __init__(self, path: Path, numbers: NDArray[np.int64], rows: Rows, form: str) -> None:
        self.path, self._numbers, self._rows, self._form = path, numbers, rows, form

    @classmethod
    def open(cls, path: str | os.PathLike[str], fingerprint: str, kind: VectorKind, n_features: int) -> "VectorFile":
        """Map a file. Its header is checked here, and every row when it is read."""
        if not Path(path).is_file():
            raise FormatError(f"{os.fspath(path)!r} is missing; {AGAIN}")
        stored = container.read(path, KIND, mapped=True, verified=False)
        with schema.reading(path, AGAIN):
            schema.Record({"form": Text(tuple(FORMS)), "n_features": Whole(1, MOST_FEATURES)}).check(stored.meta, "")
            if (stored.meta, stored.fingerprint) != ({"form": kind.form, "n_features": n_features}, fingerprint):
                raise FaultError("it is not the file that the collection names")
            schema.Record(dict.fromkeys(("numbers", "rows"), schema.Rule("an array", lambda value: True))).check(
                stored.arrays, ""
            )
            numbers, rows = stored.arrays["numbers"], stored.arrays["rows"]
            wanted = (len(numbers), kind.n_bytes(n_features)) if numbers.ndim == 1 else ()
            if (numbers.dtype.str, rows.dtype.str, rows.shape) != ("<i8", "|u1", wanted):
                raise FaultError("its numbers and rows do not belong together")
        return cls(Path(path), numbers, rows, kind.form)

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """Places in the order of the numbers; None if they have it."""
        ascending = bool((self._numbers[1:] > self._numbers[:-1]).all())
        return None if ascending else np.argsort(self._numbers, kind="stable")

    def find(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of some numbers; −1 where there is none."""
        if not len(self._numbers):
            return np.full(len(numbers), -1, np.int64)
        found = np.minimum(np.searchsorted(self._numbers, numbers, sorter=self._order), len(self._numbers) - 1)
        places = found if self._order is None else self._order[found]
        return np.where(self._numbers[places] == numbers, places, -1)

    def read(self, places: NDArray[np.int64], numbers: NDArray[np.int64]) -> Rows:
        """Stored rows at some places, of these numbers."""
        return check(np.asarray(self._rows[places]), numbers, self._form, self.path)
