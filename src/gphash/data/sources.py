"""DATA: whatever rows are read from, by one name.

=============================  ===================================================================================
``digits``, ``cifar10:train``  a known data set, both splits or one; see `DATA_SETS`
``rows.npy`` ``.npz``          arrays, see `array_files`
``rows.csv`` ``.parquet``      tables, also ``.arrow`` and ``.feather``, see `tables`
a folder                       its pictures, described: a subfolder for each class, or a file ``tags.csv``, or neither;
                               see `image_folder`
a picture                      a single row, likewise described
``lines.txt``, a table,        texts, if an encoder of texts is given: one a line, the column ``text``, or the files
a folder of ``.txt``           ``.txt``; see `texts`
=============================  ===================================================================================

A name of a known data set is that data set, whatever lies in the working directory: ``./digits`` is a folder. Pictures
are described by GIST unless a descriptor is given, that of a model say.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.data import pictures, tables, texts
from gphash.data.dataset import NO_COLUMNS, Content, DataDir, Images, Progress, Skipped, file_digest
from gphash.data.descriptors import described, encoders
from gphash.data.descriptors.descriptor import PICTURES, TEXTS, Descriptor
from gphash.data.headers import UNSAID, Roles
from gphash.data.known import image_folder
from gphash.data.known.data_sets import DATA_SETS
from gphash.supervision.similarity import Pairs

PICTURE_FILES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


class Source(NamedTuple):
    """Rows, and what is known of them; X, y and images are as in `dataset.Split`. X may be mapped from its file.

    name
        DATA as it was given.
    y
        A label of −1 is none: nobody has said what the row is.
    classes
        The names that y counts into, or those of its columns.
    pairs
        Judged pairs of rows.
    ids
        Distinct numbers that a file gives its rows, int64 [n].
    descriptor
        How a picture or a text becomes a row like those of X; None if rows are plain features.
    checksum
        Hexadecimal SHA-256: of a file its own, else see `dataset.checksum`. A split has that of the whole data set.
    skipped
        Files of a folder, or columns of a table, that were left out, and why.
    folder
        The folder that all paths in `images` lie in; None if images are no paths.
    columns
        What a table says of its rows besides: item columns by their names, such as "title"; keys that are texts are
        "key".
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    pairs: Pairs | None
    classes: tuple[str, ...]
    images: Images | None
    ids: Indices | None
    descriptor: Descriptor | None
    checksum: str
    skipped: tuple[Skipped, ...]
    folder: Path | None
    columns: dict[str, list[Any]] = NO_COLUMNS

    @property
    def is_described(self) -> bool:
        """Whether rows are made of the pictures, or of the texts in `columns`."""
        return self.images is not None or (self.descriptor is not None and self.descriptor.takes == TEXTS)

    @property
    def supervision(self) -> NDArray[Any] | Pairs | None:
        """Labels, tags or pairs, as the methods take them; None if there are none."""
        return self.pairs if self.y is None else self.y


