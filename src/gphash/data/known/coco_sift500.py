"""COCO-SIFT500: photographs of MS-COCO as counts over a codebook of 500 SIFT words, with tags.

One file, ``coco-sift500.npz``: counts ``X`` uint16 [30000, 500], tags ``Y`` uint8 [30000, 18], the numbers of the
tags' categories in COCO ``label_ids`` [18], and ``ids`` [30000]. The first category, person, is on three photographs of
four, so that nearly all pairs would share it: it is left out, and with it the photographs that have no other. It stands
in for NUS-WIDE, which is no reason to call results on it by that name.
"""

import numpy as np

from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, array_checksum, split_at_random
from gphash.data.descriptors import bag_of_words

NAME = "COCO-SIFT500"
SOURCE = "MS-COCO photographs as counts over a codebook of 500 SIFT words, made for gphash"
FILE = "coco-sift500.npz"
SHA256 = "60cb981a149e6c8d1d996df976a82fdbe1d76702b0702485a86c6184cf64181d"
MAX_FILE_BYTES = 1 << 26
LEFT_OUT = 1
N_TEST = 3_000
SEED = 0
CATEGORIES = {
    **{1: "person", 2: "bicycle", 3: "car", 4: "motorcycle", 5: "airplane", 6: "bus", 7: "train", 8: "truck"},
    **{9: "boat", 10: "traffic light", 11: "fire hydrant", 13: "stop sign", 14: "parking meter", 15: "bench"},
    **{16: "bird", 17: "cat", 18: "dog", 19: "horse"},
}


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load 12,925 photographs to train with and 3,000 to test with; arguments as for `data_sets.load`.

    Of a permutation of the 15,925 rows by `numpy.random.default_rng(0)`, the last 3,000 are the test set, always. X are
    square roots of words' frequencies, [n, 500]; y are 17 tags. There is no address to download from.
    """
    del download, progress
    folder = downloads.data_dir(data_dir)
    arrays = downloads.own_arrays(NAME, FILE, folder, MAX_FILE_BYTES, f"sha256:{SHA256}")
    keep = arrays["label_ids"] != LEFT_OUT
    tags = np.ascontiguousarray(arrays["Y"][:, keep])
    classes = tuple(CATEGORIES[number] for number in arrays["label_ids"][keep].tolist())
    rows = np.flatnonzero(tags.any(axis=1))
    X, tags = bag_of_words.weigh(arrays["X"][rows]), tags[rows]
    train, test = (Split(X[part], tags[part], None) for part in split_at_random(len(rows), N_TEST, SEED))
    features = f"square roots of the frequencies of {X.shape[1]} SIFT words"
    return Dataset(NAME, train, test, classes, features, array_checksum(arrays), SOURCE)


KNOWN = KnownData(load, f"put {FILE} into the data folder", lambda folder: (folder / FILE).is_file())
