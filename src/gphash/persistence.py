r"""One container file for every artefact: a JSON header and raw arrays, free of pickle.

====================  ==============================================================================
bytes                 content
====================  ==============================================================================
8                     magic ``\x89GPHASH\n``
8                     length of the header, unsigned, little-endian
that many             header: JSON (below)
32                    SHA-256 of everything so far, so that the header alone can be trusted
0 to 63               zeros up to a multiple of 64, where the data section begins
                      arrays in the order of their names: C order, little-endian, each at a multiple
                      of 64 bytes, zeros between them
32                    SHA-256 of everything so far
====================  ==============================================================================

The header holds ``format_version``, ``library_version``, ``kind`` (what artefact this is), ``meta`` (any JSON object),
``fingerprint`` and ``arrays``: the ``name``, ``dtype``, ``shape`` and ``offset`` (from the beginning of the data
section) of each. A later format may change everything but the first four rows of the table.

The fingerprint identifies the content: SHA-256 over kind, meta and the arrays' names, dtypes, shapes and bytes. Neither
the version of the library nor the order in which mappings were filled enters it.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.version import __version__

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT_VERSION = 2
MAGIC = b"\x89GPHASH\n"
ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 22

_DIGEST_BYTES = hashlib.sha256().digest_size
_CHUNK_BYTES = 1 << 20
_DTYPE = re.compile(r"[<|][biufcSUMm][0-9]{1,9}(\[[0-9A-Za-z]{1,20}\])?")


class FormatError(ValueError):
    """The file is not a whole, undamaged container of the kind wanted; the message says what is wrong with it."""


class Container(NamedTuple):
    """What a file holds.

    kind
        What artefact this is.
    meta
        The JSON object given to `write`; tuples have become lists.
    arrays
        Every array by its name; little-endian, C order, writable.
    fingerprint
        Hexadecimal SHA-256 of the content.
    library_version
        The version of gphash that wrote the file.
    remarks
        The remarks given to `write`, which are no part of the fingerprint.
    """

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    fingerprint: str
    library_version: str
    remarks: dict[str, Any]


class ArrayEntry(NamedTuple):
    """Where and what one array is.

    dtype
        numpy's short name of the little-endian dtype, such as ``<f4``.
    shape
        Its shape.
    offset
        Its first byte, counted from the beginning of the data section.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def n_bytes(self) -> int:
        """The size of the array's data."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Description(NamedTuple):
    """What the header of a file tells; see `Container` for the fields both share.

    arrays
        The entry of every array by its name.
    format_version
        The version of the container's format.
    """

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, ArrayEntry]
    fingerprint: str
    library_version: str
    remarks: dict[str, Any]
    format_version: int


def fingerprint(kind: str, meta: Mapping[str, JSON], arrays: Arrays) -> str:
    """Identify a content without writing it.

    Parameters
    ----------
    kind
        What artefact this is.
    meta
        Any JSON object; numpy scalars count as the Python numbers they hold.
    arrays
        Arrays of booleans, numbers, dates or fixed-width strings by their names.

    Returns
    -------
    fingerprint
        Hexadecimal SHA-256, the same that `write` returns for the same arguments.
    """
    _check_kind(kind)
    checked = _checked_arrays(arrays)
    return _fingerprint(kind, _plain_object(meta), checked, _layout(checked))


def write(
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, JSON],
    arrays: Arrays,
    remarks: Mapping[str, JSON] | None = None,
) -> str:
    """Write a container, whole or not at all.

    The file is written beside its destination and moved over it when it is safely on disk: after a failure or an
    interruption the destination is what it was before, and nothing else is left. The arrays are streamed, never copied.

    Parameters
    ----------
    path
        Destination; a container is replaced, and anything else refused.
    kind
        What artefact this is, for `read` to compare.
    meta
        Any JSON object; numpy scalars become Python numbers, tuples lists.
    arrays
        Arrays of booleans, numbers, dates or fixed-width strings by their names.
    remarks
        Any JSON object that says nothing about what the artefact is, such as how long it took to make: it is kept,
        but two files that differ in their remarks only have the same fingerprint.

    Returns
    -------
    fingerprint
        Hexadecimal SHA-256 of the content.
    """
    _check_kind(kind)
    checked = _checked_arrays(arrays)
    plain = _plain_object(meta)
    layout = _layout(checked)
    mark = _fingerprint(kind, plain, checked, layout)
    header = _canonical(
        {
            "format_version": FORMAT_VERSION,
            "library_version": __version__,
            "kind": kind,
            "fingerprint": mark,
            "meta": plain,
            "remarks": _plain_object(remarks or {}),
            "arrays": [{"name": name, **entry._asdict()} for name, entry in layout.items()],
        }
    )
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(
            f"meta makes a header of {len(header)} bytes; wanted are at most {MAX_HEADER_BYTES}, "
            "large values belong in arrays"
        )

    check_replaceable(path)
    with files.replacing(path) as file:
        _write_stream(file, header, checked, layout)
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


def read(path: str | os.PathLike[str], kind: str | None = None, *, mapped: bool = False) -> Container:
    """Read a container and verify every byte of it.

    Parameters
    ----------
    path
        A file that `write` has written.
    kind
        The kind wanted; any if None.
    mapped
        Whether arrays stay in the file, read-only, and come into memory as they are used; replacing the file leaves
        them as they are.

    Returns
    -------
    container
        Its content.

    Raises
    ------
    FormatError
        If the file is foreign, truncated, damaged, of another kind or of a newer format.
    """
    with open(path, "rb") as file:
        description, digest = _read_header(file, path)
        if kind is not None and description.kind != kind:
            raise FormatError(f"{os.fspath(path)!r} holds {description.kind!r}; wanted is {kind!r}")
        end = file.tell() + _padding(file.tell()) + _data_bytes(description.arrays)
        _check_size(file, end + _DIGEST_BYTES, path)

        content = _begin_fingerprint(description.kind, description.meta, description.arrays)
        arrays: dict[str, NDArray[Any]] = {}
        array: NDArray[Any]
        for name, entry in description.arrays.items():
            digest.update(file.read(_padding(file.tell())))
            try:
                if mapped and entry.n_bytes:
                    begin = file.tell()
                    array = np.memmap(file, entry.dtype, "r", offset=begin, shape=entry.shape)
                    file.seek(begin)  # mapping has moved to the end
                else:
                    array = np.empty(entry.shape, dtype=entry.dtype)
                arrays[name] = array
            except (ValueError, OverflowError) as error:
                raise FormatError(f"{os.fspath(path)!r} is damaged: array {name!r}: {error}") from error
            view = array.reshape(-1).view(np.uint8).data
            for start in range(0, len(view), _CHUNK_BYTES):
                chunk = view[start : start + _CHUNK_BYTES]
                if mapped:
                    file.seek(len(chunk), os.SEEK_CUR)
                elif file.readinto(chunk) != len(chunk):
                    raise FormatError(f"{os.fspath(path)!r} is truncated: it became shorter while it was read")
                digest.update(chunk)
                content.update(chunk)
        digest.update(file.read(end - file.tell()))
        if file.read(_DIGEST_BYTES) != digest.digest():
            raise FormatError(f"{os.fspath(path)!r} is damaged: its content does not match its checksum")
    if content.hexdigest() != description.fingerprint:
        raise FormatError(f"{os.fspath(path)!r} is damaged: its content does not match its fingerprint")
    return Container(
        description.kind,
        description.meta,
        arrays,
        description.fingerprint,
        description.library_version,
        description.remarks,
    )


def describe(path: str | os.PathLike[str]) -> Description:
    """Read the header of a container only; its arrays are neither read nor verified.

    Parameters
    ----------
    path
        A file that `write` has written.

    Returns
    -------
    description
        What the header tells.

    Raises
    ------
    FormatError
        If the file is foreign or of a newer format, or its header truncated or damaged.
    """
    with open(path, "rb") as file:
        return _read_header(file, path)[0]


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"kind is {kind!r}; wanted is a non-empty string")


def _checked_arrays(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Sort the arrays by name; refuse what raw bytes cannot hold."""
    given: Mapping[Any, Any] = arrays
    for name, array in given.items():
        if not isinstance(name, str):
            raise TypeError(f"arrays has the name {name!r}; wanted are strings")
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"arrays[{name!r}] is a {type(array).__name__}; wanted is a plain numpy array")
        if not _is_storable(array.dtype):
            raise TypeError(
                f"arrays[{name!r}] has dtype {array.dtype}; wanted are booleans, numbers of up to 8 bytes "
                "(complex: 16), dates or fixed-width strings"
            )
    return {name: np.asarray(arrays[name]) for name in sorted(arrays)}