def read(
    data: str | os.PathLike[str],
    data_dir: DataDir = None,
    progress: Progress | None = None,
    n_jobs: int | None = -1,
    descriptor: Any = None,
    roles: Roles = UNSAID,
    settings: Mapping[str, Any] | None = None,
) -> Source:
    """Read DATA; of a known data set as a whole, the training rows come first.

    Parameters
    ----------
    data
        A known data set by its name, with ``:train`` or ``:test`` for one of its splits; or the path of a file or a
        folder.
    data_dir
        Where known data sets lie; if None, see `downloads.data_dir`.
    progress
        Called with what is done and with the total, for each task anew: bytes, files, then what is described.
    n_jobs
        Threads that describe pictures or texts; −1 for all cores.
    descriptor
        How to describe pictures: a descriptor, that of a model say, or the registered name of one, which is then
        fitted to the pictures (of a known data set, to those to train with). If None, a known data set has its own,
        and all else "gist". Or an encoder of pictures or texts: the path of an ONNX model, see
        `encoders.open_encoder`, a function of a list, or something with a method `encode`. Rows that are not made of
        pictures or texts stay what they are.
    roles
        Which columns of a table are what; see `headers.Roles`.
    settings
        Of an encoder that is given by its path; see `encoders.open_encoder`.

    Raises
    ------
    FileNotFoundError
        If there is nothing at the path, or if files of a known data set are missing and cannot be downloaded.
    DataError
        If a file is damaged or not what it should be: it names the file, the place in it and what must be there.
    ValueError
        If `data` is of no known kind, or has not the pictures or columns that a descriptor or `roles` are for.
    """
    name = os.fspath(data)
    if roles.names and not is_table(data):
        kinds = ", ".join(tables.TABLES)
        raise ValueError(f"{roles.said}, but {name!r} is not a table; leave it out, or give a file {kinds}.")
    is_known = isinstance(data, str) and data.partition(":")[0] in DATA_SETS
    subject = PICTURES if is_known or not _has_texts(Path(data).expanduser()) else TEXTS
    used = encoders.of(descriptor, subject, **(settings or {}))
    wanted = None if isinstance(descriptor, Descriptor | None) else _told(descriptor)
    if isinstance(used, Descriptor) and used.takes == TEXTS and not is_known:
        return _read_texts(name, Path(data).expanduser(), progress, n_jobs, used, roles, wanted)
    if is_known:
        given: _Given = (*_read_known(name, data_dir, progress), None)
    else:
        found, folder = _read_path(name, Path(data).expanduser(), progress, roles)
        given = (found, found.images if found.X is None else None, None, folder)
    return _described(name, given, used, progress, n_jobs, wanted)


_Given: TypeAlias = tuple[Content, Images | None, Descriptor | None, Path | None]
"""What was read, the images that descriptors are fitted to, the data's own descriptor, and the folder of images."""


def _described(
    name: str,
    given: _Given,
    used: Descriptor | str | None,
    progress: Progress | None,
    n_jobs: int | None,
    wanted: str | None,
) -> Source:
    """DATA with its pictures described; `wanted` is how a user has said that, if anybody has."""
    found, trained_on, own, folder = given
    takes = used.takes if isinstance(used, Descriptor) else PICTURES
    if wanted is not None and (trained_on is None or takes != PICTURES):
        raise ValueError(f"descriptor={wanted}, but {name!r} has no {takes} to describe; leave it out.")
    if trained_on is None or takes != PICTURES or (used is None and found.X is not None):
        used = own
    else:
        used = described.fit(used or own or "gist", trained_on, n_jobs)
    X, y, classes, pairs, ids, images, skipped, checksum, columns = found
    y = y if classes else None  # all labels are blank
    if used is not None and images is not None and (X is None or used != own):
        rows = described.rows(images, used, n_jobs, progress)
        X, y, images = rows.X, None if y is None else y[rows.kept], described.select(images, rows.kept)
        skipped += rows.skipped
    if X is None:
        raise ValueError(f"data={name!r} has neither features nor an array of images; it must have one of them.")
    return Source(name, X, y, pairs, classes, images, ids, used, checksum, skipped, folder, columns)


def _read_texts(
    name: str,
    path: Path,
    progress: Progress | None,
    n_jobs: int | None,
    encoder: Descriptor,
    roles: Roles,
    wanted: str | None,
) -> Source:
    """DATA where there is an encoder of texts; rows of features stay what they are."""
    if path.is_dir():
        found = texts.read_folder(path, progress)
    elif path.suffix.lower() == texts.SUFFIX and path.is_file():
        found = texts.read_lines(path)
    else:
        found, _ = _read_path(name, path, progress, roles._replace(described=True))
    has_texts = found.X is None and "text" in found.columns
    if not has_texts and (wanted is not None or found.X is None):
        raise ValueError(
            f"descriptor={wanted or encoder}, but {name!r} has no texts to encode; give a column of texts, or rows."
        )
    X, used = found.X, None
    if has_texts:
        cells = [None if cell is None else str(cell) for cell in found.columns["text"]]
        found = texts.drop_blank(found._replace(columns=found.columns | {"text": cells}), path)
        X, used = described.rows(found.columns["text"], encoder, n_jobs, progress).X, encoder
    assert X is not None
    y = found.y if found.classes else None
    rest = (found.ids, used, found.checksum, found.skipped, None, found.columns)
    return Source(name, X, y, found.pairs, found.classes, None, *rest)


