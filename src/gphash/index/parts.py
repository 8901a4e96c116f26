"""Codes or an index in many files, one for every block of a large table, and the search in them as if they were one.

A folder holds the model, `model.gph`, the files of the blocks, and `manifest.json`, which says what they were made
with and of. The manifest is there first as a plan, without fingerprints of the files, and at last with them: a folder
whose making was interrupted is known by it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import files, persistence, schema
from gphash.hamming.packing import MOST_BITS
from gphash.index import buckets as bucketing
from gphash.index import checks, storage
from gphash.index.buckets import Buckets, Words
from gphash.index.contents import Contents, Part
from gphash.index.hamming_index import HammingIndex
from gphash.persistence import FormatError
from gphash.schema import Each, FaultError, Flag, Maybe, Name, Record, Text, Whole
from gphash.version import __version__

MANIFEST, MODEL = "manifest.json", "model.gph"
FORMAT = 1
KINDS = {"codes": ".codes.npy", "index": ".index"}  # and how their files end

TOLD = Record(
    {
        "format": Whole(FORMAT, FORMAT),
        "gphash": Text(),
        "finished": Flag(),
        "kind": Text(tuple(KINDS)),
        "model": Text(),
        "n_bits": Whole(1, MOST_BITS),
        "source": Text(),
        "blocks": Each(
            Record(
                {
                    "name": Text(),
                    "file": Name(),
                    "start": Whole(),
                    "stop": Whole(),
                    "fingerprint": Maybe(Text()),
                }
            ),
            1,
        ),
    }
)
"""What a manifest holds."""


class BlockFile(NamedTuple):
    """What was made of a block.

    name
        Of the block.
    file
        In the folder.
    start, stop
        The block's range among all rows; in an index, they are the ids.
    fingerprint
        Of the file's content; None as long as it is only planned.
    """

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
    """What a folder holds.

    kind
        "codes" or "index".
    model
        Fingerprint of the model.
    n_bits
        Length of a code.
    source
        Fingerprint of the table that the rows are from.
    blocks
        In the order of the rows.
    """

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
    told = {
        "format": FORMAT,
        "gphash": __version__,
        "finished": manifest.finished,
        **manifest._asdict(),
        "blocks": [block._asdict() for block in manifest.blocks],
    }
    files.write_text(folder / MANIFEST, json.dumps(told, indent=1) + "\n")


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """What a folder holds, finished or not."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{os.fspath(folder)!r} has no {MANIFEST}; wanted is a folder that gphash encode or gphash index has made."
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
    words = checks.words(packed, n_bits, "packed")
    grouped = bucketing.group(words, np.arange(start, start + len(words)))
    return storage.write(Path(path), grouped, n_bits, model, None)


@dataclass(frozen=True, eq=False)
class Stretch(Part):
    """Buckets of ids that follow each other.

    start, stop
        Their range.
    """

    start: int = 0
    stop: int = 0

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `buckets.ids` some ids are; only a part that has any of them is searched."""
        if ((numbers >= self.start) & (numbers < self.stop)).any():
            return super().places(numbers)
        return np.full(len(numbers), -1, np.int64)


@dataclass(frozen=True, eq=False)
class Files(Contents):
    """Contents of many parts of about the same size, where `Contents` expects one that is large."""

    def whole(self) -> Buckets:
        """All items as one set of buckets."""
        words = np.concatenate([bucketing.spread(part.buckets) for part in self.parts])
        return bucketing.group(words, np.concatenate([part.buckets.ids for part in self.parts]))

    def bucket_sizes(self) -> tuple[Words, NDArray[np.int64]]:
        """Distinct codes, [u] or [u, w], and how many items have each, [u]."""
        sizes = np.concatenate([part.sizes for part in self.parts])
        codes = np.concatenate([part.buckets.codes for part in self.parts])
        distinct = bucketing.group(codes, np.arange(len(codes)))
        if not distinct.n_codes:
            return distinct.codes, sizes
        return distinct.codes, np.add.reduceat(sizes[distinct.ids], distinct.starts[:-1].astype(np.int64))


class PartedIndex(HammingIndex):
    """An index in many files, searched as one; made by `gphash.bulk.index`, opened by `open`.

    Ids are numbers of rows in the table that was indexed. Results are those of one `HammingIndex` over all rows. Items
    can neither be added nor removed: `merge` makes an index where they can, `save` one file of it.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open the folder that `gphash.bulk.index` made; codes and ids stay in the files until they are used.

        Parameters
        ----------
        path
            The folder.
        writable
            Only False: such an index is not changed.
        """
        if writable:
            raise ValueError("writable=True, but an index in many files is not changed; merge() it into one.")
        manifest = read_manifest(path)
        if manifest.kind != "index":
            raise ValueError(f"{os.fspath(path)!r} holds codes; gphash index, or gphash.bulk.index, makes an index.")
        if not manifest.finished:
            raise ValueError(
                f"{os.fspath(path)!r} is not finished; run the same gphash index, or gphash.bulk.index, again."
            )
        parts = tuple(_open_part(Path(path), block, manifest) for block in manifest.blocks)
        return cls(Files(parts), manifest.n_bits, manifest.model)

    def __repr__(self) -> str:
        return f"PartedIndex({len(self):,} items in {len(self._contents.parts):,} files, {self.n_bits} bits)"

    def merge(self) -> HammingIndex:
        """One index of all items, in memory."""
        return HammingIndex(Contents((Part(self._contents.whole()),)), self.n_bits, self.model)

    def _check_writable(self) -> None:
        raise ValueError("an index in many files is not changed; merge() it into one.")


def _open_part(folder: Path, block: BlockFile, manifest: Manifest) -> Part:
    path = folder / block.file
    if not path.is_file():
        raise FormatError(f"{str(path)!r} is missing; run the same gphash index, or gphash.bulk.index, again")
    opened = storage.open_index(path, writable=False)
    opened.place.close()
    described = persistence.describe(path)
    if (
        described.fingerprint != block.fingerprint
        or opened.changes
        or (opened.n_bits, opened.model, opened.buckets.n_items) != (manifest.n_bits, manifest.model, block.n_rows)
        or (block.n_rows and (opened.buckets.ids.min(), opened.buckets.ids.max()) != (block.start, block.stop - 1))
    ):
        raise FormatError(f"{str(path)!r} is not the file that {MANIFEST} beside it names; wanted are files unchanged")
    return Stretch(opened.buckets, start=block.start, stop=block.stop)