def _is_storable(dtype: np.dtype[Any]) -> bool:
    # Neither objects nor records, nor long doubles, whose layout is the machine's own.
    longest = {"f": 8, "c": 16}.get(dtype.kind, math.inf)
    return dtype.kind in "biufcSUMm" and 0 < dtype.itemsize <= longest


def _layout(arrays: Arrays) -> dict[str, ArrayEntry]:
    layout = {}
    offset = 0
    for name, array in arrays.items():
        layout[name] = ArrayEntry(array.dtype.newbyteorder("<").str, array.shape, offset)
        offset += array.nbytes + _padding(array.nbytes)
    return layout


def _padding(position: int) -> int:
    return -position % ALIGNMENT


def _data_bytes(layout: Mapping[str, ArrayEntry]) -> int:
    return max((entry.offset + entry.n_bytes for entry in layout.values()), default=0)


def _plain_object(meta: Mapping[str, JSON]) -> dict[str, Any]:
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta is a {type(meta).__name__}; wanted is a mapping")
    plain: dict[str, Any] = _plain(meta, "meta")
    return plain


def _plain(value: object, place: str) -> Any:
    """Turn a value into what reading its JSON gives back."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}; wanted are finite numbers, as JSON has no others")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}; wanted are strings")
        return {key: _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{place} is a {type(value).__name__}; wanted is what JSON can hold")


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _chunks(array: NDArray[Any], dtype: str) -> Iterator[memoryview]:
    """Yield an array's little-endian bytes in C order; only a chunk at a time is ever copied."""
    flags = ["external_loop", "buffered", "zerosize_ok"]
    size = max(1, _CHUNK_BYTES // array.itemsize)
    with np.nditer(
        array, flags=flags, op_flags=[["readonly"]], op_dtypes=[dtype], order="C", casting="equiv", buffersize=size
    ) as chunks:  # type: ignore[call-overload]
        for chunk in chunks:
            yield np.ascontiguousarray(chunk).view(np.uint8).data


def _begin_fingerprint(kind: str, meta: dict[str, Any], layout: Mapping[str, ArrayEntry]) -> "hashlib._Hash":
    described = [[name, entry.dtype, entry.shape] for name, entry in layout.items()]
    prologue = _canonical({"kind": kind, "meta": meta, "arrays": described})
    return hashlib.sha256(len(prologue).to_bytes(8, "little") + prologue)


def _fingerprint(kind: str, meta: dict[str, Any], arrays: Arrays, layout: Mapping[str, ArrayEntry]) -> str:
    digest = _begin_fingerprint(kind, meta, layout)
    for name, array in arrays.items():
        for chunk in _chunks(array, layout[name].dtype):
            digest.update(chunk)
    return digest.hexdigest()


def _write_stream(file: BinaryIO, header: bytes, arrays: Arrays, layout: Mapping[str, ArrayEntry]) -> None:
    digest = hashlib.sha256()
    position = 0

    def put(data: bytes | memoryview) -> None:
        nonlocal position
        digest.update(data)
        position += file.write(data)

    put(MAGIC + len(header).to_bytes(8, "little") + header)
    put(digest.digest())
    for name, array in arrays.items():
        put(bytes(_padding(position)))
        for chunk in _chunks(array, layout[name].dtype):
            put(chunk)
    # Without arrays the data section is empty, but its beginning is aligned all the same.
    if not arrays:
        put(bytes(_padding(position)))
    file.write(digest.digest())


def _check_size(file: BinaryIO, wanted: int, path: str | os.PathLike[str]) -> None:
    size = os.fstat(file.fileno()).st_size
    if size < wanted:
        raise FormatError(f"{os.fspath(path)!r} is truncated: it has {size} bytes of {wanted}")
    if size > wanted:
        raise FormatError(f"{os.fspath(path)!r} is damaged: {size - wanted} bytes follow its end")


def _read_header(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[Description, "hashlib._Hash"]:
    """Read and verify everything before the data section; the hash goes on with the bytes that follow."""
    name = repr(os.fspath(path))
    magic = file.read(len(MAGIC))
    if not MAGIC.startswith(magic):
        raise FormatError(f"{name} is not a gphash file")
    length_field = file.read(8)
    length = int.from_bytes(length_field, "little")
    if len(length_field) < 8:
        raise FormatError(f"{name} is truncated: it ends within its header")
    if length > MAX_HEADER_BYTES:
        raise FormatError(f"{name} is damaged: its header claims {length} bytes, more than {MAX_HEADER_BYTES}")
    if os.fstat(file.fileno()).st_size < file.tell() + length + _DIGEST_BYTES:
        raise FormatError(f"{name} is truncated: it ends within its header")
    header = file.read(length)
    stored = file.read(_DIGEST_BYTES)
    digest = hashlib.sha256(magic + length_field + header)
    if stored != digest.digest():
        raise FormatError(f"{name} is damaged: its header does not match its checksum")
    digest.update(stored)
    try:
        fields = json.loads(header)
        version = fields["format_version"]
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"format_version {version!r}")
        if version < FORMAT_VERSION:
            raise FormatError(f"{name} is of an older gphash, format {version}; make it again with this version")
        if version > FORMAT_VERSION:
            raise FormatError(
                f"{name} has format {version}, which is newer than format {FORMAT_VERSION} of gphash {__version__}: "
                "a newer gphash reads it"
            )
        return _parse(fields), digest
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"{name} is damaged: its header makes no sense ({error!r})") from error


