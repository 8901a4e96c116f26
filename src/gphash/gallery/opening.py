"""The files of a gallery: the index, its items and what was added, found together or refused."""

import contextlib
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.features import descriptor as descriptors
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.gallery import added, items
from gphash.gallery.added import Record
from gphash.gallery.items import Items
from gphash.index.hamming_index import HammingIndex
from gphash.persistence import FormatError

Location: TypeAlias = str | os.PathLike[str]

ATTEMPTS = 20


def open_together(path: Location, writable: bool) -> tuple[HammingIndex, Items, dict[int, Record]]:
    """An index with its items, and the records of those that were added."""
    for _ in range(ATTEMPTS):
        before = _stamps(path)
        index = HammingIndex.open(path, writable=writable)
        try:
            known, records = _identify(path, index, writable)
        except BaseException as error:
            index.close()
            # Somebody may have replaced the files between our looks at them; then the next look agrees.
            if writable or not isinstance(error, FormatError) or _stamps(path) == before:
                raise
            continue
        return index, known, records
    raise FormatError(f"the files of {os.fspath(path)!r} change faster than they can be read.")


def _stamps(path: Location) -> list[tuple[int, ...]]:
    """What differs when a file of a gallery has been changed."""
    return [stamp(beside(path, suffix)) for suffix in ("", ".journal", ".items", ".items.next", ".added")]


def stamp(path: Path) -> tuple[int, ...]:
    """What differs when a file has been replaced or changed; nothing if it is not there."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _identify(path: Location, index: HammingIndex, writable: bool) -> tuple[Items, dict[int, Record]]:
    """The items of an index and the records that go with them; a writer clears up what a killed one left."""
    place, known, records = _choose(path, index)
    if writable:
        folder = beside(path, ".added")
        found = added.read(folder, known.fingerprint)
        if place is None and found.foreign:
            raise FormatError(
                f"{str(beside(path, '.items'))!r} is missing, and {str(folder)!r} holds {len(found.foreign)} items "
                "that were added to it; put it back, or open the index to be read. To build it again does without them."
            )
        if place == beside(path, ".items.next"):
            settle(path)
        there = set(index.ids.tolist()) if found.records else set()
        added.sweep(folder, set(found.records) - there)
    return known, records


def _choose(path: Location, index: HammingIndex) -> tuple[Path | None, Items, dict[int, Record]]:
    """The items of an index, which may still wait for their place, and where they are; None if there are none."""
    packed, ids = index.items()
    faults = []
    choices: list[tuple[int, Path, Items, dict[int, Record]]] = []
    for place in (beside(path, ".items"), waiting := beside(path, ".items.next")):
        try:
            known = items.read(place)
        except FileNotFoundError:
            continue
        except FormatError as error:
            faults.append((place, str(error)))
            continue
        records = _records(path, known, packed, ids)
        later = np.isin(ids, np.fromiter(records, np.int64, len(records)))
        if fault := items.fault(known, packed, ids, later, index.model):
            faults.append((place, f"{str(place)!r} does not belong to the index {os.fspath(path)!r}: {fault}"))
        else:
            choices.append((int((known.rows(ids) >= 0).sum()), place, known, records))
    if choices:
        _, place, known, records = max(choices, key=lambda choice: choice[0])  # the first of several
        return place, known, records
    for place, reason in faults:
        if place != waiting:
            raise FormatError(reason)
    known = items.nothing(packed.shape[1], Path(path).stem)
    return None, known, _records(path, known, packed, ids)


def _records(path: Location, known: Items, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> dict[int, Record]:
    """Records of items that are in the index with the same code; empty ones where a file cannot be read."""
    found = added.read(beside(path, ".added"), known.fingerprint)

    def code(number: int) -> bytes | None:
        place = int(np.searchsorted(ids, number))
        return packed[place].tobytes() if place < len(ids) and int(ids[place]) == number else None

    records = {number: record for number, record in found.records.items() if code(number) == record.code}
    for number in found.unreadable:
        stored, row = code(number), known.row(number)
        if stored is not None and (row < 0 or known.codes[row].tobytes() != stored):
            records[number] = Record((), stored, False, False)
    return records


def finish(path: Location) -> None:
    """Give items their place that a killed build left waiting, if they are those of the index that is there."""
    waiting = beside(path, ".items.next")
    if waiting.exists() and os.path.exists(path):
        with contextlib.suppress(FormatError):
            if _choose(path, HammingIndex.open(path))[0] == waiting:
                settle(path)


def settle(path: Location) -> None:
    """Give items that wait their place; somebody else may have done so."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(beside(path, ".items.next"), beside(path, ".items"))
    files.sync_folder(beside(path, "").parent)


def beside(path: Location, suffix: str) -> Path:
    """A file beside the index; if that is a link, beside what it points to."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + suffix)


def folders(path: Location, known: Items, consent: Location | None) -> tuple[Path | None, Path | None]:
    """The folder that pictures are shown from, and one that the index names and that is not to be shown.

    An index may come from anywhere, and could name anybody's folder: one below the index's own is followed, links in
    it and all, if it does not lead out; any other only if whoever opens the index names it.

    Parameters
    ----------
    path, known
        The index and its items.
    consent
        The folder that the user has named, in place of the one that the index names.
    """
    if consent is not None:
        if not os.path.isdir(consent):
            raise ValueError(f"pictures={os.fspath(consent)!r} is no folder; give the one that the pictures are in.")
        return Path(os.path.realpath(consent)), None
    if known.folder is None:
        return None, None
    home = beside(path, "").parent
    named = Path(os.path.realpath(home / known.folder))
    return (named, None) if named.is_relative_to(home) else (None, named)


def load(model: Location, n_jobs: int | None = -1) -> Model:
    """A model from its file."""
    if not os.path.isfile(model):
        raise FileNotFoundError(f"model={os.fspath(model)!r} is not there; give the file that save wrote.")
    return models.load(model, n_jobs)


def check_model(loaded: Model, index: HammingIndex, known: Items, model: Path, path: Location) -> None:
    """Refuse a model that has not made the codes of an index."""
    wanted, given = index.model or known.model_fingerprint, loaded.fingerprint
    if wanted and wanted != given:
        raise ValueError(
            f"model={str(model)!r} has the fingerprint {given[:12]}…, but the index {os.fspath(path)!r} holds codes of "
            f"the model {wanted[:12]}…; give the model that made them, or build the index again."
        )
    if loaded.n_bits != index.n_bits:
        raise ValueError(
            f"model={str(model)!r} makes codes of {loaded.n_bits} bits, but the index "
            f"{os.fspath(path)!r} holds codes of {index.n_bits}; give the model that made them."
        )
    descriptors.check_same(loaded.descriptor, known.descriptor, str(model), os.fspath(path))
    if known.descriptor is not None and known.descriptor.n_features != loaded.n_features:
        raise FormatError(
            f"the items of {os.fspath(path)!r} are described by {known.descriptor.n_features} numbers, and the model "
            f"takes {loaded.n_features}."
        )
