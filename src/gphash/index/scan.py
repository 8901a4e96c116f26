"""Compiled search over buckets, one query at a time.

Blocks of codes are visited in the order of a lower bound of their distance. The distances of the codes seen so far are
counted, weighted by the sizes of the buckets; as soon as k items are at most so far away, the search ends at the first
block whose bound is larger. Nothing is approximate. Expected distances are searched by their costs; see `rankings`.

Whoever opens a file has checked its arrays; still, no index is used here that an array's length does not bound. To
compile quickly, no slice is assigned to, which would bring numba's formatting of error messages along, and counters
begin as np.int64, or functions that take one are compiled for a literal 0 as well.
"""

from typing import Any

import numpy as np

from gphash.compiled import jit, popcount
from gphash.index.buckets import BLOCK
from gphash.index.sorting import admit, sort, sort_ids

GROUP = 8  # neighbouring blocks that are visited together
BINS = 1024  # of lower bounds of expected distances


@jit
def _block_distances(codes: Any, start: Any, stop: Any, query: Any, out: Any) -> None:
    """Hamming distances of the codes of a block."""
    if codes.ndim == 1:
        block = codes[start:stop]
        word = query[0]
        for i in range(len(block)):
            out[i] = popcount(block[i] ^ word)
    else:
        for i in range(start, stop):
            distance = np.int64(0)
            for j in range(codes.shape[1]):
                distance += np.int64(popcount(codes[i, j] ^ query[j]))
            out[i - start] = distance


@jit
def _least(distances: Any, n: Any) -> Any:
    """The smallest of the first n distances."""
    least = np.uint16(65535)
    for i in range(n):
        least = min(least, distances[i])
    return least


@jit
def _bounds(same: Any, value: Any, query: Any, out: Any) -> None:
    """Lower bounds of the Hamming distances of all blocks."""
    if same.ndim == 1:
        word = query[0]
        for b in range(len(same)):
            out[b] = popcount((value[b] ^ word) & same[b])
    else:
        for b in range(len(same)):
            bound = np.int64(0)
            for j in range(same.shape[1]):
                bound += np.int64(popcount((value[b, j] ^ query[j]) & same[b, j]))
            out[b] = bound