def _parse(fields: dict[str, Any]) -> Description:
    """Believe a header only as far as `write` could have written it."""
    entries: dict[str, ArrayEntry] = {}
    offset = 0
    for item in fields["arrays"]:
        entry = ArrayEntry(item["dtype"], tuple(item["shape"]), item["offset"])
        if not _DTYPE.fullmatch(entry.dtype):
            raise ValueError(f"dtype {entry.dtype!r}")
        dtype = np.dtype(entry.dtype)
        if not _is_storable(dtype) or dtype.newbyteorder("<").str != entry.dtype:
            raise ValueError(f"dtype {entry.dtype!r}")
        if not all(type(length) is int and length >= 0 for length in entry.shape):
            raise ValueError(f"shape {entry.shape!r}")
        if entry.offset != offset or item["name"] in entries:
            raise ValueError(f"place of array {item['name']!r}")
        entries[item["name"]] = entry
        offset += entry.n_bytes + _padding(entry.n_bytes)
    texts = [fields["kind"], fields["fingerprint"], fields["library_version"], *entries]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(fields[name], dict) for name in ("meta", "remarks")
    ):
        raise ValueError("a field of the wrong type")
    return Description(
        kind=fields["kind"],
        meta=_plain_object(fields["meta"]),
        arrays=entries,
        fingerprint=fields["fingerprint"],
        library_version=fields["library_version"],
        remarks=_plain_object(fields["remarks"]),
        format_version=fields["format_version"],
    )
