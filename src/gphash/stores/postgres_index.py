"""`PostgresIndex`: the searches of a `HammingIndex` in tables of PostgreSQL, with conditions on other tables."""

import contextlib
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.index import checks
from gphash.index import costs as costing
from gphash.index.contents import Stats
from gphash.index.filters import Allowed
from gphash.index.hamming_index import Ball, HammingIndex, Neighbours
from gphash.index.storage import LockedError
from gphash.persistence import FormatError
from gphash.stores import changing, conditions, filtering, probing, reading, schema, searching, wire
from gphash.stores.changing import Progress
from gphash.stores.conditions import Condition
from gphash.stores.opening import named, placed
from gphash.stores.postgres import Database, KnownError, Session, StoreError, compose
from gphash.stores.reading import Sizes
from gphash.stores.tables import Meta, Options, Tables, check_engine, check_unchanged, read_meta, statement

FRESH = 60.0  # seconds that an estimate of the number of codes holds
ATTEMPTS = 10
MANY = 10_000  # new items after which the server is told to look at its tables
LAST = np.iinfo(np.int64).max


class PostgresIndex:
    """Exact search among packed codes in PostgreSQL; made by `create`, `build`, `from_index` or `open`.

    Results are those of a `HammingIndex` with the same items. A search sees what was committed before it, and the
    queries of one call see the same; nothing is kept here from one call to the next. Threads may share an index, each
    with a connection of its own while it asks. Changes of several clients at a time are safe.
    """

    def __init__(self, database: Database, tables: Tables, meta: Meta) -> None:
        self.name = tables.place.name
        self.n_bits = meta.form.n_bits
        self.model = meta.model
        self.meta = meta
        self._database = database
        self._tables = tables
        self._sizes, self._looked = Sizes(0, 0), -FRESH
        # An empty index with our codes: what it refuses, we refuse.
        self._rules = _empty(self.n_bits, meta.model)

    @classmethod
    def create(cls, conninfo: str, name: str, *, n_bits: int, model: Any = None, **options: Unpack[Options]) -> Self:
        """Make an empty store; parameters as for `build`."""
        checks.bits(n_bits)
        return cls.from_index(conninfo, name, _empty(n_bits, model), **options)

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
        cls,
        conninfo: str,
        name: str,
        index: HammingIndex,
        *,
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """Make a store with the items of an index; parameters as for `build`."""
        engine = options.get("engine", "plain")
        with placed(conninfo, name, options) as (database, where):
            tables = Tables(where, wire.form(index.n_bits, "bit" if engine == "pgvector" else None), engine)
            try:
                with database.writing() as session:
                    check_engine(session, engine, tables.form)
                    changing.create(session, tables, index.model, *index.items(), progress)
                    meta = read_meta(session, where)
            except KnownError:
                space = [] if where.schema is None else ["--schema", where.schema]
                drop = shlex.join(["gphash", "store", "drop", "--name", name, *space])
                raise ValueError(
                    f"name={name!r} is a store, or a table of one, already; open it, drop it ({drop}), or give another "
                    "name."
                ) from None
            made = cls(database, tables, meta)
            made._settle()
            return made

    @classmethod
    def open(cls, conninfo: str, name: str, **options: Unpack[Options]) -> Self:
        """Open a store that is there; parameters as for `build`."""
        engine = options.get("engine", "plain")
        with placed(conninfo, name, options) as (database, where):
            with named(name), database.session() as session:
                meta = read_meta(session, where)
                if meta.version < schema.VERSION:
                    raise FormatError(
                        f"the store {name!r} has tables of version {meta.version}; migrate brings it to "
                        f"{schema.VERSION}."
                    )
                check_engine(session, engine, meta.form)
            return cls(database, Tables(where, meta.form, engine), meta)

    @classmethod
    def migrate(cls, conninfo: str, name: str, **options: Unpack[Options]) -> int:
        """Bring the tables of a store to the version of this package, and return the version they had."""
        with placed(conninfo, name, options) as (database, where):
            with named(name), database.writing() as session:
                session.rows(compose(schema.LOCK_META, where.names, {}))
                meta = read_meta(session, where)
                changing.migrate(session, where.names, meta.form.column, meta.version)
            database.close()
            return meta.version

    def drop(self) -> None:
        """Remove the store and all its items from the database."""
        with self._writing() as session:
            session.rows(statement(self._tables, schema.DROP))
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        self._database.close()

    def tidy(self) -> None:
        """Let the server reclaim space and count codes, on which depends how it searches; later, it does by itself."""
        with self._session() as session:
            for template in schema.TIDY:
                session.rows(statement(self._tables, template))
        self._looked = -FRESH

    def verify(self) -> None:
        """Count all items anew; a FormatError says if a count is wrong, which only statements of others can make it."""
        with self._session() as session:
            ((wrong,),) = session.rows(statement(self._tables, schema.MISCOUNTED))
        if wrong:
            raise FormatError(f"the store {self.name!r} has a wrong count for {wrong} codes; somebody wrote past it.")

    def to_index(self) -> HammingIndex:
        """All items as an index in memory."""
        packed, ids = self.items()
        return HammingIndex.build(packed, ids, n_bits=self.n_bits, model=self.model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        with self._session() as session:
            return int(session.rows(statement(self._tables, schema.SIZE))[0][0])

    def __repr__(self) -> str:
        return f"PostgresIndex({self.name!r}, codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        with self._reading() as session:
            numbers = reading.ids(session, self._tables)
        numbers.setflags(write=False)
        return numbers

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ceil(n_bits / 8)], and ids, [n]."""
        with self._reading() as session:
            return reading.items(session, self._tables, None)

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ceil(n_bits / 8)]; a KeyError names an id that is not there."""
        numbers = checks.distinct_ids(ids, None)
        with self._session() as session:
            packed, known = reading.some(session, self._tables, np.unique(numbers), None)
        places = np.searchsorted(known, numbers)
        missing = places == len(known)
        missing[~missing] = known[places[~missing]] != numbers[~missing]
        if missing.any():
            raise KeyError(int(numbers[missing][0]))
        return packed[places]

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets, and how much room tables and indexes take."""
        with self._session() as session:
            return reading.stats(session, self._tables)

    def search(
        self,
        packed: ArrayLike,
        k: int = 10,
        *,
        allowed: Allowed | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Neighbours:
        """The k nearest items of every query, ordered by (Hamming distance, id).

        Parameters
        ----------
        packed : uint8 array of shape [q, ceil(n_bits / 8)]
            Query codes.
        k : int
            How many; fewer columns come back if there are fewer items.
        allowed : boolean mask in the order of `ids`, ids, `Where(labels, value)`, or a filter of a `HammingIndex`
            Which items may be returned; they are read from the store, and ranked here. All if None.
        where : str
            A SQL condition on the columns of `table`; items without a row there are not returned. Its text must not
            come from a stranger: write %s for values, and %% for a per cent sign.
        params : list
            A value for every %s.
        model : hasher or str
            What made the query codes; refused if the store holds codes of another.
        n_jobs : int or None
            Threads of this process, if `allowed` is given.
        """
        self._rules.search(packed, k, model=model)
        queries, condition = np.asarray(packed), self._condition(where, params)
        if allowed is not None:
            return self._among(allowed, condition).search(queries, k, n_jobs=n_jobs)
        with self._snapshot(len(queries), condition) as session:
            sizes = self._believed(session)
            found = [
                searching.nearest(session, self._tables, sizes, query, int(k), condition) if k else []
                for query in queries
            ]
            return Neighbours(*searching.together(session, self._tables, found, int(k), condition))

    def search_expected(
        self,
        probabilities: ArrayLike,
        k: int = 10,
        *,
        allowed: Allowed | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Neighbours:
        """The k nearest items by expected Hamming distance, for queries that keep their bit probabilities.

        Likely codes are looked up in the order of their distance. When that meets mostly codes that nobody has, the
        distinct codes are read, all of them, and ranked here.

        Parameters
        ----------
        probabilities : array of shape [q, n_bits]
            P(bit = 1), as `bit_probabilities` gives it. Distances are exact to 2⁻⁴⁰ per bit.
        k, allowed, where, params, model, n_jobs
            As for `search`.
        """
        self._rules.search_expected(probabilities, k, model=model)
        condition = self._condition(where, params)
        if allowed is not None:
            return self._among(allowed, condition).search_expected(probabilities, k, n_jobs=n_jobs)
        asked = costing.uncertain(probabilities, self.n_bits)
        with self._reading(condition) as session:
            sizes = self._believed(session)
            rank = cache(lambda: searching.ranker(session, self._tables, condition))
            found = [
                searching.likeliest(session, self._tables, sizes, mode, own, int(k), condition, rank)
                for mode, own in zip(asked.modes, asked.weights, strict=True)
            ]
            ids, costs = searching.together(session, self._tables, found, int(k), condition)
        return Neighbours(ids, asked.distances(costs))

    def within(
        self,
        packed: ArrayLike,
        radius: int = 2,
        *,
        allowed: Allowed | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Ball:
        """Everything within a Hamming radius of every query, never cut off.

        Parameters
        ----------
        packed : uint8 array of shape [q, ceil(n_bits / 8)]
            Query codes.
        radius : int
            Largest distance.
        allowed, where, params, model, n_jobs
            As for `search`.
        """
        checks.whole("radius", radius, 0)
        self._rules.search(packed, 0, model=model)
        queries, condition = np.asarray(packed), self._condition(where, params)
        if allowed is not None:
            return self._among(allowed, condition).within(queries, radius, n_jobs=n_jobs)
        reach = min(int(radius), self.n_bits)
        with self._snapshot(len(queries), condition) as session:
            sizes = self._believed(session)
            balls = [searching.ball(session, self._tables, sizes, query, reach, condition) for query in queries]
        found = [searching.gathered(rows, None) for rows in balls]
        offsets = np.cumsum([0, *(len(ids) for ids, _ in found)], dtype=np.int64)
        ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in found)])
        costs = np.concatenate([np.empty(0, np.int64), *(costs for _, costs in found)])
        return Ball(offsets, ids, costs.astype(np.int32))

    def rank(
        self,
        packed: ArrayLike,
        *,
        allowed: Allowed | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Neighbours:
        """All items for every query, ordered by (Hamming distance, id); parameters as for `search`."""
        return self.search(packed, LAST, allowed=allowed, where=where, params=params, model=model, n_jobs=n_jobs)

    def probe(
        self,
        probabilities: ArrayLike,
        *,
        allowed: Allowed | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
        model: Any = None,
    ) -> Iterator[tuple[int, float]]:
        """Items of one query, nearest first by expected distance, until the caller stops.

        Codes are looked up in the order of their expected distance, a few at a time. When that has met mostly codes
        that nobody has, the rest is read and ranked at once. No transaction is held meanwhile: other than with a
        `HammingIndex`, items come as they are when it is their turn.

        Parameters
        ----------
        probabilities : array of shape [n_bits]
            P(bit = 1); for a certain code, 0 and 1.
        allowed, where, params, model
            As for `search`.
        """
        self._rules.probe(probabilities, model=model)
        condition = self._condition(where, params)
        if allowed is not None:
            return self._among(allowed, condition).probe(probabilities)
        chances = np.asarray(probabilities)[None]
        asked = costing.uncertain(chances, self.n_bits)

        def items() -> Iterator[tuple[int, float]]:
            told = -np.inf
            with self._session() as session:
                most = probing.budget(self._believed(session).n_codes)
            for codes, costs in searching.batches(asked.modes[0], asked.weights[0], most):
                with self._session(condition) as session:
                    rows = searching.held(session, self._tables, codes, costs, None, condition)
                ids, there = searching.gathered(rows, None)
                yield from zip(ids.tolist(), asked.distances(there[None])[0].tolist(), strict=True)
                told = asked.distances(costs[None, -1:])[0, 0]
            with self._reading(condition) as session:
                packed, numbers = reading.items(session, self._tables, condition)
            rest = HammingIndex.build(packed, numbers, n_bits=self.n_bits).search_expected(chances, LAST, n_jobs=1)
            for number, distance in zip(rest.ids[0].tolist(), rest.distances[0].tolist(), strict=True):
                if distance > told:
                    yield number, distance

        return items()

    def add(self, packed: ArrayLike, ids: ArrayLike, *, model: Any = None) -> None:
        """Add items with new ids, all of them or none.

        Parameters
        ----------
        packed : uint8 array of shape [n, ceil(n_bits / 8)]
            Their codes.
        ids : integers [n]
            Distinct, and none of them in the store.
        model : hasher or str
            What made the codes; refused if the store holds codes of another.
        """
        self._rules.search(packed, 0, model=model)
        octets = np.asarray(packed)
        numbers = checks.distinct_ids(ids, len(octets))
        if not len(numbers):
            return
        for _ in range(ATTEMPTS):
            with contextlib.suppress(KnownError), self._writing() as session:
                # From the first look at the table on, nobody can put another one in its place.
                changing.refuse_known(session, self._tables, numbers)
                check_unchanged(session, self._tables.place, self.meta)
                changing.add(session, self._tables, octets, numbers)
                break
            # Somebody else added one of the ids just now; the next look finds it, unless it was removed again.
        else:
            raise StoreError(f"ids has some that others keep adding and removing; {ATTEMPTS} attempts met them.")
        if len(numbers) >= MANY:
            self._settle()

    def remove(self, ids: ArrayLike | Iterable[int]) -> int:
        """Remove items, and return how many there were; ids that are not in the store are passed over."""
        numbers = np.unique(checks.distinct_ids(ids, None))
        if not len(numbers):
            return 0
        with self._writing() as session:
            packed, there = changing.lock(session, self._tables, numbers)
            check_unchanged(session, self._tables.place, self.meta)
            changing.remove(session, self._tables, packed, there)
        return len(there)

    def _settle(self) -> None:
        """Tidy after a change, which is committed: it must not look as if it had failed because of this."""
        with contextlib.suppress(LockedError, StoreError, ConnectionError, PermissionError):
            self.tidy()

    def _among(self, allowed: Allowed, condition: Condition | None) -> HammingIndex:
        """An index in memory with the items that are allowed."""
        with self._reading(condition) as session:
            return filtering.among(session, self._tables, allowed, condition)

    def _believed(self, session: Session) -> Sizes:
        """About how many codes and items there are; that the store is still the same is looked at as well."""
        if time.monotonic() - self._looked > FRESH:
            check_unchanged(session, self._tables.place, self.meta)
            self._sizes, self._looked = reading.sizes(session, self._tables), time.monotonic()
        return self._sizes

    def _condition(self, where: str | None, params: Sequence[Any]) -> Condition | None:
        if where is None:
            if len(params):
                raise ValueError(f"params={params!r} without where; give the condition that they belong to.")
            return None
        if self._tables.place.table is None:
            raise ValueError(f"where={where!r}, but the store was opened without table; say which one it is about.")
        return conditions.read(where, params)

    @contextlib.contextmanager
    def _session(self, condition: Condition | None = None) -> Iterator[Session]:
        with named(self.name, condition, self._tables.place), self._database.session() as session:
            yield session

    @contextlib.contextmanager
    def _reading(self, condition: Condition | None = None) -> Iterator[Session]:
        with named(self.name, condition, self._tables.place), self._database.reading() as session:
            yield session

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        with named(self.name), self._database.writing() as session:
            yield session

    def _snapshot(self, n_queries: int, condition: Condition | None) -> contextlib.AbstractContextManager[Session]:
        """One moment for all queries; one query alone is answered by one statement that counts, which has its own."""
        return self._session(condition) if n_queries == 1 else self._reading(condition)


def _empty(n_bits: int, model: Any) -> HammingIndex:
    return HammingIndex.build(np.empty((0, -(-n_bits // 8)), np.uint8), n_bits=n_bits, model=model)
