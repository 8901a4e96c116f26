"""Compiled search over buckets, one query at a time.

Blocks of codes are visited in the order of a lower bound of their distance. The distances of the codes seen so far are
counted, weighted by the sizes of the buckets; as soon as k items are at most so far away, no code further than that
matters, and the search ends at the first block whose bound is larger. Nothing is approximate: if the bounds say
nothing, every code is looked at.

Expected distances are searched by their costs, whole numbers; see `costs`.

Arrays may come from a file. Whoever opens one has checked them; still, no index is used here that an array's length
does not bound.

To compile quickly: no slice is assigned to, which would bring numba's formatting of error messages along, and counters
begin as np.int64, or functions that take one are compiled for a literal 0 as well.
"""

from typing import Any

import numpy as np

from gphash.compiled import jit, popcount
from gphash.index.buckets import BLOCK

DIGIT, MANY = 11, 256  # bits of a digit, and ids that are worth sorting by digits
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
    n_groups = (len(lower) + GROUP - 1) // GROUP
    least = np.empty(n_groups, np.uint16)
    places = np.zeros(n_bits + 2, np.int64)
    for g in range(n_groups):
        part = lower[g * GROUP : min((g + 1) * GROUP, len(lower))]
        least[g] = min(_least(part, np.int64(len(part))), np.uint16(n_bits))
        places[least[g] + 1] += 1
    for d in range(n_bits + 1):
        places[d + 1] += places[d]
    order = np.empty(n_groups, np.int32)
    for g in range(n_groups):
        d = least[g]
        order[places[d]] = g
        places[d] += 1
    return order


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
def nearest(
    codes: Any,
    starts: Any,
    counts: Any,
    same: Any,
    value: Any,
    query: Any,
    k: Any,
    n_bits: Any,
    chosen: Any,
    costs: Any,
) -> Any:
    """Codes that hold the k nearest items; fills `chosen` and `costs`, in no order, and returns how many."""
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
def balls(arrays: Any, queries: Any, radius: Any) -> Any:
    """Codes within a Hamming radius of every query.

    Returns how many items and how many codes there are per query, and the codes and their distances one query after
    the other.
    """
    codes, starts, _, _, counts, same, value = arrays
    n_codes = np.zeros(len(queries), np.int64)
    n_items = np.zeros(len(queries), np.int64)
    chosen = np.empty(16 * BLOCK, np.int32)
    costs = np.empty(16 * BLOCK, np.int64)
    lower = np.empty(len(same), np.uint16)
    distances = np.empty(BLOCK, np.uint16)
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
                chosen = _doubled(chosen)
                costs = _doubled(costs)
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
def _tables(weights: Any, width: Any, n_words: Any) -> Any:
    """Cost of every pattern of differing bits in every byte of a code, [bytes, 256]."""
    n_bytes = n_words * width // 8
    tables = np.zeros((n_bytes, 256), np.int64)
    for t in range(n_bytes):
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
def nearest_expected(
    codes: Any,
    starts: Any,
    counts: Any,
    same: Any,
    value: Any,
    mode: Any,
    weights: Any,
    k: Any,
    chosen: Any,
    costs: Any,
) -> Any:
    """Codes that hold the k items of least cost, as `nearest`; `mode` is the query's likeliest code."""
    n_blocks = len(same)
    width = 8 * codes.itemsize
    n_words = 1 if codes.ndim == 1 else codes.shape[1]
    tables = _tables(weights, width, n_words)
    n_bytes = width // 8
    lower = np.empty(n_blocks, np.int64)
    most = np.int64(1)
    for b in range(n_blocks):
        lower[b] = _block_cost(same, value, b, mode, tables, n_bytes)
        most = max(most, lower[b])
    # Blocks roughly in the order of their bounds: in bins of costs.
    places = np.zeros(BINS + 1, np.int64)
    for b in range(n_blocks):
        places[_bin(lower[b], most) + 1] += 1
    for d in range(BINS):
        places[d + 1] += places[d]
    ends = places[1:].copy()
    order = np.empty(n_blocks, np.int32)
    for b in range(n_blocks):
        d = _bin(lower[b], most)
        order[places[d]] = b
        places[d] += 1
    heap_cost = np.empty(k + 1, np.int64)  # k at most, and one that was just pushed
    heap_size = np.empty(k + 1, np.int64)
    n_heap, within, n_chosen = np.int64(0), np.int64(0), np.int64(0)
    bound = np.int64(np.iinfo(np.int64).max)
    number = np.int64(0)
    # The cheapest way to differ in d bits costs the d smallest weights: beyond `reach` bits it costs more than `bound`.
    steps = weights.copy()
    _sort(steps, np.empty(0, np.int32), np.int64(len(steps)))
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
                if cost <= bound:
                    size = _size(starts, counts, i)
                    if size > 0:
                        chosen[n_chosen] = i
                        costs[n_chosen] = cost
                        n_chosen += 1
                        if cost < bound:
                            n_heap = _push(heap_cost, heap_size, n_heap, cost, min(size, k))
                            within += min(size, k)
                            while within - heap_size[0] >= k:
                                within -= heap_size[0]
                                n_heap = _pop(heap_cost, heap_size, n_heap)
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


@jit(inline="always")
def _bin(cost: Any, most: Any) -> Any:
    share: Any = np.float64(cost) / np.float64(most)
    return min(BINS - 1, int(share * (BINS - 1)))


@jit
def _push(cost: Any, size: Any, n: Any, new_cost: Any, new_size: Any) -> Any:
    """Add to a heap whose largest cost is first."""
    i = n
    while i > 0:
        parent = (i - 1) // 2
        if cost[parent] >= new_cost:
            break
        cost[i], size[i] = cost[parent], size[parent]
        i = parent
    cost[i], size[i] = new_cost, new_size
    return n + 1


