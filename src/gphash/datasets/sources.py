"""DATA: whatever rows are read from, by one name.

=============================  ===================================================================================
``digits``, ``cifar10:train``  a known data set, both splits or one; see `registry.DATA_SETS`
``rows.npy`` ``.npz``          arrays, see `tables`
``rows.csv`` ``.parquet``      tables, see `tables`
a folder                       its pictures, described by GIST: a subfolder for each class, or a file ``tags.csv``, or
                               neither; see `image_folder`
a picture                      a single row, likewise described by GIST
=============================  ===================================================================================

A name of a known data set is that data set, whatever lies in the working directory: ``./digits`` is a folder.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.coding.similarity import Pairs
from gphash.datasets import described, image_folder, pictures, registry, tables
from gphash.datasets.dataset import DataError, Images, Skipped
from gphash.datasets.progress import Progress
from gphash.features.descriptor import Descriptor

SPLITS = ("train", "test")
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")

GIST = Descriptor("gist")

# Of the known data sets whose rows are made of their images.
_DESCRIPTORS = {
    "digits": Descriptor("pixels", (8, 8)),
    "mnist": Descriptor("pixels", (28, 28)),
    "cifar10": Descriptor("gist", (32, 32)),
}


class Source(NamedTuple):
    """Rows, and what is known of them.

    name
        DATA as it was given.
    X
        Features, float32 [n, d].
    y
        Class labels, int64 [n], numbers into `classes`; or 0/1 tags, uint8 [n, c]; or None.
    pairs
        Judged pairs of rows, or None.
    classes
        The name of every class, or of every column of tags; () without labels.
    images
        Pixels, uint8 [n, H, W, 3] in colour or [n, H, W] in grey; paths of pictures, [n]; or None.
    ids
        Distinct numbers that a file gives its rows, int64 [n], or None.
    descriptor
        How a picture becomes a row like those of X; None if rows are plain features.
    checksum
        Hexadecimal SHA-256: of a file its own, else see `dataset.checksum`. A split has that of the whole data set.
    skipped
        Files of a folder that were left out, and why.
    folder
        The folder that all paths in `images` lie in; None if images are no paths.
    """

    name: str
    X: NDArray[np.float32]
    y: NDArray[Any] | None
    pairs: Pairs | None
    classes: tuple[str, ...]
    images: Images | None
    ids: Indices | None
    descriptor: Descriptor | None
    checksum: str
    skipped: tuple[Skipped, ...]
    folder: Path | None

    @property
    def supervision(self) -> NDArray[Any] | Pairs | None:
        """Labels, tags or pairs, as the methods take them; None if there are none."""
        return self.pairs if self.y is None else self.y


def read(
    data: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    n_jobs: int | None = -1,
) -> Source:
    """Read DATA.

    Parameters
    ----------
    data
        A known data set by its name, with ``:train`` or ``:test`` for one of its splits; or the path of a file or a
        folder.
    data_dir
        Where known data sets lie; if None, see `storage.data_dir`.
    progress
        Called with what is done and with the total, for each task anew: bytes, files, then pictures described.
    n_jobs
        Threads that describe pictures; −1 for all cores.

    Returns
    -------
    source
        With at least one row; of a known data set as a whole, the training rows come first.

    Raises
    ------
    FileNotFoundError
        If there is nothing at the path, or if files of a known data set are missing and cannot be downloaded.
    DataError
        If a file is damaged or not what it should be: it names the file, the place in it and what is wanted.
    ValueError
        If `data` is no name of a data set, or a file of another kind.
    """
    name = os.fspath(data)
    if isinstance(data, str) and (known := _known(data)):
        return _read_known(name, *known, data_dir, progress, n_jobs)
    path = Path(data).expanduser()
    _check_path(name, path)
    if path.is_dir():
        return _read_folder(name, path, progress, n_jobs)
    if path.suffix.lower() in PICTURES:
        return _read_picture(name, path, n_jobs)
    return _read_table(name, path, progress, n_jobs)


def renumber(source: Source, classes: tuple[str, ...]) -> Source:
    """The same rows with labels that count into other names of classes, those of a model or of another source.

    Names that are missing there come after them, so that equal names of two sources get equal numbers.

    Parameters
    ----------
    source
        With labels, tags or neither.
    classes
        Names, each once.
    """
    if source.y is None:
        return source
    names = (*classes, *(name for name in source.classes if name not in set(classes)))
    number = {name: place for place, name in enumerate(names)}
    places = np.array([number[name] for name in source.classes], dtype=np.int64)
    if source.y.ndim == 1:
        return source._replace(y=places[source.y], classes=names)
    tags = np.zeros((len(source.y), len(names)), dtype=np.uint8)
    tags[:, places] = source.y
    return source._replace(y=tags, classes=names)


def _known(data: str) -> tuple[str, tuple[str, ...]] | None:
    """A known data set and the splits that are wanted of it, or None if it is none."""
    name, colon, split = data.partition(":")
    if name not in registry.DATA_SETS:
        return None
    if colon and split not in SPLITS:
        raise ValueError(f"data={data!r}; give {name}, {name}:train or {name}:test.")
    return name, (split,) if colon else SPLITS


def _check_path(name: str, path: Path) -> None:
    readable = (*tables.READERS, *PICTURES)
    if not path.exists():
        # A word that could be no file of ours is meant to be a data set.
        if len(path.parts) == 1 and path.suffix.lower() not in readable:
            raise ValueError(
                f"unknown data {name!r}; give one of {', '.join(registry.DATA_SETS)}, or the path of a file or folder."
            )
        raise FileNotFoundError(f"data={name!r}: there is no such file or folder.")
    if not path.is_dir() and path.suffix.lower() not in readable:
        raise ValueError(
            f"data={name!r} has the suffix {path.suffix!r}; give {', '.join(tables.READERS)}, a picture "
            f"({', '.join(PICTURES)}) or a folder of pictures."
        )


def _read_known(
    data: str,
    name: str,
    splits: tuple[str, ...],
    data_dir: str | os.PathLike[str] | None,
    progress: Progress | None,
    n_jobs: int | None,
) -> Source:
    dataset = registry.load(name, data_dir, progress=progress)
    parts = [dataset.train if split == "train" else dataset.test for split in splits]
    # Split by split, so that the cache serves both of them, alone and together.
    features = [
        described.gist_rows(_pixels(part.images), n_jobs=n_jobs, progress=progress).X if part.X is None else part.X
        for part in parts
    ]
    images = None if parts[0].images is None else _joined([_pixels(part.images) for part in parts])
    X, y = _joined(features), _joined([part.y for part in parts])
    descriptor = _DESCRIPTORS.get(name)
    return Source(data, X, y, None, dataset.classes, images, None, descriptor, dataset.checksum, (), None)


def _pixels(images: Images | None) -> NDArray[np.uint8]:
    assert isinstance(images, np.ndarray)  # known data sets have their pictures in arrays
    return images


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _read_folder(data: str, folder: Path, progress: Progress | None, n_jobs: int | None) -> Source:
    found = image_folder.read(folder, progress=progress)
    rows = described.gist_rows(found.paths, n_jobs=n_jobs, progress=progress)
    y = None if found.y is None else found.y[rows.kept]
    images = described.select(found.paths, rows.kept)
    skipped = (*found.skipped, *rows.skipped)
    return Source(data, rows.X, y, None, found.classes, images, None, GIST, found.checksum, skipped, folder)


def _read_picture(data: str, path: Path, n_jobs: int | None) -> Source:
    pictures.check(path)  # Its own words, where a folder would speak of none of its files.
    rows = described.gist_rows([path], n_jobs=n_jobs)
    return Source(data, rows.X, None, None, (), [path], None, GIST, _checksum(path), (), path.parent)


def _read_table(data: str, path: Path, progress: Progress | None, n_jobs: int | None) -> Source:
    found = tables.read(path)
    X, descriptor = found.X, None
    if X is None:
        assert found.images is not None  # a table has one of them
        if min(found.images.shape[1:3]) < pictures.MIN_SIDE:
            raise DataError(
                f"images of {str(path)!r} have {found.images.shape[1]} × {found.images.shape[2]} pixels; wanted are at "
                f"least {pictures.MIN_SIDE} on each side, or X"
            )
        X = described.gist_rows(found.images, n_jobs=n_jobs, progress=progress).X
        descriptor = Descriptor("gist", found.images.shape[1:3])
    return Source(
        data,
        X,
        found.y,
        found.pairs,
        found.classes,
        found.images,
        found.ids,
        descriptor,
        _checksum(path),
        (),
        None,
    )


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
