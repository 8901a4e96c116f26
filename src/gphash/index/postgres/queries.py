"""What a store is asked: reading it, searching in it, and changing it.

Near codes are looked up by parts of about 16 bits, each of which has an index. A code within radius r of a query
differs in at most r // s bits in one of its s parts, so all that is near is found by looking up, for every part, the
values within that of the query's part. A code of up to 16 bits is one part, and the values are those of a ball.
Searches give rows of a cost, ascending, and ids in no order, as statements do.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.codes import packing
from gphash.index import buckets as bucketing
from gphash.index import checks, engines
from gphash.index.contents import Allowed, Filter, Where, resolve
from gphash.index.engines import WORD
from gphash.index.postgres import database
from gphash.index.postgres import relations as sql
from gphash.index.postgres.database import Octets
from gphash.index.postgres.relations import View

PAGE = 1 << 20  # rows of a statement
FIRST = np.iinfo(np.int64).min
CLUSTERED = 4  # times as many codes share a part with a query as would if codes were random
WORTH = 8  # codes read in order take as long as one that is looked up
SHARED = 4  # items a code, from which on codes are read rather than items
LEAST, SHARE, MOST = 64, 64, 1 << 13  # codes probed for an expected distance: at least, one in so many, at most
FEW = 20_000  # items that pass a condition, up to which they are read, and ranked here
BATCH, GROWTH = 64, 8  # codes that are probed before the first look at what they hold, and how many times as many next

Numbers: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = list[tuple[Any, ...]]
Rank: TypeAlias = Callable[[Octets, Numbers, int], Rows]


class Sizes(NamedTuple):
    """About how many distinct codes and items there are: it decides how to search, never what is found."""

    n_codes: int
    n_items: int

    @property
    def is_shared(self) -> bool:
        """Whether so many items share a code that reading all codes, then items, is quicker than reading all items."""
        return SHARED * self.n_codes <= self.n_items


# Reading


def items(view: View) -> tuple[Octets, Numbers]:
    """All items that pass the condition, ids ascending."""
    return _in_order(view, *_pages(view, sql.READ_ITEMS, FIRST))


def few(view: View) -> tuple[Octets, Numbers] | None:
    """The items that pass the condition, numbers ascending, if they are few."""
    if passing(view) > FEW:
        return None
    ((numbers, codes),) = view.rows(sql.READ_FEW, most=FEW + 1)
    # What the server expects may be wrong.
    return None if numbers is not None and len(numbers) > FEW else _in_order(view, numbers, codes)


def passing(view: View) -> int:
    """About how many items pass the condition, as the server expects."""
    ((((plan, *_),),),) = ([row] for row in view.rows(sql.EXPLAIN))
    return int(plan["Plan"]["Plan Rows"])


def fullest(view: View, n: int) -> Octets:
    """The codes that most items have, packed."""
    return database.packed_of(view.rows(sql.FULLEST, n=n)[0][0], view.n_bits)


def some(view: View, ids: Numbers, template: str = sql.READ_SOME) -> tuple[Octets, Numbers]:
    """Those of some items that there are and that pass the condition, ids ascending."""
    return _in_order(view, *view.rows(template, ids=ids)[0])


def among(view: View, allowed: Allowed) -> tuple[Octets, Numbers]:
    """Items that are allowed and pass the condition."""
    if isinstance(allowed, Filter):
        return some(view, allowed.ids)
    if not isinstance(allowed, Where):
        allowed = np.asarray(checks.as_sequence(allowed))
    # Whose place in the order of ids counts, or might be meant to, needs all ids.
    if isinstance(allowed, np.ndarray) and allowed.dtype.kind in "iu" and not np.isin(allowed, [0, 1]).all():
        known = np.unique(allowed[allowed <= checks.LAST].astype(np.int64))
    else:
        _, known = items(view._replace(condition=None))
    return some(view, resolve(allowed, known, None).ids)


def _in_order(view: View, ids: Numbers | None, codes: NDArray[Any] | None) -> tuple[Octets, Numbers]:
    numbers = np.empty(0, np.int64) if ids is None else ids
    order = np.argsort(numbers)
    return database.packed_of(codes, view.n_bits)[order], numbers[order]


def _pages(view: View, template: str, first: int | str) -> list[NDArray[Any]]:
    """Two columns of a statement that reads in the order of the first; every page begins with the last row."""
    pages: list[tuple[NDArray[Any], ...]] = []
    while True:
        (page,) = view.rows(template, first=first, rows=PAGE)
        if page[0] is None:
            return [np.empty(0, np.int64)] * 2
        pages.append(tuple(column[1:] if pages else column for column in page))
        if len(page[0]) < PAGE:
            return [np.concatenate(columns) for columns in zip(*pages, strict=True)]
        last = page[0][-1]
        first = engines.as_text(last[None], view.n_bits)[0] if last.ndim else int(last)


# Searching


def nearest(view: View, known: Sizes, query: Octets, k: int, among: int) -> Rows:
    """What holds the k nearest items of a packed query, [bytes], which are about `among` if all items pass."""
    if not k:
        return []
    for radius in steps(view.n_bits, known, among):
        found = _looked_up(view, query, radius, k)
        if _n_ids(found) >= k:
            return found
    wanted = database.code(query, view.n_bits)
    if view.condition is not None or not known.is_shared:
        return view.rows(sql.SCAN, wanted=wanted, k=k)
    return view.rows(sql.NEAREST, hit=sql.HIT_ALL, wanted=wanted, k=k, otherwise=view.n_bits)


def ball(view: View, known: Sizes, query: Octets, radius: int) -> Rows:
    """What is within a radius of a packed query, [bytes]."""
    if is_worth_it(radius, view.n_bits, known.n_codes):
        return _looked_up(view, query, radius, None)
    wanted = database.code(query, view.n_bits)
    if view.condition is not None or not known.is_shared:
        return view.rows(sql.SCAN_BALL, wanted=wanted, radius=radius)
    return view.rows(sql.ALL_OF, hit=sql.HIT_BALL, wanted=wanted, radius=radius, k=None)


def _looked_up(view: View, query: Octets, radius: int, k: int | None) -> Rows:
    """What is within a radius, found by parts of its codes; with k, what holds the k nearest, or less if there is."""
    values: dict[str, Any] = {"wanted": database.code(query, view.n_bits), "radius": radius, "k": k}
    asked = values_of(packing.unpack(query[None], view.n_bits)[0], radius)
    for number, ((_, length), numbers) in enumerate(zip(sql.parts(view.n_bits), asked, strict=True)):
        # A part of a bigint is a number, too, and one of a bit string is a shorter one.
        bits = view.n_bits > WORD
        values[f"part_{number}"] = (
            database.bit_strings(engines.from_bigint(numbers, length), length) if bits else numbers
        )
    if k is None or view.condition is not None:
        return view.rows(sql.ALL_OF, hit=sql.HIT_NEAR, **values)
    return view.rows(sql.NEAREST, hit=sql.HIT_NEAR, otherwise=-1, **values)


def _held(view: View, codes: Octets, costs: Numbers, k: int) -> Rows:
    """Items that have certain packed codes, [n, bytes], of each the k first."""
    return view.rows(sql.ALL_OF, hit=sql.HIT_PROBED, codes=database.elements(codes, view.n_bits), costs=costs, k=k)


def likeliest(view: View, known: Sizes, mode: Octets, weights: Numbers, k: int, rank: Callable[[], Rank]) -> Rows:
    """What holds the k items of least cost; `rank` gives what `ranker` gave, which is made when it is first needed.

    `mode` is the likeliest code, packed, [bytes], and `weights` are the costs of bits that differ from it, [m].
    """
    there: Rows = []
    if 0 < k <= known.n_codes // WORTH:
        for codes, costs in batches(mode, weights, min(LEAST + known.n_codes // SHARE, MOST)):
            there += _held(view, codes, costs, k)
            if _n_ids(there) >= k:
                return there
    return rank()(mode, weights, k) if k else []


def ranker(view: View) -> Rank:
    """A function that ranks all codes by their cost, and gives what holds the k items of least cost."""
    from gphash.index import scan

    n_bits = view.n_bits
    if view.condition is None:
        found, counts = _pages(view, sql.READ_CODES, FIRST if n_bits <= WORD else "0" * n_bits)
        packed = database.packed_of(found, n_bits)
    else:
        packed, ids = items(view)
        counts = np.ones(len(ids), np.int64)
    whole = bucketing.group(bucketing.to_words(packed, n_bits), np.arange(len(packed)))
    counts = bucketing.sums(whole, counts)
    arrays = whole.codes, whole.starts, whole.ids, np.empty(0, bool), counts, whole.same, whole.value
    chosen, costs = np.empty(len(counts), np.int32), np.empty(len(counts), np.int64)

    def rank(mode: Octets, weights: Numbers, k: int) -> Rows:
        most = min(k, int(counts.sum()))
        if not most:
            return []
        wanted = bucketing.to_words(mode[None], n_bits).reshape(1, -1)[0]
        n = scan.nearest_expected(arrays, wanted, weights, most, chosen, costs)
        return _held(view, bucketing.to_packed(whole.codes[chosen[:n]], n_bits), costs[:n].copy(), k)

    return rank


def gathered(rows: Rows, k: int | None) -> tuple[Numbers, Numbers]:
    """Ids and costs in the order of (cost, id), the first k."""
    ids = np.concatenate([np.empty(0, np.int64), *(np.sort(ids) for _, ids in rows)])
    costs = np.repeat(np.array([cost for cost, _ in rows], np.int64), [len(ids) for _, ids in rows])
    return ids[:k], costs[:k]


def together(view: View, found: list[Rows], k: int) -> tuple[Numbers, Numbers]:
    """Ids and costs of several queries, [q, k], or as many columns as there are items."""
    if not found:
        columns = min(k, int(view.rows(sql.COUNT)[0][0]))
        return np.empty((0, columns), np.int64), np.empty((0, columns), np.int64)
    ids, costs = zip(*(gathered(rows, k) for rows in found), strict=True)
    return np.stack(ids), np.stack(costs)


def _n_ids(rows: Rows) -> int:
    return sum(len(ids) for _, ids in rows)


# Which codes to look up


def values_of(bits: NDArray[np.uint8], radius: int) -> list[Numbers]:
    """For every part of a query's bits, [m], the values to look up, as numbers whose highest digit is the first bit."""
    parts = [(bits[start : start + length], length, reach) for start, length, reach in _reaches(radius, len(bits))]
    return [int("".join(map(str, own.tolist())), 2) ^ _masks(length, reach) for own, length, reach in parts]


