"""What a collection hands out, and what it raises."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.reading import DistanceReader, Reader
from gphash.collection.rows import Key, Row, Value


class UnknownItemError(LookupError):
    """The collection has no item with that key."""


class NoPictureError(LookupError):
    """The item has no picture, or it is no longer where it was."""


class Query(NamedTuple):
    """What is searched for.

    The code is packed, uint8 [bytes]; probabilities are P(bit = 1), float64 [m]; labels are names of its class or
    tags; the key is that of the item that is the query; the model is the fingerprint of what made the code; classes are
    P(class) or P(tag), float64 [c], if they are known from more than the code; features are its row, [d], or that of
    the item as the collection keeps it, by which candidates can be ordered; familiarity says how much it resembles
    what the model was trained on, see `GPHasher.familiarity`.
    """

    code: NDArray[np.uint8]
    probabilities: Floats | None
    labels: tuple[str, ...] = ()
    key: Key | None = None
    model: str | None = None
    classes: Floats | None = None
    features: Floats | None = None
    familiarity: float | None = None

    def believed(self, reader: Reader) -> Floats:
        """P(class) or P(tag), [c], or for pairs P(bit = 1), [m]; of a code alone, what that says."""
        known = self.probabilities if isinstance(reader, DistanceReader) else self.classes
        return reader.read(self.code[None])[0] if known is None else known


class Item(NamedTuple):
    """An item: its class or tags, its code as "0110…", and its values: title, text, link, file name, other columns."""

    key: Key
    labels: tuple[str, ...]
    bits: str
    has_picture: bool
    values: dict[str, Value]


class Hit(NamedTuple):
    """An item that was found: the fields of `Item`, its distance, and whether it shares a label with the query.

    The distance is the Hamming distance, or the expected one if items were ranked by that. `probability` is P(similar),
    whatever the ranking; None if the model does not know it. `score` is the cosine, or the dot product, with the
    query that re-ranked items are ordered by; None if they were not.
    """

    key: Key
    labels: tuple[str, ...]
    bits: str
    has_picture: bool
    values: dict[str, Value]
    distance: float
    relevant: bool | None
    probability: float | None = None
    score: float | None = None


class Hits(list[Hit]):
    """The items that were found for a query, the best first: a list, and what can be said of all.

    nothing_similar
        Whether nothing here is similar: the query resembles nothing that the model was trained on, or even the most
        probable item is less probable than ½, and than such items usually are. Of queries like the training rows, in a
        collection like them, and ranked by P(similar) without a condition, that is said wrongly of at most 5 %. None if
        the model cannot tell.
    complete
        Whether the list ends where a promise says; False if it ends sooner, as k items were found.
    """

    nothing_similar: bool | None = None
    complete: bool = True


class Bucket(NamedTuple):
    """Items that share a code: how many, some keys spread evenly, and how many have which label, the most first."""

    bits: str
    size: int
    keys: list[Key]
    labels: dict[str, int]


class Picture(NamedTuple):
    """A picture in a form that browsers show; the media type is such as "image/png"."""

    content: bytes
    media_type: str


def is_relevant(labels: tuple[str, ...], row: Row) -> bool | None:
    """Whether an item has a label in common with a query; None if that is unknown."""
    if not labels or (not row.labels and "tags" not in row.values):
        return None
    return not set(labels).isdisjoint(row.labels)


def bits_of(packed: NDArray[np.uint8], n_bits: int) -> list[str]:
    """Packed codes as zeros and ones, "0110…"."""
    digits = packing.unpack(packed, n_bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def code_of(bits: str) -> NDArray[np.uint8]:
    """Undo `bits_of`, for one code."""
    return packing.pack(np.array([[bit == "1" for bit in bits]])).reshape(-1)
