"""`PostgresIndex`: the searches of a `HammingIndex` in tables of PostgreSQL, with conditions on other tables."""

import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.container import FormatError
from gphash.files import LockedError
from gphash.index import checks, rankings
from gphash.index.backends import Ball, Index, Neighbours, Stats
from gphash.index.contents import Allowed
from gphash.index.hamming_index import HammingIndex
from gphash.index.postgres import queries, relations
from gphash.index.postgres.database import READING, WRITING, IsolationLevel, KnownError, Progress, Server, StoreError
from gphash.index.postgres.queries import Sizes
from gphash.index.postgres.relations import Condition, Meta, Options, Tables, View
from gphash.index.rankings import EXPECTED, HAMMING, Ranking

FRESH = 60.0  # seconds that an estimate of the number of codes holds
ATTEMPTS = 10
MANY = 10_000  # new items after which the server is told to look at its tables


class PostgresIndex(Index):
    """Exact search among packed codes in PostgreSQL; made by `create`, `build`, `from_index` or `open`.

    Results are those of a `HammingIndex` with the same items. A search sees what was committed before it, and the
    queries of one call see the same; nothing is kept here from one call to the next. Threads may share an index, each
    with a connection of its own while it asks. Changes of several clients at a time are safe.

    Searches also take `where`, a SQL condition on the columns of the store's `table`, and `params`, a list with a value
    for every %s in it. Items without a row there are not returned. The text must not come from a stranger: write %s for
    values, and %% for a per cent sign. Items that are `allowed` are read from the store and ranked here, and so are all
    items by a ranking other than the two of this package.
    """

    def __init__(self, server: Server, names: Tables, meta: Meta) -> None:
        super().__init__(meta.n_bits, meta.model)
        self.name = names.name
        self.meta = meta
        self._server, self._tables = server, names
        self.view = partial(_view, server, names, meta.n_bits)
        self.connection = server.connection
        self._sizes, self._looked = Sizes(0, 0), -FRESH

    @classmethod
    def create(cls, conninfo: str, name: str, *, n_bits: int, model: Any = None, **options: Unpack[Options]) -> Self:
        """Make an empty store; parameters as for `build`."""
        nothing = np.empty((0, -(-checks.length(n_bits) // 8)), np.uint8)
        return cls.build(conninfo, name, nothing, n_bits=n_bits, model=model, **options)

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
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """Make a store of packed codes, all of them or, should anything fail, nothing.

        Parameters
        ----------
        conninfo : str
            A connection string of libpq, 'host=… dbname=…' or 'postgresql://…'.
        name : str
            Of the store; its tables are NAME_items, NAME_codes and NAME_meta.
        packed, ids, n_bits, model
            As for `HammingIndex.build`.
        progress
            Called with the rows sent and in all: first of items, then of distinct codes.
        options
            See `Options`.
        """
        index = HammingIndex.build(packed, ids, n_bits=n_bits, model=model)
        return cls.from_index(conninfo, name, index, progress=progress, **options)

    @classmethod
    def from_index(
        cls, conninfo: str, name: str, index: Index, *, progress: Progress | None = None, **options: Unpack[Options]
    ) -> Self:
        """Make a store with the items of an index; parameters as for `build`."""
        with _connected(conninfo, name, options) as (server, names):
            try:
                with _view(server, names, index.n_bits, WRITING) as view:
                    queries.create(view, index.model, *index.items(), progress)
                    made = cls(server, names, relations.read_meta(view))
            except KnownError:
                space = [] if names.schema is None else ["--schema", names.schema]
                drop = shlex.join(["gphash", "store", "drop", "--name", name, *space])
                raise ValueError(
                    f"name={name!r} is a store, or a table of one, already; open it, drop it ({drop}), or give another "
                    "name."
                ) from None
            made._settle()
            return made

    @classmethod
    def open(cls, conninfo: str, name: str | None = None, **options: Unpack[Options]) -> Self:
        """Open a store that is there; parameters as for `build`. A URL may end with its name, "#NAME"."""
        if name is None and isinstance(conninfo, str):
            conninfo, _, name = conninfo.rpartition("#")
        with _connected(conninfo, name, options) as (server, names), _view(server, names, 1) as view:
            return cls(server, names, relations.read_meta(view))

    def drop(self) -> None:
        """Remove the store and all its items from the database."""
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

    def verify(self) -> None:
        """Count all items anew; a FormatError says if a count is wrong, which only statements of others can make it."""
        with self.view() as view:
            ((wrong,),) = view.rows(relations.MISCOUNTED)
        if wrong:
            raise FormatError(f"the store {self.name!r} has a wrong count for {wrong} codes; somebody wrote past it.")

    def to_index(self) -> HammingIndex:
        """All items as an index in memory."""
        return self._in_memory(*self.items())

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

    def _search(
        self, ranking: Ranking, asked: NDArray[Any], k: int, allowed: Allowed | None, n_jobs: int | None, **more: Any
    ) -> Neighbours:
        condition = self._condition(**more)
        if allowed is not None or ranking not in (HAMMING, EXPECTED):
            return self._among(allowed, condition)._search(ranking, asked, k, None, n_jobs)
        with self.view(READING if ranking is EXPECTED else _level(len(asked)), condition) as view:
            sizes = self._believed(view)
            if ranking is HAMMING:
                found = [queries.nearest(view, sizes, query, k) for query in asked]
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
        self, packed: NDArray[np.uint8], radius: int, allowed: Allowed | None, n_jobs: int | None, **narrowed: Any
    ) -> Ball:
        condition = self._condition(**narrowed)
        if allowed is not None:
            return self._among(allowed, condition)._within(packed, radius, None, n_jobs)
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
                self._check_unchanged(view)
                queries.add(view, packed, ids)
                break
            # Somebody else added one of the ids just now; the next look finds it, unless it was removed again.
        else:
            raise StoreError(f"ids has some that others keep adding and removing; {ATTEMPTS} attempts met them.")
        if len(ids) >= MANY:
            self._settle()

    def _remove(self, ids: NDArray[np.int64]) -> int:
        with self.view(WRITING) as view:
            packed, there = queries.some(view, ids, relations.LOCK_ITEMS)
            self._check_unchanged(view)
            queries.remove(view, packed, there)
        return len(there)

    def _settle(self) -> None:
        """Tidy after a change, which is committed: it must not look as if it had failed because of this."""
        with contextlib.suppress(LockedError, StoreError, ConnectionError, PermissionError):
            self.tidy()

    def _among(self, allowed: Allowed | None, condition: Condition | None) -> HammingIndex:
        """An index in memory with the items that are allowed and pass a condition."""
        with self.view(READING, condition) as view:
            return self._in_memory(*(queries.items(view) if allowed is None else queries.among(view, allowed)))

    def _in_memory(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> HammingIndex:
        return HammingIndex.build(packed, ids, n_bits=self.n_bits, model=self.model)

    def _believed(self, view: View) -> Sizes:
        """About how many codes and items there are; that the store is still the same is looked at as well."""
        if time.monotonic() - self._looked > FRESH:
            self._check_unchanged(view)
            self._sizes = Sizes(*(int(number) for (number,) in view.rows(relations.ESTIMATE)))
            self._looked = time.monotonic()
        return self._sizes

    def _check_unchanged(self, view: View) -> None:
        if relations.read_meta(view) != self.meta:
            raise StoreError(f"the store {self.name!r} has been replaced since it was opened; open it again.")

    def _condition(self, where: str | None = None, params: Sequence[Any] = ()) -> Condition | None:
        if where is None:
            if len(params):
                raise ValueError(f"params={params!r} without where; give the condition that they belong to.")
            return None
        if self._tables.table is None:
            raise ValueError(f"where={where!r}, but the store was opened without table; say which one it is about.")
        return relations.read_condition(where, params)


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
def _connected(conninfo: str, name: Any, options: Options) -> Iterator[tuple[Server, Tables]]:
    """A server and the names of a store's tables; should anything fail, connections are closed."""
    names = relations.find(name, options)
    about = {"name": names.name, "table": ".".join(names.table or ()), "key": names.key}
    server = Server(conninfo, options.get("lock_timeout", 10.0), **about)
    try:
        yield server, names
    except BaseException:
        server.close()
        raise
