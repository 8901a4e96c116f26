"""What to search for: a picture, a text, a row, a code or an item becomes a query."""

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.collection import arguments
from gphash.collection.records import Query
from gphash.collection.rows import Row
from gphash.collection.showing import Shown
from gphash.data import pictures
from gphash.data.descriptors.descriptor import PICTURES, TEXTS, Descriptor
from gphash.data.descriptors.networks import MissingEncoderError
from gphash.functions.model import Model


def one_of(**given: Any) -> tuple[str, Any]:
    """The one argument that was given, and its name."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        *most, last = given
        raise ValueError(f"{' and '.join(names) or 'nothing'} given; give exactly one of {', '.join(most)} and {last}.")
    return names[0], given[names[0]]


def described(descriptor: Descriptor | None, subject: str, given: Any, max_pixels: int) -> NDArray[np.float32]:
    """A picture or a text as a row that the model takes, [d]."""
    noun = subject[:-1]
    if descriptor is None:
        raise ValueError(
            f"{noun} given, but the collection holds plain features; give features, such as a file .npy of rows."
        )
    if descriptor.takes != subject:
        raise ValueError(
            f"{noun} given, but the collection is one of {descriptor.takes}; give a {descriptor.takes[:-1]}."
        )
    if subject == TEXTS:
        if not isinstance(given, str) or not given.strip():
            raise ValueError(f"text={given!r}; give a text that is not empty.")
        return descriptor.describe(given)
    return descriptor.describe(pictures.open_picture(given, max_pixels, descriptor.spare))


def from_row(rows: NDArray[Any], model: Model, certainty: bool) -> Query:
    """The query of one row, [1, d]."""
    if not certainty:
        return Query(model.encode(rows)[0], None, model=model.fingerprint, features=rows[0])
    return arguments.looked(rows, model)[0]._replace(model=model.fingerprint)


def from_item(row: Row, model: Model, descriptor: Descriptor | None, shown: Shown, certainty: bool) -> Query:
    """The query of an item: its stored code, and probabilities of its picture or text, if it can be described."""
    query = Query(np.frombuffer(row.code, np.uint8), None, row.labels, row.key, model.fingerprint)
    if descriptor is None or not model.has_probabilities or not certainty or not row.described:
        return query
    thing = row.values.get("text") if descriptor.takes == TEXTS else shown.pixels(row, descriptor.spare)
    if thing is None or not descriptor.is_at_hand():
        return query
    with contextlib.suppress(MissingEncoderError):
        seen = from_row(model.check_rows(descriptor.describe(thing)[None]), model, True)
        told = {name: getattr(seen, name) for name in ("probabilities", "classes", "familiarity")}
        query = query._replace(**told)
    return query


def given_row(descriptor: Descriptor | None, model: Model, name: str, given: Any) -> NDArray[Any]:
    """Features, a picture or a text, whichever it is by its name, as rows [1, d]."""
    if name == "features":
        return arguments.row(given, model)
    return described(descriptor, PICTURES if name == "picture" else TEXTS, given, pictures.MAX_PIXELS)[None]
