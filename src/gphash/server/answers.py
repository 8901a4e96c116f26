"""From a question to the bytes of its answer; no HTTP, and any thread may do it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from gphash.datasets import pictures
from gphash.gallery.gallery import Gallery
from gphash.gallery.records import Item, KnownItemError, Neighbour, NoPictureError, Query, UnknownItemError
from gphash.server import assets
from gphash.server.failures import Failure, wrong
from gphash.server.questions import EncodeJson, ItemForm, ItemJson, Options, SearchJson, check_width
from gphash.server.settings import Settings

DIGITS = 4  # of probabilities and expected distances


def collection(gallery: Gallery, settings: Settings) -> bytes:
    """What there is to search in."""
    stats = gallery.index.stats()
    return to_json(
        {
            "name": gallery.name,
            "n_items": stats.n_items,
            "n_codes": stats.n_codes,
            "n_bits": gallery.n_bits,
            "method": gallery.model.method,
            "probabilities": gallery.has_probabilities,
            "pictures": gallery.has_pictures,
            "upload": gallery.descriptor is not None,
            "labels": gallery.has_labels,
            "classes": gallery.classes,
            "writable": gallery.writable,
            "largest_bucket": stats.largest_bucket,
            "model": gallery.model.fingerprint,
            "limits": {
                "k": settings.max_k,
                "body_bytes": settings.max_body_bytes,
                "picture_pixels": settings.max_picture_pixels,
            },
        }
    )


def buckets(gallery: Gallery, n: int, samples: int) -> bytes:
    """The fullest codes."""
    stats = gallery.index.stats()
    found = [bucket._asdict() for bucket in gallery.buckets(n, samples)]
    return to_json({"buckets": found, "n_codes": stats.n_codes, "n_items": stats.n_items})


def item(gallery: Gallery, number: int) -> bytes:
    """One item."""
    return _item(find(gallery, number))


def random_item(gallery: Gallery) -> bytes:
    """Some item."""
    if not len(gallery):
        raise Failure(404, "empty", "there are no items.")
    return item(gallery, gallery.random_id())


def find(gallery: Gallery, number: int) -> Item:
    """The item with an id."""
    try:
        return gallery.item(number)
    except UnknownItemError:
        raise _unknown(number) from None


def picture(gallery: Gallery, number: int, settings: Settings) -> assets.Asset:
    """An item's picture."""
    try:
        found = gallery.picture(number, max_pixels=settings.max_picture_pixels)
    except UnknownItemError:
        raise _unknown(number) from None
    except NoPictureError:
        raise Failure(404, "no_picture", f"there is no picture of the item {number}.", "id") from None
    return assets.Asset(found.content, found.media_type, assets.etag(found.content))


Seek = Callable[[Gallery, Query, Options], list[Neighbour]]


def seek(gallery: Gallery, query: Query, options: Options) -> list[Neighbour]:
    """The neighbours of a query."""
    if options.label is not None and options.label not in gallery.classes:
        raise wrong("label: no item has this one; /collection lists the classes.", "label", "unknown_label")
    if options.ranking == "expected" and query.probabilities is None:
        raise wrong(
            "ranking: expected needs bit probabilities, which the method, or the item's stored code, does not have.",
            "ranking",
        )
    return gallery.search(
        query,
        options.k,
        ranking=options.ranking,
        radius=options.radius,
        allowed=options.label,
        others=query.id is not None,
    )


def search(
    gallery: Gallery, question: SearchJson, settings: Settings, seek: Seek, timed: Callable[[float], None]
) -> bytes:
    """The neighbours of an item or of features."""
    _check_k(question.k, settings)
    began = time.perf_counter()
    if question.id is not None:
        try:
            query = gallery.query(id=question.id)
        except UnknownItemError:
            raise _unknown(question.id) from None
    else:
        query = _by_features(gallery, rows(gallery, [question.features or []]))
    return _found(gallery, query, question, seek, timed, began)


def search_picture(
    gallery: Gallery, content: bytes, options: Options, settings: Settings, seek: Seek, timed: Callable[[float], None]
) -> bytes:
    """The neighbours of a picture."""
    _check_k(options.k, settings)
    began = time.perf_counter()
    query = _by_features(gallery, described(gallery, content, settings))
    return _found(gallery, query, options, seek, timed, began)


def encode(gallery: Gallery, question: EncodeJson) -> bytes:
    """Codes of rows."""
    return _codes(gallery, rows(gallery, question.features))


def encode_picture(gallery: Gallery, content: bytes, settings: Settings) -> bytes:
    """The code of a picture."""
    return _codes(gallery, described(gallery, content, settings))


def add(gallery: Gallery, question: ItemJson) -> bytes:
    """A new item by its features."""
    features = rows(gallery, [question.features])[0]
    return _added(gallery, question.label, question.tags, question.id, features=features)


