"""Where a collection is kept: in a folder, or in a database."""

import os
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from gphash.collection.conditions import Condition
from gphash.collection.records import Query
from gphash.collection.rows import ItemTable, NewRow
from gphash.collection.vectors import Rows
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions.model import Model
from gphash.index.rankings import Ranking
from gphash.registry import Registry

T = TypeVar("T")

ADDRESS = "give postgresql://USER@HOST/DATABASE?collection=NAME."
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
    condition_seconds
        How long a condition may take; None for as long as it needs.
    """

    name: str
    model: Model
    descriptor: Descriptor | None
    index: Any
    items: ItemTable
    pictures: tuple[str, str] | None
    writable: bool
    changing: Any
    condition_seconds: float | None

    @property
    def n_changes(self) -> int:
        """What differs after every change."""

    def steady(self, read: Callable[[], T]) -> T:
        """What `read` gives, all of it of one moment."""

    def nearest(
        self,
        queries: list[Query],
        k: int,
        ranking: Ranking,
        radius: int | None,
        condition: Condition | None,
        label: str | None,
    ) -> list[tuple[list[int], list[float]]]:
        """Numbers and distances of the k nearest items of every query, of those that pass a condition."""

    def vectors_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Stored vectors of items, in that order, for a collection that keeps them; a KeyError if one is not there."""

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
    {
        "folder": "gphash.collection.folder:FolderStore",
        "postgresql": "gphash.collection.postgres_store:PostgresStore",
        "postgres": "gphash.collection.postgres_store:PostgresStore",  # libpq knows both
    },
)


def open_store(place: Location, writable: bool) -> Store:
    """Open a folder, or an address that begins with the name of a kind of store and "://"."""
    address = re.match(r"(\w+)://", place) if isinstance(place, str) else None
    store: Store = STORES.find(address[1] if address else "folder", "path").open(place, writable)
    return store


def refuse_address(place: Location) -> None:
    """Refuse an address, which may have a password, where a folder belongs."""
    if "://" in str(place):
        raise ValueError("an address was given in place of a folder; gphash store copies a folder into PostgreSQL.")


def hidden(place: str) -> str:
    """An address without its password."""
    found = urlsplit(place) if "://" in place else None
    if found is None or "@" not in found.netloc:
        return place
    user, _, host = found.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}"
    query = [(name, value) for name, value in parse_qsl(found.query) if name != "password"]
    return f"{found.scheme}://{netloc}{found.path}" + (f"?{urlencode(query, safe='/')}" if query else "")


def address(place: Any) -> tuple[str, str, str | None]:
    """Connection string, name and schema from "postgresql://…?collection=NAME&schema=SPACE"."""
    try:
        found = urlsplit(str(place))
        options = dict(parse_qsl(found.query, keep_blank_values=True, strict_parsing=bool(found.query)))
    except ValueError:  # whose message may show a password
        raise ValueError(f"the address of the collection cannot be read; {ADDRESS}") from None
    name, schema = options.pop("collection", None), options.pop("schema", None)
    if not found.scheme or not name:
        raise ValueError(f"the address names no collection; {ADDRESS}")
    # Not urlunsplit, which leaves out the slashes if there is no host.
    return f"{found.scheme}://{found.netloc}{found.path}?{urlencode(options, quote_via=quote)}", name, schema
