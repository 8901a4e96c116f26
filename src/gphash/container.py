r"""One container file for every artefact: a JSON header and raw arrays, free of pickle.

====================  ==============================================================================
bytes                 content
====================  ==============================================================================
8                     magic ``\x89GPHASH\n``
8                     length of the header, unsigned, little-endian
that many             header: JSON (below)
32                    SHA-256 of everything so far, so that the header alone can be trusted
                      arrays in the order of their names: C order, little-endian, each at a multiple
                      of 64 bytes of the file; zeros fill the gaps
====================  ==============================================================================

The header holds ``format_version``, ``library_version``, ``kind``, ``meta`` and ``remarks`` (any JSON objects),
``fingerprint`` and ``arrays``: the ``name``, ``dtype``, ``shape`` and ``offset`` of each, counted from where the first
array begins. A later format may change everything but the first four rows of the table. The fingerprint identifies the
content: SHA-256 over kind, meta and the arrays' names, dtypes, shapes and bytes, in whichever order they were given.
So every byte of the file is checked: the header by its checksum, arrays by the fingerprint.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.version import __version__

A = TypeVar("A")
JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT_VERSION = 3
MAGIC = b"\x89GPHASH\n"
ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 22
LARGEST_ARRAY = 1 << 60  # bytes, below what numpy refuses

_DIGEST_BYTES = hashlib.sha256().digest_size
_CHUNK_BYTES = 1 << 20
_DTYPE = re.compile(r"[<|][biufcSUMm][0-9]{1,9}(\[[0-9A-Za-z]{1,20}\])?")


class FormatError(ValueError):
    """The file is not a whole, undamaged container of the right kind; the message says what is wrong with it."""


class Artefact(NamedTuple, Generic[A]):
    """What a file holds; `read` gives its arrays, little-endian and in C order, and `describe` only their entries.

    Tuples in meta and remarks have become lists. Remarks are no part of the fingerprint.
    """

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, A]
    fingerprint: str
    library_version: str
    remarks: dict[str, Any]


class ArrayEntry(NamedTuple):
    """Where and what one array is: numpy's short name of its dtype, its shape, and its first byte."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        """The size of the array's data."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Container: TypeAlias = Artefact[NDArray[Any]]
Description: TypeAlias = Artefact[ArrayEntry]


def fingerprint(kind: str, meta: Mapping[str, JSON], arrays: Arrays) -> str:
    """Identify a content without writing it: what `write` returns for the same arguments."""
    layout = _layout(arrays)
    digest = _begin_fingerprint(kind, _plain(meta), layout)
    for name, entry in layout.items():
        for chunk in _chunks(arrays[name], entry.dtype):
            digest.update(chunk)
    return digest.hexdigest()


def write(
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, JSON],
    arrays: Arrays,
    remarks: Mapping[str, JSON] | None = None,
) -> str:
    """Write a container, whole or not at all, and return its fingerprint; anything but a container is not replaced.

    Arrays of booleans, numbers, dates or fixed-width strings are streamed, never copied. In meta and remarks, numpy
    scalars become Python numbers, and tuples lists. Remarks say nothing about what the artefact is, such as how long
    it took to make: two files that differ in their remarks only have the same fingerprint.
    """
    mark, layout = fingerprint(kind, meta, arrays), _layout(arrays)
    fields = {"format_version": FORMAT_VERSION, "library_version": __version__, "kind": kind, "fingerprint": mark}
    fields |= {"meta": _plain(meta), "remarks": _plain(remarks or {})}
    header = _canonical(fields | {"arrays": [{"name": name, **entry._asdict()} for name, entry in layout.items()]})
    if len(header) > MAX_HEADER_BYTES:
        most = f"it must be at most {MAX_HEADER_BYTES}: large values belong in arrays"
        raise ValueError(f"meta makes a header of {len(header)} bytes; {most}")
    check_replaceable(path)
    with files.replacing(path) as file:
        start = MAGIC + len(header).to_bytes(8, "little") + header
        position = file.write(start) + file.write(hashlib.sha256(start).digest())
        for name, entry in layout.items():
            position += file.write(bytes(_padding(position)))
            for chunk in _chunks(arrays[name], entry.dtype):
                position += file.write(chunk)
    return mark


