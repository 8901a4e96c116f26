"""`NAME.items`: what is known of the items that an index was built from.

A container (see `persistence`) of kind "items". Its meta are the model (relative to the index), the model's
fingerprint, the descriptor, the names of classes, the folder of pictures (relative, too) and the name of the data. Its
arrays are ids and codes, labels or tags, and pictures: pixels, or names of files as bytes with offsets. The codes tell
which index the file belongs to, whatever has been added to or removed from it since. Arrays stay in the file.

Whoever writes the file names the folder that pictures are shown from. So a folder that is not below the index's own is
followed only if the user names it, too; see `opening.folders`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files, persistence, schema
from gphash.datasets.dataset import Images
from gphash.features.descriptor import Descriptor
from gphash.gallery.records import NoPictureError
from gphash.hamming.packing import MOST_BITS
from gphash.schema import Array, Digest, Each, FaultError, Maybe, Name, Named, Schema, Text

if TYPE_CHECKING:
    from gphash.datasets.sources import Source

KIND = "items"
UNKNOWN = -1  # the label of an item without one

SCHEMA = Schema(
    {
        "model": Name(),
        "model_fingerprint": Digest(),
        "descriptor": Maybe(Named()),
        "classes": Each(Text(), distinct=True),
        "folder": Maybe(Name()),
        "name": Text(),
    },
    {
        "ids": Array("<i8", ("items",), np.iinfo(np.int64).min, np.iinfo(np.int64).max),
        "codes": Array("|u1", ("items", "bytes")),
        "labels": Array("<i4", ("items",), optional=True),
        "tags": Array("|u1", ("items", "classes"), 0, 1, optional=True),
        "pixels": Array("|u1", ("items", "height", "width"), optional=True),
        "coloured": Array("|u1", ("items", "height", "width", 3), optional=True),
        "names": Array("|u1", ("characters",), optional=True),
        "offsets": Array("<i8", ("offsets",), 0, optional=True),
    },
    {"bytes": (1, -(-MOST_BITS // 8)), "height": (1, 2**31), "width": (1, 2**31)},
)
"""What the file holds; pixels have three sides, or, if they are coloured, four."""


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
    source: "Source",
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
    return persistence.write(path, KIND, meta, arrays)


def read(path: Path) -> Items:
    """Read and verify a file of items; a FormatError says what is wrong with it."""
    stored = persistence.read(path, KIND, mapped=True)
    with schema.reading(path, "build the index again, or get its files from where they were made"):
        meta = stored.meta
        arrays = {name: np.asarray(array) for name, array in stored.arrays.items()}
        _check(meta, arrays)
        ids = arrays["ids"]
        order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
        if order is not None and not (ids[order[1:]] > ids[order[:-1]]).all():
            raise FaultError("it has an id twice")
        return Items(
            stored.fingerprint,
            meta["model"],
            meta["model_fingerprint"],
            Descriptor.from_meta(meta["descriptor"]),
            tuple(files.readable(name) for name in meta["classes"]),
            meta["folder"],
            files.readable(meta["name"]),
            ids,
            arrays["codes"],
            order,
            *(arrays.get(name) for name in ("labels", "tags", "pixels", "names", "offsets")),
        )


def _check(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse fields and arrays of which some row is not there, or some number out of bounds."""
    arrays = arrays.copy()
    if "pixels" in arrays and arrays["pixels"].ndim == 4:
        arrays["coloured"] = arrays.pop("pixels")
    sizes = schema.check(SCHEMA, meta, arrays)
    if len({"pixels", "coloured", "names"} & set(arrays)) > 1 or {"labels", "tags"} <= set(arrays):
        raise FaultError("it has pictures or labels in two ways")
    if "labels" in arrays:
        schema.check_values("labels", arrays["labels"], UNKNOWN, len(meta["classes"]) - 1)
    if sizes.get("classes", len(meta["classes"])) != len(meta["classes"]):
        raise FaultError(f"it has {sizes['classes']} tags, and names of {len(meta['classes'])}")
    for name in ("model", "folder"):
        if meta[name] is not None and os.path.isabs(meta[name]):
            raise FaultError(f"the field {name!r} is {meta[name]!r}; only what is relative to the index is followed")
    if ("names" in arrays) != ("offsets" in arrays) or ("names" in arrays) != (meta["folder"] is not None):
        raise FaultError("it has some of folder, names and offsets of pictures, and not all")
    if (bounds := arrays.get("offsets")) is not None and (
        sizes["offsets"] != sizes["items"] + 1
        or int(bounds[0]) != 0
        or int(bounds[-1]) != len(arrays["names"])
        or not (bounds[1:] >= bounds[:-1]).all()
    ):
        raise FaultError("its offsets do not divide the names of pictures among its items")


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


def file_of(root: Path, name: str) -> Path:
    """The file of that name in a folder, which has no links; a NoPictureError if it is none, or leads out of it."""
    if "\0" in name or os.path.isabs(name):
        raise NoPictureError(f"{name!r} is no name of a file in {str(root)!r}.")
    target = Path(os.path.realpath(os.path.join(root, name)))
    if not target.is_relative_to(root):
        raise NoPictureError(f"{name!r} leads out of {str(root)!r}.")
    if not target.is_file():
        raise NoPictureError(f"there is no file {name!r} in {str(root)!r} any more.")
    return target


def _label_arrays(source: "Source", n_rows: int, arrays: dict[str, NDArray[Any]]) -> tuple[str, ...]:
    """Labels or tags into the arrays; the names of classes come back."""
    if len(set(source.classes)) < len(source.classes):
        raise ValueError("source.classes has a name twice; give every class a name of its own.")
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


def _picture_arrays(source: "Source", n_rows: int, arrays: dict[str, NDArray[Any]]) -> Path | None:
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
