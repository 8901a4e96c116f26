"""Collections into PostgreSQL, and back into a folder."""

from pathlib import Path

import numpy as np

from gphash.collection import building, database, folder
from gphash.collection import manifest as manifests
from gphash.collection.columns import Columns
from gphash.collection.rows import Row
from gphash.collection.stores import Location
from gphash.data.dataset import Progress
from gphash.index import buckets as bucketing


def to_database(source: Location, address: str, progress: Progress | None = None) -> int:
    """Copy a folder into new tables, as a whole or not at all, and return how many items it has.

    Pictures in a folder that the collection names stay where they are, and are not shown from the database.
    """
    with folder.Folder.open(source, writable=False) as opened:
        packed, numbers = opened.index.items()
        told = {"name": opened.name, "n_bits": opened.manifest.n_bits, "fingerprint": opened.manifest.fingerprint}
        told["descriptor"] = opened.manifest.descriptor
        items = opened.items
        content = (opened.path / opened.manifest.model).read_bytes()
        given = (items.all_rows(), items.all_pictures(), packed, numbers, items.classes())
        database.create(address, told, content, items.layout, given, progress)
        return len(numbers)


def to_folder(address: str, target: Location, replace: bool = False, progress: Progress | None = None) -> int:
    """Copy a collection from a database into a new folder, and return how many items it has."""
    place = Path(target).expanduser().absolute()
    store = database.Database.open(address, writable=False)
    try:
        rows = list(store.items.all_rows())
        pictures, classes = store.items.all_pictures(), store.items.classes()
        content = bytes(store.items.ask("SELECT model FROM {collection}")[0][0])
        with building.making(place, replace) as made:
            model = building.put_model(content, made.place / made.model)
            packed = np.stack([np.frombuffer(row.code, np.uint8) for row in rows]) if rows else _nothing(model.n_bits)
            numbers = np.array([row.number for row in rows], np.int64)
            grouped = bucketing.group(bucketing.to_words(packed, model.n_bits), numbers)
            parts = [folder.write_part(place, manifests.free_part(place), grouped, model.n_bits, model.fingerprint)]
            columns = _columns(rows, store.items.layout.keys, store.items.layout.columns)
            material = building.Material(store.name, columns, classes, store.descriptor)
            made.finish(material, model, parts, [(numbers, packed)], [row.described for row in rows], pictures)
        return len(rows)
    finally:
        store.close()


def _columns(rows: list[Row], keys: str, types: dict[str, str]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row.values)
    values = {name: [row.values.get(name) for row in rows] for name in names}
    return Columns([row.key for row in rows] if keys == "text" else None, values, types)


def _nothing(n_bits: int) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    return np.empty((0, -(-n_bits // 8)), np.uint8)