def add_picture(gallery: Gallery, content: bytes, form: ItemForm, settings: Settings) -> bytes:
    """A new item by its picture."""
    check_picture(gallery, content, settings)
    tags = None if form.tags is None else [tag for part in form.tags.split(";") if (tag := part.strip())]
    return _added(gallery, form.label, tags, form.id, picture=content, max_pixels=settings.max_picture_pixels)


def remove(gallery: Gallery, number: int) -> None:
    """Take an item out."""
    try:
        gallery.remove(number)
    except UnknownItemError:
        raise _unknown(number) from None


def width(gallery: Gallery) -> int:
    """Length of a row of features."""
    return gallery.model.n_features


def rows(gallery: Gallery, features: list[list[float]]) -> NDArray[np.float64]:
    """Features as the model takes them, [n, d]."""
    for row in features:
        check_width(row, width(gallery))
    return np.array(features, dtype=np.float64)


def described(gallery: Gallery, content: bytes, settings: Settings) -> NDArray[np.float64]:
    """A picture as the model takes it, [1, d]."""
    check_descriptor(gallery)
    try:
        return gallery.describe(content, max_pixels=settings.max_picture_pixels)[None].astype(np.float64)
    except ValueError as error:
        raise _bad_picture(error) from None


def check_picture(gallery: Gallery, content: bytes, settings: Settings) -> None:
    """Refuse what is no picture, or too large a one."""
    check_descriptor(gallery)
    try:
        pictures.check(content, settings.max_picture_pixels)
    except ValueError as error:
        raise _bad_picture(error) from None


def check_descriptor(gallery: Gallery) -> None:
    """Refuse pictures where nobody knows how they become rows."""
    if gallery.descriptor is None:
        raise wrong(
            "picture: this collection is of plain features; give features or an id.", "picture", "no_descriptor"
        )


def _bad_picture(error: ValueError) -> Failure:
    if isinstance(error, pictures.TooManyPixelsError):
        return Failure(413, "picture_too_large", f"{error}.", "picture")
    return wrong(f"{error}.", "picture", "bad_picture")


def _by_features(gallery: Gallery, features: NDArray[np.float64]) -> Query:
    try:
        return gallery.query(features=features[0])
    except ValueError as error:
        raise wrong(str(error), "features") from None


def _found(
    gallery: Gallery, query: Query, options: Options, seek: Seek, timed: Callable[[float], None], began: float
) -> bytes:
    encoded = time.perf_counter()
    neighbours = seek(gallery, query, options)
    sought = time.perf_counter()
    timed(sought - encoded)
    whole = options.ranking == "hamming"
    chances = query.probabilities
    return to_json(
        {
            "query": {
                "id": query.id,
                "labels": query.labels,
                "bits": _bits(query.code, gallery.n_bits),
                "probabilities": None if chances is None else np.round(chances, DIGITS).tolist(),
            },
            "ranking": options.ranking,
            "neighbours": [
                {
                    "id": near.id,
                    "distance": int(near.distance) if whole else round(near.distance, DIGITS),
                    "labels": near.labels,
                    "bits": near.bits,
                    "relevant": near.relevant,
                    "has_picture": near.has_picture,
                    "name": near.name,
                }
                for near in neighbours
            ],
            "precision": _precision(near.relevant for near in neighbours),
            "milliseconds": {"encode": round(1e3 * (encoded - began), 3), "search": round(1e3 * (sought - encoded), 3)},
        }
    )


def _codes(gallery: Gallery, features: NDArray[np.float64]) -> bytes:
    try:
        packed, chances = gallery.encode(features)
    except ValueError as error:
        raise wrong(str(error), "features") from None
    return to_json(
        {
            "codes": [code.tobytes().hex() for code in packed],
            "bits": [_bits(code, gallery.n_bits) for code in packed],
            "probabilities": None if chances is None else np.round(chances, DIGITS).tolist(),
        }
    )


def _added(gallery: Gallery, label: str | None, tags: list[str] | None, number: int | None, **given: Any) -> bytes:
    if label is not None and tags is not None:
        raise wrong("tags: give either a label or tags.", "tags")
    try:
        return _item(gallery.add(label=label, tags=tags, id=number, **given))
    except KnownItemError:
        raise Failure(409, "known_item", f"there is an item {number} already.", "id") from None
    except ValueError as error:
        raise wrong(str(error)) from None


def _item(found: Item) -> bytes:
    return to_json(found._asdict())


def _unknown(number: int) -> Failure:
    return Failure(404, "unknown_item", f"there is no item {number}.", "id")


def _check_k(k: int, settings: Settings) -> None:
    if k > settings.max_k:
        raise wrong(f"k: it is {k}; wanted is from 1 to {settings.max_k}.", "k")


def _bits(code: NDArray[np.uint8], n_bits: int) -> str:
    octets = code.tobytes()
    return format(int.from_bytes(octets), f"0{8 * len(octets)}b")[:n_bits]


def _precision(relevant: Iterable[bool | None]) -> float | None:
    """The share of neighbours that are relevant among those of which it is known."""
    known = [mark for mark in relevant if mark is not None]
    return round(sum(known) / len(known), DIGITS) if known else None
