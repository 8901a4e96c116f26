"""MNIST: 60,000 handwritten digits to train with and 10,000 to test with, 28 × 28 grey pixels.

Four files in the IDX format, ``.gz`` or unpacked: two zero bytes, the type of the values (8: unsigned bytes), the
number of dimensions, each dimension as a big-endian 32-bit number, then the values in C order.
"""

import hashlib
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.datasets import archives, dataset, storage
from gphash.datasets.dataset import DataError, Dataset, Split
from gphash.datasets.progress import Progress

NAME = "MNIST"
SOURCE = "Y. LeCun, C. Cortes and C. Burges, the MNIST database of handwritten digits"
# The original page asks not to be read by programs; these two hold the same files.
ADDRESSES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MAX_BYTES = 16 + 60_000 * 28 * 28

# Of the unpacked files.
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
# Of the files as the addresses have them.
PACKED_MD5 = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}


def load(
    data_dir: str | os.PathLike[str] | None = None, *, download: bool = True, progress: Progress | None = None
) -> Dataset:
    """Load MNIST, and download it before if need be (12 MB).

    Parameters
    ----------
    data_dir
        The folder with the four files, ``.gz`` or unpacked; if None, see `storage.data_dir`.
    download
        Whether to download what is missing.
    progress
        Called with the bytes done and in all, file by file.

    Returns
    -------
    dataset
        X are the pixels divided by 255, [n, 784]; images [n, 28, 28].

    Raises
    ------
    DataMissingError
        If files are missing and cannot be downloaded; it says what to do by hand.
    DataError
        If a file is truncated or altered; it is named.
    """
    folder = storage.data_dir(data_dir)
    missing = [_remote_file(name) for name in (*TRAIN, *TEST) if not (folder / name).is_file()]
    storage.obtain(NAME, missing, folder, download=download, progress=progress)
    digests: dict[str, str] = {}
    train, test = _split(folder, *TRAIN, digests), _split(folder, *TEST, digests)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset(NAME, train, test, classes, "784 pixels / 255", dataset.checksum(digests), SOURCE)


def read_idx(content: bytes, label: str) -> NDArray[np.uint8]:
    """The array in a file of the IDX format; `label` names the file in errors."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{label} is not in the IDX format of unsigned bytes")
    n_dimensions = content[3]
    start = 4 + 4 * n_dimensions
    if len(content) < start:
        raise DataError(f"{label} is truncated: it ends within its header")
    shape: tuple[int, ...] = struct.unpack(f">{n_dimensions}I", content[4:start])
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    size = 1
    for length in shape:
        size *= length
    if len(values) != size:
        raise DataError(f"{label} holds {len(values)} values; its header announces {size}, of shape {shape}")
    return values.reshape(shape).copy()  # writable, as those of every other data set


def _remote_file(name: str) -> storage.RemoteFile:
    filename = f"{name}.gz"
    urls = tuple(address + filename for address in ADDRESSES)
    return storage.RemoteFile(filename, urls, f"md5:{PACKED_MD5[name]}", MAX_BYTES)


def _split(folder: Path, image_file: str, label_file: str, digests: dict[str, str]) -> Split:
    images, y = _array(folder, image_file, digests), _array(folder, label_file, digests)
    if images.ndim != 3 or y.ndim != 1 or len(images) != len(y):
        raise DataError(
            f"{label_file} has shape {y.shape}, but {image_file} has {images.shape}; wanted: [n], [n, h, w]"
        )
    X = np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)
    return Split(X, y.astype(np.int64), images)


def _array(folder: Path, name: str, digests: dict[str, str]) -> NDArray[Any]:
    path = folder / name
    if path.is_file():
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(f"{str(path)!r} has {size} bytes; wanted are at most {MAX_BYTES}")
        content = path.read_bytes()
    else:
        path = folder / f"{name}.gz"
        content = archives.read_gzip(path, MAX_BYTES)
    storage.verify(repr(str(path)), content, f"md5:{MD5[name]}")
    digests[name] = hashlib.sha256(content).hexdigest()
    return read_idx(content, repr(str(path)))
