"""Which codes are near each other: distinct codes, joined with themselves.

Codes that differ in at most r bits agree in at least one of r + 1 pieces. So codes are grouped by one piece after
another, and only those of a group are compared; a pair that agrees in an earlier piece was found there. Where pieces
would be so short that this gains nothing, all codes are compared with all.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.reading import Reader
from gphash.compiled import jit, popcount
from gphash.index import buckets as bucketing
from gphash.index.buckets import Buckets

MOST = 50_000_000  # pairs that are kept
BLOCK = 1 << 22  # comparisons, or pairs of items, between two looks at what was found
READ = 1 << 14  # codes that are read at a time


class CodePairs(NamedTuple):
    """Pairs of distinct codes by their places, first ≤ second, ascending, [p]; with itself, if its items count."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]

    def only(self, kept: NDArray[Any]) -> "CodePairs":
        """Some of them."""
        return CodePairs(self.first[kept], self.second[kept])


class TooManyPairsError(ValueError):
    """There are more pairs than anybody could look at."""

    def __init__(self, what: str) -> None:
        super().__init__(f"there are more than {MOST:,} pairs of {what}; ask for nearer ones.")


def near(packed: NDArray[np.uint8], n_bits: int, radius: int) -> CodePairs:
    """Pairs of distinct codes, packed [u, bytes], that differ in at most `radius` bits; every code with itself."""
    words, masks = packing.words(packed), _pieces(n_bits, radius)
    room = np.empty((2, max(BLOCK, len(words))), np.int32)
    found, total = [np.tile(np.arange(len(words), dtype=np.int32), (2, 1))], len(words)
    for piece in range(len(masks) if radius else 0):
        order, ends = _groups(words & masks[piece])
        upto = np.cumsum(ends - np.arange(len(ends)) - 1)
        start = 0
        while start < len(order):
            before = upto[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(upto, before + BLOCK, side="right")))
            n = _compare(words, order, ends, start, stop, masks, piece, radius, room)
            found.append(np.sort(room[:, :n], axis=0))
            start, total = stop, total + n
            if total > MOST:
                raise TooManyPairsError("codes")
    first, second = np.concatenate(found, axis=1)
    ascending = np.lexsort((second, first))
    return CodePairs(first[ascending], second[ascending])


