"""Data sets by their names."""

import os
from collections.abc import Callable
from typing import Any

from gphash.datasets import cifar10, coco_sift500, digits, image_folder, mnist, nuswide, toy
from gphash.datasets.dataset import Dataset
from gphash.datasets.progress import Progress

LOADERS: dict[str, Callable[..., Dataset]] = {
    "toy": toy.load,
    "digits": digits.load,
    "mnist": mnist.load,
    "cifar10": cifar10.load,
    "nuswide": nuswide.load,
    "coco_sift500": coco_sift500.load,
    "image_folder": image_folder.load,
}
NAMES = tuple(LOADERS)


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set by its name.

    Parameters
    ----------
    name
        One of `NAMES`.
    data_dir
        The data folder, or the folder of pictures for ``image_folder``; if None, see `storage.data_dir`.
    download
        Whether to download what is missing.
    progress
        Called with what is done and with the total.
    options
        What only that loader takes.
    """
    if name not in LOADERS:
        raise ValueError(f"name={name!r}; give one of {', '.join(map(repr, NAMES))}.")
    return LOADERS[name](data_dir, download=download, progress=progress, **options)
