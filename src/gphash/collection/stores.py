"""Where a collection is kept: in a folder, or in a database."""

import os
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from gphash.collection.conditions import Condition
from gphash.collection.records import Query
from gphash.collection.rows import ItemTable, NewRow
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions.model import Model
from gphash.registry import Registry

T = TypeVar("T")

Location: TypeAlias = str | os.PathLike[str]


class Store(Protocol):
    """What a collection needs of the place it is kept in.

    name, model, descriptor
        Of the collection.
    index, items
        Codes by numbers, and what is known of the numbers.
    pictures
        A folder, and one that is named relative to it; None if the collection names no folder.
    changing
        A lock that holds changes of this process back.
    """

    name: str
    model: Model
    descriptor: Descriptor | None
    index: Any
    items: ItemTable
    pictures: tuple[str, str] | None
    writable: bool
    changing: Any

    @property
    def n_changes(self) -> int:
        """What differs after every change."""

    def steady(self, read: Callable[[], T]) -> T:
        """What `read` gives, all of it of one moment."""

    def nearest(
        self,
        queries: list[Query],
        k: int,
        ranking: str,
        radius: int | None,
        condition: Condition | None,
        label: str | None,
    ) -> list[tuple[list[int], list[float]]]:
        """Numbers and distances of the k nearest items of every query, of those that pass a condition."""

    def add(self, rows: list[NewRow], pictures: list[bytes | None]) -> list[int]:
        """Add items, all of them or none; on return they are durable."""

    def remove(self, numbers: list[int]) -> None:
        """Remove items, all of them or none; on return that is durable."""

    def compact(self) -> None:
        """Tidy up."""

    def refresh(self) -> None:
        """See what others have changed."""

    def is_replaced(self) -> bool:
        """Whether another collection was put in its place, so that it has to be opened again."""

    def close(self) -> None:
        """Release everything."""


STORES: Registry[Any] = Registry(
    "store",
    {"folder": "gphash.collection.folder:Folder", "postgresql": "gphash.collection.database:Database"},
)


def open_store(place: Location, writable: bool) -> Store:
    """Open a folder, or an address that begins with the name of a kind of store and "://"."""
    address = re.match(r"(\w+)://", place) if isinstance(place, str) else None
    store: Store = STORES.find(address[1] if address else "folder", "path").open(place, writable)
    return store