def _has_texts(path: Path) -> bool:
    """Whether a path is of a kind that may hold texts: what a function describes is not known otherwise."""
    if path.is_dir():
        return next((True for _ in path.rglob(f"*{texts.SUFFIX}")), False)
    return path.suffix.lower() in (texts.SUFFIX, *tables.TABLES)


def _told(descriptor: Any) -> str:
    return repr(descriptor) if isinstance(descriptor, str | os.PathLike) else type(descriptor).__name__


def is_table(data: str | os.PathLike[str]) -> bool:
    """Whether DATA is a file with columns that have names."""
    return Path(data).suffix.lower() in tables.TABLES


def labelled(source: Source) -> Source:
    """The rows that have a label, or may have tags; the same source if these are all."""
    if source.y is None or source.y.ndim == 2 or source.y.min() >= 0:
        return source
    rows = np.flatnonzero(source.y >= 0)
    return source._replace(
        X=source.X[rows],
        y=source.y[rows],
        images=None if source.images is None else described.select(source.images, rows),
        ids=None if source.ids is None else source.ids[rows],
        columns={name: [cells[row] for row in rows] for name, cells in source.columns.items()},
    )


def renumber(source: Source, classes: tuple[str, ...]) -> Source:
    """The same rows with labels that count into other names of classes, those of a model or of another source.

    Names that are missing there come after them, so that equal names of two sources get equal numbers.
    """
    if source.y is None:
        return source
    names = (*classes, *(name for name in source.classes if name not in set(classes)))
    number = {name: place for place, name in enumerate(names)}
    places = np.array([number[name] for name in source.classes], dtype=np.int64)
    if source.y.ndim == 1:
        return source._replace(y=np.where(source.y < 0, -1, places[source.y]), classes=names)
    tags = np.zeros((len(source.y), len(names)), dtype=np.uint8)
    tags[:, places] = source.y
    return source._replace(y=tags, classes=names)


def _read_known(
    name: str, data_dir: DataDir, progress: Progress | None
) -> tuple[Content, Images | None, Descriptor | None]:
    """A known data set, the images that descriptors are fitted to, and its own descriptor."""
    word, colon, split = name.partition(":")
    if colon and split not in ("train", "test"):
        raise ValueError(f"data={name!r}; give {word}, {word}:train or {word}:test.")
    known = DATA_SETS[word]
    dataset = known.load(data_dir, download=True, progress=progress)
    parts = [part for part, own in ((dataset.train, "train"), (dataset.test, "test")) if split in ("", own)]

    def joined(field: str) -> NDArray[Any] | None:
        arrays = [getattr(part, field) for part in parts]
        return np.concatenate(arrays) if isinstance(arrays[0], np.ndarray) else None

    images = joined("images")
    content = Content(joined("X"), joined("y"), dataset.classes, images=images, checksum=dataset.checksum)
    return content, None if images is None else dataset.train.images, known.descriptor


def _read_path(name: str, path: Path, progress: Progress | None, roles: Roles) -> tuple[Content, Path | None]:
    """What is at a path, and the folder that its pictures lie in."""
    suffix = path.suffix.lower()
    is_readable = suffix in tables.SUFFIXES or suffix in PICTURE_FILES
    if not path.exists():
        # A word that could be no file of ours is meant to be a data set.
        if len(path.parts) == 1 and not is_readable:
            known = ", ".join(DATA_SETS)
            raise ValueError(f"unknown data {name!r}; give one of {known}, or the path of a file or folder.")
        raise FileNotFoundError(f"data={name!r}: there is no such file or folder.")
    if path.is_dir():
        return image_folder.read(path, progress=progress), path
    if suffix == texts.SUFFIX:
        raise ValueError(f"data={name!r} has texts; give an encoder of texts: descriptor=PATH of an ONNX model.")
    if not is_readable:
        raise ValueError(
            f"data={name!r} has the suffix {path.suffix!r}; give {', '.join(tables.SUFFIXES)}, a picture "
            f"({', '.join(PICTURE_FILES)}) or a folder of pictures."
        )
    if suffix in PICTURE_FILES:
        pictures.check(path)  # Its own words, where a folder would speak of none of its files.
        return Content(images=[path], checksum=file_digest(path)), path.parent
    return tables.read(path, roles)._replace(checksum=file_digest(path)), None
