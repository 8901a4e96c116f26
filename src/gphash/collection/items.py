"""`NAME.items`: what is known of the items that an index was built from.

A container of kind "items"; its arrays stay in the file. Its codes tell which index it belongs to, whatever was added
or removed since.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import container, files, schema
from gphash.codes.packing import MOST_BITS
from gphash.collection.records import NoPictureError
from gphash.data.dataset import Images
from gphash.data.descriptors.descriptor import Descriptor
from gphash.schema import Array, Digest, Each, FaultError, Maybe, Name, Named, Schema, Text

if TYPE_CHECKING:
    from gphash.data.sources import Source

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
    """What a file of items holds; what was added later names its fingerprint.

    The model and the folder of pictures are relative to the index. `order` has the rows in the order of their ids, or
    is None if they are in order. Labels are numbers into `classes`, −1 for none. The name of picture i, relative to the
    folder, is names[offsets[i]:offsets[i + 1]].
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
        """Rows of some ids; −1 for those that are missing."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        first, last = int(self.ids[0]), int(self.ids[-1])
        if self.order is None and last - first == len(self.ids) - 1:  # no gaps: nothing to look for
            return np.where((ids >= first) & (ids <= last), ids - first, -1)
        places = np.minimum(np.searchsorted(self.ids, ids, sorter=self.order), len(self.ids) - 1)
        rows = places if self.order is None else self.order[places]
        return np.where(self.ids[rows] == ids, rows, -1)

    def row(self, id: int) -> int:
        """The row of an id; −1 if it is missing."""
        return int(self.rows(np.array([id], np.int64))[0])

    def labels_of(self, row: int) -> tuple[str, ...]:
        """Names of a row's class or tags."""
        if self.labels is not None:
            number = int(self.labels[row])
            return () if number == UNKNOWN else (self.classes[number],)
        return () if self.tags is None else tuple(self.classes[column] for column in np.flatnonzero(self.tags[row]))

    def with_label(self, name: str) -> NDArray[np.int64]:
        """Ids of the items that have a label or tag."""
        number = self.classes.index(name) if name in self.classes else None
        if number is not None and self.labels is not None:
            return np.asarray(self.ids[self.labels == number])
        if number is not None and self.tags is not None:
            return np.asarray(self.ids[self.tags[:, number] == 1])
        return np.empty(0, np.int64)

    def count_labels(self, rows: NDArray[np.int64]) -> dict[str, int]:
        """How many of some rows have which label; labels that none has are left out."""
        counts = np.zeros(0, np.int64)
        if self.labels is not None:
            numbers = self.labels[rows]
            counts = np.bincount(numbers[numbers != UNKNOWN])
        elif self.tags is not None:
            counts = self.tags[rows].sum(axis=0, dtype=np.int64)
        return {self.classes[number]: int(counts[number]) for number in np.flatnonzero(counts)}

    def name_of(self, row: int) -> str:
        """The name of a row's picture in the folder."""
        assert self.names is not None
        assert self.offsets is not None
        return os.fsdecode(self.names[self.offsets[row] : self.offsets[row + 1]].tobytes())


def nothing(n_bytes: int, name: str) -> Items:
    """The items of an index that was made without a file of items: nothing is known of them."""
    empty = np.empty(0, np.int64)
    return Items("", "", "", None, (), None, name, empty, np.empty((0, n_bytes), np.uint8))


def write(
    path: Path, source: "Source", ids: NDArray[np.int64], codes: NDArray[np.uint8], model: str, fingerprint: str
) -> str:
    """Write what a source knows of its rows, with ids [n] and codes [n, bytes]; the file's fingerprint comes back."""
    arrays: dict[str, NDArray[Any]] = {"ids": ids, "codes": codes, **_label_arrays(source, len(ids))}
    folder, pictures = _picture_arrays(source, len(ids))

    def relative(target: str) -> str:
        return Path(os.path.relpath(os.path.realpath(target), path.parent)).as_posix()

    meta = {
        "model": relative(model),
        "model_fingerprint": fingerprint,
        "descriptor": None if source.descriptor is None else source.descriptor.to_meta(),
        "classes": list(source.classes),
        "folder": None if folder is None else relative(folder),
        "name": Path(source.name).name or source.name,
    }
    return container.write(path, KIND, meta, arrays | pictures)


def read(path: Path) -> Items:
    """Read and verify a file of items; a FormatError says what is wrong with it."""
    stored = container.read(path, KIND, mapped=True)
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
    """Refuse fields and arrays that do not fit together, or numbers out of bounds."""
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
            raise FaultError(f"the field {name!r} is {meta[name]!r}; it must be relative to the index")
    if ("names" in arrays) != ("offsets" in arrays) or ("names" in arrays) != (meta["folder"] is not None):
        raise FaultError("it has some of folder, names and offsets of pictures, but not all")
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
    """Why these items are not those of an index with such codes, ids and model; "" if they are.

    `later` marks the items of the index that were added after it was built, [n].
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
    """The file of that name in a folder that is no link; a NoPictureError if there is none, or it leads out."""
    if "\0" in name or os.path.isabs(name):
        raise NoPictureError(f"{name!r} is not the name of a file in {str(root)!r}.")
    target = Path(os.path.realpath(os.path.join(root, name)))
    if not target.is_relative_to(root):
        raise NoPictureError(f"{name!r} leads out of {str(root)!r}.")
    if not target.is_file():
        raise NoPictureError(f"there is no file {name!r} in {str(root)!r} any more.")
    return target


def _label_arrays(source: "Source", n_rows: int) -> dict[str, NDArray[Any]]:
    """Labels or tags of a source, checked."""
    names = source.classes
    if len(set(names)) < len(names):
        raise ValueError("source.classes has a name twice; give every class its own name.")
    if source.y is None:
        return {}
    y = np.asarray(source.y)
    if len(y) != n_rows or y.ndim not in (1, 2):
        raise ValueError(f"source.y has shape {y.shape} for {n_rows} rows; give labels [n] or tags [n, c].")
    if y.ndim == 2 and y.shape[1] != len(names):
        raise ValueError(f"source.y has {y.shape[1]} tags and source.classes {len(names)} names; give each tag a name.")
    if y.ndim == 2:
        return {"tags": (y != 0).astype(np.uint8)}
    if len(y) and (int(y.min()) < UNKNOWN or int(y.max()) >= len(names)):
        raise ValueError(f"source.y goes from {y.min()} to {y.max()}; give numbers into the {len(names)} classes.")
    return {"labels": y.astype(np.int32)}


def _picture_arrays(source: "Source", n_rows: int) -> tuple[str | None, dict[str, NDArray[Any]]]:
    """The folder of the pictures, and names of files in it; or pixels."""
    images: Images | None = source.images
    if images is None:
        return None, {}
    if len(images) != n_rows:
        raise ValueError(f"source.images has {len(images)} pictures for {n_rows} rows; give one for each row.")
    if isinstance(images, np.ndarray):
        return None, {"pixels": images}
    paths = [os.path.abspath(path) for path in images]
    folder = os.path.abspath(source.folder or os.path.commonpath(map(os.path.dirname, paths)))
    for path in paths:
        if not Path(path).is_relative_to(folder):
            raise ValueError(f"source.images has {path!r}, which is not in the folder {folder!r}.")
    names = [os.fsencode(os.path.relpath(path, folder)) for path in paths]
    offsets = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
    return folder, {"names": np.frombuffer(b"".join(names), np.uint8), "offsets": offsets}
