"""COCO-SIFT500: photographs of MS-COCO as counts over a codebook of 500 SIFT words, with tags.

One file, ``coco-sift500.npz``: counts ``X`` uint16 [30000, 500], tags ``Y`` uint8 [30000, 18], the numbers of the
tags' categories in COCO ``label_ids`` [18], and ``ids`` [30000]. The first category, person, is on three photographs of
four, so that nearly all pairs would share it: it is left out, and with it the photographs that have no other. It stands
in for NUS-WIDE, which is no reason to call results on it by that name.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.datasets import splitting, storage
from gphash.datasets.dataset import DataError, Dataset, Split, array_checksum
from gphash.datasets.progress import Progress
from gphash.features import bag_of_words

NAME = "COCO-SIFT500"
SOURCE = "MS-COCO photographs as counts over a codebook of 500 SIFT words, made for gphash"
FILE = "coco-sift500.npz"
SHA256 = "60cb981a149e6c8d1d996df976a82fdbe1d76702b0702485a86c6184cf64181d"
MAX_FILE_BYTES = 1 << 26
LEFT_OUT = 1
N_TEST = 3_000
SEED = 0
CATEGORIES = {
    1: "person",
    2: "bicycle",
    3: "car",
    4: "motorcycle",
    5: "airplane",
    6: "bus",
    7: "train",
    8: "truck",
    9: "boat",
    10: "traffic light",
    11: "fire hydrant",
    13: "stop sign",
    14: "parking meter",
    15: "bench",
    16: "bird",
    17: "cat",
    18: "dog",
    19: "horse",
}


def load(
    data_dir: str | os.PathLike[str] | None = None, *, download: bool = True, progress: Progress | None = None
) -> Dataset:
    """Load 12,925 photographs to train with and 3,000 to test with; the split is always the same.

    Of a permutation of the 15,925 rows by `numpy.random.default_rng(0)`, the last 3,000 are the test set.

    Parameters
    ----------
    data_dir
        The folder with the file; if None, see `storage.data_dir`.
    download, progress
        Not used: there is no address to download from.

    Returns
    -------
    dataset
        X are square roots of words' frequencies, [n, 500]; y are 17 tags.

    Raises
    ------
    DataMissingError
        If the file is missing; it says what to do by hand.
    DataError
        If the file is truncated or altered.
    """
    del download, progress
    folder = storage.data_dir(data_dir)
    path = folder / FILE
    if not path.is_file():
        raise storage.DataMissingError(
            NAME, [FILE], folder, f"there is no public address: ask gphash's authors for {FILE}"
        )
    arrays = _read(path)

    keep = arrays["label_ids"] != LEFT_OUT
    tags = np.ascontiguousarray(arrays["Y"][:, keep])
    classes = tuple(CATEGORIES[number] for number in arrays["label_ids"][keep].tolist())
    rows = np.flatnonzero(tags.any(axis=1))
    X, tags = bag_of_words.weigh(arrays["X"][rows]), tags[rows]
    if len(rows) <= N_TEST:
        raise DataError(f"{str(path)!r} has {len(rows)} photographs with a tag; wanted are more than {N_TEST}")
    train, test = (Split(X[part], tags[part], None) for part in splitting.at_random(len(rows), N_TEST, SEED))
    features = f"square roots of the frequencies of {X.shape[1]} SIFT words"
    return Dataset(NAME, train, test, classes, features, array_checksum(arrays), SOURCE)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise DataError(f"{str(path)!r} has {size} bytes; wanted are at most {MAX_FILE_BYTES}")
    content = path.read_bytes()
    # Verified first: from here on nothing in it can surprise.
    storage.verify(repr(str(path)), content, f"sha256:{SHA256}")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return {name: file[name] for name in ("X", "Y", "label_ids", "ids")}
