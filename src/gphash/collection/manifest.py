"""The files of a collection: the index, its items and what was added, found together or refused.

Beside the index `NAME` there are `NAME.items`, what is known of the items that it was built from, and `NAME.added`,
what was added later. A new index replaces an old one at the moment its file does: its items wait in `NAME.items.next`
until then.
"""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash import container, files
from gphash.collection import changes, items
from gphash.collection.changes import AddedItem
from gphash.collection.items import Items
from gphash.container import FormatError
from gphash.data.dataset import Progress
from gphash.data.descriptors import descriptor as descriptors
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index import storage
from gphash.index.hamming_index import HammingIndex

if TYPE_CHECKING:
    from gphash.data.sources import Source

Location: TypeAlias = str | os.PathLike[str]
Together: TypeAlias = tuple[HammingIndex, Items, dict[int, AddedItem]]

ITEMS, WAITING, ADDED = ".items", ".items.next", ".added"
ROWS = 4096  # encoded between two reports of progress
ATTEMPTS = 20


def beside(path: Location, suffix: str) -> Path:
    """A file beside the index; if that is a link, beside what it points to."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + suffix)


def signature(path: Location, model: Location | None = None) -> tuple[tuple[int, ...], ...]:
    """What differs when a file of a collection, or its model, was replaced or changed."""
    places = [beside(path, suffix) for suffix in ("", ".journal", ITEMS, WAITING, ADDED)]
    if model is not None:
        return tuple(map(_stamp, (*places, Path(model))))
    for suffix in (ITEMS, WAITING):
        with contextlib.suppress(OSError, FormatError):
            meta = container.describe(beside(path, suffix)).meta
            places.append(beside(path, "").parent / str(meta.get("model", "")))
    return tuple(map(_stamp, places))


def _stamp(path: Path) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return ()


def load(model: Location, n_jobs: int | None = -1) -> Model:
    """A model from its file."""
    if not os.path.isfile(model):
        raise FileNotFoundError(f"model={os.fspath(model)!r} is not there; give the file that save wrote.")
    return models.load(model, n_jobs)


def load_for(path: Location, index: HammingIndex, known: Items, model: Location | None) -> Model:
    """The model that made the codes of an index: a given file, or the one that its items name."""
    name = os.fspath(path)
    if model is None and not known.model:
        raise ValueError(
            f"model=None, and no file of items beside {name!r} names the model; give the file of the model that made "
            "the codes."
        )
    place = beside(path, "").parent / known.model if model is None else Path(model)
    loaded = load(place)
    needed, given = index.model or known.model_fingerprint, loaded.fingerprint
    if needed and needed != given:
        raise ValueError(
            f"model={str(place)!r} has the fingerprint {given[:12]}…, but the index {name!r} holds codes of the model "
            f"{needed[:12]}…; give the model that made them, or build the index again."
        )
    if loaded.n_bits != index.n_bits:
        raise ValueError(
            f"model={str(place)!r} makes codes of {loaded.n_bits} bits, but the index {name!r} holds codes of "
            f"{index.n_bits}; give the model that made them."
        )
    descriptors.check_same(loaded.descriptor, known.descriptor, str(place), name)
    if known.descriptor is not None and known.descriptor.n_features != loaded.n_features:
        raise FormatError(
            f"the items of {name!r} are described by {known.descriptor.n_features} numbers, and the model takes "
            f"{loaded.n_features}; build the index again."
        )
    return loaded


def check_replaceable(path: Location, discard_added: bool) -> None:
    """Refuse to write over other files, or to lose items that were added."""
    container.check_replaceable(path, storage.KIND)
    for suffix in (ITEMS, WAITING):
        container.check_replaceable(beside(path, suffix), items.KIND)
    if not discard_added and (n_added := changes.count(beside(path, ADDED))):
        raise ValueError(
            f"{os.fspath(path)!r} has {n_added} item(s) that were added to it, which a new index would lose; give "
            "another name, or allow it: discard_added=True."
        )


def build(
    path: Location,
    model: Location,
    source: "Source",
    progress: Progress | None,
    discard_added: bool,
    n_jobs: int | None,
) -> None:
    """Encode the rows of a source, and write an index of them and what is known of them; see `Collection.build`."""
    check_replaceable(path, discard_added)
    loaded = load(model, n_jobs)
    n_rows, width = source.X.shape
    if not n_rows:
        raise ValueError(f"{source.name!r} has no rows; give some to search in.")
    if width != loaded.n_features:
        raise ValueError(
            f"{source.name!r} has {width} features, and the model {os.fspath(model)!r} takes "
            f"{loaded.n_features}; give data of the kind that it was trained with."
        )
    descriptors.check_same(loaded.descriptor, source.descriptor, os.fspath(model), source.name)
    ids = np.arange(n_rows, dtype=np.int64) if source.ids is None else np.asarray(source.ids, np.int64)
    tell = None if progress is None else lambda done: progress(done, n_rows)
    codes = loaded.encode_pieces((source.X[at : at + ROWS] for at in range(0, n_rows, ROWS)), n_rows, tell)
    index = HammingIndex.build(codes, ids, n_bits=loaded.n_bits, model=loaded.fingerprint)
    target, waiting, folder = (beside(path, suffix) for suffix in ("", WAITING, ADDED))
    with storage.lock(path):
        check_replaceable(path, discard_added)  # again: somebody may have added some meanwhile
        # Items that a killed build left waiting take their place, if they are those of the index that is there.
        with contextlib.suppress(FormatError, FileNotFoundError):
            if waiting.exists() and _choose(path, HammingIndex.open(path))[0] == waiting:
                settle(path)
        before = _stamp(target)
        try:
            belongs = items.write(waiting, source, ids, codes, os.fspath(model), loaded.fingerprint)
            index.save(path)
        except BaseException:
            if _stamp(target) == before:
                waiting.unlink(missing_ok=True)
            raise
        settle(path)
        changes.sweep(folder, changes.read(folder, belongs).foreign)
        changes.forget_next_id(folder)


def settle(path: Location) -> None:
    """Move waiting items to their place; somebody else may have done so."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(beside(path, WAITING), beside(path, ITEMS))
    files.sync_folder(beside(path, "").parent)


