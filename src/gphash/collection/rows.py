"""Items as they are stored, and what a table of them looks like."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.collection import vectors
from gphash.collection.vectors import VectorKind

Key: TypeAlias = int | str
Value: TypeAlias = str | int | float | None

SAID = ("label", "tags", "title", "text", "link", "picture")  # columns that every collection has, all of them texts
OWN = ("number", "key", "code", "described", "mark")  # columns that nobody else can name
TYPES = {"integer": int, "real": float, "text": str}


class Row(NamedTuple):
    """An item as it is stored.

    The code is packed. `described` says whether it was made from the item's picture. `tags` are separated by ";" and
    begin and end with it. `picture` is the name of a file in the folder of pictures.
    """

    number: int
    key: Key
    code: bytes
    described: bool
    values: dict[str, Value]

    @property
    def labels(self) -> tuple[str, ...]:
        """Its class or its tags."""
        if (tags := self.values.get("tags")) is not None:
            return tuple(str(tags).strip(";").split(";")) if tags != ";" else ()
        label = self.values.get("label")
        return () if label is None else (str(label),)


class NewRow(NamedTuple):
    """An item to be added; a key of None is the next whole number there never was.

    `vector` is its row as `vectors.pack` made it, if the collection keeps vectors.
    """

    key: Key | None
    code: bytes
    described: bool
    values: dict[str, Value]
    vector: bytes | None = None

    def numbered(self, number: int) -> Row:
        """The item with its number."""
        return Row(number, number if self.key is None else self.key, self.code, self.described, self.values)

    def sealed(self, number: int) -> bytes | None:
        """The vector of the item with its number, as it is stored."""
        if self.vector is None:
            return None
        row = np.frombuffer(bytearray(self.vector), np.uint8)[None]
        return vectors.seal(row, np.array([number], np.int64)).tobytes()


class Layout(NamedTuple):
    """What the table of items looks like: "integer" or "text" keys, further columns with their types, and vectors."""

    keys: str
    columns: dict[str, str]
    vectors: VectorKind | None = None

    @classmethod
    def read(cls, told: dict[str, Any]) -> "Layout":
        """What `told` gave."""
        kept = told.get("vectors")
        if kept is not None:
            vectors.TOLD.check(kept, "vectors")
        return cls(told["keys"], told["columns"], None if kept is None else VectorKind(**kept))

    def told(self) -> dict[str, Any]:
        """What a file, or a database, says of it."""
        kept = {} if self.vectors is None else {"vectors": self.vectors._asdict()}
        return {"keys": self.keys, "columns": self.columns} | kept

    @property
    def names(self) -> dict[str, str]:
        """Columns that a condition may name, and what they are in a statement."""
        own = {"key": "key" if self.keys == "text" else "number"}
        return own | {name: quoted(name) for name in (*SAID, *self.columns)}

    @property
    def kinds(self) -> dict[str, str]:
        """The types of those columns."""
        return {"key": self.keys, **dict.fromkeys(SAID, "text"), **self.columns}

    @property
    def values(self) -> tuple[str, ...]:
        """Columns that an item has values in."""
        return (*SAID, *self.columns)


class ItemTable(Protocol):
    """What a collection asks of its items, wherever they are kept; see `Items`."""

    layout: Layout
    rows: Callable[[Sequence[int]], dict[int, Row]]
    all_rows: Callable[[], Iterator[Row]]
    all_pictures: Callable[[], Iterator[tuple[int, bytes, str | None]]]
    numbers: Callable[[Sequence[Key]], dict[Key, int]]
    classes: Callable[[], tuple[str, ...]]
    count_labels: Callable[[Sequence[int]], dict[str, int]]
    picture: Callable[[int], bytes | NDArray[np.uint8] | None]
    pictured: Callable[[Sequence[int]], set[int]]
    has_pictures: Callable[[bool], bool]


def quoted(name: str) -> str:
    """A name as a statement has it."""
    return '"' + name.replace('"', '""') + '"'


class KnownKeyError(ValueError):
    """A key is in the collection already."""
