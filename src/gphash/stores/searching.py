"""Searches of a store. Every one gives costs, ascending, each with the ids in no order, as statements do."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index import engines
from gphash.stores import probing, reading, schema, wire
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Session
from gphash.stores.reading import Sizes, values_of
from gphash.stores.tables import Tables, statement
from gphash.stores.wire import Form, Octets

Rows: TypeAlias = list[tuple[Any, ...]]
Rank: TypeAlias = Callable[[Octets, NDArray[np.int64], int], Rows]

BATCHES = (64, 512, 4096)  # codes that are probed before the next look at what they hold


def nearest(session: Session, tables: Tables, sizes: Sizes, query: Octets, k: int, condition: Condition | None) -> Rows:
    """What holds the k nearest items of a packed query, [bytes].

    Parameters
    ----------
    session, tables, sizes
        Where.
    query, k
        Of what, and how many.
    condition
        Which items may be found; all if None.
    """
    form = tables.form
    for radius in probing.steps(form.n_bits, *sizes, k):
        found = _looked_up(session, tables, query, radius, k, condition)
        if n_ids(found) >= k:
            return found
    values = {"wanted": wire.code(query, form), "k": k} | values_of(condition)
    if condition is not None or not probing.is_shared(*sizes):
        return session.rows(statement(tables, schema.SCAN, condition=condition), values)
    return session.rows(statement(tables, schema.NEAREST, schema.HIT_ALL), values | {"otherwise": form.n_bits})


def ball(
    session: Session, tables: Tables, sizes: Sizes, query: Octets, radius: int, condition: Condition | None
) -> Rows:
    """What is within a radius of a packed query, [bytes]; parameters as for `nearest`."""
    if probing.is_worth_it(radius, tables.form.n_bits, sizes.n_codes):
        return _looked_up(session, tables, query, radius, None, condition)
    values = {"wanted": wire.code(query, tables.form), "radius": radius} | values_of(condition)
    if condition is not None or not probing.is_shared(*sizes):
        return session.rows(statement(tables, schema.SCAN_BALL, condition=condition), values)
    return session.rows(statement(tables, schema.ALL_OF, schema.HIT_BALL), values | {"k": None})


def _looked_up(
    session: Session, tables: Tables, query: Octets, radius: int, k: int | None, condition: Condition | None
) -> Rows:
    """What is within a radius, found by parts of its codes; with k, what holds the k nearest, or less if there is."""
    n_bits = tables.form.n_bits
    values: dict[str, Any] = {"wanted": wire.code(query, tables.form), "radius": radius, "k": k}
    asked: list[int] = []
    looked_up = probing.values(packing.unpack(query[None], n_bits)[0], radius, n_bits)
    for number, (part, numbers) in enumerate(zip(probing.parts(n_bits), looked_up, strict=True)):
        if len(numbers):
            asked.append(number)
            own = Form(part.length, tables.form.kind)
            values[f"part_{number}"] = wire.codes(engines.from_bigint(numbers, own.n_bits), own)
    if k is None or condition is not None:
        everything = statement(tables, schema.ALL_OF, schema.HIT_NEAR, tuple(asked), condition)
        return session.rows(everything, values | values_of(condition))
    return session.rows(statement(tables, schema.NEAREST, schema.HIT_NEAR, tuple(asked)), values | {"otherwise": -1})


def held(
    session: Session,
    tables: Tables,
    codes: Octets,
    costs: NDArray[np.int64],
    k: int | None,
    condition: Condition | None,
) -> Rows:
    """Items that have certain packed codes, [n, bytes], of each the k first."""
    values = {"codes": wire.codes(codes, tables.form), "costs": wire.bigints(costs), "k": k}
    return session.rows(
        statement(tables, schema.ALL_OF, schema.HIT_PROBED, condition=condition), values | values_of(condition)
    )


def likeliest(
    session: Session,
    tables: Tables,
    sizes: Sizes,
    mode: Octets,
    weights: NDArray[np.int64],
    k: int,
    condition: Condition | None,
    rank: Callable[[], Rank],
) -> Rows:
    """What holds the k items of least cost.

    Parameters
    ----------
    session, tables, sizes, k, condition
        As for `nearest`.
    mode, weights
        The likeliest code, packed, [bytes], and what it costs when a bit differs from it, [m].
    rank
        Gives what `ranker` gave, which is made when it is first needed.
    """
    there: Rows = []
    if 0 < k <= sizes.n_codes // probing.WORTH:
        for codes, costs in batches(mode, weights, probing.budget(sizes.n_codes)):
            there += held(session, tables, codes, costs, k, condition)
            if n_ids(there) >= k:
                return there
    return rank()(mode, weights, k) if k else []


def ranker(session: Session, tables: Tables, condition: Condition | None) -> Rank:
    """A function that ranks all codes by their cost, and gives what holds the k items of least cost."""
    from gphash.index import scan

    n_bits = tables.form.n_bits
    if condition is None:
        packed, sizes = reading.codes(session, tables)
    else:
        packed, numbers = reading.items(session, tables, condition)
        sizes = np.ones(len(numbers), np.int64)
    words = bucketing.to_words(packed, n_bits)
    whole = bucketing.group(words, np.arange(len(words)))
    counts = np.add.reduceat(sizes[whole.ids], whole.starts[:-1].astype(np.int64)) if len(words) else sizes
    chosen, costs = np.empty(whole.n_codes, np.int32), np.empty(whole.n_codes, np.int64)

    def rank(mode: Octets, weights: NDArray[np.int64], k: int) -> Rows:
        most = min(k, int(counts.sum()))
        if not most:
            return []
        wanted = bucketing.to_words(mode[None], n_bits).reshape(1, -1)[0]
        codes = whole.codes, whole.starts, counts, whole.same, whole.value
        n = scan.nearest_expected(*codes, wanted, weights, most, chosen, costs)
        best = bucketing.to_packed(whole.codes[chosen[:n]], n_bits)
        return held(session, tables, best, costs[:n].copy(), k, condition)

    return rank


def batches(mode: Octets, weights: NDArray[np.int64], most: int) -> Iterator[tuple[Octets, NDArray[np.int64]]]:
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


def gathered(rows: Rows, k: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and costs in the order of (cost, id), the first k."""
    found = [(cost, np.sort(wire.numbers_of(ids))) for cost, ids in rows]
    ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    costs = np.repeat(np.array([cost for cost, _ in found], np.int64), [len(ids) for _, ids in found])
    return ids[:k], costs[:k]


def together(
    session: Session, tables: Tables, found: list[Rows], k: int, condition: Condition | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and costs of several queries, [q, k], or as many columns as there are items."""
    if not found:
        columns = min(k, reading.count(session, tables, condition))
        return np.empty((0, columns), np.int64), np.empty((0, columns), np.int64)
    ids, costs = zip(*(gathered(rows, k) for rows in found), strict=True)
    return np.stack(ids), np.stack(costs)


def n_ids(rows: Rows) -> int:
    """How many items there are in all."""
    return sum(len(ids) for _, ids in rows)
