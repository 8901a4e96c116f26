"""Bodies of requests: read within limits of size, and forms taken apart."""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from gphash.server.failures import Failure, GoneError, too_large, wrong
from gphash.server.settings import Settings

JSON = "application/json"
FORM = "multipart/form-data"
MAX_FIELDS = 20
NUMBER_BYTES = 32  # at most 24 that say something, and those between
BESIDE_NUMBERS = 1 << 18


class Form(NamedTuple):
    """A form with a picture.

    picture
        The content of the file.
    fields
        All others, by name.
    """

    picture: bytes
    fields: dict[str, str]


class _InMemory(MultiPartParser):
    spool_max_size = 1 << 40  # the body is in memory, and bounded, already


def kind_of(request: Request) -> str:
    """The media type of a body: one of the two that are understood."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, FORM):
        raise Failure(415, "unsupported_media_type", f"wanted is a body of {JSON} or {FORM}.")
    return kind


async def read_json(request: Request, settings: Settings, n_numbers: int) -> bytes:
    """The whole body, which is to hold so many numbers: unpacked, a longer one could be very much larger."""
    return await read(request, settings, BESIDE_NUMBERS + NUMBER_BYTES * n_numbers)


async def read(request: Request, settings: Settings, max_bytes: int) -> bytes:
    """The whole body, of at most so many bytes, and at most as many as the settings allow."""
    most = min(max_bytes, settings.max_body_bytes)
    chunks, size = [], 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def form_of(request: Request, body: bytes, settings: Settings) -> Form:
    """The whole body, as a form with a file `picture`."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemory(
        request.headers, stream(), max_files=1, max_fields=MAX_FIELDS, max_part_size=settings.max_body_bytes
    )
    try:
        form = await parser.parse()
    # A boundary that is missing or no text is found in different places.
    except (MultiPartException, KeyError, UnicodeError, AttributeError, ValueError):
        raise Failure(400, "malformed_form", "the body is no multipart/form-data with at most one file.") from None
    try:
        return _taken_apart(form)
    finally:
        await form.close()


def _taken_apart(form: FormData) -> Form:
    fields: dict[str, str] = {}
    picture: bytes | None = None
    for name, value in form.multi_items():
        if name in fields or (name == "picture" and picture is not None):
            raise wrong(f"{name[:100]}: it is given more than once.", name[:100])
        if isinstance(value, UploadFile):
            if name != "picture":
                raise wrong(f"{name[:100]}: a file here is not expected; the file is called picture.", name[:100])
            picture = value.file.read()
        else:
            fields[name] = value
    if picture is None:
        raise wrong("picture: the form has no file of this name.", "picture")
    return Form(picture, fields)