def check_replaceable(path: str | os.PathLike[str], kind: str | None = None) -> None:
    """Refuse to write over anything but a container, of that kind if it is given and can be told, or an empty file."""

    def is_one(there: Path) -> bool:
        with open(there, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        try:
            return kind in (None, describe(there).kind)
        except FormatError:
            return True

    files.check_replaceable(path, kind or "file of gphash", is_one)


def read(
    path: str | os.PathLike[str], kind: str | None = None, *, mapped: bool = False, verified: bool = True
) -> Container:
    """Read a container, of that kind if it is given, and verify every byte; a FormatError says what is wrong.

    If `mapped`, arrays stay in the file, read-only, and come into memory as they are used; replacing the file leaves
    them as they are. If not `verified`, arrays are not compared with the fingerprint: for those that have checksums of
    their own, and of which little will be used.
    """
    shown = repr(os.fspath(path))
    with open(path, "rb") as file:
        header = _read_header(file, path)
        if kind is not None and header.kind != kind:
            raise FormatError(f"{shown} holds {header.kind!r}; it must hold {kind!r}")
        size, end = os.fstat(file.fileno()).st_size, file.tell()
        if header.arrays:
            last = list(header.arrays.values())[-1]
            end += _padding(end) + last.offset + last.n_bytes
        if size < end:
            raise FormatError(f"{shown} is truncated: it has {size} bytes of {end}")
        if size > end:
            raise FormatError(f"{shown} is damaged: {size - end} bytes follow its end")
        content = _begin_fingerprint(header.kind, header.meta, header.arrays)
        arrays: dict[str, NDArray[Any]] = {}
        for name, entry in header.arrays.items():
            if any(file.read(_padding(file.tell()))):
                raise FormatError(f"{shown} is damaged: what is between its arrays is not empty")
            begin = file.tell()
            if mapped and entry.n_bytes:
                arrays[name] = np.memmap(file, entry.dtype, "r", offset=begin, shape=entry.shape)
            else:
                arrays[name] = np.empty(entry.shape, dtype=entry.dtype)
                if file.readinto(_bytes(arrays[name])) != entry.n_bytes:
                    raise FormatError(f"{shown} is truncated: it became shorter while it was read")
            if verified:
                content.update(_bytes(arrays[name]))
            file.seek(begin + entry.n_bytes)
    if verified and content.hexdigest() != header.fingerprint:
        raise FormatError(f"{shown} is damaged: its content does not match its checksum")
    return Artefact(header.kind, header.meta, arrays, header.fingerprint, header.library_version, header.remarks)


def describe(path: str | os.PathLike[str]) -> Description:
    """Read and verify the header of a container only; a FormatError says what is wrong with it."""
    with open(path, "rb") as file:
        return _read_header(file, path)


def _is_storable(dtype: np.dtype[Any]) -> bool:
    # Neither objects nor records, nor long doubles, whose layout is the machine's own.
    longest = {"f": 8, "c": 16}.get(dtype.kind, math.inf)
    return dtype.kind in "biufcSUMm" and 0 < dtype.itemsize <= longest


def _layout(arrays: Arrays) -> dict[str, ArrayEntry]:
    """Entries of arrays, sorted by name; what raw bytes cannot hold is refused."""
    layout, offset = {}, 0
    for name, array in sorted(arrays.items()):
        given: object = array
        if not isinstance(given, np.ndarray) or isinstance(given, np.ma.MaskedArray):
            raise TypeError(f"arrays[{name!r}] is a {type(array).__name__}; it must be a plain numpy array")
        if not _is_storable(array.dtype):
            storable = "booleans, numbers of up to 8 bytes (complex: 16), dates or fixed-width strings"
            raise TypeError(f"arrays[{name!r}] has dtype {array.dtype}; it must be made of {storable}")
        layout[name] = ArrayEntry(array.dtype.newbyteorder("<").str, array.shape, offset)
        offset += array.nbytes + _padding(array.nbytes)
    return layout


def _padding(position: int) -> int:
    return -position % ALIGNMENT


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _chunks(array: NDArray[Any], dtype: str) -> Iterator[memoryview]:
    """Yield an array's little-endian bytes in C order; only a chunk at a time is ever copied."""
    flags = ["external_loop", "buffered", "zerosize_ok"]
    size = max(1, _CHUNK_BYTES // array.itemsize)
    with np.nditer(
        array, flags=flags, op_flags=[["readonly"]], op_dtypes=[dtype], order="C", casting="equiv", buffersize=size
    ) as chunks:  # type: ignore[call-overload]
        for chunk in chunks:
            yield _bytes(np.ascontiguousarray(chunk))


def _plain(meta: Mapping[str, JSON]) -> dict[str, Any]:
    """What reading the JSON of an object gives back."""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta is a {type(meta).__name__}; it must be a mapping")
    try:
        plain: dict[str, Any] = json.loads(_canonical(meta))
    except (TypeError, ValueError) as error:
        raise type(error)(f"meta must be made of what JSON can hold: {error}") from error
    return plain


def _canonical(value: object) -> bytes:
    def python(value: object) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"{value!r} is a {type(value).__name__}")

    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=python).encode()


