"""Items that are to be added to a collection, checked and encoded."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.collection import building, columns, vectors
from gphash.collection.rows import NewRow
from gphash.data import frames, pictures
from gphash.data.descriptors import described
from gphash.data.descriptors import descriptor as descriptors
from gphash.data.descriptors.descriptor import TEXTS
from gphash.data.sources import Source


def prepare(
    collection: Any, X: Any, items: Any, pictures_of: Sequence[bytes | None] | None, max_pixels: int
) -> tuple[list[NewRow], list[bytes | None]]:
    """New items and their pictures; see `Collection.add`."""
    contents, is_described = list(pictures_of or ()), X is None
    items = list(items) if isinstance(items, Iterator) else items
    if isinstance(X, Source):
        made_of = collection.descriptor or collection.model.descriptor
        descriptors.check_same(made_of, X.descriptor, collection.name, X.name)
        contents, is_described = building.pictures_of(X), X.is_described
        X, items = X.X, building.said(X, items)
    if X is None and collection.descriptor is not None and collection.descriptor.takes == TEXTS:
        X = _of_texts(collection, items)
    elif X is None and (not contents or None in contents):
        raise ValueError("X=None, and not every item has a picture; give rows, or a picture for each.")
    elif X is None:
        X = np.stack([collection.describe(one, max_pixels=max_pixels) for one in contents if one is not None])
    else:
        for one in contents:
            if one is not None:
                pictures.check(one, max_pixels)
    X = frames.held(X)[:]
    codes = [code.tobytes() for code in collection.encode(X)[0]]
    kind = collection.layout.vectors
    kept = repeat(None) if kind is None else [row.tobytes() for row in vectors.pack(X, kind.form)]
    contents = contents or [None] * len(codes)
    if len(contents) != len(codes):
        raise ValueError(f"pictures_of has {len(contents)} entries for {len(codes)} rows; give one for each.")
    told = columns.fit(columns.read(items, len(codes)), collection.layout)
    made = [
        NewRow(key, code, is_described, {name: cells[place] for name, cells in told.values.items()}, vector)
        for place, (key, code, vector) in enumerate(zip(told.keys or repeat(None), codes, kept, strict=False))
    ]
    return made, contents


def _of_texts(collection: Any, items: Any) -> NDArray[np.float32]:
    """Rows of the items' texts."""
    texts = columns.lists(items, len(items) if hasattr(items, "__len__") else 0).get("text", ())
    if not len(texts) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("X=None, and not every item has a text; give rows, or a text for each.")
    return described.rows(list(texts), collection.descriptor).X
