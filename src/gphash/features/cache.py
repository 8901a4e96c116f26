r"""Descriptors kept on disk by content, so that the same pictures are described once.

`cached` keeps a set of pictures as a whole, `cached_rows` picture by picture, pages of them in a file. The key is the
SHA-256 of the algorithm's name, version and parameters and, of a set, of every picture's shape, dtype and bytes:
whatever could change the result changes the name of the file. In a page each row has its picture's SHA-256 beside it.

==============  ====================================================================================
bytes           content
==============  ====================================================================================
8               magic ``\x89GPHDSC\n``
32              the key, so that a renamed file is found out
32              SHA-256 of the key and everything that follows
the rest        the array in numpy's npy format, without pickle
==============  ====================================================================================

A cache is a convenience: a file that is damaged or not ours is computed anew and replaced, and where nothing can be
written the result is handed back all the same, with one warning for each folder.
"""

import hashlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import files

MAGIC = b"\x89GPHDSC\n"

PAGE_ROWS = 1024

_DIGEST_BYTES = hashlib.sha256().digest_size
_CHUNK_BYTES = 1 << 24

Images = TypeVar("Images", bound=NDArray[Any] | Sequence[NDArray[Any]])

_warned: set[Path] = set()


def cached(
    compute: Callable[[Images], NDArray[Any]],
    images: Images,
    name: str,
    version: int,
    parameters: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
) -> NDArray[Any]:
    """Descriptors from the cache if they are there, else computed and kept.

    Parameters
    ----------
    compute
        From the images to their descriptors, [n, …]; called only if the cache does not have them.
    images
        One array of images of one size, or a sequence of images of any sizes.
    name
        Of the algorithm: lower-case letters, digits, ``_`` and ``-``. It begins the file's name.
    version
        Of the algorithm; raised whenever the same images would get other descriptors.
    parameters
        Everything else that decides the descriptors: strings, numbers, arrays, and lists and mappings of them.
    folder
        Where files are kept, made if need be; None computes without keeping.

    Returns
    -------
    descriptors
        What `compute` returns for the images.
    """
    if folder is None:
        return _computed(compute, images)
    mark = key(images, name, version, parameters)
    path = Path(folder).expanduser() / f"{name}-{mark.hex()}.descriptors"
    kept = _read(path, mark)
    if kept is not None and kept.shape[:1] == (len(images),):
        return kept
    descriptors = _computed(compute, images)
    _keep(path, mark, descriptors)
    return descriptors


def cached_rows(
    compute: Callable[[Sequence[int]], tuple[Sequence[int], NDArray[np.float32]]],
    digests: Sequence[bytes],
    name: str,
    version: int,
    parameters: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
) -> tuple[list[int], NDArray[np.float32]]:
    """Descriptors kept picture by picture: of a set that has grown only the new pictures are described.

    They are written in pages of up to 1,024 rows as they are computed, so that an interrupted run loses one page.

    Parameters
    ----------
    compute
        From numbers of pictures to those that can be described, a part of them in the same order, and their
        descriptors; called for a page of pictures at a time, and only for those that the cache does not have.
    digests
        SHA-256 of each picture.
    name, version, parameters, folder
        As for `cached`.

    Returns
    -------
    numbers
        The pictures that have a descriptor, in order.
    descriptors
        A row for each of them, float32 [k, d].
    """
    mark = key(np.empty(0), name, version, {"rows": parameters})
    wanted = set(digests)
    found: dict[bytes, NDArray[np.float32]] = {}
    place = None if folder is None else Path(folder).expanduser()
    if place is not None:
        _collect_pages(place, f"{name}-{mark.hex()[:32]}-", mark, wanted, found)
    # One number for each digest: equal pictures are described once.
    missing = sorted({digest: number for number, digest in enumerate(digests) if digest not in found}.values())
    for start in range(0, len(missing), PAGE_ROWS):
        numbers, descriptors = compute(missing[start : start + PAGE_ROWS])
        if not len(numbers):
            continue
        page = np.empty(len(numbers), dtype=[("digest", "V32"), ("row", "<f4", descriptors.shape[1:])])
        page["digest"] = np.array([digests[number] for number in numbers], dtype="V32")
        page["row"] = descriptors
        if place is not None:
            tail = hashlib.sha256(page["digest"].tobytes()).hexdigest()[:32]
            _keep(place / f"{name}-{mark.hex()[:32]}-{tail}.rows", mark, page)
        found.update({digests[number]: row for number, row in zip(numbers, page["row"], strict=True)})
    kept = [number for number, digest in enumerate(digests) if digest in found]
    if not kept:
        return kept, np.empty((0, 0), dtype=np.float32)
    return kept, np.stack([found[digests[number]] for number in kept])


