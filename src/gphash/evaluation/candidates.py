"""How many candidates to take from codes, so that what is nearest by the features themselves is among them.

For every query, the rows with the largest cosines are what should be found. A ranking of codes puts them at certain
places; with rows at equal distance, the chance that one of them is among the first c is averaged over all orders.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.evaluation import retrieval

NEAREST = 10
FIRST = (10, 20, 50, 100)  # numbers of candidates; then 200, 400, …
GOALS = (0.9, 0.95)
MOST_QUERIES = 1000
BLOCK_BYTES = 1 << 26
UNITS = 2.0**38  # costs are rounded to multiples of their inverse, so that what should be a tie is one


def recall(hasher: Any, queries: NDArray[Any], stored: NDArray[Any] | None = None) -> dict[str, Any]:
    """Recall of the nearest rows by cosine among the first candidates of every ranking that a trained method has.

    Parameters
    ----------
    hasher
        A trained method.
    queries
        Rows to search for, [q, d]; of more than 1,000, as many, evenly spread.
    stored
        Rows to search among, [n, d]; None for the other queries.

    Returns
    -------
    figures
        "recall" of every ranking for every number of candidates, and under "suggested" the least of these numbers with
        a recall of .9 and .95.
    """
    database = np.asarray(queries if stored is None else stored)
    chosen = np.unique(np.linspace(0, len(queries) - 1, min(len(queries), MOST_QUERIES)).astype(np.int64))
    asked, own = np.asarray(queries)[chosen], chosen if stored is None else None
    n_rows = len(database) - (stored is None)
    if n_rows <= NEAREST:
        raise ValueError(f"there are {n_rows} rows to search among; give more than {NEAREST}.")
    codes, number, counts = np.unique(hasher.encode(database), axis=0, return_inverse=True, return_counts=True)
    wanted = np.concatenate([*_nearest(asked, database, own)])
    depths, number = _depths(n_rows), number.reshape(-1)
    found: dict[str, list[Floats]] = {}
    block = max(1, BLOCK_BYTES // (16 * len(codes)))
    for start in range(0, len(asked), block):
        rows = slice(start, start + block)
        mine = None if own is None else number[own[rows]]
        for name, costs in _costs(hasher, asked[rows], codes):
            found.setdefault(name, []).append(_shares(costs, counts, number[wanted[rows]], mine, depths))
    means = {name: np.concatenate(parts).mean(axis=0) for name, parts in found.items()}
    told: dict[str, Any] = {"nearest": NEAREST, "metric": "cosine", "queries": len(asked), "database_rows": n_rows}
    told["recall"] = {name: dict(zip(map(str, depths), values.tolist(), strict=True)) for name, values in means.items()}
    told["suggested"] = {
        # With all rows as candidates, every recall is reached.
        name: {str(goal): depths[int(np.argmax(values >= goal))] for goal in GOALS}
        for name, values in means.items()
    }
    return told


def _depths(n_rows: int) -> list[int]:
    depths = list(FIRST)
    while depths[-1] < n_rows:
        depths.append(2 * depths[-1])
    return [depth for depth in depths if depth < n_rows] + [n_rows]


def _nearest(asked: NDArray[Any], database: NDArray[Any], own: NDArray[np.int64] | None) -> Iterator[NDArray[np.int64]]:
    """Numbers of the rows with the largest cosines, [b, k], block by block; of equal ones, the first."""
    known = _directions(database)
    block = max(1, BLOCK_BYTES // (4 * len(known)))
    for start in range(0, len(asked), block):
        scores = _directions(asked[start : start + block]) @ known.T
        if own is not None:
            scores[np.arange(len(scores)), own[start : start + block]] = -np.inf
        least = -np.partition(-scores, NEAREST - 1, axis=1)[:, NEAREST - 1]
        yield np.stack([_first(row, bound) for row, bound in zip(scores, least, strict=True)])


def _first(scores: Floats, bound: Any) -> NDArray[np.int64]:
    places = np.flatnonzero(scores >= bound)
    return places[np.argsort(-scores[places], kind="stable")[:NEAREST]]


def _directions(rows: NDArray[Any]) -> NDArray[np.float32]:
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: NDArray[np.float64] = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return unit.astype(np.float32)


def _costs(hasher: Any, rows: NDArray[Any], codes: NDArray[np.uint8]) -> Iterator[tuple[str, Floats]]:
    """What every code costs by every ranking, [b, u]."""
    bits = np.asarray(hasher.transform(rows))
    stored = packing.unpack(codes, bits.shape[1]).astype(np.float64)
    yield "hamming", _expected(bits.astype(np.float64), stored)
    if hasattr(hasher, "bit_probabilities"):
        yield "expected", np.rint(_expected(np.asarray(hasher.bit_probabilities(rows)), stored) * UNITS / bits.shape[1])
        if (known := retrieval.beliefs(hasher, rows)) is not None:
            classes, reader = known
            yield "similarity", np.rint(UNITS * (1 - reader.compare(classes, reader.read(codes))))


def _expected(chances: Floats, bits: Floats) -> Floats:
    """Bits that are expected to differ, [b, u]; sums of whole numbers are exact."""
    differing: Floats = chances.sum(axis=1)[:, None] + (1 - 2 * chances) @ bits.T
    return differing


def _shares(
    costs: Floats,
    counts: NDArray[np.int64],
    wanted: NDArray[np.int64],
    own: NDArray[np.int64] | None,
    depths: list[int],
) -> Floats:
    """The share of the wanted rows, given by their codes, [b, k], among the first c rows, for every c, [b, c]."""
    shares = np.empty((len(costs), len(depths)))
    for query, (cost, codes) in enumerate(zip(costs, wanted, strict=True)):
        order = np.argsort(cost, kind="stable")
        upto = np.concatenate([[0], np.cumsum(counts[order])])
        before = upto[np.searchsorted(cost[order], cost[codes], "left")]
        after = upto[np.searchsorted(cost[order], cost[codes], "right")]
        if own is not None:  # the query itself does not count
            before, after = before - (cost[own[query]] < cost[codes]), after - (cost[own[query]] <= cost[codes])
        chance = (np.array(depths)[:, None] - before) / (after - before)
        shares[query] = np.clip(chance, 0, 1).mean(axis=1)
    return shares
