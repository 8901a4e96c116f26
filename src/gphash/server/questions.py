"""What clients may ask: bodies of requests, read within limits, taken apart, checked by pydantic, and described."""

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Self, TypeVar

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from gphash.collection.columns import LONGEST_LABEL, LONGEST_NAME
from gphash.collection.rows import Key
from gphash.index.rankings import RANKINGS
from gphash.server.failures import GoneError, Refusal, too_large, wrong
from gphash.server.settings import ServiceSettings

JSON, FORM = "application/json", "multipart/form-data"
PLAIN = re.compile(r"0|-?[1-9][0-9]{0,19}")
MAX_FIELDS = 20
LONGEST_TEXT = 10_000
LONGEST_QUERY = 20_000  # letters of a text to be encoded: an encoder sees the first few thousand
LARGE = 1e15  # squares of numbers beyond it, summed in single precision, are not finite

Q = TypeVar("Q", bound=BaseModel)


def _plain_digits(given: Any) -> Any:
    """Refuse a number in a text that Python would read, but nobody means: 1_0, ٣, 1.0 or one with spaces or a plus."""
    if isinstance(given, str) and not PLAIN.fullmatch(given):
        raise ValueError("it must be a whole number in digits")
    return given


def _from_text(given: Any) -> Any:
    """What a field of a form says in JSON."""
    try:
        return pydantic_core.from_json(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError("it must be JSON") from None


def _whole_text(given: str) -> str:
    if "\0" in given:
        raise ValueError("it has a character that no text has")
    return given


def _known_ranking(name: str) -> str:
    RANKINGS.find(name)
    return name


# As -7 in a path, a query or a form; in JSON, texts are no numbers.
PlainInt = Annotated[int, BeforeValidator(_plain_digits)]
# A whole number in JSON; a text in a form, in which the kind of the collection's keys says what it is.
TextKey = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT), AfterValidator(_whole_text)]
ItemKey = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | TextKey
# One wrong number is enough: the errors of a million would take longer than anything else here.
Features = Annotated[list[Annotated[float, Field(ge=-LARGE, le=LARGE)]], Field(min_length=1, fail_fast=True)]
RankingName = Annotated[str, AfterValidator(_known_ranking), Field(json_schema_extra={"enum": [*RANKINGS]})]
LabelName = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL)]
LongText = Annotated[str, Field(max_length=LONGEST_TEXT)]
QueryText = Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY), AfterValidator(_whole_text)]
Cell = str | int | float | bool | None
Cells = Annotated[list[Cell], Field(max_length=1000, fail_fast=True)]
Values = Annotated[dict[Annotated[str, Field(max_length=LONGEST_NAME)], Cell], Field(max_length=1000)]
IN_JSON = WithJsonSchema({"type": "string", "description": "as JSON"})

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
_FORM = ConfigDict(strict=False, extra="forbid", frozen=True)  # fields of forms are texts
_ONE_OF: list[Any] = [
    {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("key", "features", "text")
]


class SearchForm(BaseModel):
    """A search, by a picture unless it is a `SearchJson`."""

    model_config = _FORM
    k: PlainInt = Field(10, ge=1, le=2**31 - 1, description="how many neighbours")
    ranking: RankingName | None = Field(None, description="similarity if the model allows it, else hamming, if null")
    radius: PlainInt | None = Field(None, ge=0, le=2**31 - 1, description="only items within this Hamming distance")
    min_probability: float | None = Field(None, ge=0, le=1, description="only items that are so probably similar")
    precision: float | None = Field(None, gt=0, lt=1, description="only as many that this share of them is similar")
    recall: float | None = Field(
        None, gt=0, lt=1, description="only as many that this share of what is similar is found"
    )
    rerank: PlainInt | None = Field(
        None, ge=1, le=2**31 - 1, description="order so many candidates by the vectors that the collection keeps"
    )
    label: LabelName | None = Field(None, description="only items of this class or with this tag")
    where: LongText | None = Field(None, description="only items for which this condition on their columns holds")
    params: Annotated[Cells, BeforeValidator(_from_text), IN_JSON] = []
    ties: bool = Field(False, description="whether to count the items that are as far away as the last one")


class SearchJson(SearchForm):
    """A search by an item, by features or by a text."""

    model_config = ConfigDict(**_STRICT, json_schema_extra={"oneOf": _ONE_OF})
    params: Cells = Field([], description="a value for every ? of the condition")
    key: ItemKey | None = Field(None, description="an item, which is left out of its own neighbours")
    features: Features | None = Field(None, description="a row as the model was fitted on")
    text: QueryText | None = Field(None, description="a text, if the collection is one of texts")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.key, self.features, self.text)) != 1:
            raise ValueError("give exactly one of key, features and text")
        return self


class EncodeForm(BaseModel):
    """A picture to encode has no further fields."""

    model_config = _FORM


class EncodeJson(BaseModel):
    """Rows to encode."""

    model_config = _STRICT
    features: list[Features] = Field(min_length=1, fail_fast=True)


class ItemForm(BaseModel):
    """What is said of a new item that is given by its picture."""

    model_config = _FORM
    key: TextKey | None = Field(None, description="the next free number if it is not given")
    label: LabelName | None = None
    tags: str | None = Field(None, max_length=LONGEST_TEXT, description="separated by ;")
    title: LongText | None = None
    text: LongText | None = None
    link: LongText | None = None
    values: Annotated[Values, BeforeValidator(_from_text), IN_JSON] = {}


