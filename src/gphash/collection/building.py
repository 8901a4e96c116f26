"""A collection from rows: encode them, write parts and items, and last the manifest that names them."""

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.arrays import Rows
from gphash.collection import bulk, columns, vectors
from gphash.collection import manifest as manifests
from gphash.collection.columns import Columns
from gphash.collection.items import Items
from gphash.collection.manifest import Manifest, PartFile
from gphash.collection.parts import NO_VECTORS, write_part
from gphash.collection.rows import Layout
from gphash.collection.stores import Location, refuse_address
from gphash.collection.vectors import VectorKind
from gphash.data import frames, pictures
from gphash.data.blocks import FolderTable, open_folder
from gphash.data.dataset import Images, Progress
from gphash.data.descriptors import described, encoders
from gphash.data.descriptors import descriptor as descriptors
from gphash.data.descriptors.descriptor import Descriptor
from gphash.data.sources import Source
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index import buckets as bucketing
from gphash.index import storage

Coded: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Numbers of items, and their packed codes."""

ROWS = 4096  # encoded between two reports of progress


class Material(NamedTuple):
    """What a collection is made of.

    name
        Of the collection.
    columns, classes
        What is known of the items, and the names of labels and tags in their order.
    descriptor
        How pictures became rows, if they did.
    images, home
        Pixels of the items' pictures, or paths of files, which lie in `home`.
    is_described
        Whether rows were made of the items' pictures or texts.
    """

    name: str
    columns: Columns
    classes: tuple[str, ...] = ()
    descriptor: Descriptor | None = None
    images: Images | None = None
    home: Path | None = None
    is_described: bool = False


def create(
    path: Location,
    model: Any,
    X: Any,
    items: Any,
    encoder: Any,
    replace: bool,
    executor: Any,
    progress: Progress | None,
    n_jobs: int | None,
    kind: VectorKind | None = None,
) -> Path | None:
    """Make a collection; see `Collection.create`. The folder of its pictures comes back."""
    refuse_address(path)
    target = Path(path).expanduser().absolute()
    blocks = X if isinstance(X, FolderTable) else open_folder(X) if isinstance(X, str | os.PathLike) else None
    if blocks is None and executor is not None:
        raise ValueError("executor is given, but X is in this process; give the path of a folder of blocks.")
    with making(target, replace, resumable=blocks is not None) as made:
        loaded = put_model(model, target / made.model, n_jobs)
        if blocks is None:
            X = _rows(X, encoder, loaded, n_jobs)
            material, rows = _material(X, items, target, loaded)
            parts, codes = _encode(target, material, rows, loaded, progress, kind)
        else:
            made_by = _encoder(encoder, loaded) or loaded.descriptor
            descriptors.check_same(loaded.descriptor, made_by, "model.gph", str(blocks.folder))
            material = _of_blocks(blocks, items, target)._replace(descriptor=made_by)
            own = _numbers(material.columns, blocks.n_rows)
            parts, codes = _encode_blocks(target, blocks, loaded, made.model, executor, progress, n_jobs, own, kind)
        pixels = material.images if isinstance(material.images, np.ndarray) else None
        numbers = (number for own, _ in codes for number in own.tolist()) if pixels is not None else ()
        kept = () if pixels is None else _pixels(numbers, pixels)
        layout = material.columns.layout._replace(vectors=kind)
        made.finish(material, loaded, parts, codes, material.is_described, kept, layout)
    return material.home


class Making(NamedTuple):
    """A collection that is being made: its folder, the name of its model's file, and what was there before."""

    place: Path
    model: str
    before: Manifest | None

    def finish(
        self,
        material: Material,
        model: Model,
        parts: list[PartFile],
        codes: Iterable[Coded],
        described: bool | Sequence[bool],
        pictures: Iterable[tuple[int, bytes, str | None]],
        layout: Layout,
        next_number: int = 0,
    ) -> None:
        """Write items with their numbers and codes, and at last the manifest: from then on, the collection is there.

        New items get numbers from `next_number`.
        """
        home = material.home
        beside = None if home is None else Path(os.path.relpath(os.path.realpath(home), self.place)).as_posix()
        meta = None if material.descriptor is None else material.descriptor.to_meta()
        name, belongs = manifests.free_name(self.before, "items", ".sqlite"), secrets.token_hex(16)
        (self.place / name).unlink(missing_ok=True)  # of one that was interrupted
        items = Items.create(self.place / name, layout, belongs)
        try:
            _fill(items, material.columns, codes, described)
            items.fill_pictures(pictures)
            items.finish(material.classes, next_number)
        except BaseException:
            items.close()
            raise
        own = (belongs, files.readable(material.name), model.n_bits, self.model, model.fingerprint, meta, beside)
        told = Manifest(*own, name, 0, tuple(parts))
        manifests.write(self.place, told)
        manifests.sweep(self.place, told)
        files.sync_folder(self.place.parent)