def _begin_fingerprint(kind: str, meta: dict[str, Any], layout: Mapping[str, ArrayEntry]) -> "hashlib._Hash":
    if not kind or not isinstance(kind, str):
        raise ValueError(f"kind is {kind!r}; it must be a string that is not empty")
    described = [[name, entry.dtype, entry.shape] for name, entry in layout.items()]
    prologue = _canonical({"kind": kind, "meta": meta, "arrays": described})
    return hashlib.sha256(len(prologue).to_bytes(8, "little") + prologue)


def _read_header(file: BinaryIO, path: str | os.PathLike[str]) -> Description:
    """Read and verify everything before the arrays."""
    shown = repr(os.fspath(path))
    start = file.read(len(MAGIC) + 8)
    if not start.startswith(MAGIC[: len(start)]):
        raise FormatError(f"{shown} is not a gphash file")
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if length > MAX_HEADER_BYTES:
        raise FormatError(f"{shown} is damaged: its header claims {length} bytes, more than {MAX_HEADER_BYTES}")
    header, stored = file.read(length), file.read(_DIGEST_BYTES)
    if len(stored) < _DIGEST_BYTES:
        raise FormatError(f"{shown} is truncated: it ends within its header")
    if stored != hashlib.sha256(start + header).digest():
        raise FormatError(f"{shown} is damaged: its header does not match its checksum")
    try:
        fields = json.loads(header)
        version = fields["format_version"]
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"format_version {version!r}")
        if version < FORMAT_VERSION:
            older = f"{shown} is of an older gphash, format {version}"
            raise FormatError(f"{older}; make it again (docs/questions.md#another-version)")
        if version > FORMAT_VERSION:
            raise FormatError(f"{shown} has format {version}, which is newer than {FORMAT_VERSION}: use a newer gphash")
        return _parse(fields)
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"{shown} is damaged: its header makes no sense ({error!r})") from error


def _parse(fields: dict[str, Any]) -> Description:
    """Believe a header only as far as `write` could have written it."""
    entries: dict[str, ArrayEntry] = {}
    offset = 0
    for item in fields["arrays"]:
        entry = ArrayEntry(item["dtype"], tuple(item["shape"]), item["offset"])
        dtype = np.dtype(entry.dtype) if _DTYPE.fullmatch(entry.dtype) else None
        if dtype is None or not _is_storable(dtype) or dtype.newbyteorder("<").str != entry.dtype:
            raise ValueError(f"dtype {entry.dtype!r}")
        if len(entry.shape) > 32 or not all(type(side) is int and side >= 0 for side in entry.shape):
            raise ValueError(f"shape {entry.shape!r}")
        if math.prod(max(side, 1) for side in entry.shape) * dtype.itemsize > LARGEST_ARRAY:
            raise ValueError(f"shape {entry.shape!r}")
        if entry.offset != offset or item["name"] in entries:
            raise ValueError(f"place of array {item['name']!r}")
        entries[item["name"]] = entry
        offset += entry.n_bytes + _padding(entry.n_bytes)
    kind, mark, version = fields["kind"], fields["fingerprint"], fields["library_version"]
    if not all(isinstance(text, str) for text in (kind, mark, version, *entries)):
        raise ValueError("a field of the wrong type")
    return Artefact(kind, _plain(fields["meta"]), entries, mark, version, _plain(fields["remarks"]))
