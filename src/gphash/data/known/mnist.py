"""MNIST: 60,000 handwritten digits to train with and 10,000 to test with, 28 × 28 grey pixels.

Four files in the IDX format, ``.gz`` or unpacked: two zero bytes, the type of the values (8: unsigned bytes), the
number of dimensions, each dimension as a big-endian 32-bit number, then the values in C order.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, checksum
from gphash.data.descriptors.greys import Pixels

NAME = "MNIST"
SOURCE = "Y. LeCun, C. Cortes and C. Burges, the MNIST database of handwritten digits"
# The original page asks not to be read by programs; these two hold the same files.
ADDRESSES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MAX_BYTES = 16 + 60_000 * 28 * 28
# Of the unpacked files, then of the files as the addresses have them.
MD5 = {
    "train-images-idx3-ubyte": ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte": ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte": ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte": ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
}


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load MNIST, and download it before if need be (12 MB); arguments as for `data_sets.load`.

    X are the pixels divided by 255, [n, 784]; images [n, 28, 28].
    """
    folder = downloads.data_dir(data_dir)
    missing = [
        downloads.RemoteFile(f"{name}.gz", tuple(f"{at}{name}.gz" for at in ADDRESSES), f"md5:{packed}", MAX_BYTES)
        for name, (_, packed) in MD5.items()
        if not (folder / name).is_file()
    ]
    downloads.obtain(NAME, missing, folder, download=download, progress=progress)
    digests: dict[str, str] = {}
    splits = []
    for names in (TRAIN, TEST):
        images, y = (_values(folder, name, digests) for name in names)
        images = images.reshape(len(y), 28, 28)
        X = np.divide(images.reshape(len(y), -1), np.float32(255), dtype=np.float32)
        splits.append(Split(X, y.astype(np.int64), images))
    return Dataset(NAME, splits[0], splits[1], tuple("0123456789"), "784 pixels / 255", checksum(digests), SOURCE)


def _values(folder: Path, name: str, digests: dict[str, str]) -> NDArray[Any]:
    """What follows the header of a file, flat. The checksum says that the header is the official one."""
    path = folder / name if (folder / name).is_file() else folder / f"{name}.gz"
    content = downloads.content(path, MAX_BYTES, f"md5:{MD5[name][0]}")
    digests[name] = hashlib.sha256(content).hexdigest()
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * content[3]).copy()  # writable, as others are


def _is_there(folder: Path) -> bool:
    return all((folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in MD5)


KNOWN = KnownData(load, "downloaded when it is read (12 MB)", _is_there, Pixels((28, 28)))
