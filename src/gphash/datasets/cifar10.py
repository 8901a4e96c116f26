"""CIFAR-10: 50,000 photographs to train with and 10,000 to test with, 32 × 32 pixels in colour, ten classes.

Six files of 10,000 records each: a byte that holds the class, then 1,024 bytes of red, of green and of blue, each row
by row. They are read from the official archive or, unpacked, from the folder ``cifar-10-batches-bin``.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gphash.datasets import archives, dataset, storage
from gphash.datasets.dataset import DataError, Dataset, Split
from gphash.datasets.progress import Progress

NAME = "CIFAR-10"
SOURCE = "A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVE = "cifar-10-binary.tar.gz"
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
# Of the archive at the official address; one that is packed otherwise is as good if its files are the same.
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_RECORDS = 10_000
RECORD_BYTES = 1 + 3 * 32 * 32
LIMITS = archives.Limits(total_bytes=200_000_000, members=20)


def load(
    data_dir: str | os.PathLike[str] | None = None, *, download: bool = True, progress: Progress | None = None
) -> Dataset:
    """Load CIFAR-10, and download it before if need be (170 MB).

    Parameters
    ----------
    data_dir
        The folder with the archive, or with the folder ``cifar-10-batches-bin``; if None, see `storage.data_dir`.
    download
        Whether to download what is missing.
    progress
        Called with the bytes done and in all.

    Returns
    -------
    dataset
        Images [n, 32, 32, 3]; X is None, as descriptors are another matter.

    Raises
    ------
    DataMissingError
        If the archive is missing and cannot be downloaded; it says what to do by hand.
    DataError
        If a file is truncated or altered; it is named.
    """
    folder = storage.data_dir(data_dir)
    unpacked = folder / FOLDER
    if all((unpacked / name).is_file() for name in MD5):
        contents = _from_folder(unpacked)
    else:
        file = storage.RemoteFile(ARCHIVE, (ADDRESS,), f"md5:{ARCHIVE_MD5}", LIMITS.total_bytes)
        storage.obtain(NAME, [file], folder, download=download, progress=progress)
        contents = _from_archive(folder / ARCHIVE)

    train, test = _empty(len(TRAIN)), _empty(len(TEST))
    digests: dict[str, str] = {}
    for name, label, content in contents:
        if len(content) != N_RECORDS * RECORD_BYTES:
            raise DataError(f"{label} has {len(content)} bytes; wanted are {N_RECORDS * RECORD_BYTES}")
        storage.verify(label, content, f"md5:{MD5[name]}")
        digests[name] = hashlib.sha256(content).hexdigest()
        split, number = (train, TRAIN.index(name)) if name in TRAIN else (test, 0)
        _place(content, split, number, label)
    return Dataset(NAME, train, test, CLASSES, "none yet: describe the images", dataset.checksum(digests), SOURCE)


def _from_folder(unpacked: Path) -> Iterator[tuple[str, str, bytes]]:
    """Name, label for messages, and content of every file wanted."""
    for name in MD5:
        path = unpacked / name
        if (size := path.stat().st_size) != N_RECORDS * RECORD_BYTES:
            raise DataError(f"{str(path)!r} has {size} bytes; wanted are {N_RECORDS * RECORD_BYTES}")
        yield name, repr(str(path)), path.read_bytes()


def _from_archive(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Likewise, one member in memory at a time."""
    wanted = {f"{FOLDER}/{name}": name for name in MD5}
    for member in archives.members(path, LIMITS):
        if (name := wanted.pop(member.name, None)) is not None:
            yield name, f"{member.name!r} in {str(path)!r}", member.read()
    if wanted:
        raise DataError(f"{str(path)!r} lacks {', '.join(sorted(wanted))}")


def _empty(n_files: int) -> Split:
    n_rows = n_files * N_RECORDS
    return Split(None, np.empty(n_rows, dtype=np.int64), np.empty((n_rows, 32, 32, 3), dtype=np.uint8))


def _place(content: bytes, split: Split, number: int, label: str) -> None:
    """Write the records of a file to where they belong: planes of colour become colours of pixels."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(N_RECORDS, RECORD_BYTES)
    if records[:, 0].max() >= len(CLASSES):
        raise DataError(f"{label} holds the class {records[:, 0].max()}; wanted are 0 to {len(CLASSES) - 1}")
    rows = slice(number * N_RECORDS, (number + 1) * N_RECORDS)
    split.y[rows] = records[:, 0]
    assert isinstance(split.images, np.ndarray)
    split.images[rows] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
