"""Items as they are stored, and what a table of them looks like."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    """An item to be added; a key of None is the next whole number there never was."""

    key: Key | None
    code: bytes
    described: bool
    values: dict[str, Value]

    def numbered(self, number: int) -> Row:
        """The item with its number."""
        return Row(number, number if self.key is None else self.key, *self[1:])


class Layout(NamedTuple):
    """What the table of items looks like: "integer" or "text" keys, and further columns with their types."""

    keys: str
    columns: dict[str, str]

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
