"""Rows from files of arrays, ``.npy`` and ``.npz``; no file is ever unpickled.

A ``.npy`` file is X alone. It is mapped: rows stay there until they are read. A ``.npz`` file has ``X`` [n, d] or, to
be described, ``images`` uint8 [n, H, W] or [n, H, W, 3], or both; one of ``y`` [n], ``tags`` 0/1 [n, c], or ``pairs``
[p, 2] with ``similar`` [p]; and maybe ``classes``, the names of the labels 0, 1, … or of the tags, and ``ids`` [n].
X of float32, or of a type of at most two bytes, such as float16 and int8, keeps its type; all else becomes float32.
"""

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gphash import arrays as numbers
from gphash.arrays import Indices
from gphash.data.dataset import Content
from gphash.data.labels import check_form, decoded, numbered, tag_columns
from gphash.data.pictures import MIN_SIDE
from gphash.files import DataError
from gphash.supervision.similarity import Pairs

# An archive that grows so much, to so many bytes, is taken for one that is meant to fill the memory.
MOST_GROWTH = 100
MOST_GROWN = 1 << 28

# What reading a damaged array, or an archive of them, has been seen to raise.
DAMAGE = (
    *(ValueError, EOFError, LookupError, NotImplementedError, RuntimeError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)

_ARRAYS = ("X", "y", "tags", "pairs", "similar", "ids", "images", "classes")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def reading(path: Path, what: str, *damage: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong while a file is read becomes a DataError that names it."""
    expected: tuple[type[Exception], ...] = (OSError, *damage)
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{str(path)!r} is missing; put it back") from error
    except expected as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, and not an unpacker's
            raise DataError(f"{str(path)!r} cannot be read: {error}") from error
        raise DataError(f"{str(path)!r} is not a whole {what}: {error}") from error


def read_npy(path: Path) -> Content:
    """Features [n, d], or [d] for a single row."""
    found = map_npy(path, ".npy file of numbers")
    return Content(_features(found[None] if found.ndim == 1 else found, f"{str(path)!r}"))


def read_npz(path: Path) -> Content:
    """Arrays by their names, see the head of this module."""
    arrays = _load_arrays(path)
    of = {name: f"{name} of {str(path)!r}" for name in _ARRAYS}
    given = [name for name in ("y", "tags", "pairs") if name in arrays]
    if len(given) > 1:
        raise DataError(f"{str(path)!r} has {' and '.join(given)}; it may have one of y, tags and pairs")
    if "X" not in arrays and "images" not in arrays:
        has = ", ".join(map(repr, arrays)) or "no array"
        raise DataError(f"{str(path)!r} has {has}; it must have X [n, d], or images to describe")
    if "classes" in arrays and not {"y", "tags"} & set(given):
        raise DataError(f"{str(path)!r} has classes, but neither y nor tags that they would name")
    X = _features(arrays["X"], of["X"]) if "X" in arrays else None
    if (images := arrays.get("images")) is not None:
        coloured = images.ndim == 4 and images.shape[3] == 3
        sound = images.dtype == np.uint8 and (images.ndim == 3 or coloured) and 0 not in images.shape
        check_form(sound, images, of["images"], "uint8 [n, H, W] or [n, H, W, 3]")
        height, width = images.shape[1:3]
        if X is None and min(height, width) < MIN_SIDE:
            has = f"{of['images']} have {height} × {width} pixels"
            raise DataError(f"{has}; give at least {MIN_SIDE} on each side, or X")
    n_rows = len(arrays["images"] if X is None else X)
    for name in {"images", "ids", "tags", "y"} & set(arrays):
        if (shape := arrays[name].shape)[:1] != (n_rows,):
            raise DataError(f"{of[name]} has shape {shape}; it must have an entry for each of the {n_rows} rows")
    content = Content(X, images=images)
    if "ids" in arrays:
        content = content._replace(ids=distinct(arrays["ids"], of["ids"]))
    names = _names(arrays["classes"], of["classes"]) if "classes" in arrays else None
    if "tags" in arrays:
        return content._replace(**tag_columns(arrays["tags"], names, of["tags"])._asdict())
    if "y" in arrays:
        return content._replace(**numbered(arrays["y"], names, of["y"])._asdict())
    if "pairs" in arrays or "similar" in arrays:
        return content._replace(pairs=_pairs(arrays, n_rows, path))
    return content


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, ".npz archive of arrays without objects", *DAMAGE), zipfile.ZipFile(path) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if unknown := sorted(set(members) - set(_ARRAYS)):
            raise DataError(f"{str(path)!r} has the array {unknown[0]!r}; known are {', '.join(_ARRAYS)}")
        stored, n_bytes = path.stat().st_size, sum(one.file_size for one in members.values())
        if n_bytes > max(MOST_GROWN, MOST_GROWTH * stored):
            raise DataError(
                f"{str(path)!r} has {stored:,} bytes and {n_bytes:,} unpacked, which looks like a trap; if it is "
                "not, write it with numpy.savez, which does not compress"
            )
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as file:
                arrays[name] = _read_array(file, member.file_size)
        return arrays


def load_npy(path: Path, what: str) -> NDArray[Any]:
    """The array of a .npy file, which an error calls `what`."""
    with reading(path, what, *DAMAGE), open(path, "rb") as file:
        return _read_array(file, path.stat().st_size)


def map_npy(path: Path, what: str) -> NDArray[Any]:
    """The same, mapped, not to be written to; read if it is empty or of a kind that cannot be mapped."""
    with reading(path, what, *DAMAGE), open(path, "rb") as file:
        shape, is_fortran, dtype = read_header(file, path.stat().st_size)
        if not math.prod(shape) or dtype.hasobject:
            file.seek(0)
            return _read_array(file, path.stat().st_size)
        order: Literal["C", "F"] = "F" if is_fortran else "C"
        return np.memmap(file, dtype, "r", file.tell(), shape, order)


def _read_array(file: IO[bytes], n_bytes: int) -> NDArray[Any]:
    """The array of a .npy file of so many bytes; memory is asked for only if the file can fill it."""
    read_header(file, n_bytes)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_header(file: IO[bytes], n_bytes: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type of the array in a .npy file of so many bytes."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > n_bytes - file.tell():
        raise ValueError(f"{dtype} of shape {shape} does not fit into its {n_bytes:,} bytes")
    return shape, is_fortran, dtype


def _features(given: NDArray[Any], label: str) -> NDArray[Any]:
    sound = given.ndim == 2 and 0 not in given.shape and given.dtype.kind in "buif"
    check_form(sound, given, label, "numbers [n, d], n and d not 0")
    X: NDArray[Any] = given
    if not given.dtype.isnative or not (given.dtype == np.float32 or numbers.is_short(given.dtype)):
        with np.errstate(over="ignore"):
            X = np.ascontiguousarray(given, dtype=np.float32)
    for start in range(0, len(X), rows := max(1, numbers.TILE // X.shape[1])):
        place = partial(lambda first, row, column: f"{label}, row {first + row}, column {column}", start)
        check_finite(X[start : start + rows], place)
    return X


def check_finite(X: NDArray[Any], place: Callable[[int, int], str]) -> None:
    """Refuse numbers that are none; `place` names one by its row and column."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = divmod(int(finite.argmin()), X.shape[1])
        what = "NaN" if np.isnan(X[row, column]) else "infinite, or too large for 32 bits"
        raise DataError(f"{place(row, column)}: {what}; give finite numbers")


def distinct(given: NDArray[Any], label: str) -> Indices:
    """Numbers of rows, each once."""
    check_form(given.ndim == 1 and given.dtype.kind in "iu", given, label, "whole numbers [n]")
    if given.dtype.kind == "u" and given.max() > np.iinfo(np.int64).max:
        raise DataError(f"{label} has {given.max()}; it must fit in 64 bits with a sign")
    check_distinct(given, label)
    return given.astype(np.int64)


def check_distinct(given: NDArray[Any], label: str) -> None:
    """Refuse numbers or words that occur twice."""
    values, counts = np.unique(given, return_counts=True)
    if len(values) < len(given):
        worst = counts.argmax()
        raise DataError(f"{label}: {values[worst]} occurs {counts[worst]} times; give every id once")


def _pairs(arrays: dict[str, NDArray[Any]], n_rows: int, path: Path) -> Pairs:
    for name in ("pairs", "similar"):
        if name not in arrays:
            raise DataError(f"{str(path)!r} lacks {name}; give pairs [p, 2] and similar [p] together")
    pairs, similar = arrays["pairs"], arrays["similar"]
    sound = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
    check_form(sound, pairs, f"pairs of {str(path)!r}", "row numbers [p, 2]")
    outside = (pairs < 0) | (pairs >= n_rows)
    if outside.any():
        raise DataError(f"pairs of {str(path)!r} names row {pairs[outside][0]}; there are rows 0 to {n_rows - 1}")
    signs = similar.dtype == bool or (similar.dtype.kind in "iuf" and np.isin(similar, (-1, 1)).all())
    needed = f"+1 or True (alike), -1 or False (unlike) for each of the {len(pairs)} pairs"
    check_form(similar.shape == pairs.shape[:1] and bool(signs), similar, f"similar of {str(path)!r}", needed)
    return Pairs(pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), similar)


def _names(given: NDArray[Any], label: str) -> tuple[str, ...]:
    words = decoded(given, label)
    check_form(words.ndim == 1 and words.dtype.kind in "Uiu", given, label, "names [c]")
    names = tuple(map(str, words.tolist()))
    if len(set(names)) < len(names):
        raise DataError(f"{label} names a class twice; name each once")
    return names
