"""Changes of a store, each within the transaction that its session is in."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.index import engines
from gphash.stores import schema, wire
from gphash.stores.postgres import Session, compose
from gphash.stores.reading import pieces
from gphash.stores.tables import Tables, statement
from gphash.stores.wire import Form, Octets

Progress: TypeAlias = Callable[[int, int | None], None]


def create(
    session: Session,
    tables: Tables,
    model: str | None,
    packed: Octets,
    ids: NDArray[np.int64],
    progress: Progress | None,
) -> None:
    """Make the tables with all their rows and indexes.

    Parameters
    ----------
    session, tables
        Where.
    model
        Fingerprint of what made the codes.
    packed, ids
        The items, ids ascending.
    progress
        Called with the rows sent and in all, for items and then for codes.
    """
    about = {"version": schema.VERSION, "n_bits": tables.form.n_bits, "kind": tables.form.kind, "model": model}
    for template in schema.CREATE:
        session.rows(statement(tables, template))
    session.rows(statement(tables, schema.WRITE_META), about)
    sent = _told(wire.items(ids, packed, tables.form), len(ids), progress)
    session.copy(statement(tables, schema.LOAD_ITEMS), sent)
    codes, sizes = counted(packed, tables.form)
    sent = _told(wire.counts(codes, sizes, tables.form), len(sizes), progress)
    session.copy(statement(tables, schema.LOAD_CODES), sent)
    for template in (*schema.KEYS, *schema.indexes(tables.form)):
        session.rows(statement(tables, template))


def migrate(session: Session, names: Any, column: str, version: int) -> None:
    """Bring tables of an older version up to date."""
    for step in range(version + 1, schema.VERSION + 1):
        for template in schema.MIGRATIONS[step]:
            session.rows(compose(template, names, {"column": column}))
    session.rows(compose(schema.WRITE_VERSION, names, {}), {"version": schema.VERSION})


def refuse_known(session: Session, tables: Tables, ids: NDArray[np.int64]) -> None:
    """Refuse ids that are there already."""
    known = [np.empty(0, np.int64)]
    for part in pieces(len(ids)):
        ((found,),) = session.rows(statement(tables, schema.KNOWN), {"ids": wire.bigints(ids[part])})
        if found is not None:
            known.append(wire.numbers_of(found))
    there = ids[np.isin(ids, np.concatenate(known))]
    if len(there):
        raise ValueError(
            f"ids has {int(there[0])}, which is in the index already ({len(there)} such); "
            "remove it first, or give another id."
        )


def add(session: Session, tables: Tables, packed: Octets, ids: NDArray[np.int64]) -> None:
    """Add items whose ids are new, and count them."""
    order = np.argsort(ids)
    session.copy(statement(tables, schema.COPY), wire.items(ids[order], packed[order], tables.form))
    codes, sizes = counted(packed, tables.form)
    for part in pieces(len(sizes)):
        values = {"codes": wire.codes(codes[part], tables.form), "sizes": wire.bigints(sizes[part])}
        session.rows(statement(tables, schema.COUNT_UP), values)


def lock(session: Session, tables: Tables, ids: NDArray[np.int64]) -> tuple[Octets, NDArray[np.int64]]:
    """Those of some items, ids ascending, that there are, held until the transaction ends."""
    packed, there = [wire.packed_of(np.empty((0, 0), np.uint8), tables.form)], [np.empty(0, np.int64)]
    for part in pieces(len(ids)):
        ((found, held),) = session.rows(statement(tables, schema.LOCK_ITEMS), {"ids": wire.bigints(ids[part])})
        if found is not None:
            there.append(wire.numbers_of(found))
            packed.append(wire.packed_of(held, tables.form))
    return np.concatenate(packed), np.concatenate(there)


def remove(session: Session, tables: Tables, packed: Octets, ids: NDArray[np.int64]) -> None:
    """Remove items that `lock` has found, and no longer count them."""
    for part in pieces(len(ids)):
        session.rows(statement(tables, schema.DELETE_ITEMS), {"ids": wire.bigints(ids[part])})
    codes, sizes = counted(packed, tables.form)
    for part in pieces(len(sizes)):
        some = {"codes": wire.codes(codes[part], tables.form)}
        session.rows(statement(tables, schema.LOCK_CODES), some)
        session.rows(statement(tables, schema.COUNT_DOWN), some | {"sizes": wire.bigints(sizes[part])})
        session.rows(statement(tables, schema.DELETE_CODES), some)


def counted(packed: Octets, how: Form) -> tuple[Octets, NDArray[np.int64]]:
    """Distinct codes in the order of their column, in which all writers lock them, and how often each comes."""
    if how.kind == "bigint":
        numbers, sizes = np.unique(engines.as_bigint(packed, how.n_bits), return_counts=True)
        return engines.from_bigint(numbers, how.n_bits), sizes
    codes, sizes = np.unique(packed, axis=0, return_counts=True)
    return codes, sizes


def _told(chunks: Iterable[bytes], n: int, progress: Progress | None) -> Iterator[bytes]:
    """Rows on their way, with a word on how many have gone."""
    for number, chunk in enumerate(chunks):
        yield chunk
        if progress is not None:
            progress(min(number * wire.ROWS, n), n)