def steps(n_bits: int, known: Sizes, k: int) -> list[int]:
    """Radii to try one after the other for k items before all are looked at; each is the furthest for its effort."""
    n_parts = len(sql.parts(n_bits))
    radii = (radius for radius in range(n_parts - 1, n_bits, n_parts) if is_worth_it(radius, n_bits, known.n_codes))
    return [radius for radius in radii if _sharing(radius, n_bits, known.n_items)[1] >= k]


def is_worth_it(radius: int, n_bits: int, n_codes: int) -> bool:
    """Whether looking values of parts up is quicker than reading all codes."""
    return WORTH * sum(_sharing(radius, n_bits, n_codes)) <= n_codes


def _sharing(radius: int, n_bits: int, n: int) -> tuple[int, float]:
    """How many values are looked up, and about how many of n share one; fewer of them are as near as that."""
    sizes = [(len(_masks(length, reach)), length) for _, length, reach in _reaches(radius, n_bits)]
    return sum(size for size, _ in sizes), sum(size * CLUSTERED * n / 2**length for size, length in sizes)


def _reaches(radius: int, n_bits: int) -> list[tuple[int, int, int]]:
    """Start and length of every part, and how far it may be off, −1 for not at all: nothing within is missed."""
    split = sql.parts(n_bits)
    return [(*part, (min(radius, n_bits) - number) // len(split)) for number, part in enumerate(split)]


@cache
def _masks(length: int, reach: int) -> Numbers:
    """Numbers of some bits with at most so many ones, fewest first."""
    numbers = np.arange(2**length)
    ones = np.bitwise_count(numbers)
    return numbers[np.argsort(ones, kind="stable")][: np.count_nonzero(ones <= reach)]


def batches(mode: Octets, weights: Numbers, most: int) -> Iterator[tuple[Octets, Numbers]]:
    """Likely codes in the order of their costs, and the costs, until `most` codes have been named.

    A batch holds all codes of its costs; those of a cost that would go beyond `most` are left out. `mode` is the
    likeliest code, packed, [bytes], and `weights` are the costs of bits that differ from it, [m].
    """
    size, last = min(BATCH, most), -1
    while True:
        codes, costs = _cheapest(mode, weights, size)
        if (fresh := costs > last).any():
            yield codes[fresh], costs[fresh]
            last = costs[-1]
        if size == most:
            return
        size = min(GROWTH * size, most)


def _cheapest(mode: Octets, weights: Numbers, n: int) -> tuple[Octets, Numbers]:
    """The n codes of least cost, in its order, less those of the last cost if there are more of it."""
    codes, costs = mode[None], np.zeros(1, np.int64)
    for bit in np.argsort(weights, kind="stable").tolist():
        if len(costs) > n and weights[bit] >= costs[n]:
            break
        flipped = codes.copy()
        flipped[:, bit // 8] ^= 128 >> bit % 8
        costs = np.concatenate([costs, costs + weights[bit]])
        order = np.argsort(costs, kind="stable")[: n + 1]
        codes, costs = np.concatenate([codes, flipped])[order], costs[order]
    whole = costs < costs[n] if len(costs) > n else np.ones(len(costs), bool)
    return codes[whole], costs[whole]


# Changing, each within the transaction that the connection is in


def create(view: View, model: str | None, columns: str = "") -> None:
    """Make empty tables; `columns` is what items have beside number and code, each of them after a comma."""
    for template in (*sql.CREATE, f"{sql.CREATE_ITEMS}{columns})"):
        view.rows(template)
    view.rows(sql.WRITE_META, version=sql.VERSION, n_bits=view.n_bits, model=model)


def finish(view: View, packed: Octets) -> None:
    """Count the codes of all items that tables have been filled with, and make keys and indexes."""
    view.copy(sql.LOAD_CODES, database.rows(_counted(packed, view.n_bits)))
    for template in sql.indexes(view.n_bits):
        view.rows(template)


def refuse_known(view: View, ids: Numbers) -> None:
    """Refuse ids that are there already."""
    ((known,),) = view.rows(sql.KNOWN, ids=ids)
    checks.refuse_known(ids, np.isin(ids, [] if known is None else known))


def load(view: View, packed: Octets, ids: Numbers, template: str = sql.COPY) -> None:
    """Send items that have no other columns, in the order of their ids."""
    order = np.argsort(ids)
    view.copy(template, database.rows((ids[order], database.elements(packed[order], view.n_bits))))


def count(view: View, packed: Octets) -> None:
    """Count the codes of items that have been added."""
    codes, sizes = _counted(packed, view.n_bits)
    view.rows(sql.COUNT_UP, codes=codes, sizes=sizes)


def remove(view: View, packed: Octets, ids: Numbers) -> None:
    """Remove items that LOCK_ITEMS has found, and no longer count them."""
    codes, sizes = _counted(packed, view.n_bits)
    view.rows(sql.DELETE_ITEMS, ids=ids)
    view.rows(sql.LOCK_CODES, codes=codes)
    view.rows(sql.COUNT_DOWN, codes=codes, sizes=sizes)
    view.rows(sql.DELETE_CODES, codes=codes)


def _counted(packed: Octets, n_bits: int) -> tuple[NDArray[Any], Numbers]:
    """Distinct codes in the order of their column, in which all writers lock them, and how often each comes."""
    if n_bits <= WORD:
        return np.unique(engines.as_bigint(packed, n_bits), return_counts=True)
    codes, sizes = np.unique(packed, axis=0, return_counts=True)
    return database.bit_strings(codes, n_bits), sizes