@contextlib.contextmanager
def making(target: Path, replace: bool, resumable: bool = False) -> Iterator[Making]:
    """Make a collection in a folder that nobody else writes to; until it is finished, an old one stays as it is."""
    check_target(target, replace)
    with _place(target):
        before = manifests.read(target) if manifests.is_collection(target) else None
        if not resumable:
            manifests.sweep(target, before)
        try:
            yield Making(target, manifests.free_name(before, "model", ".gph"), before)
        except BaseException:
            if not resumable or not bulk.has_plan(target / manifests.PARTS):
                with contextlib.suppress(OSError):
                    manifests.sweep(target, before)
            raise


def check_target(target: Path, replace: bool) -> None:
    """Refuse a place where no collection can be made."""
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{str(target)!r} is a file; give the name of a folder.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist.")
    if manifests.is_collection(target) and not replace:
        raise FileExistsError(
            f"{str(target)!r} is a collection already; give another name, or pass replace=True to replace it."
        )
    ours = manifests.is_collection(target) or (target / manifests.UNFINISHED).exists()
    if target.is_dir() and not ours and (foreign := sorted(path.name for path in target.iterdir())):
        raise FileExistsError(
            f"{str(target)!r} has other files, such as {foreign[0]!r}; give a new or an empty folder."
        )


@contextlib.contextmanager
def _place(target: Path) -> Iterator[None]:
    """The folder, locked; if it is new and nothing gets into it, it goes again."""
    target.mkdir(exist_ok=True)
    with manifests.locked(target):
        if not manifests.is_collection(target):
            files.write_text(target / manifests.UNFINISHED, "")
        (target / manifests.PARTS).mkdir(exist_ok=True)
        try:
            yield
        except BaseException:
            if not manifests.is_collection(target):
                with contextlib.suppress(OSError):
                    (target / manifests.PARTS).rmdir()
                    (target / manifests.UNFINISHED).unlink(missing_ok=True)
                    target.rmdir()
            raise


def put_model(model: Any, target: Path, n_jobs: int | None = -1) -> Model:
    """Write a model into the folder, a fitted hasher or a pipeline, a file or its content, and open it."""
    if hasattr(model, "save"):
        model.save(target)
    elif hasattr(model, "steps"):
        from gphash.hashers import pipelines  # which needs scikit-learn, and whoever indexes a file does not

        pipelines.save(model, target)
    elif not isinstance(model, bytes) and not os.path.isfile(model):
        raise FileNotFoundError(f"model={os.fspath(model)!r} is not there; give a fitted hasher or the file of one.")
    else:
        with files.replacing(target) as file:
            file.write(model if isinstance(model, bytes) else Path(model).read_bytes())
    return models.load(target, n_jobs)


def _encoder(encoder: Any, model: Model) -> Descriptor | None:
    """What made rows, as it was given; None for nothing."""
    found = encoders.of(encoder)
    if isinstance(found, str):
        raise ValueError(f"encoder={found!r}; give the path of an ONNX model, a function, or something with encode.")
    if found is not None and found.n_features != model.n_features:
        raise ValueError(f"encoder={found} gives {found.n_features} numbers, and the model takes {model.n_features}.")
    return found


def _rows(X: Any, encoder: Any, model: Model, n_jobs: int | None) -> Any:
    """Rows, or the source that they come from; texts become rows."""
    made_by = _encoder(encoder, model)
    if isinstance(X, Source):
        if made_by is not None and made_by != X.descriptor:
            raise ValueError(
                f"encoder={made_by}; {X.name!r} was read with {X.descriptor}: leave it out, or read it again."
            )
        return X
    texts = columns.texts(X)
    made_by = made_by or model.descriptor
    if made_by is None or (texts is None and encoder is None):
        return X
    rows: Any = frames.held(X) if texts is None else described.rows(texts, made_by, n_jobs).X
    said = {} if texts is None else {"text": texts}
    return Source("", rows, None, None, (), None, None, made_by, "", (), None, said)


