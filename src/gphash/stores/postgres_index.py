"""`PostgresIndex`: the searches of a `HammingIndex` in tables of PostgreSQL, with conditions on other tables."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index import checks, engines, filters, scan
from gphash.index.contents import Contents, Filter, Stats
from gphash.index.filters import Allowed, Where
from gphash.index.hamming_index import Ball, HammingIndex, Neighbours
from gphash.persistence import FormatError
from gphash.stores import conditions, probing, schema, wire
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Database, KnownError, Session, StoreError, UnknownStoreError, compose
from gphash.stores.wire import Form, Octets

Engine: TypeAlias = Literal["plain", "pgvector"]

FRESH = 60.0  # seconds that an estimate of the number of codes holds
PAGE = 1 << 20  # rows that are read at a time
BATCHES = (64, 512, 4096)  # codes that are probed before the next look at what they hold
ATTEMPTS = 10
MANY = 10_000  # new items after which the server is told to look at its tables
LONGEST = 57  # of a name, which the names of tables add six to; PostgreSQL cuts at 63
FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Options(TypedDict, total=False):
    """Where a store is and what it works with.

    schema
        Schema of its tables; the connection's first one if None.
    table, key
        A table of yours, ("schema", "table") if it is in another schema than the connection's, and its column of ids,
        "id" if not given: what `where` is about.
    engine
        "plain" needs nothing but PostgreSQL 14; "pgvector" counts bits with that extension.
    lock_timeout
        Seconds to wait for somebody else's lock (10).
    """

    schema: str | None
    table: str | tuple[str, str] | None
    key: str
    engine: Engine
    lock_timeout: float


class Meta(NamedTuple):
    """What a store says of itself.

    version
        Of its tables.
    form
        How it keeps codes.
    model
        Fingerprint of the model that made the codes.
    created
        When.
    """

    version: int
    form: Form
    model: str | None
    created: Any


class PostgresIndex:
    """Exact search among packed codes in PostgreSQL; made by `create`, `build`, `from_index` or `open`.

    Results are those of a `HammingIndex` with the same items. A search sees what was committed before it, and the
    queries of one call see the same; nothing is kept here from one call to the next. Threads may share an index, each
    with a connection of its own while it asks. Changes of several clients at a time are safe.
    """

    def __init__(self, database: Database, name: str, meta: Meta, options: Options) -> None:
        self.name = name
        self.n_bits = meta.form.n_bits
        self.model = meta.model
        self.meta = meta
        self._database = database
        self._form = meta.form
        self._names = _names(name, options)
        self._has_table = options.get("table") is not None
        self._engine = options.get("engine", "plain")
        self._composed: dict[tuple[str, ...], bytes] = {}
        self._estimate, self._estimated = 0, -FRESH
        # An empty index with our codes: what it refuses, we refuse.
        self._rules = HammingIndex.build(
            np.empty((0, -(-self.n_bits // 8)), np.uint8), n_bits=self.n_bits, model=meta.model
        )

    @classmethod
    def create(cls, conninfo: str, name: str, *, n_bits: int, model: Any = None, **options: Unpack[Options]) -> Self:
        """Make an empty store; parameters as for `build`."""
        checks.whole("n_bits", n_bits, 1)
        return cls._made(conninfo, name, HammingIndex.build(_no_codes(n_bits), n_bits=n_bits, model=model), options)

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
        options
            See `Options`.
        """
        return cls._made(conninfo, name, HammingIndex.build(packed, ids, n_bits=n_bits, model=model), options)

    @classmethod
    def from_index(cls, conninfo: str, name: str, index: HammingIndex, **options: Unpack[Options]) -> Self:
        """Make a store with the items of an index; parameters as for `build`."""
        return cls._made(conninfo, name, index, options)

    @classmethod
    def open(cls, conninfo: str, name: str, **options: Unpack[Options]) -> Self:
        """Open a store that is there; parameters as for `build`."""
        with _placed(conninfo, name, options) as (database, names):
            with _named(name), database.session() as session:
                meta = _read_meta(session, name, names)
                if meta.version < schema.VERSION:
                    raise FormatError(
                        f"the store {name!r} has tables of version {meta.version}; PostgresIndex.migrate brings it to "
                        f"{schema.VERSION}."
                    )
                _check_engine(session, options.get("engine", "plain"), meta.form)
            return cls(database, name, meta, options)

    @classmethod
    def migrate(cls, conninfo: str, name: str, **options: Unpack[Options]) -> int:
        """Bring the tables of a store to the version of this package, and return the version they had."""
        with _placed(conninfo, name, options) as (database, names):
            with _named(name), database.writing() as session:
                session.rows(compose(schema.LOCK_META, names, {}))
                meta = _read_meta(session, name, names)
                for version in range(meta.version + 1, schema.VERSION + 1):
                    for statement in schema.MIGRATIONS[version]:
                        session.rows(compose(statement, names, {"column": meta.form.column}))
                session.rows(compose(schema.WRITE_VERSION, names, {}), {"version": schema.VERSION})
            database.close()
            return meta.version

    @classmethod
    def _made(cls, conninfo: str, name: str, index: HammingIndex, options: Options) -> Self:
        engine = options.get("engine", "plain")
        form = wire.form(index.n_bits, "bit" if engine == "pgvector" else None)
        packed, ids = index.items()
        about = {"version": schema.VERSION, "n_bits": form.n_bits, "kind": form.kind, "model": index.model}
        with _placed(conninfo, name, options) as (database, names):
            try:
                with database.writing() as session:
                    _check_engine(session, engine, form)
                    for statement in schema.CREATE:
                        session.rows(compose(statement, names, {"column": form.column}))
                    session.rows(compose(schema.WRITE_META, names, {}), about)
                    _insert(session, names, form, ids, packed)
                    for statement in schema.indexes(form):
                        session.rows(compose(statement, names, {}))
                    meta = _read_meta(session, name, names)
            except KnownError:
                raise ValueError(f"name={name!r} is a store, or a table of one, already; open it or drop it.") from None
            made = cls(database, name, meta, options)
            made.tidy()
            return made

    def drop(self) -> None:
        """Remove the store and all its items from the database."""
        with self._writing() as session:
            session.rows(self._statement(schema.DROP))
        self.close()

    def close(self) -> None:
        """Close the connections; the next call opens one again."""
        self._database.close()

    def tidy(self) -> None:
        """Let the server reclaim space and count codes, on which depends how it searches; later, it does by itself."""
        with _named(self.name), self._database.session() as session:
            for statement in schema.TIDY:
                session.rows(self._statement(statement))
        self._estimated = -FRESH

    def verify(self) -> None:
        """Count all items anew; a FormatError says if a count is wrong, which only statements of others can make it."""
        with self._session() as session:
            ((wrong,),) = session.rows(self._statement(schema.MISCOUNTED))
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
            return int(session.rows(self._statement(schema.SIZE))[0][0])

    def __repr__(self) -> str:
        return f"PostgresIndex({self.name!r}, codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        with self._reading() as session:
            (found,) = self._pages(session, schema.READ_IDS, {}, FIRST, lambda last: int(wire.numbers_of(last)[0]))
        numbers = wire.numbers_of(found)
        numbers.setflags(write=False)
        return numbers

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ceil(n_bits / 8)], and ids, [n]."""
        with self._reading() as session:
            return self._items(session, None)

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ceil(n_bits / 8)]; a KeyError names an id that is not there."""
        numbers = checks.distinct_ids(ids, None)
        with self._session() as session:
            packed, known = self._some(session, np.unique(numbers), None)
        places = np.searchsorted(known, numbers)
        missing = places == len(known)
        missing[~missing] = known[places[~missing]] != numbers[~missing]
        if missing.any():
            raise KeyError(int(numbers[missing][0]))
        return packed[places]

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets, and how much room tables and indexes take."""
        with self._session() as session:
            ((n_items, n_codes, largest, size),) = session.rows(self._statement(schema.STATS))
        return Stats(int(n_items), int(n_codes), int(largest), n_items / n_codes if n_codes else 0.0, int(size))

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

        def ask(session: Session, number: int) -> list[tuple[Any, ...]]:
            return self._nearest(session, queries[number], int(k), condition)

        return Neighbours(*self._each(ask, len(queries), int(k), condition))

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
        certain, weights, modes = _uncertain(np.asarray(probabilities))

        with self._reading(condition) as session:
            rest = cache(lambda: self._ranker(session, condition))
            found = [
                self._likeliest(session, modes[row], weights[row], int(k), condition, rest) for row in range(len(modes))
            ]
            ids, costs = self._together(session, found, int(k), condition)
        return Neighbours(ids, certain[:, None] + costs * scan.UNIT)

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
            near = probing.is_worth_it(reach, self.n_bits, self._n_codes(session))
            found = [_gathered(self._ball(session, query, reach, None, condition, near), None) for query in queries]
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
        certain, weights, modes = _uncertain(chances)

        def items() -> Iterator[tuple[int, float]]:
            told = -np.inf
            with self._session() as session:
                most = probing.budget(self._n_codes(session))
            for codes, costs in _batches(modes[0], weights[0], most):
                with self._session(condition) as session:
                    found = _gathered(self._held(session, codes, costs, None, condition), None)
                for number, distance in zip(
                    found[0].tolist(), (certain[0] + found[1] * scan.UNIT).tolist(), strict=True
                ):
                    yield number, distance
                told = certain[0] + costs[-1] * scan.UNIT
            with self._reading(condition) as session:
                packed, numbers = self._items(session, condition)
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
                self._refuse_known(session, numbers)
                _insert(session, self._names, self._form, numbers, octets)
                break
            # Somebody else added one of the ids just now; the next look finds it, unless it was removed again.
        else:
            raise StoreError(f"ids has some that others keep adding and removing; {ATTEMPTS} attempts met them.")
        if len(numbers) >= MANY:
            self.tidy()

    def remove(self, ids: ArrayLike | Iterable[int]) -> int:
        """Remove items, and return how many there were; ids that are not in the store are passed over."""
        numbers = np.unique(checks.distinct_ids(ids, None))
        if not len(numbers):
            return 0
        with self._writing() as session:
            ((there, held),) = session.rows(self._statement(schema.LOCK_ITEMS), {"ids": wire.bigints(numbers)})
            if there is None:
                return 0
            session.rows(self._statement(schema.DELETE_ITEMS), {"ids": wire.bigints(wire.numbers_of(there))})
            counted = _counted(wire.packed_of(held, self._form), self._form)
            for statement in schema.COUNT_DOWN:
                some = counted if "(sizes)" in statement else {"codes": counted["codes"]}
                session.rows(self._statement(statement), some)
        return len(there)

    def _nearest(self, session: Session, query: Octets, k: int, condition: Condition | None) -> list[tuple[Any, ...]]:
        """Costs and ids that hold the k nearest."""
        n_codes = self._n_codes(session)
        if k * probing.WORTH <= n_codes:
            for radius in probing.steps(self.n_bits, n_codes):
                found = self._ball(session, query, radius, k, condition, near=True)
                if sum(len(ids) for _, ids in found) >= k:
                    return found
        values: dict[str, Any] = {"wanted": wire.code(query, self._form), "k": k}
        if condition is not None:
            return session.rows(self._statement(schema.FILTERED, condition=condition), values | condition.values)
        return session.rows(self._statement(schema.NEAREST, hit=schema.HIT_ALL), values | {"otherwise": self.n_bits})

    def _ball(
        self, session: Session, query: Octets, radius: int, k: int | None, condition: Condition | None, near: bool
    ) -> list[tuple[Any, ...]]:
        """Costs and ids within a radius; with k, those of the nearest, or nothing if there are fewer."""
        values: dict[str, Any] = {"wanted": wire.code(query, self._form), "radius": radius, "k": k}
        asked: list[int] = []
        if near:
            bits = packing.unpack(query[None], self.n_bits)[0]
            lengths = [part.length for part in probing.parts(self.n_bits)]
            for number, numbers in enumerate(probing.values(bits, radius, self.n_bits)):
                if len(numbers):
                    asked.append(number)
                    own = Form(lengths[number], self._form.kind)
                    values[f"part_{number}"] = wire.codes(engines.from_bigint(numbers, own.n_bits), own)
        hit = schema.HIT_NEAR if near else schema.HIT_BALL
        if k is None or condition is not None:
            statement = self._statement(schema.ALL_OF, hit=hit, asked=asked, condition=condition)
            return session.rows(statement, values | (condition.values if condition else {}))
        return session.rows(self._statement(schema.NEAREST, hit=hit, asked=asked), values | {"otherwise": -1})

    def _held(
        self, session: Session, codes: Octets, costs: NDArray[np.int64], k: int | None, condition: Condition | None
    ) -> list[tuple[Any, ...]]:
        """Costs and ids of the items that have certain codes, of each the k first."""
        values = {"codes": wire.codes(codes, self._form), "costs": wire.bigints(costs), "k": k}
        statement = self._statement(schema.ALL_OF, hit=schema.HIT_PROBED, condition=condition)
        return session.rows(statement, values | (condition.values if condition else {}))

    def _likeliest(
        self,
        session: Session,
        mode: Octets,
        weights: NDArray[np.int64],
        k: int,
        condition: Condition | None,
        rest: Callable[[], Any],
    ) -> list[tuple[Any, ...]]:
        """Costs and ids that hold the k items of least cost."""
        n_codes = self._n_codes(session)
        there: list[tuple[Any, ...]] = []
        if 0 < k <= n_codes // probing.WORTH:
            for codes, costs in _batches(mode, weights, probing.budget(n_codes)):
                there += self._held(session, codes, costs, k, condition)
                if sum(len(ids) for _, ids in there) >= k:
                    return there
        return list(rest()(mode, weights, k)) if k else []

    def _ranker(self, session: Session, condition: Condition | None) -> Callable[..., list[tuple[Any, ...]]]:
        """A function that ranks all codes of the store by their cost, and gives costs and ids of the k best."""
        if condition is None:
            packed, sizes = self._codes(session)
        else:
            packed, numbers = self._items(session, condition)
            sizes = np.ones(len(numbers), np.int64)
        words = bucketing.to_words(packed, self.n_bits)
        whole = bucketing.group(words, np.arange(len(words)))
        counts = np.add.reduceat(sizes[whole.ids], whole.starts[:-1].astype(np.int64)) if len(words) else sizes
        chosen, costs = np.empty(whole.n_codes, np.int32), np.empty(whole.n_codes, np.int64)

        def rank(mode: Octets, weights: NDArray[np.int64], k: int) -> list[tuple[Any, ...]]:
            most = min(k, int(counts.sum()))
            if not most:
                return []
            wanted = bucketing.to_words(mode[None], self.n_bits).reshape(1, -1)[0]
            codes = whole.codes, whole.starts, counts, whole.same, whole.value
            n = scan.nearest_expected(*codes, wanted, weights, most, chosen, costs)
            best = bucketing.to_packed(whole.codes[chosen[:n]], self.n_bits)
            return self._held(session, best, costs[:n].copy(), k, condition)

        return rank

    def _each(
        self, ask: Callable[[Session, int], list[tuple[Any, ...]]], n_queries: int, k: int, condition: Condition | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        with self._snapshot(n_queries, condition) as session:
            found = [ask(session, number) for number in range(n_queries if k else 0)]
            return self._together(session, found or [[]] * n_queries, k, condition)

    def _together(
        self, session: Session, found: list[list[tuple[Any, ...]]], k: int, condition: Condition | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Results of several queries as one table, [q, k]."""
        if not found:
            values = condition.values if condition else None
            ((count,),) = session.rows(self._statement(schema.COUNT, condition=condition), values)
            return np.empty((0, min(k, count)), np.int64), np.empty((0, min(k, count)), np.int64)
        gathered = [_gathered(rows, k) for rows in found]
        return np.stack([ids for ids, _ in gathered]), np.stack([costs for _, costs in gathered])

    def _among(self, allowed: Allowed, condition: Condition | None) -> HammingIndex:
        """An index in memory with the items that are allowed."""
        chosen = self._allowed(allowed)
        with self._session(condition) as session:
            packed, numbers = self._some(session, chosen, condition)
        return HammingIndex.build(packed, numbers, n_bits=self.n_bits)

    def _allowed(self, allowed: Allowed) -> NDArray[np.int64]:
        """Ids that a filter names."""
        if isinstance(allowed, Filter):
            return allowed.ids
        contents = Contents(())
        if not isinstance(allowed, Where):
            allowed = np.asarray(filters.as_sequence(allowed))
        # Whose place in the order of ids counts, or might be meant to, needs all ids.
        plain = isinstance(allowed, np.ndarray) and allowed.dtype.kind in "iu" and not np.isin(allowed, [0, 1]).all()
        if plain and isinstance(allowed, np.ndarray):
            contents.__dict__["ids"] = np.unique(allowed[allowed <= LAST].astype(np.int64))
        else:
            contents.__dict__["ids"] = self.ids
        return filters.resolve(allowed, contents).ids

    def _some(
        self, session: Session, numbers: NDArray[np.int64], condition: Condition | None
    ) -> tuple[Octets, NDArray[np.int64]]:
        """Those of some items that there are, ids ascending."""
        values: dict[str, Any] = {"ids": wire.bigints(numbers)}
        statement = self._statement(schema.READ_SOME, condition=condition)
        ((there, held),) = session.rows(statement, values | (condition.values if condition else {}))
        return self._in_order(there, held)

    def _items(self, session: Session, condition: Condition | None) -> tuple[Octets, NDArray[np.int64]]:
        """All items, ids ascending."""
        values = condition.values if condition else {}
        statement = schema.READ_ITEMS
        found = self._pages(session, statement, values, FIRST, lambda last: int(wire.numbers_of(last)[0]), condition)
        return self._in_order(*found)

    def _codes(self, session: Session) -> tuple[Octets, NDArray[np.int64]]:
        """All distinct codes, and how many items have each."""
        first = (
            FIRST if self._form.kind == "bigint" else wire.code(np.zeros(-(-self.n_bits // 8), np.uint8), self._form)
        )

        def start(last: Octets) -> Any:
            return wire.code(wire.packed_of(last, self._form)[0], self._form)

        codes, sizes = self._pages(session, schema.READ_CODES, {}, first, start)
        return wire.packed_of(codes, self._form), wire.numbers_of(sizes)

    def _in_order(self, there: Octets | None, held: Octets | None) -> tuple[Octets, NDArray[np.int64]]:
        if there is None or held is None:
            return _no_codes(self.n_bits), np.empty(0, np.int64)
        numbers = wire.numbers_of(there)
        order = np.argsort(numbers)
        return wire.packed_of(held, self._form)[order], numbers[order]

    def _pages(
        self,
        session: Session,
        template: str,
        values: dict[str, Any],
        first: Any,
        start: Callable[[Octets], Any],
        condition: Condition | None = None,
    ) -> list[Octets]:
        """Columns of a statement that reads in the order of its first column; every page begins with the last row."""
        statement = self._statement(template, condition=condition)
        pages: list[tuple[Octets, ...]] = []
        while True:
            (page,) = session.rows(statement, values | {"first": first, "rows": PAGE})
            if page[0] is None:
                return [np.empty((0, 0), np.uint8) for _ in page]
            pages.append(tuple(column[1:] if pages else column for column in page))
            if len(page[0]) < PAGE:
                return [np.concatenate(columns) for columns in zip(*pages, strict=True)]
            first = start(page[0][-1:])

    def _n_codes(self, session: Session) -> int:
        """About how many distinct codes there are."""
        if time.monotonic() - self._estimated > FRESH:
            self._estimate = int(session.rows(self._statement(schema.ESTIMATE))[0][0])
            self._estimated = time.monotonic()
        return self._estimate

    def _refuse_known(self, session: Session, numbers: NDArray[np.int64]) -> None:
        ((known,),) = session.rows(self._statement(schema.KNOWN), {"ids": wire.bigints(numbers)})
        if known is not None:
            there = numbers[np.isin(numbers, wire.numbers_of(known))]
            raise ValueError(
                f"ids has {int(there[0])}, which is in the index already ({len(there)} such); "
                "remove it first, or give another id."
            )

    def _condition(self, where: str | None, params: Sequence[Any]) -> Condition | None:
        if where is None:
            if len(params):
                raise ValueError(f"params={params!r} without where; give the condition that they belong to.")
            return None
        if not self._has_table:
            raise ValueError(f"where={where!r}, but the store was opened without table; say which one it is about.")
        return conditions.read(where, params)

    def _statement(
        self, template: str, hit: str = "", asked: Sequence[int] = (), condition: Condition | None = None
    ) -> bytes:
        """A template with everything filled in."""
        text = "" if condition is None else condition.text
        key = template, hit, text, *map(str, asked)
        if key not in self._composed:
            texts = {"column": self._form.column, "distance": schema.distance(self._form, self._engine)}
            texts |= {"near": schema.near(self._form, list(asked)), "hit": hit}
            texts |= {"where": text, "filter": "true" if condition is None else schema.EXISTS}
            self._composed[key] = compose(template, self._names, texts)
        return self._composed[key]

    @contextlib.contextmanager
    def _session(self, condition: Condition | None = None) -> Iterator[Session]:
        with _named(self.name, condition), self._database.session() as session:
            yield session

    @contextlib.contextmanager
    def _reading(self, condition: Condition | None = None) -> Iterator[Session]:
        with _named(self.name, condition), self._database.reading() as session:
            yield session

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        with _named(self.name), self._database.writing() as session:
            yield session

    def _snapshot(self, n_queries: int, condition: Condition | None) -> contextlib.AbstractContextManager[Session]:
        """One moment for all queries; one query alone is answered by one statement that counts, which has its own."""
        return self._session(condition) if n_queries == 1 else self._reading(condition)


def _insert(session: Session, names: Any, form: Form, ids: NDArray[np.int64], packed: Octets) -> None:
    """Add items whose ids are new, and count them."""
    order = np.argsort(ids)
    session.copy(compose(schema.COPY, names, {}), wire.rows(ids[order], packed[order], form))
    session.rows(compose(schema.COUNT_UP, names, {}), _counted(packed, form))


def _counted(packed: Octets, form: Form) -> dict[str, Any]:
    """Distinct codes, and how often each comes, as parameters."""
    codes, sizes = np.unique(packed, axis=0, return_counts=True)
    return {"codes": wire.codes(codes, form), "sizes": wire.bigints(sizes)}


def _gathered(rows: list[tuple[Any, ...]], k: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and costs in the order of (cost, id), the first k."""
    found = [(cost, np.sort(wire.numbers_of(ids))) for cost, ids in rows]
    ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    costs = np.repeat(np.array([cost for cost, _ in found], np.int64), [len(ids) for _, ids in found])
    return ids[:k], costs[:k]


def _batches(mode: Octets, weights: NDArray[np.int64], most: int) -> Iterator[tuple[Octets, NDArray[np.int64]]]:
    """Likely codes in the order of their costs, and the costs; a batch holds all codes of its costs."""
    codes: list[Octets] = []
    costs: list[NDArray[np.int64]] = []
    sizes, named = iter(BATCHES), 0
    size = next(sizes)
    for cost, level in probing.levels(mode, weights, most):
        codes.append(level)
        costs.append(np.full(len(level), cost, np.int64))
        named += len(level)
        if named >= size:
            yield np.concatenate(codes), np.concatenate(costs)
            codes, costs, named = [], [], 0
            size = next(sizes, BATCHES[-1])
    if codes:
        yield np.concatenate(codes), np.concatenate(costs)


def _uncertain(chances: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int64], Octets]:
    """What cannot be helped, costs of the bits, and likeliest codes of uncertain queries."""
    chances = chances.astype(np.float64)
    weights = np.rint(np.abs(1 - 2 * chances) / scan.UNIT).astype(np.int64)
    return np.minimum(chances, 1 - chances).sum(axis=1), weights, packing.pack(chances >= 0.5)


def _no_codes(n_bits: int) -> Octets:
    return np.empty((0, -(-n_bits // 8)), np.uint8)


@contextlib.contextmanager
def _placed(conninfo: str, name: str, options: Options) -> Iterator[tuple[Database, dict[str, str | tuple[str, ...]]]]:
    """Where a store is, and its tables; should anything fail, connections are closed."""
    for key in options:
        if key not in Options.__annotations__:
            raise TypeError(f"{key!r} is no option of a store; give some of {', '.join(Options.__annotations__)}.")
    if (engine := options.get("engine", "plain")) not in get_args(Engine):
        raise ValueError(f"engine={engine!r}; give one of {', '.join(get_args(Engine))}.")
    names = _names(name, options)
    database = Database(conninfo, options.get("lock_timeout", 10.0))
    try:
        yield database, names
    except BaseException:
        database.close()
        raise


def _names(name: str, options: Options) -> dict[str, str | tuple[str, ...]]:
    """Names of tables and columns, as statements have them."""
    _check_name("name", name, LONGEST)
    space = options.get("schema")
    if space is not None:
        _check_name("schema", space)
    before = () if space is None else (space,)
    names: dict[str, str | tuple[str, ...]] = {part: (*before, f"{name}_{part}") for part in ("items", "codes", "meta")}
    table = options.get("table")
    if table is not None:
        for part in table if isinstance(table, tuple) else (table,):
            _check_name("table", part)
        _check_name("key", options.get("key", "id"))
        names |= {"table": table, "key": options.get("key", "id")}
    return names


def _check_name(argument: str, name: Any, longest: int = 63) -> None:
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= longest or "\0" in name:
        raise ValueError(f"{argument}={name!r}; give a name of 1 to {longest} bytes.")


def _check_engine(session: Session, engine: str, form: Form) -> None:
    if engine != "pgvector":
        return
    if form.kind != "bit":
        raise ValueError("engine='pgvector' needs codes kept as bit strings; build the store with that engine.")
    if not session.rows(b"SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        raise StoreError("engine='pgvector' needs the extension in this database: CREATE EXTENSION vector.")


def _read_meta(session: Session, name: str, names: Any) -> Meta:
    rows = session.rows(compose(schema.READ_META, names, {}))
    if len(rows) != 1:
        raise FormatError(f"the store {name!r} has {len(rows)} rows about itself; wanted is one.")
    version, n_bits, kind, model, created = rows[0]
    if version > schema.VERSION:
        raise FormatError(
            f"the store {name!r} has tables of version {version}; this gphash knows {schema.VERSION}, update it."
        )
    return Meta(version, Form(n_bits, kind), model, created)


@contextlib.contextmanager
def _named(name: str, condition: Condition | None = None) -> Iterator[None]:
    """Errors that say which store, or which condition, they are about."""
    try:
        yield
    except UnknownStoreError as error:
        if condition is not None:
            raise StoreError(
                f"the store {name!r}, or the table of where={condition.where!r}, is gone: {error}."
            ) from error
        raise UnknownStoreError(f"there is no store {name!r}: {error}; PostgresIndex.build makes one.") from error
    except FormatError:
        raise
    except ValueError as error:
        if condition is None:
            raise
        raise ValueError(f"where={condition.where!r} with these params is refused: {error}.") from error