def similar(reader: Reader, packed: NDArray[np.uint8], least: float) -> CodePairs:
    """Pairs of distinct codes whose items are similar with at least this probability; codes alone say so."""
    read = reader.read(packed)
    height = max(1, BLOCK // max(1, len(read)))
    found, total = [np.empty((2, 0), np.int32)], 0
    for start in range(0, len(read), height):
        rows, columns = np.nonzero(reader.compare(read[start : start + height], read[start:]) >= least)
        here = columns >= rows
        found.append(np.stack([rows[here], columns[here]]).astype(np.int32) + np.int32(start))
        total += int(here.sum())
        if total > MOST:
            raise TooManyPairsError("codes")
    return CodePairs(*np.concatenate(found, axis=1))


def probabilities(reader: Reader, first: NDArray[np.uint8], second: NDArray[np.uint8]) -> Floats:
    """P(similar) of items with one code and items with another, [p], by codes alone."""
    found = np.empty(len(first))
    for start in range(0, len(first), READ):
        here = slice(start, start + READ)
        found[here] = reader.match(reader.read(first[here]), reader.read(second[here]))
    return found


def items_of(pairs: CodePairs, buckets: Buckets) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of items, as places in `buckets.ids`, many at a time: all of one code with all of the other."""
    starts, sizes = buckets.starts.astype(np.int64), bucketing.sizes(buckets)
    upto = np.concatenate([[0], np.cumsum(sizes[pairs.first] * sizes[pairs.second])])
    for start in range(0, int(upto[-1]), BLOCK):
        places = np.arange(start, min(start + BLOCK, int(upto[-1])))
        pair = np.searchsorted(upto, places, side="right") - 1
        row, column = np.divmod(places - upto[pair], sizes[pairs.second[pair]])
        left, right = starts[pairs.first[pair]] + row, starts[pairs.second[pair]] + column
        here = left < right  # of a code with itself, every pair once
        yield left[here], right[here]


def count_items(pairs: CodePairs, buckets: Buckets) -> int:
    """How many pairs of items there are."""
    sizes, same = bucketing.sizes(buckets), pairs.first == pairs.second
    of_same = sizes[pairs.first[same]]
    apart = sizes[pairs.first[~same]] * sizes[pairs.second[~same]]
    return int(apart.sum()) + int((of_same * (of_same - 1) // 2).sum())


def clusters(pairs: CodePairs, buckets: Buckets) -> list[NDArray[np.int64]]:
    """Ids of items that pairs of their codes connect, ascending; the largest cluster first, then by the first id."""
    n_codes = len(buckets.codes)
    part = components(n_codes, pairs.first, pairs.second)
    joined = np.zeros(n_codes, bool)  # a code that is not even near itself, nor near another, has no cluster
    joined[pairs.first] = joined[pairs.second] = True
    kept = np.repeat(joined, bucketing.sizes(buckets))
    return grouped(np.repeat(part, bucketing.sizes(buckets))[kept], buckets.ids[kept])


def components(n: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int64]:
    """The connected component of each of n things, of which some pairs are connected."""
    edges = sparse.coo_array((np.ones(len(first), np.int8), (first, second)), (n, n))
    return np.asarray(csgraph.connected_components(edges, directed=False)[1], np.int64)


def grouped(part: NDArray[np.int64], ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Ids of the same part, ascending, if there are several; the largest group first, then by the first id."""
    order = np.lexsort((ids, part))
    part, ids = part[order], ids[order]
    cuts = np.flatnonzero(part[1:] != part[:-1]) + 1
    several = [group for group in np.split(ids, cuts) if len(group) > 1]
    return sorted(several, key=lambda group: (-len(group), int(group[0])))


def _pieces(n_bits: int, radius: int) -> NDArray[np.uint64]:
    """Masks of the pieces of a code, [pieces, words]; one empty piece, in which all codes agree, if they are short."""
    n_pieces = radius + 1
    if n_pieces >= 2 ** min(n_bits // n_pieces, 32):
        return packing.words(np.zeros((1, -(-n_bits // 8)), np.uint8))
    owner = np.arange(n_bits) * n_pieces // n_bits
    return packing.words(np.packbits(owner == np.arange(n_pieces)[:, None], axis=1))


def _groups(masked: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of codes in the order of what is left of them, and for each the end of its group in this order."""
    order = np.lexsort(masked.T)
    values = masked[order]
    cuts = np.append(np.flatnonzero((values[1:] != values[:-1]).any(axis=1)) + 1, len(values))
    return order, cuts[np.searchsorted(cuts, np.arange(len(values)), side="right")]


@jit
def _compare(
    words: Any, order: Any, ends: Any, start: Any, stop: Any, masks: Any, piece: Any, radius: Any, found: Any
) -> Any:
    """Pairs of some codes and those that follow them in their groups, which are near and agree in no earlier piece."""
    n = 0
    for place in range(start, stop):
        one = order[place]
        for other_place in range(place + 1, ends[place]):
            other = order[other_place]
            apart = np.int64(0)
            for w in range(words.shape[1]):
                apart += np.int64(popcount(words[one, w] ^ words[other, w]))
            if apart > radius:
                continue
            is_new = True
            for earlier in range(piece):
                agree = True
                for w in range(words.shape[1]):
                    agree = agree and (words[one, w] ^ words[other, w]) & masks[earlier, w] == 0
                is_new = is_new and not agree
            if is_new:
                found[0, n], found[1, n] = one, other
                n += 1
    return n
