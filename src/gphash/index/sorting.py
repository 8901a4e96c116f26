"""Compiled sorting of costs and ids, and a heap of the cheapest codes.

Written out: numba's own sorts, compiled into a cache by one process and used by another, have given wrong orders.
"""

from typing import Any

import numpy as np

from gphash.compiled import jit

DIGIT, MANY = 11, 256  # bits of a digit, and ids that are worth sorting by digits


@jit
def admit(cost: Any, size: Any, n: Any, within: Any, new_cost: Any, new_size: Any, k: Any) -> Any:
    """Put a code among the cheapest that hold k items, a heap with the largest cost first; drop what is not needed."""
    i = n
    while i > 0:
        parent = (i - 1) // 2
        if cost[parent] >= new_cost:
            break
        cost[i], size[i] = cost[parent], size[parent]
        i = parent
    cost[i], size[i] = new_cost, new_size
    n += 1
    within += new_size
    while within - size[0] >= k:
        within -= size[0]
        n -= 1
        cost[0], size[0] = cost[n], size[n]
        _sink(cost, size, np.int64(0), n)
    return n, within


@jit
def sort(keys: Any, along: Any, n: Any) -> None:
    """Sort the first n keys in place by heapsort, and what goes along with them, unless that is empty."""
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
def sort_ids(ids: Any, n: Any) -> None:
    """Sort the first n ids in place; many of them by their digits, from the lowest."""
    if n < MANY:
        sort(ids, np.empty(0, np.int32), n)
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
