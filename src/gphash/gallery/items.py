"""`NAME.items`: what is known of the items that an index was built from.

A container (see `persistence`) of kind "items". Its meta are the model (relative to the index), the model's
fingerprint, the descriptor, the names of classes, the folder of pictures (relative, too) and the name of the data. Its
arrays are ids and codes, labels or tags, and pictures: pixels, or names of files as bytes with offsets. The codes tell
which index the file belongs to, whatever has been added to or removed from it since. Arrays stay in the file.

Whoever writes the file names the folder that pictures are shown from. So the folder is relative, and one that is not
below the index's own is believed only of a file that the user or root owns and that nobody else may write to: the
trust that ssh gives its files.
"""

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files, persistence
from gphash.datasets.dataset import Images
from gphash.datasets.sources import Source
from gphash.features.descriptor import Descriptor
from gphash.gallery.records import NoPictureError
from gphash.persistence import FormatError

KIND = "items"
UNKNOWN = -1  # the label of an item without one

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH  # by others than the owner


class Items(NamedTuple):
    """What a file of items holds.

    fingerprint
        Of the file's content; items that were added later name it.
    model, model_fingerprint
        Where the model is, relative to the index, and which one it is.
    descriptor
        How a picture becomes a row; None if rows are plain features.
    classes
        Names of classes or tags.
    folder
        Of the pictures, relative to the index; None if they are no files.
    name
        Of the data.
    ids, codes
        Of all items, int64 [n] and packed uint8 [n, bytes].
    order
        Rows in the order of their ids, [n]; None if they are in it already.
    labels
        Numbers into `classes`, −1 for none, [n]; None without labels.
    tags
        0/1 [n, c]; None without tags.
    pixels
        uint8 [n, H, W] or [n, H, W, 3]; None without.
    names, offsets
        The name of picture i, relative to the folder, is names[offsets[i]:offsets[i + 1]]; None without.
    """

    fingerprint: str
    model: str
    model_fingerprint: str
    descriptor: Descriptor | None
    classes: tuple[str, ...]
    folder: str | None
    name: str
    ids: NDArray[np.int64]
    codes: NDArray[np.uint8]
    order: NDArray[np.int64] | None = None
    labels: NDArray[np.signedinteger[Any]] | None = None
    tags: NDArray[np.uint8] | None = None
    pixels: NDArray[np.uint8] | None = None
    names: NDArray[np.uint8] | None = None
    offsets: NDArray[np.int64] | None = None

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of some ids; −1 for those that are not here."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        first, last = int(self.ids[0]), int(self.ids[-1])
        if self.order is None and last - first == len(self.ids) - 1:  # no gaps: nothing to look for
            return np.where((ids >= first) & (ids <= last), ids - first, -1)
        places = np.minimum(np.searchsorted(self.ids, ids, sorter=self.order), len(self.ids) - 1)
        rows = places if self.order is None else self.order[places]
        return np.where(self.ids[rows] == ids, rows, -1)

    def row(self, id: int) -> int:
        """The row of an id; −1 if it is not here."""
        return int(self.rows(np.array([id], np.int64))[0])

    def labels_of(self, row: int) -> tuple[str, ...]:
        """Names of a row's class or tags."""
        if self.labels is not None:
            number = int(self.labels[row])
            return () if number == UNKNOWN else (self.classes[number],)
        if self.tags is not None:
            return tuple(self.classes[column] for column in np.flatnonzero(self.tags[row]))
        return ()

    def with_label(self, name: str) -> NDArray[np.int64]:
        """Ids of the items that have a label or tag."""
        if name not in self.classes:
            return np.empty(0, np.int64)
        number = self.classes.index(name)
        if self.labels is not None:
            return np.asarray(self.ids[self.labels == number])
        if self.tags is not None:
            return np.asarray(self.ids[self.tags[:, number] == 1])
        return np.empty(0, np.int64)

    def count_labels(self, rows: NDArray[np.int64]) -> dict[str, int]:
        """How many of some rows have which label; none of those that no row has."""
        if self.labels is not None:
            numbers = self.labels[rows]
            counts = np.bincount(numbers[numbers != UNKNOWN], minlength=len(self.classes))
        elif self.tags is not None:
            counts = self.tags[rows].sum(axis=0, dtype=np.int64)
        else:
            return {}
        return {self.classes[number]: int(counts[number]) for number in np.flatnonzero(counts)}

    def name_of(self, row: int) -> str:
        """The name of a row's picture in the folder."""
        assert self.names is not None
        assert self.offsets is not None
        return os.fsdecode(self.names[self.offsets[row] : self.offsets[row + 1]].tobytes())


