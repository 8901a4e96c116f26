"""Which codes of a store to look at: parts of a code for a Hamming radius, whole codes for an expected distance.

A code is cut into parts of about 16 bits. A code within radius r of a query differs in at most r // s bits in one of
its s parts, so all that is near is found by looking up, for every part, the values within that of the query's part. A
code of up to 16 bits is one part, and the values are those of a ball.
"""

import heapq
import itertools
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.hamming import packing
from gphash.stores.wire import Octets

PART = 16  # bits
CLUSTERED = 4  # times as many codes share a part with a query as would if codes were random
WORTH = 8  # codes read in order take as long as one that is looked up
SHARED = 4  # items a code, from which on codes are read rather than items
LEAST, SHARE, MOST = 64, 64, 1 << 13  # codes probed for an expected distance: at least, one in so many, at most


class Part(NamedTuple):
    """Neighbouring bits of a code: the first one, and how many."""

    start: int
    length: int


def parts(n_bits: int) -> list[Part]:
    """Parts of a code, as equal in length as can be."""
    ends = np.linspace(0, n_bits, -(-n_bits // PART) + 1).astype(int).tolist()
    return [Part(first, last - first) for first, last in itertools.pairwise(ends)]


def reaches(radius: int, n_parts: int) -> list[int]:
    """How far every part may be off, −1 for not at all, so that nothing within the radius is missed."""
    least, rest = divmod(radius, n_parts)
    return [least if number <= rest else least - 1 for number in range(n_parts)]


def values(bits: NDArray[np.uint8], radius: int, n_bits: int) -> list[NDArray[np.int64]]:
    """For every part of a query's bits, [m], the values to look up, as numbers whose highest digit is the first bit."""
    found = []
    split = parts(n_bits)
    for part, reach in zip(split, reaches(radius, len(split)), strict=True):
        own = int("".join(map(str, bits[part.start : part.start + part.length].tolist())), 2)
        found.append(own ^ _masks(part.length, reach))
    return found


def steps(n_bits: int, n_codes: int, n_items: int, k: int) -> list[int]:
    """Radii to try one after the other for k items before all are looked at; each is the furthest for its effort."""
    split = parts(n_bits)
    radii = range(len(split) - 1, n_bits, len(split))
    return [radius for radius in radii if is_worth_it(radius, n_bits, n_codes) and _held(radius, n_bits, n_items) >= k]


def _held(radius: int, n_bits: int, n_items: int) -> float:
    """About how many items share a part that is looked up; fewer of them are as near as that."""
    split = parts(n_bits)
    looked_up = zip(split, reaches(min(radius, n_bits), len(split)), strict=True)
    return sum(len(_masks(part.length, reach)) * CLUSTERED * n_items / (1 << part.length) for part, reach in looked_up)


def is_worth_it(radius: int, n_bits: int, n_codes: int) -> bool:
    """Whether looking values of parts up is quicker than reading all codes."""
    effort = 0.0
    split = parts(n_bits)
    for part, reach in zip(split, reaches(min(radius, n_bits), len(split)), strict=True):
        looked_up = len(_masks(part.length, reach))
        effort += looked_up * (1 + CLUSTERED * n_codes / 2**part.length)
    return WORTH * effort <= n_codes


def is_shared(n_codes: int, n_items: int) -> bool:
    """Whether so many items share a code that reading all codes, then items, is quicker than reading all items."""
    return SHARED * n_codes <= n_items


def budget(n_codes: int) -> int:
    """How many codes to probe for an expected distance before all codes are ranked."""
    return min(LEAST + n_codes // SHARE, MOST)


def levels(mode: Octets, weights: NDArray[np.int64], most: int) -> Iterator[tuple[int, Octets]]:
    """Costs, ascending, and all packed codes that cost as much, until `most` codes have been named.

    Parameters
    ----------
    mode
        The likeliest code, packed, [bytes].
    weights
        What it costs when a bit differs from it, [m].
    most
        A level that would go beyond is left out.
    """
    order = np.argsort(weights, kind="stable")
    costs = weights[order].tolist()
    bits = packing.unpack(mode[None], len(weights))[0]
    # Every set of flipped bits comes once: the last flipped bit moves on, or the next one is flipped as well.
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting:
        cost = waiting[0][0]
        flips: list[tuple[int, ...]] = []
        while waiting and waiting[0][0] == cost:
            if len(flips) == most:
                return
            _, places = heapq.heappop(waiting)
            flips.append(places)
            last = places[-1] if places else -1
            if last + 1 < len(costs):
                heapq.heappush(waiting, (cost + costs[last + 1], (*places, last + 1)))
                if places:
                    moved = cost - costs[last] + costs[last + 1]
                    heapq.heappush(waiting, (moved, (*places[:-1], last + 1)))
        most -= len(flips)
        flipped = np.repeat(bits[None], len(flips), axis=0)
        for row, places in enumerate(flips):
            flipped[row, order[list(places)]] ^= 1
        yield cost, packing.pack(flipped)


@cache
def _masks(length: int, reach: int) -> NDArray[np.int64]:
    """Numbers of some bits with at most so many ones, fewest first."""
    numbers = np.arange(2**length)
    ones = np.bitwise_count(numbers)
    return numbers[np.argsort(ones, kind="stable")][: np.count_nonzero(ones <= reach)]