def _material(X: Any, items: Any, target: Path, model: Model) -> tuple[Material, Rows]:
    if not isinstance(X, Source):
        rows = frames.held(X)
        if len(rows.shape) != 2:
            raise ValueError(f"X has shape {rows.shape}; give rows [n, {model.n_features}].")
        told = columns.read(items, len(rows))
        return Material(target.stem, told, _classes(told), model.descriptor), rows
    descriptors.check_same(model.descriptor, X.descriptor, "model.gph", X.name)
    home = None
    told = columns.read(said(X, items), len(X.X))
    if X.images is not None and not isinstance(X.images, np.ndarray):
        home = Path(os.path.abspath(X.folder or os.path.commonpath([os.path.dirname(path) for path in X.images])))
    name = Path(X.name).name or X.name or target.stem
    named = tuple(map(files.readable, X.classes)) or _classes(told)
    return Material(name, told, named, X.descriptor, X.images, home, X.is_described), X.X


def said(source: Source, items: Any) -> dict[str, Any]:
    """What a source, and the user beside it, say of its rows, as columns."""
    found: dict[str, Any] = {} if source.ids is None else {"key": source.ids}
    found |= _labels(source.y, source.classes, len(source.X)) | source.columns
    if source.images is not None and not isinstance(source.images, np.ndarray):
        found["picture"] = _names(source.images, source.folder)
    return found | columns.lists(items, len(source.X))


def pictures_of(source: Source) -> list[bytes | None]:
    """The pictures of a source, as contents of files."""
    if source.images is None:
        return []
    if isinstance(source.images, np.ndarray):
        return [pictures.to_png(image, max(image.shape)) for image in source.images]
    return [Path(path).read_bytes() for path in source.images]


def _of_blocks(table: FolderTable, items: Any, target: Path) -> Material:
    labels = table.labels()
    known = table.items() | ({} if labels is None else _labels(labels.y, labels.classes, table.n_rows))
    told = columns.read(known | columns.lists(items, table.n_rows), table.n_rows)
    return Material(target.stem, told, _classes(told) if labels is None else labels.classes)


def _labels(y: NDArray[Any] | None, classes: tuple[str, ...], n_rows: int) -> dict[str, list[Any]]:
    """Labels or tags as columns."""
    if y is None:
        return {}
    classes = tuple(map(files.readable, classes))
    if len(set(classes)) < len(classes):
        raise ValueError("classes has a name twice; give every class its own name.")
    if len(y) != n_rows or y.ndim not in (1, 2):
        raise ValueError(f"y has shape {y.shape} for {n_rows} rows; give labels [n] or tags [n, c].")
    if y.ndim == 2:
        return {"tags": [[classes[column] for column in np.flatnonzero(row)] for row in y]}
    if len(y) and (int(y.min()) < -1 or int(y.max()) >= len(classes)):
        raise ValueError(f"y goes from {y.min()} to {y.max()}; give numbers into the {len(classes)} classes, or -1.")
    names = (*classes, None)  # −1 is the last one
    return {"label": [names[number] for number in y.tolist()]}


def _classes(told: Columns) -> tuple[str, ...]:
    if "tags" in told.values:
        named = (name for tags in told.values["tags"] for name in str(tags or "").split(";") if name)
    else:
        named = (str(label) for label in told.values.get("label", ()) if label is not None)
    return tuple(sorted(set(named)))


def _names(paths: Sequence[Path], home: Path | None) -> list[str]:
    """Names of pictures in their folder."""
    whole = [os.path.abspath(path) for path in paths]
    root = os.path.abspath(home or os.path.commonpath([os.path.dirname(path) for path in whole]))
    for path in whole:
        if not Path(path).is_relative_to(root):
            raise ValueError(f"images has {path!r}, which is not in the folder {root!r}.")
    return [files.readable(os.path.relpath(path, root)) for path in whole]