def nothing(n_bytes: int, name: str) -> Items:
    """Of an index that was made without a file of items, nothing is known."""
    empty = np.empty(0, np.int64)
    return Items("", "", "", None, (), None, name, empty, np.empty((0, n_bytes), np.uint8))


def write(
    path: Path,
    index_path: Path,
    source: Source,
    ids: NDArray[np.int64],
    codes: NDArray[np.uint8],
    model: str | os.PathLike[str],
    fingerprint: str,
) -> str:
    """Write what is known of the rows of a source.

    Parameters
    ----------
    path
        The file to write.
    index_path
        The index that it belongs to; folders are kept relative to it.
    source
        Labels, classes and pictures.
    ids, codes
        Of every row, [n] and [n, bytes].
    model, fingerprint
        Where the model is, and which one it is.

    Returns
    -------
    fingerprint
        Of the file.
    """
    arrays: dict[str, NDArray[Any]] = {"ids": ids, "codes": codes}
    classes = _label_arrays(source, len(ids), arrays)
    folder = _picture_arrays(source, len(ids), arrays)
    home = index_path.parent
    meta = {
        "model": _relative(os.path.realpath(model), home),
        "model_fingerprint": fingerprint,
        "descriptor": None if source.descriptor is None else source.descriptor.to_meta(),
        "classes": list(classes),
        "folder": None if folder is None else _relative(os.path.realpath(folder), home),
        "name": Path(source.name).name or source.name,
    }
    mark = persistence.write(path, KIND, meta, arrays)
    if os.name == "posix":
        os.chmod(path, stat.S_IMODE(path.stat().st_mode) & ~_WRITABLE)
    return mark


def read(path: Path) -> Items:
    """Read and verify a file of items; a FormatError says what is wrong with it."""
    stored = persistence.read(path, KIND, mapped=True)
    meta, arrays = stored.meta, stored.arrays
    try:
        ids = np.asarray(arrays["ids"])
        found = Items(
            stored.fingerprint,
            str(meta["model"]),
            str(meta["model_fingerprint"]),
            Descriptor.from_meta(meta["descriptor"]),
            tuple(files.readable(str(name)) for name in meta["classes"]),
            meta["folder"],
            files.readable(str(meta["name"])),
            ids,
            np.asarray(arrays["codes"]),
            None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable"),
            *(_plain(arrays.get(name)) for name in ("labels", "tags", "pixels", "names", "offsets")),
        )
        fits = _goes_together(found)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FormatError(f"{str(path)!r} holds no items that this version of gphash knows ({error!r})") from error
    if not fits:
        raise FormatError(f"{str(path)!r} is damaged: its arrays do not go together")
    if found.folder is not None and os.path.isabs(found.folder):
        raise FormatError(
            f"{str(path)!r} has its pictures in {found.folder!r}; only folders relative to the index are followed: "
            "build the index again"
        )
    return found


def check_folder(path: Path, folder: str | None) -> None:
    """Refuse a folder of pictures that is not below the index's own, unless the file of items may name such a one.

    Parameters
    ----------
    path
        The file of items.
    folder
        The folder that it names.
    """
    if folder is None or os.name != "posix":
        return
    home = os.path.realpath(path.parent)
    target = os.path.realpath(os.path.join(home, folder))
    if Path(target).is_relative_to(home):
        return
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        why = "belongs to another user"
    elif status.st_mode & _WRITABLE:
        why = "may be written to by others"
    else:
        return
    raise PermissionError(
        f"{str(path)!r} names the folder of pictures {target!r}, which is not below {home!r}, and {why}; copy the "
        "pictures below the folder of the index, or build the index again."
    )


def _plain(array: NDArray[Any] | None) -> NDArray[Any] | None:
    """The same memory without numpy's class for mapped files, which makes every access slow."""
    return None if array is None else np.asarray(array)


