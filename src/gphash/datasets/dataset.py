"""What every loader returns, and the checksum by which reports name the data they were made from.

The checksum of a data set is the SHA-256 of a list of its unpacked files, sorted by name, one line each as the command
``sha256sum`` prints them. Whether a file was read from an archive or from a folder makes no difference. Data without
files count their arrays as files: little-endian, C order.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Images: TypeAlias = NDArray[np.uint8] | Sequence[Path]


class DataError(ValueError):
    """A file is there, but truncated, altered, unsafe or not what it should be; the message names it."""


class Split(NamedTuple):
    """Rows to train with, or rows to test with.

    X
        Raw features, float32 [n, d]; None until the images are described.
    y
        Class labels, int64 [n], numbers into the names of the classes; or 0/1 tags, uint8 [n, c], a column per name.
    images
        Pixels, uint8 [n, H, W, 3] in colour or [n, H, W] in grey; paths of pictures, [n]; or None if there are none.
    """

    X: NDArray[np.float32] | None
    y: NDArray[Any]
    images: Images | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)


class Skipped(NamedTuple):
    """A file that was left out.

    path
        Which one.
    reason
        Why.
    """

    path: Path
    reason: str


class Dataset(NamedTuple):
    """A data set, verified and split.

    name
        How results on it are to be called.
    train, test
        The two splits; no row is in both.
    classes
        The name of every class, or of every column of tags.
    features
        What X is, in words.
    checksum
        Hexadecimal SHA-256 over the unpacked content, see `checksum`.
    source
        Where the data come from, in words or as an address.
    skipped
        Files that were left out as they hold no picture; empty for the fixed data sets.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    features: str
    checksum: str
    source: str
    skipped: tuple[Skipped, ...] = ()


def checksum(digests: Mapping[str, str]) -> str:
    """Identify a content.

    Parameters
    ----------
    digests
        Hexadecimal SHA-256 of every file by its name; names have forward slashes.

    Returns
    -------
    checksum
        Hexadecimal SHA-256 of the list.
    """
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def array_checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Identify arrays by their names and their bytes, little-endian, C order."""
    digests = {}
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digests[name] = hashlib.sha256(little.data).hexdigest()
    return checksum(digests)
