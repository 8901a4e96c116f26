"""What answers look like, for the description of the service (OpenAPI)."""

from typing import Any, Literal

from pydantic import BaseModel

from gphash.server.bodies import FORM, JSON
from gphash.server.edge import READING_POSTS, SIGNS_OF_LIFE
from gphash.server.questions import EncodeForm, EncodeJson, ItemForm, ItemJson, SearchForm, SearchJson
from gphash.server.settings import Settings


class ErrorDetail(BaseModel):
    """What is wrong."""

    code: str
    message: str
    argument: str | None


class Error(BaseModel):
    """Every answer that is no success."""

    error: ErrorDetail


class Limits(BaseModel):
    """Largest values."""

    k: int
    body_bytes: int
    picture_pixels: int


class Collection(BaseModel):
    """What there is to search in."""

    name: str
    n_items: int
    n_codes: int
    n_bits: int
    method: str
    probabilities: bool
    pictures: bool
    upload: bool
    labels: bool
    classes: list[str]
    writable: bool
    largest_bucket: int
    model: str
    limits: Limits


class Bucket(BaseModel):
    """Items that share a code."""

    bits: str
    size: int
    ids: list[int]
    labels: dict[str, int]


class Buckets(BaseModel):
    """The fullest codes."""

    buckets: list[Bucket]
    n_codes: int
    n_items: int


class Item(BaseModel):
    """One item."""

    id: int
    labels: list[str]
    bits: str
    has_picture: bool
    name: str | None


class Query(BaseModel):
    """What was searched for."""

    id: int | None
    labels: list[str]
    bits: str
    probabilities: list[float] | None


class Neighbour(Item):
    """An item that was found."""

    distance: float
    relevant: bool | None


class Milliseconds(BaseModel):
    """How long it took."""

    encode: float
    search: float


class Found(BaseModel):
    """The result of a search."""

    query: Query
    ranking: Literal["hamming", "expected"]
    neighbours: list[Neighbour]
    precision: float | None
    milliseconds: Milliseconds


class Codes(BaseModel):
    """Codes of rows."""

    codes: list[str]
    bits: list[str]
    probabilities: list[list[float]] | None


class State(BaseModel):
    """How the service is."""

    status: str


SENTENCES = {
    400: "The path or the body cannot be read.",
    401: "A token is wanted.",
    403: "Not allowed.",
    404: "There is no such thing.",
    408: "The body took too long.",
    409: "There is an item with this id.",
    413: "The body or the picture is too large.",
    415: "The body is of an unknown type.",
    422: "An argument is wrong.",
    429: "Too many pictures at once.",
    500: "A fault of the service.",
    503: "Too many requests at once.",
    507: "The disk is full; nothing was changed.",
}
ALWAYS = (400, 401, 403, 413, 500, 503)
WITH_BODY = (408, 415, 422, 429)


def responses(*statuses: int, **answers: Any) -> dict[int | str, dict[str, Any]]:
    """For a route: what it answers on success, as `model` or `content`, and which errors it can give."""
    success = int(answers.pop("status", 200))
    found: dict[int | str, dict[str, Any]] = {success: {"description": "Success.", **answers}}
    for status in sorted({*ALWAYS, *statuses}):
        found[status] = {"model": Error, "description": SENTENCES[status]}
    return found


def secure(described: dict[str, Any], settings: Settings) -> None:
    """Enter into a description which token every route asks for."""
    described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            reading = method == "get" or path in READING_POSTS
            wanted = settings.read_token if reading else settings.write_token or settings.read_token
            operation["security"] = [{"token": []}] if wanted and path not in SIGNS_OF_LIFE else []


def bodies(settings: Settings, width: int) -> dict[str, dict[str, Any]]:
    """For a route by name: the two kinds of body that it takes.

    Parameters
    ----------
    settings
        Limits.
    width
        Length of a row of features.
    """
    search, encode, item = SearchJson.model_json_schema(), EncodeJson.model_json_schema(), ItemJson.model_json_schema()
    by_picture = SearchForm.model_json_schema()
    for schema in (search, by_picture):
        schema["properties"]["k"]["maximum"] = settings.max_k
    encode["properties"]["features"]["maxItems"] = settings.max_rows
    for row in (
        search["properties"]["features"]["anyOf"][0],
        item["properties"]["features"],
        encode["properties"]["features"]["items"],
    ):
        row["minItems"] = row["maxItems"] = width
    return {
        "search": _body(search, by_picture),
        "encode": _body(encode, EncodeForm.model_json_schema()),
        "item": _body(item, ItemForm.model_json_schema()),
    }


def _body(json: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    form["properties"] = {"picture": {"type": "string", "format": "binary"}, **form.get("properties", {})}
    form["required"] = ["picture"]
    return {"requestBody": {"required": True, "content": {JSON: {"schema": json}, FORM: {"schema": form}}}}