def _goes_together(items: Items) -> bool:
    """Whether every row of every array is there, and every number within its bounds."""
    n_rows, n_classes = len(items.ids), len(items.classes)
    checks = [items.ids.dtype == np.int64, items.ids.ndim == 1, items.codes.dtype == np.uint8]
    checks += [items.codes.ndim == 2 and len(items.codes) == n_rows]
    checks += [items.folder is None or isinstance(items.folder, str)]
    if items.labels is not None:
        within = (items.labels >= UNKNOWN) & (items.labels < n_classes)
        checks += [items.labels.shape == (n_rows,), items.labels.dtype.kind == "i", bool(within.all())]
    if items.tags is not None:
        checks += [items.tags.shape == (n_rows, n_classes), items.tags.dtype == np.uint8]
    if items.pixels is not None:
        checks += [len(items.pixels) == n_rows, items.pixels.dtype == np.uint8, items.pixels.ndim in (3, 4)]
    if items.names is not None:
        bounds = items.offsets
        checks += [bounds is not None and bounds.shape == (n_rows + 1,) and bounds.dtype == np.int64]
        checks += [items.folder is not None, items.names.dtype == np.uint8, items.names.ndim == 1]
        if all(checks) and bounds is not None:
            rises = bool((bounds[1:] >= bounds[:-1]).all())
            checks += [rises, int(bounds[0]) == 0, int(bounds[-1]) == len(items.names)]
    return all(checks)


def fault(
    items: Items, packed: NDArray[np.uint8], ids: NDArray[np.int64], later: NDArray[np.bool_], model: str | None
) -> str:
    """Why these items are not those of an index; nothing if they are.

    Parameters
    ----------
    items
        What a file holds.
    packed, ids, model
        Codes and ids of the index, [n, bytes] and [n], and the fingerprint of its model.
    later
        Which of them were added later, [n].
    """
    made = items.model_fingerprint
    if model is not None and model != made:
        return f"it was made with the model {made[:12]}…, and the index with the model {model[:12]}…"
    if items.codes.shape[1] != packed.shape[1]:
        return f"its codes have {items.codes.shape[1]} bytes, and those of the index {packed.shape[1]}"
    rows = items.rows(ids)
    known = (rows >= 0) & ~later
    if len(ids) and not (known | later).any():
        return "it knows none of the items of the index"
    if not np.array_equal(items.codes[rows[known]], packed[known]):
        return "its items have other codes than those of the index"
    return ""


def file_of(folder: Path, name: str) -> Path:
    """The file of that name in a folder; a NoPictureError if it is none, or leads out of the folder."""
    root = os.path.realpath(folder)
    if "\0" in name or os.path.isabs(name):
        raise NoPictureError(f"{name!r} is no name of a file in {str(folder)!r}.")
    target = Path(os.path.realpath(os.path.join(root, name)))
    if not target.is_relative_to(root):
        raise NoPictureError(f"{name!r} leads out of {str(folder)!r}.")
    if not target.is_file():
        raise NoPictureError(f"there is no file {name!r} in {str(folder)!r} any more.")
    return target


def _label_arrays(source: Source, n_rows: int, arrays: dict[str, NDArray[Any]]) -> tuple[str, ...]:
    """Labels or tags into the arrays; the names of classes come back."""
    if source.y is None:
        return source.classes
    y = np.asarray(source.y)
    if len(y) != n_rows or y.ndim not in (1, 2):
        raise ValueError(f"source.y has shape {y.shape} for {n_rows} rows; give labels [n] or tags [n, c].")
    if y.ndim == 2:
        if y.shape[1] != len(source.classes):
            raise ValueError(f"source.y has {y.shape[1]} tags and source.classes {len(source.classes)} names.")
        arrays["tags"] = (y != 0).astype(np.uint8)
    else:
        if len(y) and (int(y.min()) < UNKNOWN or int(y.max()) >= len(source.classes)):
            raise ValueError(
                f"source.y goes from {y.min()} to {y.max()}; give numbers into the {len(source.classes)} classes."
            )
        arrays["labels"] = y.astype(np.int32)
    return source.classes


def _picture_arrays(source: Source, n_rows: int, arrays: dict[str, NDArray[Any]]) -> Path | None:
    """Pixels, or names of files, into the arrays; the folder of the files comes back."""
    images: Images | None = source.images
    if images is None:
        return None
    if len(images) != n_rows:
        raise ValueError(f"source.images has {len(images)} pictures for {n_rows} rows; give one for each row.")
    if isinstance(images, np.ndarray):
        arrays["pixels"] = images
        return None
    if source.folder is None:
        folder = Path(os.path.commonpath([os.path.abspath(Path(path).parent) for path in images]))
    else:
        folder = Path(os.path.abspath(source.folder))
    names = []
    for path in images:
        whole = os.path.abspath(path)
        if not Path(whole).is_relative_to(folder):
            raise ValueError(f"source.images has {whole!r}, which is not in the folder {str(folder)!r}.")
        names.append(os.fsencode(os.path.relpath(whole, folder)))
    arrays["names"] = np.frombuffer(b"".join(names), np.uint8)
    arrays["offsets"] = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
    return folder


def _relative(path: str, home: Path) -> str:
    return Path(os.path.relpath(path, home)).as_posix()
