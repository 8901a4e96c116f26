"""Codes or an index in many files, one for every block of a large table, and the search in them as if they were one.

A folder holds the model, `model.gph`, the files of the blocks, and `manifest.json`, which says what they were made
with and of. The manifest is there first as a plan, without fingerprints of the files, and at last with them: a folder
whose making was interrupted is known by it.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import container, files, schema
from gphash.codes.packing import MOST_BITS
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import checks, storage
from gphash.index.contents import Contents, Part
from gphash.index.hamming_index import HammingIndex
from gphash.schema import Each, FaultError, Flag, Maybe, Name, Record, Text, Whole
from gphash.version import __version__

MANIFEST, MODEL = "manifest.json", "model.gph"
FORMAT = 1
KINDS = {"codes": ".codes.npy", "index": ".index"}  # and how their files end
UNCHANGED = "an index in many files cannot be changed; merge() it into one."

BLOCK = Record({"name": Text(), "file": Name(), "start": Whole(), "stop": Whole(), "fingerprint": Maybe(Text())})
TOLD = Record(
    {
        **{"format": Whole(FORMAT, FORMAT), "gphash": Text(), "finished": Flag(), "kind": Text(tuple(KINDS))},
        **{"model": Text(), "n_bits": Whole(1, MOST_BITS), "source": Text(), "blocks": Each(BLOCK, 1)},
    }
)
"""What a manifest holds."""


class BlockFile(NamedTuple):
    """A block, its file in the folder, its range among all rows (the ids of an index), and, once made, its mark."""

    name: str
    file: str
    start: int
    stop: int
    fingerprint: str | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class Manifest(NamedTuple):
    """What a folder holds: "codes" or an "index", fingerprints of model and table, and blocks in the order of rows."""

    kind: str
    model: str
    n_bits: int
    source: str
    blocks: tuple[BlockFile, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.blocks[-1].stop

    @property
    def finished(self) -> bool:
        """Whether all files are there."""
        return all(block.fingerprint is not None for block in self.blocks)

    def planned(self) -> "Manifest":
        """The same before anything was made: what must be equal for work to go on."""
        return self._replace(blocks=tuple(block._replace(fingerprint=None) for block in self.blocks))


def is_folder_of_parts(path: Path) -> bool:
    """Whether a folder has a manifest."""
    return (path / MANIFEST).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    told = {"format": FORMAT, "gphash": __version__, "finished": manifest.finished, **manifest._asdict()}
    told["blocks"] = [block._asdict() for block in manifest.blocks]
    files.write_text(folder / MANIFEST, json.dumps(told, indent=1) + "\n")


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """What a folder holds, finished or not."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{os.fspath(folder)!r} has no {MANIFEST}; give a folder that gphash encode or gphash index has made."
        )
    with schema.reading(path, "make the folder again, or get it from where it was made"):
        told = json.loads(path.read_text(encoding="utf-8"))
        TOLD.check(told, "")
        blocks = tuple(BlockFile(**one) for one in told["blocks"])
        for one, before in zip(blocks, (0, *(block.stop for block in blocks)), strict=False):
            if one.start != before or one.stop < one.start or Path(one.file).name != one.file:
                raise FaultError(
                    f"its block {one.name!r} does not follow the one before it, or is no file of the folder"
                )
        return Manifest(told["kind"], told["model"], told["n_bits"], told["source"], blocks)


def write_part(path: str | os.PathLike[str], packed: NDArray[np.uint8], start: int, n_bits: int, model: str) -> str:
    """Write the index of a block whose ids follow each other, whole or not at all, and return its fingerprint.

    Nobody changes such a file, so that it needs no lock, which not every shared folder has.
    """
    words = checks.words(packed, n_bits)
    grouped = bucketing.group(words, np.arange(start, start + len(words)))
    return storage.write(Path(path), grouped, n_bits, model, None)


class PartedIndex(HammingIndex):
    """An index in many files, searched as one; made by `bulk.index`, opened by `open`.

    Ids are numbers of rows in the table that was indexed. Results are those of one `HammingIndex` over all rows. Items
    can neither be added nor removed: `merge` makes an index where they can, `save` one file of it.
    """

    @classmethod
    def open(cls, place: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open the folder that `bulk.index` made; codes and ids stay in the files until they are used."""
        if writable:
            raise ValueError(f"writable=True, but {UNCHANGED}")
        manifest = read_manifest(place)
        if manifest.kind != "index":
            raise ValueError(f"{os.fspath(place)!r} holds codes; gphash index, or bulk.index, makes an index.")
        if not manifest.finished:
            raise ValueError(f"{os.fspath(place)!r} is not finished; run the same gphash index, or bulk.index, again.")
        parts = tuple(_open_part(Path(place), block, manifest) for block in manifest.blocks)
        return cls(Contents(parts), manifest.n_bits, manifest.model)

    def merge(self) -> HammingIndex:
        """One index of all items, in memory."""
        return HammingIndex(Contents((Part(self._contents.whole()),)), self.n_bits, self.model)

    def _check_writable(self) -> None:
        raise ValueError(UNCHANGED)


def _open_part(folder: Path, block: BlockFile, manifest: Manifest) -> Part:
    path = folder / block.file
    if not path.is_file():
        raise FormatError(f"{str(path)!r} is missing; run the same gphash index, or bulk.index, again")
    opened = storage.open_files(path, writable=False)
    opened.files.close()
    part = Part(opened.buckets)
    if (
        container.describe(path).fingerprint != block.fingerprint
        or opened.changes
        or (opened.n_bits, opened.model, opened.buckets.n_items) != (manifest.n_bits, manifest.model, block.n_rows)
        or (block.n_rows and part.ends != (block.start, block.stop - 1))
    ):
        raise FormatError(f"{str(path)!r} is not the file that {MANIFEST} names; run the same gphash index again")
    return part
