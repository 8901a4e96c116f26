"""Answers that say no: a status, a code for programs, a sentence for people."""

import errno
import json

from gphash.collection.records import NoPictureError, UnknownItemError
from gphash.collection.rows import KnownKeyError
from gphash.data.descriptors.networks import EncodingError, MissingEncoderError
from gphash.data.pictures import PictureError, TooManyPixelsError
from gphash.files import LockedError

LONGEST = 500  # letters of a message, which may repeat what was given
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Refusal(Exception):  # noqa: N818, an answer more than an error
    """A request that is answered with an error; `code` is for programs, `argument` names the one that is wrong."""

    def __init__(
        self, status: int, code: str, message: str, argument: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        message = message if len(message) <= LONGEST else f"{message[:LONGEST]} …"
        self._error = {"code": code, "message": message, "argument": argument}

    def content(self) -> bytes:
        """The body of the answer."""
        return json.dumps({"error": self._error}, ensure_ascii=False).encode(errors="replace")


class GoneError(Exception):
    """The client went away before it had sent or read everything."""


def wrong(message: str, argument: str | None = None, code: str = "invalid_argument") -> Refusal:
    """An argument that cannot be used."""
    return Refusal(422, code, message, argument)


def busy(code: str, status: int, message: str) -> Refusal:
    """Too much at once."""
    return Refusal(status, code, f"{message}; try again in a moment.", headers={"Retry-After": "1"})


def too_large(max_bytes: int) -> Refusal:
    """A body beyond the limit."""
    return Refusal(413, "body_too_large", f"the body has more than {max_bytes} bytes, the most allowed.")


def of(error: Exception) -> Refusal:
    """The answer to an error; about errors that no argument has caused, it tells nothing."""
    sentence = f"{error}".rstrip(".") + "."
    match error:
        case Refusal():
            return error
        case UnknownItemError():
            return Refusal(404, "unknown_item", sentence, "key")
        case NoPictureError():
            return Refusal(404, "no_picture", "there is no picture of this item.", "key")
        case KnownKeyError():
            return Refusal(409, "known_key", sentence, "key")
        case TooManyPixelsError():
            return Refusal(413, "picture_too_large", sentence, "picture")
        case PictureError():
            return wrong(sentence, "picture", "bad_picture")
        case MissingEncoderError():
            return wrong("the service does not have the encoder; start it with --descriptor PATH.", code="no_encoder")
        case EncodingError():  # its message says where the encoder lies
            return wrong("the encoder cannot encode this text or picture.")
        case LockedError() | TimeoutError():
            return busy("locked", 503, "somebody else is changing the collection")
        case ConnectionError():
            return busy("no_database", 503, "the database of the collection does not answer")
        case OSError() if error.errno in FULL:
            message = "the disk of the service is full, or its quota is used up; nothing was changed."
            return Refusal(507, "insufficient_storage", message)
    return Refusal(500, "internal", "something went wrong in the service; its log says where.")
