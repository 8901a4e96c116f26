"""What every loader returns, how data without a split are split, and the checksum that reports name data by.

The checksum of a data set is the SHA-256 of a list of its unpacked files, sorted by name, one line each as the command
``sha256sum`` prints them. Whether a file was read from an archive or from a folder makes no difference. Data without
files count their arrays as files: little-endian, C order.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.supervision.similarity import Pairs

if TYPE_CHECKING:
    from gphash.data.descriptors.descriptor import Descriptor

DataDir: TypeAlias = str | os.PathLike[str] | None
Images: TypeAlias = NDArray[np.uint8] | Sequence[Path]
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with what is done and with the total, both in bytes or both in files; None for a total that is not known."""


NO_COLUMNS: dict[str, list[Any]] = {}


class Split(NamedTuple):
    """Rows to train with, or rows to test with.

    X
        Raw features, float32 or of a shorter type, [n, d]; None until the images are described.
    y
        Class labels, int64 [n], numbers into the names of the classes; or 0/1 tags, uint8 [n, c], a column per name.
    images
        Pixels, uint8 [n, H, W, 3] in colour or [n, H, W] in grey; paths of pictures, [n]; or None if there are none.
    """

    X: NDArray[Any] | None
    y: NDArray[Any]
    images: Images | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)


class Skipped(NamedTuple):
    """A file that was left out, or a column of a table, and why."""

    path: Path
    reason: str


class Content(NamedTuple):
    """What a file, a folder or a data set holds, as in `sources.Source`; X is None if images are to be described."""

    X: NDArray[Any] | None = None
    y: NDArray[Any] | None = None
    classes: tuple[str, ...] = ()
    pairs: Pairs | None = None
    ids: Indices | None = None
    images: Images | None = None
    skipped: tuple[Skipped, ...] = ()
    checksum: str = ""
    columns: dict[str, list[Any]] = NO_COLUMNS


class Dataset(NamedTuple):
    """A data set, verified and split; no row is in both splits.

    name, features, source
        What to call it in results, what X is, and where the data come from, in words.
    classes
        The name of every class, or of every column of tags.
    checksum
        Hexadecimal SHA-256 over the unpacked content, see `checksum`.
    skipped
        Files that were left out because they are not pictures.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    features: str
    checksum: str
    source: str
    skipped: tuple[Skipped, ...] = ()


class KnownData(NamedTuple):
    """A data set that a name says all about; see `gphash.data.known.data_sets`.

    load
        From ``(data_dir, *, download, progress, **options)`` to the data set.
    state, is_there
        Where it comes from, for a user; and whether the data folder has its files, None for one without files.
    descriptor
        How a picture becomes a row like its own; None if its rows are not made of pictures.
    """

    load: Callable[..., Dataset]
    state: str
    is_there: Callable[[Path], bool] | None = None
    descriptor: "Descriptor | None" = None


def checksum(digests: Mapping[str, str]) -> str:
    """Identify a content by the hexadecimal SHA-256 of every file; names have forward slashes."""
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def file_digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def array_checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Identify arrays by their names and their bytes, little-endian, C order."""
    little = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    return checksum({name: hashlib.sha256(array.data).hexdigest() for name, array in little.items()})


def split_at_random(n_rows: int, n_test: int, seed: int) -> tuple[Indices, Indices]:
    """Row numbers to train with and to test with: all but the last, and the last `n_test`, of a permutation."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[: n_rows - n_test], order[n_rows - n_test :]


def split_by_class(y: NDArray[np.int64], n_test: int, seed: int) -> tuple[Indices, Indices]:
    """Row numbers to train with and to test with, in rising order, every class of y [n] in proportion.

    Every class keeps a row to train with, so n rows of c classes allow at most n − c to test with.
    """
    generator = np.random.default_rng(seed)
    _, numbers, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not 1 <= n_test <= len(y) - len(counts):
        raise ValueError(f"n_test={n_test}; {len(y)} rows of {len(counts)} classes allow 1 to {len(y) - len(counts)}.")
    # Largest remainders: whole shares first, and what is left goes where most was cut off.
    shares = n_test * counts / len(y)
    quotas = np.minimum(np.floor(shares).astype(np.int64), counts - 1)
    while quotas.sum() < n_test:
        quotas[np.argmax(np.where(quotas < counts - 1, shares - quotas, -np.inf))] += 1
    in_test = np.zeros(len(y), dtype=bool)
    for number, quota in enumerate(quotas):
        in_test[generator.permutation(np.flatnonzero(numbers == number))[:quota]] = True
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)
