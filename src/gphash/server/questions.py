"""What clients may ask: the bodies of requests, checked."""

import re
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic_core
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gphash.server.failures import Failure, wrong

PLAIN = re.compile(r"0|-?[1-9][0-9]{0,19}")


def _plain_digits(given: Any) -> Any:
    """Refuse a number in a text that Python would read, but nobody means: 1_0, ٣, 1.0 or one with spaces or a plus."""
    if isinstance(given, str) and not PLAIN.fullmatch(given):
        raise ValueError("it must be a whole number in digits")
    return given


# As -7 in a path, a query or a form; in JSON, texts are no numbers.
Whole = Annotated[int, BeforeValidator(_plain_digits)]
Id = Annotated[Whole, Field(ge=-(2**63), le=2**63 - 1)]
LARGE = 1e15  # squares of numbers beyond it, summed in single precision, are not finite
# One wrong number is enough: the errors of a million would take longer than anything else here.
Row = Annotated[list[Annotated[float, Field(ge=-LARGE, le=LARGE)]], Field(min_length=1, fail_fast=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Q = TypeVar("Q", bound=BaseModel)

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
_FORM = ConfigDict(strict=False, extra="forbid", frozen=True)  # fields of forms are texts


def _exactly_one(*names: str) -> dict[str, Any]:
    """For the schema: one of these fields, and not null."""
    return {"oneOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


class Options(BaseModel):
    """How to search."""

    model_config = _STRICT
    k: Whole = Field(10, ge=1, le=2**31 - 1, description="how many neighbours")
    ranking: Literal["hamming", "expected"] = "hamming"
    radius: Whole | None = Field(None, ge=0, le=2**31 - 1, description="only items within this Hamming distance")
    label: Name | None = Field(None, description="only items of this class or with this tag")


class SearchJson(Options):
    """A search by an item or by features."""

    model_config = ConfigDict(**_STRICT, json_schema_extra=_exactly_one("id", "features"))
    id: Id | None = Field(None, description="an item, which is left out of its own neighbours")
    features: Row | None = Field(None, description="a row as the model was fitted on")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.id is None) == (self.features is None):
            raise ValueError("wanted is exactly one of id and features")
        return self


class SearchForm(Options):
    """A search by a picture."""

    model_config = _FORM


class EncodeJson(BaseModel):
    """Rows to encode."""

    model_config = _STRICT
    features: list[Row] = Field(min_length=1, fail_fast=True)


class EncodeForm(BaseModel):
    """A picture to encode has no further fields."""

    model_config = _FORM


class ItemJson(BaseModel):
    """A new item by its features."""

    model_config = _STRICT
    features: Row
    label: Name | None = None
    tags: Annotated[list[Name], Field(max_length=1000, fail_fast=True)] | None = None
    id: Id | None = Field(None, description="the next free one if null")


class ItemForm(BaseModel):
    """What is said of a new item that is given by its picture."""

    model_config = _FORM
    label: Name | None = None
    tags: str | None = Field(None, max_length=10_000, description="separated by ;")
    id: Id | None = None


def from_json(kind: type[Q], body: bytes, width: int, max_rows: int = 1) -> Q:
    """Read a body of JSON.

    Parameters
    ----------
    kind
        What it is to be.
    body
        As it came.
    width, max_rows
        A row of features that is longer than the model's, and more rows than allowed, are refused before any number
        is looked at.
    """
    try:
        given = pydantic_core.from_json(body)
    except ValueError as error:
        raise Failure(400, "malformed_json", f"the body is no JSON: {error}.") from None
    if isinstance(given, dict):
        for name in given:
            if name not in kind.model_fields:
                raise wrong(f"{name[:100]}: there is no such field.", name[:100])
        _check_size(given.get("features"), width, max_rows)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _failure(error) from None


def check_width(row: list[Any], width: int) -> None:
    """Refuse a row that the model does not take."""
    if len(row) != width:
        raise wrong(f"features: a row has {len(row)} numbers; the model takes {width}.", "features")


def _check_size(features: Any, width: int, max_rows: int) -> None:
    if not isinstance(features, list):
        return
    rows = [row for row in features if isinstance(row, list)]
    if len(rows) > max_rows:
        raise wrong(f"features: it has {len(rows)} rows; at most {max_rows}.", "features")
    for row in rows or [features]:
        if len(row) > width:
            check_width(row, width)


def from_form(kind: type[Q], fields: dict[str, str]) -> Q:
    """Read the fields of a form; empty ones are as good as absent."""
    try:
        return kind.model_validate({name: value for name, value in fields.items() if value != ""})
    except ValidationError as error:
        raise _failure(error) from None


def _failure(error: ValidationError) -> Failure:
    """The first fault, without what the client sent."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    place = first["loc"]
    argument = str(place[0])[:100] if place else None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}"[:100] for part in place).removeprefix(".")
    return wrong(f"{where}: {text}." if where else f"{text}.", argument)
