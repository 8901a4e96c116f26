"""From images to features: GIST of every picture, computed once and kept in the user's cache folder."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gphash.datasets import pictures, storage
from gphash.datasets.dataset import Dataset, Split
from gphash.features import cache, gist

FEATURES = "GIST, 512 dimensions"


def by_gist(dataset: Dataset, folder: str | os.PathLike[str] | None = None, n_jobs: int | None = -1) -> Dataset:
    """The same data set with GIST of its images as features; one that has features is handed back as it is.

    Parameters
    ----------
    dataset
        With images: arrays, or paths of pictures.
    folder
        Where descriptors are kept; if None, ``gphash/descriptors`` in the user's cache folder, so that the data folder
        itself may be read-only.
    n_jobs
        Threads.
    """
    if dataset.train.X is not None and dataset.test.X is not None:
        return dataset
    place = storage.cache_dir() / "gphash" / "descriptors" if folder is None else Path(folder)
    train, test = (_described(split, place, n_jobs) for split in (dataset.train, dataset.test))
    return dataset._replace(train=train, test=test, features=FEATURES)


def _described(split: Split, folder: Path, n_jobs: int | None) -> Split:
    if split.images is None:
        raise ValueError("the data set has neither features nor images; wanted is one of them.")
    if isinstance(split.images, np.ndarray):
        return split._replace(X=_kept(split.images, folder, n_jobs))
    opened = [pictures.open_picture(path) for path in split.images]
    return split._replace(X=_kept(opened, folder, n_jobs))


def _kept(
    images: "NDArray[np.uint8] | list[NDArray[np.uint8]]", folder: Path, n_jobs: int | None
) -> NDArray[np.float32]:
    def compute(images: "NDArray[np.uint8] | list[NDArray[np.uint8]]") -> NDArray[np.float32]:
        if isinstance(images, np.ndarray):
            return gist.describe(images, n_jobs=n_jobs)
        return gist.describe_each(images, n_jobs=n_jobs)

    found: NDArray[np.float32] = cache.cached(compute, images, "gist", gist.VERSION, {}, folder)
    return found
