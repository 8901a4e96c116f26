"""Whether P(similar) can be trusted: its calibration, and the precision and recall of lists that are cut by it.

Cuts are learned on n queries like those to come. A cut is chosen so that the mean loss, with one more query that loses
all, keeps the promise. For recall, which never rises with the cut, that is conformal risk control. Precision is the
mean over the queries that are answered, and may rise or fall with the cut: the loosest cut is taken of those from which
on all stricter ones that answer enough queries keep the promise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.codes.trust import LEVELS, NEVER, WRONG, Trust
from gphash.evaluation import diagnostics
from gphash.evaluation.metrics import mean
from gphash.evaluation.retrieval import BLOCK_BYTES, QUERIES, Database, Queries
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.supervision import similarity

PROMISED = (0.5, 0.8, 0.9, 0.95)  # precision, or recall, that is looked at
GRID = 201  # cuts that are tried
POINTS = 41  # of a curve
# Of the first probability, the largest that a list may end at for recall: among more items there is a better first one,
# and what is nearly as good must not fall out of the list for it.
LARGEST_SHARE = 0.9
FEW = 30  # answered queries, below which precision is not known


R = TypeVar("R")


class _Ranked(NamedTuple):
    """What queries find, code by code, the most probable first, [q, u]; a code without rows comes last."""

    chances: Floats
    hits: NDArray[Any]
    sizes: NDArray[Any]

    @property
    def first(self) -> Floats:
        """The probability of the first item, [q]."""
        return np.where(self.sizes[:, 0] > 0, self.chances[:, 0], 0.0)


def judge(
    queries: Queries, database: Database, trust: Trust | None, familiarity: Floats | None = None
) -> dict[str, Any]:
    """Calibration of P(similar), as `diagnostics.calibration` has it, and what promises are worth.

    Told are the precision that answers have in the mean, the share of queries that have an answer, and the recall; and
    in a curve, how that precision falls with the share of queries answered. With the queries' familiarity, [q], also
    of how many nothing is said to be similar.
    """
    levels = PROMISED if trust is not None else ()
    cuts = [[trust.cut(kind, level) for level in levels] if trust else [] for kind in ("precision", "recall")]
    cuts[0] += np.linspace(0, 1, POINTS).tolist()

    def looked(ranked: _Ranked) -> tuple[Floats, Floats, Floats]:
        shares = np.divide(ranked.hits, ranked.sizes, out=np.zeros(ranked.hits.shape), where=ranked.sizes > 0)
        binned = diagnostics.binned(ranked.chances, shares, ranked.sizes)
        return binned, np.hstack(kept(ranked, *map(np.array, cuts))), ranked.first

    parts = _each(queries, database, looked)
    columns = np.concatenate([part[1] for part in parts]).T
    curve = columns[len(levels) : len(levels) + POINTS]
    columns = np.delete(columns, np.s_[len(levels) : len(levels) + POINTS], axis=0)
    answering = {"answered": np.isfinite(curve).mean(axis=1), "precision": np.array([mean(part) for part in curve])}
    found: dict[str, Any] = {"calibration": diagnostics.calibration(*np.sum([part[0] for part in parts], axis=0))}
    found["answering"] = {"curve": answering}
    if trust is None:
        return found
    names = [f"{kind}_{level}" for kind in ("precision", "recall") for level in levels]
    told = {name: mean(column) for name, column in zip(names, columns, strict=True)}
    answered = np.isfinite(columns[: len(levels)]).mean(axis=1).tolist()
    told |= {f"answered_{level}": part for level, part in zip(levels, answered, strict=True)}
    if familiarity is not None:
        asked = zip(familiarity.tolist(), np.concatenate([part[2] for part in parts]).tolist(), strict=True)
        told["nothing_similar"] = float(np.mean([trust.nothing(*one) for one in asked]))
    return found | {"promises": told}


def learn(queries: Queries, database: Database) -> tuple[Floats, Floats, Floats]:
    """Cuts for the `LEVELS` of precision and of recall, and the probability that few first hits fall below, [1]."""
    levels = np.linspace(0, 1, GRID)
    shares = LARGEST_SHARE * levels**2

    def looked(ranked: _Ranked) -> tuple[Floats, Floats, Floats]:
        return *kept(ranked, levels, shares), ranked.first

    precision, recall, first = (np.concatenate(part) for part in zip(*_each(queries, database, looked), strict=True))

    def loss(values: Floats) -> Floats:
        """Of every cut, with one more query that loses all."""
        there = np.isfinite(values)
        return np.asarray((np.where(there, 1 - values, 0.0).sum(axis=0) + 1) / (there.sum(axis=0) + 1))

    enough, cuts = np.isfinite(precision).sum(axis=0) >= FEW, []
    for level in LEVELS:
        keeps = loss(precision) <= 1 - level
        covers = loss(recall) <= 1 - level
        fails = np.flatnonzero(~keeps & enough)
        loosest = fails[-1] + 1 if len(fails) else 0
        cuts.append((levels[loosest] if enough[loosest:].any() else NEVER, shares[covers][-1] if covers.any() else 0.0))
    rank = int((len(first) + 1) * WRONG / 2)
    least = np.sort(first)[rank - 1 : rank] if rank else np.zeros(1)
    levels_kept, shares_kept = np.array(cuts).T.copy()
    return levels_kept, shares_kept, np.clip(least, 0.0, 1.0)


def kept(ranked: _Ranked, means: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Precision of lists whose mean probability is at least so high, [q, a], and recall of others, [q, b].

    Those end where a probability is less than a share of the first. NaN where nothing is answered, or to be found. A
    cut for precision may go through a code: of its rows, any is as good as another.
    """
    chances, hits, sizes = ranked
    believed, found, retrieved = (np.cumsum(part, axis=1) for part in (chances * sizes, hits, sizes))
    rows, last = np.arange(len(chances))[:, None], chances.shape[1] - 1
    chances = np.where(sizes > 0, chances, 0.0)
    running = np.minimum.accumulate(believed / np.maximum(retrieved, 1), axis=1)
    whole = np.stack([np.searchsorted(-one, 1e-9 - means, side="right") for one in running])
    before, following = np.maximum(whole - 1, 0), np.minimum(whole, last)
    inside = whole > 0
    taken, right = (np.where(inside, part[rows, before], 0) for part in (retrieved, found))
    spare = np.where(inside, believed[rows, before] - means * taken, 0.0)
    lack = means - chances[rows, following]
    more = np.floor(np.divide(spare, lack, out=np.zeros_like(spare), where=lack > 0) + 1e-9)
    more = np.where(whole <= last, np.clip(more, 0, sizes[rows, following]), 0)
    rate = hits[rows, following] / np.maximum(sizes[rows, following], 1)
    total = taken + more
    precision = np.divide(right + more * rate, total, out=np.full(total.shape, np.nan), where=total > 0)
    ends = np.stack([np.searchsorted(-one, 1e-12 - shares * one[0], side="right") for one in chances])
    every = found[:, -1:].astype(np.float64)
    reached = np.where(ends > 0, found[rows, np.maximum(ends - 1, 0)], 0)
    recall = np.divide(reached, every, out=np.full(ends.shape, np.nan), where=every > 0)
    return precision, recall


