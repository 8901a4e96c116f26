"""Reading what a store holds, a bounded number of rows at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.index.contents import Stats
from gphash.stores import schema, wire
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Session
from gphash.stores.tables import Tables, statement
from gphash.stores.wire import Octets

PAGE = 1 << 20  # rows of a statement
FIRST = np.iinfo(np.int64).min


class Sizes(NamedTuple):
    """About how many distinct codes and items there are, as the server believes."""

    n_codes: int
    n_items: int


def sizes(session: Session, tables: Tables) -> Sizes:
    """What decides how to search, never what is found."""
    return Sizes(*(int(number) for (number,) in session.rows(statement(tables, schema.ESTIMATE))))


def stats(session: Session, tables: Tables) -> Stats:
    """Exact counts, and the room that tables and indexes take."""
    ((n_items, n_codes, largest, size),) = session.rows(statement(tables, schema.STATS))
    return Stats(int(n_items), int(n_codes), int(largest), n_items / n_codes if n_codes else 0.0, int(size))


def count(session: Session, tables: Tables, condition: Condition | None) -> int:
    """How many items pass a condition."""
    return int(session.rows(statement(tables, schema.COUNT, condition=condition), values_of(condition))[0][0])


def ids(session: Session, tables: Tables) -> NDArray[np.int64]:
    """All ids, ascending."""
    (found,) = _pages(session, statement(tables, schema.READ_IDS), {}, FIRST, _last_id)
    return wire.numbers_of(found)


def items(session: Session, tables: Tables, condition: Condition | None) -> tuple[Octets, NDArray[np.int64]]:
    """All items that pass a condition, ids ascending."""
    asked = statement(tables, schema.READ_ITEMS, condition=condition)
    return _in_order(tables, *_pages(session, asked, values_of(condition), FIRST, _last_id))


def some(
    session: Session, tables: Tables, numbers: NDArray[np.int64], condition: Condition | None
) -> tuple[Octets, NDArray[np.int64]]:
    """Those of some items that there are and that pass a condition, ids ascending."""
    asked = statement(tables, schema.READ_SOME, condition=condition)
    found = [_in_order(tables, None, None)]
    for part in pieces(len(numbers)):
        values = {"ids": wire.bigints(numbers[part])}
        found.append(_in_order(tables, *session.rows(asked, values | values_of(condition))[0]))
    packed, known = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(known, kind="stable")
    return packed[order], known[order]


def codes(session: Session, tables: Tables) -> tuple[Octets, NDArray[np.int64]]:
    """All distinct codes, and how many items have each."""
    how = tables.form
    first = FIRST if how.kind == "bigint" else wire.code(np.zeros(how.n_bytes, np.uint8), how)

    def start(last: Octets) -> Any:
        return wire.code(wire.packed_of(last, how)[0], how)

    found, numbers = _pages(session, statement(tables, schema.READ_CODES), {}, first, start)
    return wire.packed_of(found, how), wire.numbers_of(numbers)


def values_of(condition: Condition | None) -> dict[str, Any]:
    """Values of its parameters."""
    return {} if condition is None else condition.values


def pieces(n: int) -> list[slice]:
    """Rows that one statement takes after the other."""
    return [slice(start, start + PAGE) for start in range(0, n, PAGE)]


def _last_id(last: Octets) -> int:
    return int(wire.numbers_of(last)[0])


def _in_order(tables: Tables, there: Octets | None, held: Octets | None) -> tuple[Octets, NDArray[np.int64]]:
    if there is None or held is None:
        return wire.packed_of(np.empty((0, 0), np.uint8), tables.form), np.empty(0, np.int64)
    numbers = wire.numbers_of(there)
    order = np.argsort(numbers)
    return wire.packed_of(held, tables.form)[order], numbers[order]


def _pages(
    session: Session, asked: bytes, values: dict[str, Any], first: Any, start: Callable[[Octets], Any]
) -> list[Octets]:
    """Columns of a statement that reads in the order of its first column; every page begins with the last row."""
    pages: list[tuple[Octets, ...]] = []
    while True:
        (page,) = session.rows(asked, values | {"first": first, "rows": PAGE})
        if page[0] is None:
            return [np.empty((0, 0), np.uint8) for _ in page]
        pages.append(tuple(column[1:] if pages else column for column in page))
        if len(page[0]) < PAGE:
            return [np.concatenate(columns) for columns in zip(*pages, strict=True)]
        first = start(page[0][-1:])