def _collect_pages(
    folder: Path, prefix: str, mark: bytes, wanted: set[bytes], found: dict[bytes, NDArray[np.float32]]
) -> None:
    """Take the rows that are wanted from every page of the folder, one page in memory at a time."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.startswith(prefix) and path.suffix == ".rows")
    except OSError:
        return
    for path in paths:
        page = _read(path, mark)
        if page is None or page.ndim != 1 or page.dtype.names != ("digest", "row"):
            continue
        for digest, row in zip(page["digest"], page["row"], strict=True):
            if (digest := digest.tobytes()) in wanted:
                found[digest] = np.array(row, dtype=np.float32)


def _keep(path: Path, mark: bytes, array: NDArray[Any]) -> None:
    try:
        _write(path, mark, array)
    except OSError as error:
        if path.parent not in _warned:
            _warned.add(path.parent)
            warnings.warn(
                f"folder={str(path.parent)!r} cannot keep descriptors ({error}); they will be computed every time",
                RuntimeWarning,
                stacklevel=3,
            )


def key(images: NDArray[Any] | Sequence[NDArray[Any]], name: str, version: int, parameters: Mapping[str, Any]) -> bytes:
    """SHA-256 that identifies descriptors before they are computed; arguments as those of `cached`."""
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ValueError(f"name={name!r}; give lower-case letters, digits, '_' and '-'.")
    digest = hashlib.sha256()
    stacked = isinstance(images, np.ndarray)
    made_of = {"name": name, "version": version, "parameters": parameters, "images": None if stacked else len(images)}
    _feed(digest, json.dumps(_plain(made_of, "cached"), sort_keys=True).encode())
    for number, part in enumerate([images] if stacked else images):
        _feed_array(digest, np.asarray(part), "images" if stacked else f"images[{number}]")
    return digest.digest()


def _computed(compute: Callable[[Images], NDArray[Any]], images: Images) -> NDArray[Any]:
    descriptors = np.asarray(compute(images))
    if descriptors.dtype.hasobject or descriptors.shape[:1] != (len(images),):
        raise ValueError(
            f"compute has returned {descriptors.dtype} of shape {descriptors.shape} for {len(images)} images; "
            "wanted is a row of numbers for each"
        )
    return descriptors


def _feed(digest: "hashlib._Hash", data: bytes) -> None:
    # With its length: no two different sequences of parts look the same.
    digest.update(len(data).to_bytes(8, "little") + data)


def _feed_array(digest: "hashlib._Hash", array: NDArray[Any], place: str) -> None:
    if array.dtype.kind not in "biufcSU":
        raise TypeError(f"{place} has dtype {array.dtype}; wanted are numbers")
    little = array.dtype.newbyteorder("<")
    _feed(digest, json.dumps([little.str, array.shape]).encode())
    rows = np.atleast_1d(array)
    step = max(1, _CHUNK_BYTES // max(1, array.itemsize * math.prod(rows.shape[1:])))
    for start in range(0, len(rows), step):
        digest.update(np.ascontiguousarray(rows[start : start + step], dtype=little).reshape(-1).view(np.uint8).data)


def _plain(value: Any, place: str) -> Any:
    """What JSON can hold, arrays by their checksum."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256()
        _feed_array(digest, value, place)
        return {"array": digest.hexdigest()}
    if isinstance(value, Mapping):
        for word in value:
            if not isinstance(word, str):
                raise TypeError(f"{place} has the key {word!r}; wanted are strings")
        return {"mapping": {word: _plain(item, f"{place}[{word!r}]") for word, item in value.items()}}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{number}]") for number, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{place} is a {type(value).__name__}; wanted are strings, numbers, arrays, lists and mappings")


def _read(path: Path, mark: bytes) -> NDArray[Any] | None:
    """The array of a whole, undamaged file with this key; None for anything else."""
    try:
        # Not whatever else may have that name: opening a pipe would wait for ever.
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            head = file.read(len(MAGIC) + 2 * _DIGEST_BYTES)
            if not head.startswith(MAGIC + mark):
                return None
            content = file.read()
        if hashlib.sha256(mark + content).digest() != head[-_DIGEST_BYTES:]:
            return None
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError):
        return None
    return array


def _write(path: Path, mark: bytes, array: NDArray[Any]) -> None:
    """Write the file beside its destination and move it there when it is safely on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    checksum = hashlib.sha256(mark)
    checksum.update(content.getbuffer())
    with files.replacing(path) as file:
        file.write(MAGIC + mark + checksum.digest())
        file.write(content.getbuffer())