def _each(queries: Queries, database: Database, work: Callable[[_Ranked], R]) -> list[R]:
    """What `work` makes of blocks of queries."""
    assert queries.beliefs is not None
    (classes, reader), own = queries.beliefs, queries.signatures
    read, counts = reader.read(database.packed), np.add.reduceat(database.counts, database.offsets[:-1])
    number = {code.tobytes(): place for place, code in enumerate(database.packed)} if queries.leave_one_out else {}

    def ranked(rows: slice) -> R:
        chances = reader.compare(classes[rows], read)
        alike = similarity.alike(own[rows], database.signatures) * database.counts
        hits, sizes = np.add.reduceat(alike, database.offsets[:-1], axis=1), np.tile(counts, (len(chances), 1))
        if queries.leave_one_out:
            places = [number[code.tobytes()] for code in queries.packed[rows]]
            for query, place in enumerate(places):
                mine = own[rows][query : query + 1]
                sizes[query, place] -= 1
                hits[query, place] -= int(similarity.alike(mine, mine)[0, 0])
        order = np.argsort(np.where(sizes > 0, -chances, 1.0), axis=1, kind="stable")
        return work(_Ranked(*(np.take_along_axis(part, order, 1) for part in (chances, hits, sizes))))

    block = int(np.clip(BLOCK_BYTES // (8 * max(len(database.packed), len(database.counts))), 1, QUERIES))
    with LocalExecutor(-1) as executor:
        return list(executor.collect(ranked, row_blocks(len(own.masks), block)))