@jit
def _in_order_of_bounds(lower: Any, n_bits: Any) -> Any:
    """Groups of neighbouring blocks in the order of the smallest bound among them."""
    least = np.empty((len(lower) + GROUP - 1) // GROUP, np.uint16)
    for g in range(len(least)):
        part = lower[g * GROUP : min((g + 1) * GROUP, len(lower))]
        least[g] = min(_least(part, np.int64(len(part))), np.uint16(n_bits))
    return _in_order(least, n_bits + 1)[0]


@jit
def _in_order(keys: Any, n_keys: Any) -> Any:
    """Places of small keys in their order, and where every key's places end."""
    ends = np.zeros(n_keys + 1, np.int64)
    for i in range(len(keys)):
        ends[keys[i] + 1] += 1
    for d in range(n_keys):
        ends[d + 1] += ends[d]
    order = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        order[ends[keys[i]]] = i
        ends[keys[i]] += 1
    return order, ends


@jit
def _size(starts: Any, counts: Any, i: Any) -> Any:
    """Items of a bucket that count."""
    if len(counts):
        return np.int64(counts[i])
    return np.int64(starts[i + 1]) - np.int64(starts[i])


@jit
def _first(starts: Any, i: Any, n_items: Any) -> Any:
    """Where the items of bucket i begin, and those of bucket i − 1 end; never outside of the items."""
    return max(np.int64(0), min(np.int64(starts[i]), n_items))


@jit
def nearest(arrays: Any, query: Any, k: Any, n_bits: Any, chosen: Any, costs: Any) -> Any:
    """Codes that hold the k nearest items; fills `chosen` and `costs`, in no order, and returns how many."""
    codes, starts, _, _, counts, same, value = arrays
    n_codes, n_blocks = len(codes), len(same)
    lower = np.empty(n_blocks, np.uint16)
    _bounds(same, value, query, lower)
    order = _in_order_of_bounds(lower, n_bits)
    levels = np.zeros(n_bits + 1, np.int64)
    distances = np.empty(BLOCK, np.uint16)
    bound, n_chosen = np.int64(n_bits), np.int64(0)
    within: Any = np.int64(0)
    for place in range(len(order) * GROUP):
        b: Any = np.int64(order[place // GROUP]) * GROUP + place % GROUP
        if b >= n_blocks or lower[b] > bound:
            continue
        start = b * BLOCK
        stop = min(start + BLOCK, n_codes)
        _block_distances(codes, start, stop, query, distances)
        if _least(distances, stop - start) > bound:
            continue
        for i in range(stop - start):
            away: Any = np.int64(distances[i])
            if away <= bound:  # which is at most n_bits, the last of the levels
                size = _size(starts, counts, start + i)
                if size > 0:
                    chosen[n_chosen] = start + i
                    costs[n_chosen] = away
                    n_chosen += 1
                    levels[away] += size
                    within += size
                    while within - levels[bound] >= k:
                        within -= levels[bound]
                        bound -= 1
    return _cut(chosen, costs, n_chosen, bound)


@jit
def _cut(chosen: Any, costs: Any, n_chosen: Any, bound: Any) -> Any:
    """Keep what is not further than the bound."""
    kept = np.int64(0)
    for i in range(n_chosen):
        if costs[i] <= bound:
            chosen[kept] = chosen[i]
            costs[kept] = costs[i]
            kept += 1
    return kept


@jit
def _tables(weights: Any, n_bytes: Any, n_words: Any) -> Any:
    """Cost of every pattern of differing bits in every byte of a code, [bytes, 256]."""
    tables = np.zeros((n_words * n_bytes, 256), np.int64)
    for t in range(n_words * n_bytes):
        for j in range(8):
            place = 8 * t + j
            weight = weights[place] if place < len(weights) else 0
            bit = 128 >> j
            for pattern in range(bit, 256):
                if pattern & bit:
                    tables[t, pattern] += weight
    return tables


@jit(inline="always")
def _cost(word: Any, tables: Any, first: Any, n_bytes: Any) -> Any:
    """Cost of the differing bits of one word, whose first byte is the table's row `first`."""
    cost = np.int64(0)
    rest = np.uint64(word)
    for t in range(n_bytes - 1, -1, -1):
        cost += tables[first + t, rest & np.uint64(255)]
        rest >>= np.uint64(8)
    return cost


@jit
def _code_cost(codes: Any, i: Any, mode: Any, tables: Any, n_bytes: Any) -> Any:
    if codes.ndim == 1:
        return _cost(codes[i] ^ mode[0], tables, 0, n_bytes)
    cost = np.int64(0)
    for j in range(codes.shape[1]):
        cost += _cost(codes[i, j] ^ mode[j], tables, 8 * j, 8)
    return cost


@jit
def _block_cost(same: Any, value: Any, b: Any, mode: Any, tables: Any, n_bytes: Any) -> Any:
    if same.ndim == 1:
        return _cost((value[b] ^ mode[0]) & same[b], tables, 0, n_bytes)
    cost = np.int64(0)
    for j in range(same.shape[1]):
        cost += _cost((value[b, j] ^ mode[j]) & same[b, j], tables, 8 * j, 8)
    return cost


@jit
def nearest_expected(arrays: Any, mode: Any, weights: Any, k: Any, chosen: Any, costs: Any) -> Any:
    """Codes that hold the k items of least cost, as `nearest`; `mode` is the query's likeliest code."""
    codes, starts, _, _, counts, same, value = arrays
    n_bytes = codes.itemsize
    tables = _tables(weights, n_bytes, len(mode))
    lower = np.empty(len(same), np.int64)
    for b in range(len(same)):
        lower[b] = _block_cost(same, value, b, mode, tables, n_bytes)
    order, ends, most = _in_bins(lower)
    heap_cost, heap_size = np.empty(k + 1, np.int64), np.empty(k + 1, np.int64)  # k, and one that was just pushed
    n_heap, within, n_chosen, number = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    bound = np.int64(np.iinfo(np.int64).max)
    # The cheapest way to differ in d bits costs the d smallest weights: beyond `reach` bits it costs more than `bound`.
    steps = weights.copy()
    sort(steps, np.empty(0, np.int32), np.int64(len(steps)))
    reach, spent = np.int64(len(steps)), steps.sum()
    distances = np.empty(BLOCK, np.uint16)
    for d in range(BINS):
        for place in range(number, ends[d]):
            b = order[place]
            if lower[b] > bound:
                continue
            start = b * BLOCK
            stop = min(start + BLOCK, len(codes))
            _block_distances(codes, start, stop, mode, distances)
            if _least(distances, stop - start) > reach:
                continue
            for i in range(start, stop):
                if distances[i - start] > reach:
                    continue
                cost = _code_cost(codes, i, mode, tables, n_bytes)
                if cost > bound:
                    continue
                size = _size(starts, counts, i)
                if size <= 0:
                    continue
                chosen[n_chosen] = i
                costs[n_chosen] = cost
                n_chosen += 1
                if cost < bound:
                    n_heap, within = admit(heap_cost, heap_size, n_heap, within, cost, min(size, k), k)
                    if within >= k:
                        bound = heap_cost[0]
                        while spent > bound and reach > 0:
                            reach -= 1
                            spent -= steps[reach]
        number = ends[d]
        # Whatever is in later bins is not nearer than the border of this one.
        if bound < np.iinfo(np.int64).max and _bin(bound, most) < d:
            break
    return _cut(chosen, costs, n_chosen, bound)


@jit
def _in_bins(lower: Any) -> Any:
    """Blocks roughly in the order of their bounds: in bins of costs. Also where bins end, and the largest bound."""
    most = np.int64(1)
    for b in range(len(lower)):
        most = max(most, lower[b])
    bins = np.empty(len(lower), np.uint16)
    for b in range(len(lower)):
        bins[b] = _bin(lower[b], most)
    order, ends = _in_order(bins, BINS)
    return order, ends, most


@jit(inline="always")
def _bin(cost: Any, most: Any) -> Any:
    share: Any = np.float64(cost) / np.float64(most)
    return min(BINS - 1, int(share * (BINS - 1)))


@jit
def emit(arrays: Any, chosen: Any, costs: Any, n_chosen: Any, k: Any, out_ids: Any, out_costs: Any) -> Any:
    """Items of chosen codes in the order of (cost, id), at most k; returns how many."""
    _, starts, ids, kept, _, _, _ = arrays
    sort(costs, chosen, n_chosen)
    n_items, most = np.int64(len(ids)), min(np.int64(k), np.int64(len(out_ids)))
    done, first = np.int64(0), np.int64(0)
    while first < n_chosen and done < most:
        cost = costs[first]
        last = first
        while last < n_chosen and costs[last] == cost:
            last += 1
        room = most - done
        # The smallest ids of these buckets: of each, no more than there is room for.
        total = np.int64(0)
        for place in range(first, last):
            i = np.int64(chosen[place])
            total += max(np.int64(0), min(_first(starts, i + 1, n_items) - _first(starts, i, n_items), room))
        gathered = out_ids[done : done + total] if total <= room else np.empty(total, np.int64)
        found = np.int64(0)
        for place in range(first, last):
            i = np.int64(chosen[place])
            taken = np.int64(0)
            for position in range(_first(starts, i, n_items), _first(starts, i + 1, n_items)):
                if taken == room:
                    break
                if len(kept) == 0 or kept[position]:
                    gathered[found] = ids[position]
                    found += 1
                    taken += 1
        if last > first + 1:  # ids of one bucket are in order
            sort_ids(gathered, found)
        for place in range(min(found, room)):
            out_ids[done] = gathered[place]
            out_costs[done] = cost
            done += 1
        first = last
    return done


@jit
def search_many(arrays: Any, queries: Any, k: Any, n_bits: Any, out_ids: Any, out_costs: Any) -> None:
    """The k nearest items of every query, [q, w]; there are that many. `arrays` are those of a `contents.Piece`."""
    chosen, costs = np.empty(len(arrays[0]), np.int32), np.empty(len(arrays[0]), np.int64)
    for q in range(len(queries)):
        n_chosen = nearest(arrays, queries[q], k, n_bits, chosen, costs)
        emit(arrays, chosen, costs, n_chosen, k, out_ids[q], out_costs[q])


@jit
def search_many_expected(arrays: Any, modes: Any, weights: Any, k: Any, out_ids: Any, out_costs: Any) -> None:
    """The k items of least cost for every query; `weights` are the costs of its bits, [q, m]."""
    chosen, costs = np.empty(len(arrays[0]), np.int32), np.empty(len(arrays[0]), np.int64)
    for q in range(len(modes)):
        n_chosen = nearest_expected(arrays, modes[q], weights[q], k, chosen, costs)
        emit(arrays, chosen, costs, n_chosen, k, out_ids[q], out_costs[q])


@jit
def balls(arrays: Any, queries: Any, radius: Any) -> Any:
    """How many items and codes are within a Hamming radius of every query, and the codes and distances of all."""
    codes, starts, _, _, counts, same, value = arrays
    n_items, n_codes = np.zeros(len(queries), np.int64), np.zeros(len(queries), np.int64)
    chosen, costs = np.empty(16 * BLOCK, np.int32), np.empty(16 * BLOCK, np.int64)
    lower, distances = np.empty(len(same), np.uint16), np.empty(BLOCK, np.uint16)
    done = 0
    for q in range(len(queries)):
        before = done
        _bounds(same, value, queries[q], lower)
        for b in range(len(same)):
            if lower[b] > radius:
                continue
            start = b * BLOCK
            stop = min(start + BLOCK, len(codes))
            _block_distances(codes, start, stop, queries[q], distances)
            if _least(distances, stop - start) > radius:
                continue
            if done + BLOCK > len(chosen):
                chosen, costs = _doubled(chosen), _doubled(costs)
            for i in range(stop - start):
                if distances[i] <= radius:
                    size = _size(starts, counts, start + i)
                    if size > 0:
                        chosen[done] = start + i
                        costs[done] = distances[i]
                        done += 1
                        n_items[q] += size
        n_codes[q] = done - before
    return n_items, n_codes, chosen, costs


@jit
def _doubled(array: Any) -> Any:
    larger = np.empty(2 * len(array), array.dtype)
    for i in range(len(array)):
        larger[i] = array[i]
    return larger


@jit
def emit_balls(arrays: Any, found: Any, out_ids: Any, out_distances: Any) -> None:
    """Items of the codes that `balls` found, in the order of (distance, id) for every query."""
    n_items, n_codes, chosen, costs = found
    code, item = np.int64(0), np.int64(0)
    for q in range(len(n_codes)):
        codes, items = slice(code, code + n_codes[q]), slice(item, item + n_items[q])
        emit(arrays, chosen[codes], costs[codes], n_codes[q], n_items[q], out_ids[items], out_distances[items])
        code += n_codes[q]
        item += n_items[q]
