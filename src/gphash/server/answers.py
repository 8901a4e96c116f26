"""From a question to the bytes of its answer, and what OpenAPI says of it; no HTTP, and any thread may do it."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model
from pydantic_core import to_json

from gphash.arrays import Floats
from gphash.collection import arguments, columns, nearest, showing
from gphash.collection.collection import Collection
from gphash.collection.records import Hit, Hits, Item, Picture, Query, UnknownItemError, bits_of
from gphash.collection.rows import SAID, Key, KnownKeyError, Row, Value
from gphash.container import FormatError
from gphash.data import pictures
from gphash.data.descriptors.descriptor import PICTURES, TEXTS
from gphash.data.descriptors.networks import EncodingError, MissingEncoderError
from gphash.server import logs, questions
from gphash.server.failures import Refusal, wrong
from gphash.server.questions import EncodeForm, EncodeJson, ItemForm, ItemJson, RankingName, SearchForm, SearchJson
from gphash.server.settings import ServiceSettings

WANTED = 0.9  # precision
MOST_CLASSES = 5  # of a query that are told
DIGITS = 4  # of probabilities and expected distances
SPOKEN = ("label", "title", "text", "link")  # what a request says of a new item, beside its key and its tags


def _answer(name: str, about: str, /, **fields: Any) -> Any:
    """A model of an answer. Answers are not checked by it: a search takes less time than that."""
    required: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, __doc__=about, **required)


def _of(record: Any, about: str) -> Any:
    return _answer(f"{record.__name__}Answer", about, **record.__annotations__)


ErrorDetail = _answer("ErrorDetail", "What is wrong.", code=str, message=str, argument=str | None)
ErrorAnswer = _answer("ErrorAnswer", "Every answer that is no success.", error=ErrorDetail)
ItemAnswer = _of(Item, "One item.")
HitAnswer: Any = _of(Hit, "An item that was found.")
SampleAnswer: Any = _answer("SampleAnswer", "One of many items.", key=Key, title=str | None, has_picture=bool)
BucketAnswer: Any = _answer(
    "BucketAnswer",
    "Items that share a code.",
    bits=str,
    size=int,
    samples=list[SampleAnswer],
    labels=dict[str, int],
)
BucketsAnswer = _answer("BucketsAnswer", "The fullest codes.", buckets=list[BucketAnswer], n_codes=int, n_items=int)
StateAnswer = _answer("StateAnswer", "How the service is.", status=str)
CodesAnswer = _answer(
    "CodesAnswer", "Codes of rows.", codes=list[str], bits=list[str], probabilities=list[list[float]] | None
)
ClassAnswer: Any = _answer("ClassAnswer", "A class or tag, and how probable it is.", label=str, probability=float)
QueryAnswer = _answer(
    "QueryAnswer",
    "What was searched for: an item, or something given, which has no key.",
    key=Key | None,
    labels=list[str],
    bits=str,
    probabilities=list[float] | None,
    has_picture=bool,
    values=dict[str, Value],
    familiarity=float | None,
    classes=list[ClassAnswer] | None,
)
SearchAnswer = _answer(
    "SearchAnswer",
    "The result of a search. `ties` are all items at the distance of the last hit, also those beyond k, if they were "
    "asked for; they are counted up to the largest k. `nothing_similar` says that the query is of no known kind, or "
    "that nothing here is probably similar. `complete` is false if k ends the list before a promise does.",
    query=QueryAnswer,
    ranking=RankingName,
    hits=list[HitAnswer],
    nothing_similar=bool | None,
    complete=bool,
    promised=_answer("PromisedAnswer", "How many hits keep a precision.", precision=float, hits=int) | None,
    ties=int | None,
    precision=float | None,
    milliseconds=_answer("Milliseconds", "How long it took.", encode=float, search=float),
)
CollectionAnswer = _answer(
    "CollectionAnswer",
    "What there is to search in: columns have their types, and keys are of the type integer or text.",
    **dict.fromkeys(("n_items", "n_codes", "n_bits", "n_features", "largest_bucket"), int),
    **dict.fromkeys(("probabilities", "similarity", "pictures", "upload", "text", "labels", "writable"), bool),
    **dict.fromkeys(("name", "method", "model", "keys"), str),
    columns=dict[str, str],
    classes=list[str],
    vectors=_answer("VectorsAnswer", "How vectors are kept, and what re-ranks.", form=str, metric=str) | None,
    limits=_answer("AnswerLimits", "Largest values.", k=int, rerank=int, body_bytes=int, picture_pixels=int),
)


def summary(collection: Collection, settings: ServiceSettings) -> bytes:
    """What there is to search in."""
    stats, layout, classes = collection.index.stats(), collection.layout, collection.classes
    return to_json(
        {
            "name": collection.name,
            "n_items": stats.n_items,
            "n_codes": stats.n_codes,
            "n_bits": collection.n_bits,
            "n_features": collection.model.n_features,
            "method": collection.model.method,
            "probabilities": collection.model.has_probabilities,
            "similarity": collection.model.reader_ is not None,
            "pictures": collection.has_pictures,
            "upload": _takes(collection, PICTURES),
            "text": _takes(collection, TEXTS),
            "labels": bool(classes),
            "classes": classes,
            "keys": layout.keys,
            "columns": {"key": layout.keys} | dict.fromkeys(SAID, "text") | layout.columns,
            "writable": collection.writable,
            "largest_bucket": stats.largest_bucket,
            "model": collection.model.fingerprint,
            "vectors": None if layout.vectors is None else layout.vectors._asdict(),
            "limits": {
                "k": settings.max_k,
                "rerank": settings.max_rerank,
                "body_bytes": settings.max_body_bytes,
                "picture_pixels": settings.max_picture_pixels,
            },
        }
    )


def buckets(collection: Collection, n: int, samples: int) -> bytes:
    """The fullest codes."""
    stats, found = collection.index.stats(), collection.buckets(n, samples)
    known: dict[Key, Item] = {}
    with contextlib.suppress(UnknownItemError):  # one was removed just now: then it has no title
        known = {item.key: item for item in collection.items(key for bucket in found for key in bucket.keys)}

    def sample(key: Key) -> dict[str, Any]:
        values = known[key].values if key in known else {}
        title = values.get("title") or values.get("name")
        return {"key": key, "title": title, "has_picture": key in known and known[key].has_picture}

    told = [
        {"bits": one.bits, "size": one.size, "samples": [sample(key) for key in one.keys], "labels": one.labels}
        for one in found
    ]
    return to_json({"buckets": told, "n_codes": stats.n_codes, "n_items": stats.n_items})


def item(collection: Collection, key: str) -> bytes:
    """One item."""
    return to_json(collection.item(questions.key_of(key, collection.layout.keys))._asdict())


def remove(collection: Collection, key: str) -> None:
    """Remove an item."""
    collection.remove([questions.key_of(key, collection.layout.keys)])


def random_item(collection: Collection) -> bytes:
    """Some item."""
    if not len(collection):
        raise Refusal(404, "empty", "there are no items.")
    return to_json(collection.item(collection.random_key())._asdict())


def picture(collection: Collection, key: str, settings: ServiceSettings) -> tuple[Picture, str]:
    """An item's picture, and a mark of its content."""
    asked = questions.key_of(key, collection.layout.keys)
    found = collection.picture(asked, max_pixels=settings.max_picture_pixels)
    return found, f'"{hashlib.blake2b(found.content, digest_size=16).hexdigest()}"'


