"""Quiz questions as text embeddings, in 40 categories.

One file, ``jeopardy-embeddings.npz``: embeddings of unit length ``X`` float16 [10000, 1536], categories ``y`` int16
[10000], and their names ``classes`` [40]. The rows are shuffled: the first 8,000 train, the last 2,000 test.
"""

import numpy as np

from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, array_checksum

NAME = "Jeopardy"
SOURCE = "questions of the quiz, embedded by a text encoder that their source does not name"
FILE = "jeopardy-embeddings.npz"
SHA256 = "466641e9ba1210f57513cf5c6ee12e70ae38f4748888eba37658850b09d53bac"
MAX_FILE_BYTES = 1 << 26
N_TRAIN = 8_000


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load 8,000 questions to train with and 2,000 to test with; arguments as for `data_sets.load`.

    There is no address to download from.
    """
    del download, progress
    folder = downloads.data_dir(data_dir)
    arrays = downloads.own_arrays(NAME, FILE, folder, MAX_FILE_BYTES, f"sha256:{SHA256}")
    X, y = arrays["X"].astype(np.float32), arrays["y"].astype(np.int64)
    train, test = Split(X[:N_TRAIN], y[:N_TRAIN]), Split(X[N_TRAIN:], y[N_TRAIN:])
    features = f"text embeddings of {X.shape[1]} numbers"
    return Dataset(NAME, train, test, tuple(arrays["classes"].tolist()), features, array_checksum(arrays), SOURCE)


KNOWN = KnownData(load, f"put {FILE} into the data folder", lambda folder: (folder / FILE).is_file())
