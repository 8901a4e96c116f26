"""`PostgresIndex`: the searches of a `HammingIndex` in tables of PostgreSQL."""

import contextlib
import time
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.files import LockedError
from gphash.index import checks, rankings
from gphash.index.backends import Ball, Index, Neighbours, Stats
from gphash.index.contents import Allowed
from gphash.index.hamming_index import HammingIndex
from gphash.index.postgres import queries, relations
from gphash.index.postgres.database import READING, WRITING, IsolationLevel, KnownError, Server, StoreError
from gphash.index.postgres.queries import Sizes
from gphash.index.postgres.relations import Condition, Meta, Tables, View
from gphash.index.rankings import EXPECTED, HAMMING, Ranking

FRESH = 60.0  # seconds that an estimate of the number of codes holds
ATTEMPTS = 10
MANY = 10_000  # new items after which the server is told to look at its tables
PATIENCE = 10.0  # seconds to wait for somebody else's lock


class PostgresIndex(Index):
    """Exact search among packed codes in PostgreSQL; made by `build` or `open`.

    Results are those of a `HammingIndex` with the same items. A search sees what was committed before it, and the
    queries of one call see the same; nothing is kept here from one call to the next. Threads may share an index, each
    with a connection of its own while it asks. Changes of several clients at a time are safe.

    Searches also take a `condition` on the columns that a collection has given the items. Items that are `allowed` are
    read and ranked here, and so are the few that a condition leaves, and all items by a ranking other than the two of
    this package.
    """

    def __init__(self, server: Server, names: Tables, meta: Meta) -> None:
        super().__init__(meta.n_bits, meta.model)
        self.name = names.name
        self.meta = meta
        self._server = server
        self.view = partial(_view, server, names, meta.n_bits)
        self.moment = server.moment
        self._sizes, self._looked = Sizes(0, 0), -FRESH

    @classmethod
    def build(
        cls,
        conninfo: str,
        name: str,
        packed: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        n_bits: int | None = None,
        model: Any = None,
        schema: str | None = None,
        lock_timeout: float = PATIENCE,
    ) -> Self:
        """Make tables of packed codes, all of them or, should anything fail, nothing.

        Parameters
        ----------
        conninfo : str
            A connection string of libpq, 'host=… dbname=…' or 'postgresql://…'.
        name : str
            The tables are NAME_items, NAME_codes and NAME_meta.
        packed, ids, n_bits, model
            As for `HammingIndex.build`.
        schema
            Of the tables; the connection's first one if None.
        lock_timeout
            Seconds to wait for somebody else's lock.
        """
        index = HammingIndex.build(packed, ids, n_bits=n_bits, model=model)
        codes, numbers = index.items()
        with creating(conninfo, name, index.n_bits, index.model, schema=schema, lock_timeout=lock_timeout) as view:
            queries.load(view, codes, numbers, relations.LOAD_ITEMS)
            queries.finish(view, codes)
        made = cls.open(conninfo, name, schema=schema, lock_timeout=lock_timeout)
        made.settle()
        return made

    @classmethod
    def open(
        cls, conninfo: str, name: str | None = None, *, schema: str | None = None, lock_timeout: float = PATIENCE
    ) -> Self:
        """Open tables that are there; parameters as for `build`. A URL may end with their name, "#NAME"."""
        if name is None and isinstance(conninfo, str):
            conninfo, _, name = conninfo.rpartition("#")
        with _connected(conninfo, name, schema, lock_timeout) as (server, names), _view(server, names, 1) as view:
            return cls(server, names, relations.read_meta(view))

    def drop(self) -> None:
        """Remove the tables from the database."""
        with self.view(WRITING) as view:
            view.rows(relations.DROP)
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        self._server.close()

    def tidy(self) -> None:
        """Let the server reclaim space and count codes, on which depends how it searches; later, it does by itself."""
        with self.view() as view:
            for template in relations.TIDY:
                view.rows(template)
        self._looked = -FRESH

    def __len__(self) -> int:
        with self.view() as view:
            return int(view.rows(relations.SIZE)[0][0])

    def __repr__(self) -> str:
        return f"PostgresIndex({self.name!r}, codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        _, numbers = self.items()
        numbers.setflags(write=False)
        return numbers

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ⌈n_bits/8⌉], and ids, [n]."""
        with self.view(READING) as view:
            return queries.items(view)

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ⌈n_bits/8⌉]; a KeyError names an id that is not there."""
        with self.view() as view:
            packed, known = queries.some(view, np.unique(checks.distinct_ids(ids, None)))
        return self._in_memory(packed, known).codes_of(ids)

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets are, and how much room tables and indexes take."""
        with self.view() as view:
            ((n_items, n_codes, largest, size),) = view.rows(relations.STATS)
        return Stats(int(n_items), int(n_codes), int(largest), n_items / n_codes if n_codes else 0.0, int(size))

    def _fullest(self, n: int) -> NDArray[np.uint8]:
        with self.view() as view:
            return queries.fullest(view, n)

    def _search(
        self,
        ranking: Ranking,
        asked: NDArray[Any],
        k: int,
        allowed: Allowed | None,
        n_jobs: int | None,
        condition: Condition | None = None,
    ) -> Neighbours:
        here = self._here(allowed, condition, ranking not in (HAMMING, EXPECTED))
        if here is not None:
            return here.search(asked, k, ranking=ranking, n_jobs=n_jobs)
        with self.view(READING if ranking is EXPECTED else _level(len(asked)), condition) as view:
            sizes = self._believed(view)
            if ranking is HAMMING:
                among = k if condition is None else k * sizes.n_items // max(queries.passing(view), 1)
                found = [queries.nearest(view, sizes, query, k, among) for query in asked]
                return Neighbours(*queries.together(view, found, k))
            # Likely codes are looked up in the order of their distance. When that meets mostly codes that nobody has,
            # the distinct codes are read, all of them, and ranked here.
            uncertain = rankings.uncertain(asked)
            rank = cache(lambda: queries.ranker(view))
            modes = zip(uncertain.modes, uncertain.weights, strict=True)
            found = [queries.likeliest(view, sizes, mode, weights, k, rank) for mode, weights in modes]
            ids, costs = queries.together(view, found, k)
        return Neighbours(ids, uncertain.distances(costs))

    def _within(
        self,
        packed: NDArray[np.uint8],
        radius: int,
        allowed: Allowed | None,
        n_jobs: int | None,
        condition: Condition | None = None,
    ) -> Ball:
        here = self._here(allowed, condition)
        if here is not None:
            return here.within(packed, radius, n_jobs=n_jobs)
        with self.view(_level(len(packed)), condition) as view:
            sizes = self._believed(view)
            balls = [queries.gathered(queries.ball(view, sizes, query, radius), None) for query in packed]
        offsets = np.cumsum([0, *(len(ids) for ids, _ in balls)], dtype=np.int64)
        ids, costs = (np.concatenate([np.empty(0, np.int64), *(one[place] for one in balls)]) for place in (0, 1))
        return Ball(offsets, ids, costs.astype(np.int32))

    def _add(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
        if not len(ids):
            return
        for _ in range(ATTEMPTS):
            with contextlib.suppress(KnownError), self.view(WRITING) as view:
                # From the first look at the table on, nobody can put another one in its place.
                queries.refuse_known(view, ids)
                self.check_unchanged(view)
                queries.load(view, packed, ids)
                queries.count(view, packed)
                break
            # Somebody else added one of the ids just now; the next look finds it, unless it was removed again.
        else:
            raise StoreError(f"ids has some that others keep adding and removing; {ATTEMPTS} attempts met them.")
        if len(ids) >= MANY:
            self.settle()

    def _remove(self, ids: NDArray[np.int64]) -> int:
        with self.view(WRITING) as view:
            packed, there = queries.some(view, ids, relations.LOCK_ITEMS)
            self.check_unchanged(view)
            queries.remove(view, packed, there)
        return len(there)

    def settle(self) -> None:
        """Tidy after a change, which is committed: it must not look as if it had failed because of this."""
        with contextlib.suppress(LockedError, StoreError, ConnectionError, PermissionError):
            self.tidy()

    def _here(self, allowed: Allowed | None, condition: Condition | None, all_of_them: bool = False) -> Index | None:
        """An index in memory with the items that may be found, if they are few, or have to be ranked here."""
        if allowed is None and condition is None and not all_of_them:
            return None
        with self.view(READING, condition) as view:
            if allowed is not None:
                return self._in_memory(*queries.among(view, allowed))
            found = queries.few(view) if condition is not None else None
            if found is None and all_of_them:
                found = queries.items(view)
            return None if found is None else self._in_memory(*found)

    def _in_memory(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> HammingIndex:
        return HammingIndex.build(packed, ids, n_bits=self.n_bits, model=self.model)

    def _believed(self, view: View) -> Sizes:
        """About how many codes and items there are; that they are those of the same tables is looked at as well."""
        if time.monotonic() - self._looked > FRESH:
            self.check_unchanged(view)
            self._sizes = Sizes(*(int(number) for (number,) in view.rows(relations.ESTIMATE)))
            self._looked = time.monotonic()
        return self._sizes

    def check_unchanged(self, view: View) -> None:
        """Refuse tables that are not those that were opened."""
        if relations.read_meta(view) != self.meta:
            raise StoreError(f"{self.name!r} has been replaced since it was opened; open it again.")


@contextlib.contextmanager
def creating(
    conninfo: str,
    name: Any,
    n_bits: int,
    model: str | None,
    *,
    columns: str = "",
    schema: str | None = None,
    lock_timeout: float = PATIENCE,
) -> Iterator[View]:
    """Empty tables to be filled, in a transaction that ends with this; `columns` as `queries.create` takes them."""
    with _connected(conninfo, name, schema, lock_timeout) as (server, names):
        try:
            with _view(server, names, n_bits, WRITING) as view:
                queries.create(view, model, columns)
                yield view
        except KnownError:
            raise ValueError(
                f"name={name!r}: the database has a collection, or a table, of that name already; drop it, or give "
                "another name."
            ) from None
        finally:
            server.close()


@contextlib.contextmanager
def _view(
    server: Server, names: Tables, n_bits: int, level: IsolationLevel | None = None, condition: Condition | None = None
) -> Iterator[View]:
    """A store on a connection of its own."""
    with server.connection(level, condition and condition.where) as connection:
        yield View(connection, names, n_bits, condition)


def _level(n_queries: int) -> IsolationLevel | None:
    """One moment for all queries; one query alone is answered by one statement that counts, which has its own."""
    return None if n_queries == 1 else READING


@contextlib.contextmanager
def _connected(conninfo: str, name: Any, schema: Any, lock_timeout: Any) -> Iterator[tuple[Server, Tables]]:
    """A server and the names of tables; should anything fail, connections are closed."""
    names = relations.find(name, schema)
    server = Server(conninfo, lock_timeout, names.name)
    try:
        yield server, names
    except BaseException:
        server.close()
        raise