def search(
    collection: Collection,
    question: SearchForm,
    picture: bytes,
    settings: ServiceSettings,
    timed: Callable[[float], None] = lambda seconds: None,
) -> bytes:
    """The nearest items of an item, of features, of a text, or of a picture."""
    began = time.perf_counter()
    query = _query(collection, question, picture, settings)
    encoded = time.perf_counter()
    ranking = arguments.ranking_of(question.ranking, collection.model)
    question = question.model_copy(update={"ranking": ranking})
    _check_options(collection, query, question, settings)
    hits = _search(collection, query, question, question.k)
    sought = time.perf_counter()
    timed(sought - encoded)
    whole = question.ranking != "expected"
    found = [hit._asdict() | {"distance": int(hit.distance) if whole else round(hit.distance, DIGITS)} for hit in hits]
    for one in found:
        one["probability"], one["score"] = _rounded(one["probability"]), _rounded(one["score"])
    known = [hit.relevant for hit in hits if hit.relevant is not None]
    shown = None if query.key is None else collection.item(query.key)
    return to_json(
        {
            "query": {
                "key": query.key,
                "labels": query.labels,
                "bits": bits_of(query.code[None], collection.n_bits)[0],
                "probabilities": _rounded(query.probabilities),
                "has_picture": shown is not None and shown.has_picture,
                "values": {} if shown is None else shown.values,
                "familiarity": _rounded(query.familiarity),
                "classes": _classes(collection, query),
            },
            "ranking": ranking,
            "hits": found,
            "nothing_similar": hits.nothing_similar,
            "complete": hits.complete,
            "promised": _promised(collection, query, hits, ranking),
            "ties": _ties(collection, query, question, hits, settings.max_k) if question.ties else None,
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
    said: dict[str, Any] = {name: getattr(question, name) for name in (*SPOKEN, "tags")}
    said = {name: value for name, value in said.items() if value is not None}
    if "label" in said and "tags" in said:
        raise wrong("tags: give either a label or tags.", "tags")
    for name, value in question.values.items():
        if name.casefold() in (*SAID, "key"):
            raise wrong(f"values: {name!r} is not one of the further columns.", "values")
        said[name] = value
    if question.key is not None:
        given = question.key if isinstance(question, ItemJson) else str(question.key)
        said["key"] = questions.key_of(given, collection.layout.keys) if isinstance(given, str) else given
    elif collection.layout.keys == "text":
        raise wrong("key: the keys of this collection are texts; give the item one.", "key")
    if isinstance(question, ItemForm):
        _check_takes(collection, PICTURES)
    elif question.features is None:
        if question.text is None or not question.text.strip():
            raise wrong("features: give features, or a text to encode.", "features")
        _check_takes(collection, TEXTS)
    with _refusing(thing="text" if isinstance(question, ItemJson) else "picture"):
        if isinstance(question, ItemJson):
            (key,) = collection.add(None if question.features is None else [question.features], [said])
        else:
            (key,) = collection.add(items=[said], pictures_of=[picture], max_pixels=settings.max_picture_pixels)
    try:
        stored = collection.item(key)
    except (UnknownItemError, OSError):  # it was stored, whoever removed it since, and whether or not it can be read
        stored = _as_stored(collection, key, said, question, picture, settings)
    return to_json(stored._asdict())


def _as_stored(
    collection: Collection,
    key: Key,
    said: dict[str, Any],
    question: ItemJson | ItemForm,
    picture: bytes,
    settings: ServiceSettings,
) -> Item:
    """An item as it was when it was added."""
    features = question.features if isinstance(question, ItemJson) else None
    is_text = isinstance(question, ItemJson) and features is None
    thing = str(question.text) if is_text else picture
    code = collection.encode(_features(collection, None if features is None else [features], thing, settings))[0]
    cells = columns.fit(columns.read([said], 1), collection.layout).values
    values: dict[str, Value] = {name: cell for name, (cell,) in cells.items() if cell is not None}
    row = Row(0, key, code.tobytes(), features is None, values)
    has_picture = isinstance(question, ItemForm)
    return Item(key, row.labels, bits_of(code, collection.n_bits)[0], has_picture, showing.values(row))


def _query(collection: Collection, question: SearchForm, picture: bytes, settings: ServiceSettings) -> Query:
    if isinstance(question, SearchJson) and question.key is not None:
        with _refusing("key"):
            return collection.query(key=question.key)
    given = [question.features] if isinstance(question, SearchJson) and question.features is not None else None
    thing = question.text if isinstance(question, SearchJson) and question.text is not None else picture
    features = _features(collection, given, thing, settings)
    with _refusing("features"):
        return collection.query(features=features[0])


def _promised(collection: Collection, query: Query, hits: Hits, ranking: str) -> dict[str, Any] | None:
    """How many hits are similar as often as most people would want."""
    trust = collection.model.trust_
    if trust is None or ranking != "similarity" or any(hit.score is not None for hit in hits):
        return None  # re-ranked hits are not in the order of their probabilities
    return {"precision": WANTED, "hits": len(nearest.cut(trust, query, hits, len(hits), None, WANTED, None))}


def _classes(collection: Collection, query: Query) -> list[dict[str, Any]] | None:
    """The most probable classes or tags of a query."""
    names = collection.model.class_names
    if query.classes is None or names is None:
        return None
    best = np.argsort(-query.classes, kind="stable")[:MOST_CLASSES].tolist()
    return [{"label": names[number], "probability": _rounded(query.classes[number])} for number in best]


def _search(collection: Collection, query: Query, question: SearchForm, k: int) -> Hits:
    asked = ("ranking", "radius", "label", "min_probability", "precision", "recall", "rerank")
    options: dict[str, Any] = {name: getattr(question, name) for name in asked}
    with _refusing("where"):
        found: Hits = collection.search(query, k, where=question.where, params=question.params, **options)
    return found


def _ties(collection: Collection, query: Query, question: SearchForm, hits: Hits, most: int) -> int:
    """How many items are as far away as the last hit, up to the most that a search gives."""
    if hits and len(hits) == question.k < most:
        hits = _search(collection, query, question, min(most, question.rerank or most))
    last = hits[question.k - 1 : question.k] or hits[-1:]
    by = "score" if question.rerank else "probability" if question.ranking == "similarity" else "distance"
    return sum(getattr(hit, by) == getattr(last[0], by) for hit in hits) if last else 0


def _features(
    collection: Collection, given: list[list[float]] | None, thing: bytes | str, settings: ServiceSettings
) -> NDArray[np.float64]:
    """Rows as the model takes them, [n, d]: those given, or that of a picture or a text."""
    if given is not None:
        return np.array(given, dtype=np.float64)
    _check_takes(collection, TEXTS if isinstance(thing, str) else PICTURES)
    if isinstance(thing, str) and not thing.strip():
        raise wrong("text: it is blank; give some words.", "text")
    noun = "text" if isinstance(thing, str) else "picture"
    with _refusing(noun, noun):
        return collection.describe(thing, max_pixels=settings.max_picture_pixels)[None].astype(np.float64)


def _takes(collection: Collection, subject: str) -> bool:
    """Whether pictures, or texts, can be described."""
    descriptor = collection.descriptor
    return descriptor is not None and descriptor.takes == subject and descriptor.is_at_hand()


def _check_takes(collection: Collection, subject: str) -> None:
    descriptor, name = collection.descriptor, subject[:-1]
    if descriptor is None:
        message = f"{name}: this collection is of plain features; give features or a key."
        raise wrong(message, name, "no_descriptor")
    if descriptor.takes != subject:
        raise wrong(f"{name}: this collection is one of {descriptor.takes}.", name, "no_descriptor")
    if not descriptor.is_at_hand():
        message = f"{name}: the service does not have the encoder; start it with --descriptor PATH."
        raise wrong(message, name, "no_encoder")


@contextlib.contextmanager
def _refusing(argument: str | None = None, thing: str = "item") -> Iterator[None]:
    """Answer what a collection says of what it was given, such as that features are too large.

    `thing` is what an encoder may fail on. Why it does, and where it lies, the log says.
    """
    try:
        yield
    except (KnownKeyError, pictures.PictureError, FormatError, MissingEncoderError):
        raise
    except EncodingError as error:
        logs.event("not encoded", error=str(error))
        raise wrong(f"the encoder cannot encode this {thing}.", argument if thing == "item" else thing) from None
    except ValueError as error:
        # Its sentences begin with what they are about; a column stands in brackets.
        named = re.match(r"(items\['|X\b|\w+)(\w*)", str(error))
        word = "" if named is None else named[2] or named[1]
        argument = {"X": "features", "items": "values"}.get(word, word if word in FIELDS else argument or "values")
        raise wrong(str(error), argument) from None


FIELDS = frozenset({*SearchJson.model_fields, *ItemJson.model_fields})


def _check_options(collection: Collection, query: Query, options: SearchForm, settings: ServiceSettings) -> None:
    if options.k > settings.max_k:
        raise wrong(f"k: it is {options.k}; give a number from 1 to {settings.max_k}.", "k")
    if options.rerank is not None and options.rerank > settings.max_rerank:
        raise wrong(f"rerank: it is {options.rerank}; give a number from 1 to {settings.max_rerank}.", "rerank")
    if options.label is not None and options.label not in collection.classes:
        raise wrong("label: no item has this one; /collection lists the classes.", "label", "unknown_label")
    if options.ranking == "expected" and query.probabilities is None:
        message = "expected needs bit probabilities, which the method, or the item's stored code, does not have."
        raise wrong(f"ranking: {message}", "ranking")
    if options.ranking == "similarity" and collection.model.reader_ is None:
        raise wrong("ranking: the model does not know P(similar); give expected or hamming.", "ranking")


def _rounded(chances: Floats | float | None) -> Any:
    return None if chances is None else np.round(chances, DIGITS).tolist()
