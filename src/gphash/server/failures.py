"""Answers that say no: a status, a code for programs, a sentence for people."""

import errno
import json
from collections.abc import Mapping
from typing import Any


class Failure(Exception):  # noqa: N818, an answer more than an error
    """A request that is answered with an error.

    Parameters
    ----------
    status
        Of HTTP.
    code
        What programs tell it by.
    message
        What people read.
    argument
        The name of the argument that is wrong, if it is one.
    headers
        Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        argument: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.argument = argument
        self.headers = dict(headers or {})

    def content(self) -> bytes:
        """The body of the answer."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "argument": self.argument}
        return json.dumps({"error": error}, ensure_ascii=False).encode(errors="replace")


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class GoneError(Exception):
    """The client has gone before it had sent everything."""


def unauthorised() -> Failure:
    """No token, or none that is known."""
    headers = {"WWW-Authenticate": 'Bearer realm="gphash"'}
    return Failure(401, "unauthorised", "wanted is a token: Authorization: Bearer ….", headers=headers)


def forbidden() -> Failure:
    """A token that may read but not write."""
    return Failure(403, "forbidden", "the token may read, but not change anything.")


def read_only() -> Failure:
    """The service was started to be read."""
    return Failure(403, "read_only", "the service is read-only; start it with --writable to change items.")


def busy(code: str, status: int, message: str) -> Failure:
    """Too much at once."""
    return Failure(status, code, message, headers={"Retry-After": "1"})


def too_large(max_bytes: int) -> Failure:
    """A body beyond the limit."""
    return Failure(413, "body_too_large", f"the body has more than {max_bytes} bytes, which are the most allowed.")


def wrong(message: str, argument: str | None = None, code: str = "invalid_argument") -> Failure:
    """An argument that cannot be used."""
    return Failure(422, code, message, argument)


def unforeseen(error: Exception) -> Failure:
    """An error that no argument of the client has caused."""
    if isinstance(error, OSError) and error.errno in FULL:
        message = "the disk of the service is full, or its quota is used up; nothing was changed."
        return Failure(507, "insufficient_storage", message)
    return Failure(500, "internal", "something went wrong in the service; its log says where.")