def open_together(path: Location, writable: bool) -> Together:
    """An index with its items, and those that were added; a writer clears up what a killed one left."""
    for _ in range(ATTEMPTS):
        before = signature(path)
        index = HammingIndex.open(path, writable=writable)
        try:
            place, known, added = _choose(path, index)
            if writable:
                _clear_up(path, index, place, known)
            return index, known, added
        except BaseException as error:
            index.close()
            # Somebody may have replaced files while we looked at them; the next look then finds them together.
            if writable or not isinstance(error, FormatError) or signature(path) == before:
                raise
    raise FormatError(f"the files of {os.fspath(path)!r} change faster than they can be read.")


def _clear_up(path: Location, index: HammingIndex, place: Path | None, known: Items) -> None:
    folder = beside(path, ADDED)
    found = changes.read(folder, known.fingerprint)
    if place is None and found.foreign:
        raise FormatError(
            f"{str(beside(path, ITEMS))!r} is missing, and {str(folder)!r} holds {len(found.foreign)} items that were "
            "added to it; put it back, or open the index read-only. Building it again loses them."
        )
    if place == beside(path, WAITING):
        settle(path)
    changes.sweep(folder, set(found.items).difference(index.ids.tolist()) if found.items else ())


def _choose(path: Location, index: HammingIndex) -> tuple[Path | None, Items, dict[int, AddedItem]]:
    """Where the items of an index are, which may still be waiting; None if there are none."""
    packed, ids = index.items()
    faults: list[FormatError] = []
    choices: list[tuple[int, Path, Items, dict[int, AddedItem]]] = []
    for place in (beside(path, ITEMS), beside(path, WAITING)):
        try:
            known = items.read(place)
            added = _added(path, known, packed, ids)
            later = np.isin(ids, np.fromiter(added, np.int64, len(added)))
            if reason := items.fault(known, packed, ids, later, index.model):
                raise FormatError(f"{str(place)!r} does not belong to the index {os.fspath(path)!r}: {reason}")
            choices.append((int((known.rows(ids) >= 0).sum()), place, known, added))
        except FileNotFoundError:
            continue
        except FormatError as error:
            if place == beside(path, ITEMS):
                faults.append(error)
    if choices:
        return max(choices, key=lambda choice: choice[0])[1:]  # the first of several
    if faults:
        raise faults[0]
    known = items.nothing(packed.shape[1], Path(path).stem)
    return None, known, _added(path, known, packed, ids)


def _added(path: Location, known: Items, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> dict[int, AddedItem]:
    """Added items that are in the index with the same code; nothing is known of those whose file cannot be read."""
    found = changes.read(beside(path, ADDED), known.fingerprint)

    def code(number: int) -> bytes | None:
        place = int(np.searchsorted(ids, number))
        return packed[place].tobytes() if place < len(ids) and int(ids[place]) == number else None

    added = {number: item for number, item in found.items.items() if code(number) == item.code}
    for number in found.unreadable:
        stored, row = code(number), known.row(number)
        if stored is not None and (row < 0 or known.codes[row].tobytes() != stored):
            added[number] = AddedItem((), stored, False, False)
    return added


def folders(path: Location, known: Items, given: Location | None) -> tuple[Path | None, Path | None]:
    """The folder that pictures are shown from, and one that the index names and that is not shown.

    An index may come from anywhere, and could name anybody's folder. One below the index's own folder is followed, if
    no link leads out; any other only if whoever opens the index gives it.
    """
    if given is not None:
        if not os.path.isdir(given):
            raise ValueError(f"pictures={os.fspath(given)!r} is no folder; give the one that the pictures are in.")
        return Path(os.path.realpath(given)), None
    if known.folder is None:
        return None, None
    home = beside(path, "").parent
    named = Path(os.path.realpath(home / known.folder))
    return (named, None) if named.is_relative_to(home) else (None, named)
