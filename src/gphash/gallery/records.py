"""What a gallery hands out, and what it raises."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats


class UnknownItemError(LookupError):
    """The gallery has no item with that id."""


class NoPictureError(LookupError):
    """The item has no picture, or it is not where it was."""


class KnownItemError(ValueError):
    """The gallery has an item with that id already."""


class Query(NamedTuple):
    """What is searched for.

    code
        Packed, uint8 [bytes].
    probabilities
        P(bit = 1), float64 [m]; None if nobody knows them.
    labels
        Names of its class, or of its tags; empty if unknown.
    id
        Of the item that is the query; None for others.
    """

    code: NDArray[np.uint8]
    probabilities: Floats | None
    labels: tuple[str, ...] = ()
    id: int | None = None


class Neighbour(NamedTuple):
    """An item that was found.

    id
        Its number.
    distance
        From the query, exact or expected as the ranking says.
    labels
        Names of its class, or of its tags; empty if unknown.
    bits
        Its code, "0110…".
    relevant
        Whether it shares a label with the query; None if nobody knows.
    has_picture
        Whether there is a picture of it.
    name
        Of the picture's file in its folder; None if it is no file.
    """

    id: int
    distance: float
    labels: tuple[str, ...]
    bits: str
    relevant: bool | None
    has_picture: bool
    name: str | None = None


class Item(NamedTuple):
    """An item of a gallery; the fields are those of `Neighbour`."""

    id: int
    labels: tuple[str, ...]
    bits: str
    has_picture: bool
    name: str | None = None


class Bucket(NamedTuple):
    """Items that share a code.

    bits
        The code, "0110…".
    size
        How many they are.
    ids
        Some of them, spread evenly over all, ascending.
    labels
        How many have which label, most frequent first; those without one are not counted.
    """

    bits: str
    size: int
    ids: list[int]
    labels: dict[str, int]


class Picture(NamedTuple):
    """A picture as a browser takes it.

    content
        The bytes of the file.
    media_type
        Such as "image/png".
    """

    content: bytes
    media_type: str
