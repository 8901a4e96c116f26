"""Data sets by their names, each of which is the name of its module; it is imported when the data are wanted."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gphash.datasets.progress import Progress

if TYPE_CHECKING:
    from gphash.datasets.dataset import Dataset

NAMES = ("toy", "digits", "mnist", "cifar10", "nuswide", "coco_sift500", "image_folder")
DATA_SETS = tuple(name for name in NAMES if name != "image_folder")
"""Those that a name says all about; a folder of pictures is known by its path."""


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> "Dataset":
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
    if name not in NAMES:
        raise ValueError(f"name={name!r}; give one of {', '.join(map(repr, NAMES))}.")
    loader = import_module(f"gphash.datasets.{name}")
    dataset: Dataset = loader.load(data_dir, download=download, progress=progress, **options)
    return dataset
