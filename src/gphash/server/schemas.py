"""The service as OpenAPI describes it: what it answers, what it takes, and which tokens it asks for."""

from http import HTTPStatus
from typing import Any

from pydantic import create_model

from gphash.collection.records import Bucket, Item, Neighbour
from gphash.server import questions
from gphash.server.edge import READING_POSTS, SIGNS_OF_LIFE
from gphash.server.settings import ServiceSettings


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
    ranking=questions.RankingName,
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

ALWAYS = (400, 401, 403, 413, 500, 503)
WITH_BODY = (408, 415, 422, 429)


def responses(*statuses: int, **answers: Any) -> dict[int | str, dict[str, Any]]:
    """For a route: what it answers on success, as `model` or `content`, and which errors it can give."""
    found: dict[int | str, dict[str, Any]] = {int(answers.pop("status", 200)): {"description": "Success.", **answers}}
    for status in sorted({*ALWAYS, *statuses}):
        found[status] = {"model": ErrorAnswer, "description": HTTPStatus(status).phrase}
    return found


def secure(described: dict[str, Any], settings: ServiceSettings) -> None:
    """Enter into a description which token every route needs."""
    described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            reading = method == "get" or path in READING_POSTS
            token = settings.read_token if reading else settings.write_token or settings.read_token
            operation["security"] = [{"token": []}] if token and path not in SIGNS_OF_LIFE else []


def bodies(settings: ServiceSettings, width: int) -> dict[str, dict[str, Any]]:
    """For a route by name: the two kinds of body that it takes, with rows of so many features."""
    kinds = (questions.SearchJson, questions.EncodeJson, questions.ItemJson)
    forms = (questions.SearchForm, questions.EncodeForm, questions.ItemForm)
    search, encode, item = taken = [kind.model_json_schema() for kind in kinds]
    by_picture, *_ = by_form = [kind.model_json_schema() for kind in forms]
    for schema in (search, by_picture):
        schema["properties"]["k"]["maximum"] = settings.max_k
    rows = encode["properties"]["features"]
    rows["maxItems"] = settings.max_rows
    for row in (search["properties"]["features"]["anyOf"][0], item["properties"]["features"], rows["items"]):
        row["minItems"] = row["maxItems"] = width
    found = {}
    for name, json, form in zip(("search", "encode", "item"), taken, by_form, strict=True):
        form["properties"] = {"picture": {"type": "string", "format": "binary"}, **form.get("properties", {})}
        form["required"] = ["picture"]
        content = {questions.JSON: {"schema": json}, questions.FORM: {"schema": form}}
        found[name] = {"requestBody": {"required": True, "content": content}}
    return found
