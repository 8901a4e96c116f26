"""CIFAR-10 as features of a network: pooled features of an ImageNet ResNet-50, 128 principal components of them.

One file, ``cifar10-resnet50.npz``: ``X`` float16 [35000, 128], classes ``y`` int16 [35000], and ``n_train``: so many
random rows of the official training set come first, then the official test set in order.
"""

import numpy as np

from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, array_checksum
from gphash.data.known.cifar10 import CLASSES

NAME = "CIFAR-10 ResNet-50"
SOURCE = "CIFAR-10 photographs at 112 x 112, described by an ImageNet ResNet-50 for gphash"
FILE = "cifar10-resnet50.npz"
SHA256 = "cdcc49f1ecfe4dc06bc5c71861bf04b19fb10b149953a90a387ba2ac27fcecc8"
MAX_FILE_BYTES = 1 << 25


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load 25,000 rows to train with and 10,000 to test with; arguments as for `data_sets.load`.

    There is no address to download from.
    """
    del download, progress
    folder = downloads.data_dir(data_dir)
    arrays = downloads.own_arrays(NAME, FILE, folder, MAX_FILE_BYTES, f"sha256:{SHA256}")
    X, y, n_train = arrays["X"].astype(np.float32), arrays["y"].astype(np.int64), int(arrays["n_train"])
    train, test = Split(X[:n_train], y[:n_train]), Split(X[n_train:], y[n_train:])
    features = f"{X.shape[1]} principal components of ResNet-50 features"
    return Dataset(NAME, train, test, CLASSES, features, array_checksum(arrays), SOURCE)


KNOWN = KnownData(load, f"put {FILE} into the data folder", lambda folder: (folder / FILE).is_file())
