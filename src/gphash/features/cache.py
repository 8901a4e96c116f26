r"""Descriptors kept on disk by content, so that the same pictures are described once.

The key is the SHA-256 of the algorithm's name, version and parameters and of every picture's shape, dtype and bytes:
whatever could change the result changes the name of the file.

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

import contextlib
import hashlib
import io
import json
import math
import os
import re
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x89GPHDSC\n"

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
    try:
        _write(path, mark, descriptors)
    except OSError as error:
        if path.parent not in _warned:
            _warned.add(path.parent)
            warnings.warn(
                f"folder={os.fspath(folder)!r} cannot keep descriptors ({error}); they will be computed every time",
                RuntimeWarning,
                stacklevel=2,
            )
    return descriptors


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
        array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
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
    temporary = path.with_name(f".gphash-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(MAGIC + mark + checksum.digest())
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