class ItemJson(BaseModel):
    """A new item by its features, or by its text, if the collection is one of texts."""

    model_config = _STRICT
    features: Features | None = Field(None, description="a row as the model was fitted on; null to encode the text")
    key: ItemKey | None = Field(None, description="the next free number if null")
    label: LabelName | None = None
    tags: Annotated[list[LabelName], Field(max_length=1000, fail_fast=True)] | None = None
    title: LongText | None = None
    text: LongText | None = None
    link: LongText | None = None
    values: Values = Field({}, description="of further columns of the collection, by their names")


class _InMemory(MultiPartParser):
    spool_max_size = 1 << 40  # the body is in memory, and bounded, already


def kind_of(request: Request) -> str:
    """The media type of a body: one of the two that are understood."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, FORM):
        raise Refusal(415, "unsupported_media_type", f"the body must be {JSON} or {FORM}.")
    return kind


async def read(request: Request, max_bytes: int) -> bytes:
    """The whole body, of at most so many bytes."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_large(max_bytes)
    except ClientDisconnect:
        raise GoneError from None
    return bytes(body)


async def form_of(request: Request, body: bytes) -> tuple[bytes, dict[str, str]]:
    """The whole body, as a form: the content of its file `picture`, and all other fields by name, unless empty."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemory(request.headers, stream(), max_files=1, max_fields=MAX_FIELDS, max_part_size=len(body))
    try:
        form = await parser.parse()
    # A boundary that is missing or no text is found in different places.
    except (MultiPartException, KeyError, UnicodeError, AttributeError, ValueError):
        raise Refusal(400, "malformed_form", f"the body is no {FORM} with at most one file.") from None
    parts = [(name, part.file.read() if isinstance(part, UploadFile) else part) for name, part in form.multi_items()]
    await form.close()
    found: dict[str, Any] = {}
    for name, part in parts:
        if name in found:
            raise wrong(f"{name[:100]}: it is given more than once.", name[:100])
        if isinstance(part, bytes) and name != "picture":
            raise wrong(f"{name[:100]}: this must not be a file; the file is called picture.", name[:100])
        found[name] = part
    if not isinstance(picture := found.pop("picture", None), bytes):
        raise wrong("picture: the form has no file of this name.", "picture")
    return picture, {name: value for name, value in found.items() if value != ""}


def from_json(kind: type[Q], body: bytes, width: int, max_rows: int = 1) -> Q:
    """Check a body of JSON; longer rows and more of them are refused before any number is looked at."""
    try:
        given = pydantic_core.from_json(body)
    except ValueError as error:
        raise Refusal(400, "malformed_json", f"the body is no JSON: {error}.") from None
    rows: list[list[Any]] = []
    if isinstance(given, dict):
        for name in given:
            if name not in kind.model_fields:
                raise wrong(f"{name[:100]}: there is no such field.", name[:100])
        if isinstance(features := given.get("features"), list):
            rows = [row for row in features if isinstance(row, list)] or [features]
    if len(rows) > max_rows:
        raise wrong(f"features: there are {len(rows)} rows; give at most {max_rows}.", "features")
    _check_width([row for row in rows if len(row) > width], width)
    question = checked(kind, given)
    _check_width(rows, width)
    return question


def _check_width(rows: list[list[Any]], width: int) -> None:
    for row in rows:
        if len(row) != width:
            raise wrong(f"features: a row has {len(row)} numbers; the model takes {width}.", "features")


def checked(kind: type[Q], given: Any) -> Q:
    """A question that can be answered."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        # The first fault, without what the client sent.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise refusal(first["msg"], first["loc"]) from None


def refusal(message: str, place: tuple[int | str, ...]) -> Refusal:
    """What pydantic says of a value, and where that is."""
    argument = str(place[0])[:100] if place else None
    # Names further in are those of kinds of values.
    where = (argument or "") + "".join(f"[{part}]" for part in place[1:] if isinstance(part, int))
    text = message.removeprefix("Value error, ")
    return wrong(f"{where}: {text}." if where else f"{text}.", argument)


def key_of(text: str, kind: str) -> Key:
    """The key that a path or a form has as text; keys of collections are "integer" or "text"."""
    if kind == "text":
        return text
    if not PLAIN.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise wrong("key: it must be a whole number in digits.", "key")
    return int(text)


def bodies(settings: ServiceSettings, width: int) -> dict[str, dict[str, Any]]:
    """For a route by name: the two kinds of body that it takes, with rows of so many features."""
    kinds = (SearchJson, EncodeJson, ItemJson)
    forms = (SearchForm, EncodeForm, ItemForm)
    search, encode, item = taken = [kind.model_json_schema() for kind in kinds]
    by_picture, *_ = by_form = [kind.model_json_schema() for kind in forms]
    for schema in (search, by_picture):
        schema["properties"]["k"]["maximum"] = settings.max_k
        schema["properties"]["rerank"]["anyOf"][0]["maximum"] = settings.max_rerank
    rows = encode["properties"]["features"]
    rows["maxItems"] = settings.max_rows
    for row in (*(one["properties"]["features"]["anyOf"][0] for one in (search, item)), rows["items"]):
        row["minItems"] = row["maxItems"] = width
    found = {}
    for name, json, form in zip(("search", "encode", "item"), taken, by_form, strict=True):
        form["properties"] = {"picture": {"type": "string", "format": "binary"}, **form.get("properties", {})}
        form["required"] = ["picture"]
        content = {JSON: {"schema": json}, FORM: {"schema": form}}
        found[name] = {"requestBody": {"required": True, "content": content}}
    return found