def _encode(
    target: Path,
    material: Material,
    X: Rows,
    model: Model,
    progress: Progress | None,
    kind: VectorKind | None,
) -> tuple[list[PartFile], Iterable[Coded]]:
    """Write one part of all rows; their numbers and codes."""
    rows = X
    if len(rows.shape) != 2 or not len(rows) or rows.shape[1] != model.n_features:
        raise ValueError(
            f"{material.name!r} has rows of shape {rows.shape}, and the model takes [n, {model.n_features}]; give "
            "data of the kind that it was trained with."
        )
    tell = None if progress is None else lambda done: progress(done, len(rows))
    numbers, name = _numbers(material.columns, len(rows)), manifests.free_part(target)
    pieces, n_rows = (rows[at : at + ROWS] for at in range(0, len(rows), ROWS)), len(rows)
    own = NO_VECTORS
    if kind is None:
        packed = model.encode_pieces(pieces, n_rows, tell)
    else:
        beside = str(Path(name).with_suffix(vectors.ENDING))
        with vectors.VectorWriter(target / beside, n_rows, model.n_features, kind) as writer:
            packed = model.encode_pieces(writer.passing(pieces, numbers), n_rows, tell)
            own = beside, writer.finish()
    grouped = bucketing.group(bucketing.to_words(packed, model.n_bits), numbers)
    return [write_part(target, name, grouped, model.n_bits, model.fingerprint, *own)], [(numbers, packed)]


def _numbers(told: Columns, n_rows: int) -> NDArray[np.int64]:
    """Numbers of items: their keys, if these are whole numbers."""
    is_own = told.keys and isinstance(told.keys[0], int)
    return np.array(told.keys, np.int64) if is_own else np.arange(n_rows, dtype=np.int64)


def _encode_blocks(
    target: Path,
    table: FolderTable,
    model: Model,
    name: str,
    executor: Any,
    progress: Progress | None,
    n_jobs: int | None,
    numbers: NDArray[np.int64],
    kind: VectorKind | None,
) -> tuple[list[PartFile], Iterable[Coded]]:
    """Let workers write a part for every block; numbers and codes of each."""
    place = target / manifests.PARTS
    given = None if (numbers == np.arange(table.n_rows)).all() else numbers
    made = bulk.make("index", target / name, table, place, executor, progress, n_jobs, given, kind)
    parts = []
    for block in made.plan.blocks:
        own = numbers[block.start : block.stop]
        first, last = (int(own.min()), int(own.max())) if block.n_rows else (0, -1)
        file = f"{manifests.PARTS}/{block.file}"
        beside = None if kind is None else str(Path(file).with_suffix(vectors.ENDING))
        parts.append(PartFile(file, str(block.fingerprint), block.n_rows, first, last, beside, block.vectors))

    def codes() -> Iterator[Coded]:
        for part, block in zip(parts, made.plan.blocks, strict=True):
            found = storage.read_index(target / part.file).buckets
            order = np.argsort(found.ids, kind="stable")
            rows = order[np.searchsorted(found.ids[order], numbers[block.start : block.stop])]
            yield found.ids[rows], bucketing.to_packed(bucketing.spread(found)[rows], model.n_bits)

    return parts, codes()


def _fill(items: Items, known: Columns, codes: Any, described: bool | Sequence[bool]) -> None:
    """Write numbers, codes and columns, part by part."""
    done = 0
    for numbers, packed in codes:
        rows = slice(done, done + len(numbers))
        keys = known.keys[rows] if known.keys is not None and known.layout.keys == "text" else None
        values = {name: cells[rows] for name, cells in known.values.items()}
        made = described if isinstance(described, bool) else described[rows]
        items.fill(numbers.tolist(), packed, made, keys, values)
        if "tags" in values:
            tagged = zip(values["tags"], numbers.tolist(), strict=True)
            items.fill_tags((tag, number) for tags, number in tagged for tag in str(tags or "").split(";") if tag)
        done += len(numbers)


def _pixels(numbers: Iterable[int], images: NDArray[np.uint8]) -> Iterator[tuple[int, bytes, str | None]]:
    shape = ",".join(map(str, images.shape[1:]))
    return ((number, one.tobytes(), shape) for number, one in zip(numbers, images, strict=True))
