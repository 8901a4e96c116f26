"""The searches of `scan` in numpy: for so little work that loading or compiling the other would take longer.

Both answer alike, to the last id. Here every code is looked at, and nothing is compiled.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.index.buckets import Words

Items: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ids and costs, in the order of (cost, id)."""


def search_many(arrays: Any, queries: Words, k: int, n_bits: int, out_ids: Any, out_costs: Any) -> None:
    """The k nearest items of every query, [q, w]; there are that many."""
    starts, sizes = _extents(arrays)
    for query, ids, costs in zip(queries, out_ids, out_costs, strict=True):
        ids[:], costs[:] = _nearest(arrays, starts, sizes, _distances(arrays[0], query), k)


def search_many_expected(arrays: Any, modes: Words, weights: Any, k: int, out_ids: Any, out_costs: Any) -> None:
    """The k items of least cost for every query; `weights` are the costs of its bits, [q, m]."""
    starts, sizes = _extents(arrays)
    for mode, weight, ids, costs in zip(modes, weights, out_ids, out_costs, strict=True):
        ids[:], costs[:] = _nearest(arrays, starts, sizes, _costs(arrays[0], mode, weight), k)


def balls(arrays: Any, queries: Words, radius: int) -> tuple[NDArray[np.int64], list[Items]]:
    """How many items there are within a Hamming radius of every query, [q], and the items."""
    items = []
    starts, _ = _extents(arrays)
    for query in queries:
        distances = _distances(arrays[0], query)
        items.append(_items(arrays, starts, np.flatnonzero(distances <= radius), distances))
    return np.array([len(ids) for ids, _ in items], np.int64), items


def emit_balls(arrays: Any, found: tuple[Any, list[Items]], out_ids: Any, out_distances: Any) -> None:
    """Put what `balls` found one query after the other."""
    out_ids[:], out_distances[:] = (np.concatenate(parts) for parts in zip(*found[1], strict=True))


def _distances(codes: Words, query: Words) -> NDArray[Any]:
    """Hamming distances of all codes, [u]; small numbers, which are quick to sort."""
    counts = np.bitwise_count((codes[:, None] if codes.ndim == 1 else codes) ^ query)
    distances: NDArray[Any] = counts[:, 0] if codes.ndim == 1 else counts.sum(axis=1, dtype=np.uint16)
    return distances


def _costs(codes: Words, mode: Words, weights: NDArray[np.int64]) -> NDArray[Any]:
    """Costs of the bits in which the codes differ from the likeliest one, [u]."""
    differing = (codes[:, None] if codes.ndim == 1 else codes) ^ mode
    octets = differing.astype(differing.dtype.newbyteorder(">")).view(np.uint8)
    padded = np.zeros(8 * octets.shape[1], np.int64)
    padded[: len(weights)] = weights
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.int64)
    costs = np.zeros(len(codes), np.int64)
    for column, part in zip(octets.T, padded.reshape(-1, 8), strict=True):
        costs += (patterns @ part)[column]
    return costs


def _extents(arrays: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the items of every bucket begin, [u + 1], and how many of them count, [u]."""
    _, starts, _, _, counts, _, _ = arrays
    begins: NDArray[np.int64] = starts.astype(np.int64)
    return begins, counts if len(counts) else np.diff(begins)


def _nearest(arrays: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], costs: NDArray[Any], k: int) -> Items:
    """Ids and costs of the k items of least cost."""
    chosen = np.flatnonzero(sizes)
    if k < len(chosen):
        # Every bucket that counts holds an item, so that k of them are enough, and all that cost as little.
        held = costs[chosen]
        chosen = chosen[held <= np.partition(held, k - 1)[k - 1]]
    # Fewer are enough if they hold more; which items of the last cost come first is for the ids to say.
    order = chosen[np.argsort(costs[chosen], kind="stable")]
    last = min(int(np.searchsorted(np.cumsum(sizes[order]), k)), len(order) - 1)
    chosen = order[: int(np.searchsorted(costs[order], costs[order[last]], side="right"))]
    ids, found = _items(arrays, starts, chosen, costs)
    return ids[:k], found[:k]


def _items(arrays: Any, starts: NDArray[np.int64], chosen: NDArray[Any], costs: NDArray[Any]) -> Items:
    """Items of chosen codes that count, in the order of (cost, id): ids and costs."""
    _, _, ids, kept, _, _, _ = arrays
    begins, sizes = starts[chosen], starts[chosen + 1] - starts[chosen]
    # Positions of all items: a run of consecutive numbers for every bucket.
    places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    away = np.repeat(costs[chosen].astype(np.int64), sizes)
    if len(kept):
        places, away = places[kept[places]], away[kept[places]]
    order = np.lexsort((ids[places], away))
    return ids[places][order], away[order]
