"""From a question to the bytes of its answer, and what OpenAPI says of it; no HTTP, and any thread may do it."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model
from pydantic_core import to_json

from gphash.arrays import Floats
from gphash.collection.collection import Collection
from gphash.collection.records import Bucket, Item, KnownItemError, Neighbour, Picture, Query, bits_of
from gphash.data import pictures
from gphash.index.rankings import RANKINGS
from gphash.server.failures import Refusal, wrong
from gphash.server.questions import EncodeForm, EncodeJson, ItemForm, ItemJson, RankingName, SearchForm, SearchJson
from gphash.server.settings import ServiceSettings

DIGITS = 4  # of probabilities and expected distances


def _answer(name: str, about: str, /, **fields: Any) -> Any:
    """A model of an answer. Answers are not checked by it: a search takes less time than that."""
    required: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, __doc__=about, **required)


def _of(record: Any, about: str) -> Any:
    return _answer(f"{record.__name__}Answer", about, **record.__annotations__)


ErrorDetail = _answer("ErrorDetail", "What is wrong.", code=str, message=str, argument=str | None)
ErrorAnswer = _answer("ErrorAnswer", "Every answer that is no success.", error=ErrorDetail)
ItemAnswer = _of(Item, "One item.")
NeighbourAnswer: Any = _of(Neighbour, "An item that was found.")
BucketAnswer: Any = _of(Bucket, "Items that share a code.")
BucketsAnswer = _answer("BucketsAnswer", "The fullest codes.", buckets=list[BucketAnswer], n_codes=int, n_items=int)
StateAnswer = _answer("StateAnswer", "How the service is.", status=str)
CodesAnswer = _answer(
    "CodesAnswer", "Codes of rows.", codes=list[str], bits=list[str], probabilities=list[list[float]] | None
)
QueryAnswer = _answer(
    "QueryAnswer", "What was searched for.", id=int | None, labels=list[str], bits=str, probabilities=list[float] | None
)
SearchAnswer = _answer(
    "SearchAnswer",
    "The result of a search.",
    query=QueryAnswer,
    ranking=RankingName,
    neighbours=list[NeighbourAnswer],
    precision=float | None,
    milliseconds=_answer("Milliseconds", "How long it took.", encode=float, search=float),
)
CollectionAnswer = _answer(
    "CollectionAnswer",
    "What there is to search in.",
    **dict.fromkeys(("n_items", "n_codes", "n_bits", "largest_bucket"), int),
    **dict.fromkeys(("probabilities", "pictures", "upload", "labels", "writable"), bool),
    **dict.fromkeys(("name", "method", "model"), str),
    classes=list[str],
    limits=_answer("AnswerLimits", "Largest values.", k=int, body_bytes=int, picture_pixels=int),
)


def summary(collection: Collection, settings: ServiceSettings) -> bytes:
    """What there is to search in."""
    stats = collection.index.stats()
    return to_json(
        {
            "name": collection.name,
            "n_items": stats.n_items,
            "n_codes": stats.n_codes,
            "n_bits": collection.n_bits,
            "method": collection.model.method,
            "probabilities": collection.model.has_probabilities,
            "pictures": collection.has_pictures,
            "upload": collection.descriptor is not None,
            "labels": bool(collection.classes),
            "classes": collection.classes,
            "writable": collection.writable,
            "largest_bucket": stats.largest_bucket,
            "model": collection.model.fingerprint,
            "limits": {
                "k": settings.max_k,
                "body_bytes": settings.max_body_bytes,
                "picture_pixels": settings.max_picture_pixels,
            },
        }
    )


def buckets(collection: Collection, n: int, samples: int) -> bytes:
    """The fullest codes."""
    stats = collection.index.stats()
    found = [bucket._asdict() for bucket in collection.buckets(n, samples)]
    return to_json({"buckets": found, "n_codes": stats.n_codes, "n_items": stats.n_items})


def item(collection: Collection, number: int) -> bytes:
    """One item."""
    return to_json(collection.item(number)._asdict())


def random_item(collection: Collection) -> bytes:
    """Some item."""
    if not len(collection):
        raise Refusal(404, "empty", "there are no items.")
    return item(collection, collection.random_id())


def picture(collection: Collection, number: int, settings: ServiceSettings) -> tuple[Picture, str]:
    """An item's picture, and a mark of its content."""
    found = collection.picture(number, max_pixels=settings.max_picture_pixels)
    return found, f'"{hashlib.blake2b(found.content, digest_size=16).hexdigest()}"'


