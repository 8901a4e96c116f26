"""Collections into PostgreSQL, and back into a folder."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gphash.collection import building, folder, postgres_store
from gphash.collection import manifest as manifests
from gphash.collection.columns import Columns
from gphash.collection.parts import NO_VECTORS, write_part, write_vectors
from gphash.collection.rows import Row
from gphash.collection.stores import Location
from gphash.data.dataset import Progress
from gphash.index import buckets as bucketing

PIECE = 4096  # vectors that are copied at once


def to_database(source: Location, address: str, progress: Progress | None = None) -> int:
    """Copy a folder into new tables, as a whole or not at all, and return how many items it has.

    Pictures that are files stay in their folder; give it to `Collection.open` to see them. What others change
    meanwhile is not copied.
    """
    with folder.FolderStore.open(source, writable=False) as opened, opened.items.moment():
        told = {"name": opened.name, "n_bits": opened.manifest.n_bits, "fingerprint": opened.manifest.fingerprint}
        told["descriptor"] = opened.manifest.descriptor
        content = (opened.path / opened.manifest.model).read_bytes()
        total = opened.items.count()
        given = postgres_store.Given(
            opened.items.layout,
            opened.items.all_stored(),
            opened.items.all_pictures(),
            opened.items.classes(),
            opened.items.next_number(),
            _vectors_of(opened),
        )
        tell = None if progress is None else lambda done: progress(done, total)
        return postgres_store.create(address, told, content, given, tell)


def to_folder(address: str, target: Location, replace: bool = False) -> int:
    """Copy a collection from a database into a new folder, and return how many items it has."""
    place = Path(target).expanduser().absolute()
    store = postgres_store.PostgresStore.open(address, writable=False)
    try:
        with building.making(place, replace) as made, store.index.moment():
            rows, layout = list(store.items.all_rows()), store.items.layout
            model = building.put_model(store.content, made.place / made.model)
            packed = np.frombuffer(b"".join(row.code for row in rows), np.uint8).reshape(-1, -(-model.n_bits // 8))
            numbers = np.array([row.number for row in rows], np.int64)
            grouped = bucketing.group(bucketing.to_words(packed, model.n_bits), numbers)
            name, own = manifests.free_part(place), NO_VECTORS
            if (kind := layout.vectors) is not None and rows:
                pieces = (numbers[at : at + PIECE] for at in range(0, len(numbers), PIECE))
                found = ((piece, store.vectors_of(piece)) for piece in pieces)
                own = write_vectors(place, name, found, len(numbers), model.n_features, kind)
            parts = [write_part(place, name, grouped, model.n_bits, model.fingerprint, *own)]
            columns = _columns(rows, layout.keys, layout.columns)
            material = building.Material(store.name, columns, store.items.classes(), store.descriptor)
            described, pictures = [row.described for row in rows], store.items.all_pictures()
            codes, after = [(numbers, packed)], store.next_number()
            made.finish(material, model, parts if rows else [], codes, described, pictures, layout, after)
        return len(rows)
    finally:
        store.close()


def _vectors_of(opened: folder.FolderStore) -> Iterator[tuple[int, bytes]]:
    """Numbers and vectors of all items, as they are stored; none if the collection keeps none."""
    if opened.items.layout.vectors is not None:
        numbers = opened.index.ids
        for start in range(0, len(numbers), PIECE):
            piece = numbers[start : start + PIECE]
            rows = opened.vectors_of(piece)
            yield from zip(piece.tolist(), (row.tobytes() for row in rows), strict=True)


def _columns(rows: list[Row], keys: str, types: dict[str, str]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row.values)
    values = {name: [row.values.get(name) for row in rows] for name in names}
    return Columns([row.key for row in rows] if keys == "text" else None, values, types)
