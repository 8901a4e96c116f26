"""The parts of a collection in a folder: files of codes, and of vectors beside them, which never change."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.collection import manifest as manifests
from gphash.collection import sqlite, vectors
from gphash.collection.manifest import Manifest, PartFile
from gphash.collection.vectors import Rows, VectorFile, VectorKind, VectorWriter
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import storage
from gphash.index.contents import Contents, Part

WASTE = 2  # times as many vectors as items may be in the file of a part that has lost some
NO_VECTORS: tuple[str | None, str | None] = (None, None)


class PartVectors(NamedTuple):
    """Parts as a manifest has them, and the mapped files of their vectors; nothing if the collection keeps none."""

    n_features: int
    kind: VectorKind | None
    files: tuple[tuple[Part, VectorFile], ...] = ()

    @classmethod
    def map(
        cls, folder: Path, manifest: Manifest, held: Contents, kind: VectorKind | None, n_features: int
    ) -> "PartVectors":
        """Map the files that a manifest names."""
        if kind is None:
            return cls(n_features, None)
        if any(one.vectors is None for one in manifest.parts):
            raise FormatError(f"{str(folder / manifests.NAME)!r} names no vectors of a part; {manifests.AGAIN}")
        files = [
            VectorFile.open(folder / str(one.vectors), str(one.vectors_mark), kind, n_features)
            for one in manifest.parts
        ]
        return cls(n_features, kind, tuple(zip(held.parts, files, strict=False)))  # an empty part has no file

    @property
    def is_kept(self) -> bool:
        """Whether the collection keeps vectors."""
        return self.kind is not None

    @property
    def shape(self) -> tuple[int, VectorKind]:
        """What a file of vectors is made with."""
        assert self.kind is not None
        return self.n_features, self.kind

    def wastes(self, part: PartFile, n_items: int) -> bool:
        """Whether the file of a part has too many vectors for so many items that are left of it."""
        return any(len(file) > WASTE * n_items for own, file in self.files if own.file == part.file)

    def read(self, numbers: NDArray[np.int64], recent: Mapping[int, bytes], place: Path) -> Rows:
        """Stored vectors of items: those that no part has yet, from `place`, or else from the files."""
        n_features, kind = self.shape
        rows = np.empty((len(numbers), kind.n_bytes(n_features)), np.uint8)
        left = np.array([number not in recent for number in numbers.tolist()], bool)
        if recent:
            with sqlite.telling(place):
                own = np.frombuffer(b"".join(recent[number] for number in numbers[~left].tolist()), np.uint8)
                rows[~left] = vectors.check(own.reshape(-1, rows.shape[1]), numbers[~left], kind.form, place)
        for part, file in self.files:
            places = np.flatnonzero(left)
            # A file may have vectors of items that were removed from its part, and are elsewhere now.
            here = places[part.places(numbers[places]) >= 0]
            found = file.find(numbers[here])
            if (found < 0).any():
                raise FormatError(f"{str(file.path)!r} lacks vectors of its part; {manifests.AGAIN}")
            rows[here] = file.read(found, numbers[here])
            left[here] = False
        if left.any():
            raise KeyError(int(numbers[left][0]))
        return rows


def write_part(
    folder: Path,
    name: str,
    buckets: bucketing.Buckets,
    n_bits: int,
    model: str,
    kept: str | None = None,
    kept_mark: str | None = None,
) -> PartFile:
    """Write a part, whose vectors, if there are any, are in a file already."""
    (folder / manifests.PARTS).mkdir(exist_ok=True)
    mark = storage.write_index(folder / name, buckets, n_bits, model)
    return PartFile(name, mark, buckets.n_items, *Part(buckets).ends, kept, kept_mark)


def write_vectors(
    folder: Path,
    part: str,
    pieces: Iterable[tuple[NDArray[np.int64], Rows]],
    n_rows: int,
    n_features: int,
    kind: VectorKind,
) -> tuple[str, str]:
    """Write stored vectors of a part that is about to be written: the name of their file, and its mark."""
    (folder / manifests.PARTS).mkdir(exist_ok=True)
    name = str(Path(part).with_suffix(vectors.ENDING))
    with VectorWriter(folder / name, n_rows, n_features, kind) as writer:
        for numbers, rows in pieces:
            writer.add(numbers, rows)
        return name, writer.finish()
