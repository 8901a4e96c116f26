"""The 1,797 handwritten digits that come with scikit-learn, 8 × 8 pixels of 0 to 16."""

import numpy as np
from sklearn.datasets import load_digits

from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, array_checksum, split_by_class
from gphash.data.descriptors.greys import Pixels

N_TEST = 500
SEED = 0


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load 1,297 digits to train with and 500 to test with, classes in proportion; the split is always the same.

    The arguments are those of every loader, and not used: the data come with scikit-learn.
    """
    del data_dir, download, progress
    bunch = load_digits()
    pixels = bunch.images.astype(np.float32)
    y = bunch.target.astype(np.int64)
    # 16 is white.
    images = np.round(pixels * np.float32(255 / 16)).astype(np.uint8)
    X = pixels.reshape(len(pixels), -1) / np.float32(16)
    train, test = (Split(X[rows], y[rows], images[rows]) for rows in split_by_class(y, N_TEST, SEED))
    digest, source = array_checksum({"X": X, "y": y}), "scikit-learn, sklearn.datasets"
    return Dataset("digits", train, test, tuple("0123456789"), "64 pixels / 16", digest, source)


KNOWN = KnownData(load, "comes with scikit-learn", descriptor=Pixels((8, 8)))