@jit
def _pop(cost: Any, size: Any, n: Any) -> Any:
    """Remove the largest cost of a heap."""
    n -= 1
    last_cost, last_size = cost[n], size[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and cost[child + 1] > cost[child]:
            child += 1
        if cost[child] <= last_cost:
            break
        cost[i], size[i] = cost[child], size[child]
        i = child
    cost[i], size[i] = last_cost, last_size
    return n


@jit
def _sort(keys: Any, along: Any, n: Any) -> None:
    """Sort the first n keys in place by heapsort, and what goes along with them, unless that is empty.

    Written out: numba's own sorts, compiled into a cache by one process and used by another, have given wrong orders.
    """
    for start in range(n // 2 - 1, -1, -1):
        _sink(keys, along, np.int64(start), n)
    for end in range(n - 1, 0, -1):
        keys[0], keys[end] = keys[end], keys[0]
        if len(along):
            along[0], along[end] = along[end], along[0]
        _sink(keys, along, np.int64(0), np.int64(end))


@jit
def _sink(keys: Any, along: Any, place: Any, n: Any) -> None:
    """Let a key sink to its place in a heap whose largest key is first."""
    while True:
        child = 2 * place + 1
        if child >= n:
            return
        if child + 1 < n and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= keys[place]:
            return
        keys[place], keys[child] = keys[child], keys[place]
        if len(along):
            along[place], along[child] = along[child], along[place]
        place = child


@jit
def _sort_ids(ids: Any, n: Any) -> None:
    """Sort the first n ids in place; many of them by their digits, from the lowest."""
    if n < MANY:
        _sort(ids, np.empty(0, np.int32), n)
        return
    least, most = ids[0], ids[0]
    for i in range(n):
        least, most = min(least, ids[i]), max(most, ids[i])
    # Differences of ids fit in an unsigned word, whatever their signs.
    reach = np.uint64(most) - np.uint64(least)
    other = np.empty(n, np.int64)
    places = np.empty((1 << DIGIT) + 1, np.int64)
    here, there, shift = ids, other, np.uint64(0)
    swapped = False
    while shift < np.uint64(64) and (reach >> shift) > np.uint64(0):
        for d in range(len(places)):
            places[d] = 0
        for i in range(n):
            digit = np.int64(((np.uint64(here[i]) - np.uint64(least)) >> shift) & np.uint64((1 << DIGIT) - 1))
            places[digit + 1] += 1
        for d in range(1 << DIGIT):
            places[d + 1] += places[d]
        for i in range(n):
            digit = np.int64(((np.uint64(here[i]) - np.uint64(least)) >> shift) & np.uint64((1 << DIGIT) - 1))
            there[places[digit]] = here[i]
            places[digit] += 1
        here, there = there, here
        swapped = not swapped
        shift += np.uint64(DIGIT)
    if swapped:
        for i in range(n):
            ids[i] = here[i]


@jit
def emit(
    starts: Any, ids: Any, kept: Any, chosen: Any, costs: Any, n_chosen: Any, k: Any, out_ids: Any, out_costs: Any
) -> Any:
    """Items of chosen codes in the order of (cost, id), at most k; returns how many."""
    _sort(costs, chosen, n_chosen)
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
            _sort_ids(gathered, found)
        for place in range(min(found, room)):
            out_ids[done] = gathered[place]
            out_costs[done] = cost
            done += 1
        first = last
    return done


@jit
def search_many(arrays: Any, queries: Any, k: Any, n_bits: Any, out_ids: Any, out_costs: Any) -> None:
    """The k nearest items of every query, [q, w]; there are that many.

    `arrays` are codes, starts, ids, marks of the places that count, their number per bucket, same and value.
    """
    codes, starts, ids, kept, counts, same, value = arrays
    chosen = np.empty(len(codes), np.int32)
    costs = np.empty(len(codes), np.int64)
    for q in range(len(queries)):
        n_chosen = nearest(codes, starts, counts, same, value, queries[q], k, n_bits, chosen, costs)
        emit(starts, ids, kept, chosen, costs, n_chosen, k, out_ids[q], out_costs[q])


@jit
def search_many_expected(arrays: Any, modes: Any, weights: Any, k: Any, out_ids: Any, out_costs: Any) -> None:
    """The k items of least cost for every query; `weights` are the costs of its bits, [q, m]."""
    codes, starts, ids, kept, counts, same, value = arrays
    chosen = np.empty(len(codes), np.int32)
    costs = np.empty(len(codes), np.int64)
    for q in range(len(modes)):
        n_chosen = nearest_expected(codes, starts, counts, same, value, modes[q], weights[q], k, chosen, costs)
        emit(starts, ids, kept, chosen, costs, n_chosen, k, out_ids[q], out_costs[q])


@jit
def emit_balls(arrays: Any, found: Any, out_ids: Any, out_distances: Any) -> None:
    """Items of the codes that `balls` found, in the order of (distance, id) for every query."""
    _, starts, ids, kept, _, _, _ = arrays
    n_items, n_codes, chosen, costs = found
    code, item = np.int64(0), np.int64(0)
    for q in range(len(n_codes)):
        codes, items = slice(code, code + n_codes[q]), slice(item, item + n_items[q])
        emit(
            starts, ids, kept, chosen[codes], costs[codes], n_codes[q], n_items[q], out_ids[items], out_distances[items]
        )
        code += n_codes[q]
        item += n_items[q]