def search(
    collection: Collection,
    question: SearchForm,
    picture: bytes,
    settings: ServiceSettings,
    timed: Callable[[float], None] = lambda seconds: None,
) -> bytes:
    """The neighbours of an item, of features, or of a picture."""
    began = time.perf_counter()
    if isinstance(question, SearchJson) and question.id is not None:
        query = collection.query(id=question.id)
    else:
        given = [question.features or []] if isinstance(question, SearchJson) else None
        features = _features(collection, given, picture, settings)
        with _refusing("features"):
            query = collection.query(features=features[0])
    encoded = time.perf_counter()
    _check_options(collection, query, question, settings)
    left_out = query.id is not None
    neighbours = collection.search(
        query, question.k, ranking=question.ranking, radius=question.radius, allowed=question.label, others=left_out
    )
    sought = time.perf_counter()
    timed(sought - encoded)
    whole = np.issubdtype(RANKINGS[question.ranking].dtype, np.integer)
    found = [
        near._asdict() | {"distance": int(near.distance) if whole else round(near.distance, DIGITS)}
        for near in neighbours
    ]
    known = [near.relevant for near in neighbours if near.relevant is not None]
    return to_json(
        {
            "query": {
                "id": query.id,
                "labels": query.labels,
                "bits": bits_of(query.code[None], collection.n_bits)[0],
                "probabilities": _rounded(query.probabilities),
            },
            "ranking": question.ranking,
            "neighbours": found,
            "precision": round(sum(known) / len(known), DIGITS) if known else None,
            "milliseconds": {"encode": round(1e3 * (encoded - began), 3), "search": round(1e3 * (sought - encoded), 3)},
        }
    )


def encode(
    collection: Collection, question: EncodeJson | EncodeForm, picture: bytes, settings: ServiceSettings
) -> bytes:
    """Codes of rows, or of a picture."""
    given = question.features if isinstance(question, EncodeJson) else None
    features = _features(collection, given, picture, settings)
    with _refusing("features"):
        packed, chances = collection.encode(features)
    codes, bits = [code.tobytes().hex() for code in packed], bits_of(packed, collection.n_bits)
    return to_json({"codes": codes, "bits": bits, "probabilities": _rounded(chances)})


def add(collection: Collection, question: ItemJson | ItemForm, picture: bytes, settings: ServiceSettings) -> bytes:
    """A new item by its features or its picture."""
    given: dict[str, Any] = {"picture": picture, "max_pixels": settings.max_picture_pixels}
    tags = question.tags
    if isinstance(question, ItemJson):
        given = {"features": question.features}
    else:
        _check_descriptor(collection)
    if isinstance(tags, str):
        tags = [tag for part in tags.split(";") if (tag := part.strip())]
    if question.label is not None and tags is not None:
        raise wrong("tags: give either a label or tags.", "tags")
    with _refusing():
        return to_json(collection.add(label=question.label, tags=tags, id=question.id, **given)._asdict())


def _features(
    collection: Collection, given: list[list[float]] | None, picture: bytes, settings: ServiceSettings
) -> NDArray[np.float64]:
    """Rows as the model takes them, [n, d]: those given, or that of a picture."""
    if given is not None:
        return np.array(given, dtype=np.float64)
    _check_descriptor(collection)
    return collection.describe(picture, max_pixels=settings.max_picture_pixels)[None].astype(np.float64)


def _check_descriptor(collection: Collection) -> None:
    if collection.descriptor is None:
        message = "picture: this collection is of plain features; give features or an id."
        raise wrong(message, "picture", "no_descriptor")


@contextlib.contextmanager
def _refusing(argument: str | None = None) -> Iterator[None]:
    """Answer what a collection says of what it was given, such as that features are too large."""
    try:
        yield
    except (KnownItemError, pictures.PictureError):
        raise
    except ValueError as error:
        raise wrong(str(error), argument) from None


def _check_options(collection: Collection, query: Query, options: SearchForm, settings: ServiceSettings) -> None:
    if options.k > settings.max_k:
        raise wrong(f"k: it is {options.k}; give a number from 1 to {settings.max_k}.", "k")
    if options.label is not None and options.label not in collection.classes:
        raise wrong("label: no item has this one; /collection lists the classes.", "label", "unknown_label")
    if options.ranking == "expected" and query.probabilities is None:
        message = "expected needs bit probabilities, which the method, or the item's stored code, does not have."
        raise wrong(f"ranking: {message}", "ranking")


def _rounded(chances: Floats | None) -> Any:
    return None if chances is None else np.round(chances, DIGITS).tolist()
