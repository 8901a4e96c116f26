"""Data sets by their names; to add one, write a file with a `KnownData` and register its name here."""

from typing import TYPE_CHECKING, Any

from gphash.registry import Registry

if TYPE_CHECKING:
    from gphash.data.dataset import DataDir, Dataset, KnownData, Progress

DATA_SETS: Registry["KnownData"] = Registry(
    "data set",
    {
        name: f"gphash.data.known.{name}:KNOWN"
        for name in (
            *("toy", "digits", "mnist", "cifar10", "nuswide", "coco_sift500"),
            *("cifar10_resnet50", "jeopardy"),
        )
    },
)


def load(
    name: str,
    data_dir: "DataDir" = None,
    *,
    download: bool = True,
    progress: "Progress | None" = None,
    **options: Any,
) -> "Dataset":
    """Load a data set by its name, one of `DATA_SETS`; `options` are what only its loader takes.

    Parameters
    ----------
    data_dir
        The folder with its files, as they are downloaded or unpacked; if None, see `downloads.data_dir`.
    download
        Whether to download what is missing. If it cannot be, a DataMissingError says what to do by hand.
    progress
        Called with what is done and with the total, bytes or files.
    """
    return DATA_SETS.find(name, "name").load(data_dir, download=download, progress=progress, **options)
