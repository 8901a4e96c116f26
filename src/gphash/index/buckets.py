"""Codes as an index keeps them: distinct codes in ascending order, each with the ids that have it.

Learned codes pile up: a million rows may have ten thousand codes. Whatever is computed per code is computed once per
distinct code. Sorted codes that stand next to each other agree in many bits; for every block of them, the bits in which
all agree are noted, and they bound the distance of any query from the block.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 128  # codes that share one bound

Words = NDArray[np.unsignedinteger[Any]]
Ids = NDArray[np.signedinteger[Any]]


class Buckets(NamedTuple):
    """Distinct codes and their ids.

    Codes ascend: 16, 32 or 64-bit words [u] for codes that fit in one, else 64-bit words [u, w]. The first bit of a
    code is the highest bit of its first word. Ids of code i are ids[starts[i]:starts[i + 1]], ascending. `same` has the
    bits in which all codes of a block agree, and `value` what they are there, [b] or [b, w].
    """

    codes: Words
    starts: NDArray[Any]
    ids: Ids
    same: Words
    value: Words

    @property
    def n_items(self) -> int:
        """Number of ids."""
        return len(self.ids)


def word_type(n_bits: int) -> type[np.unsignedinteger[Any]]:
    """Smallest word that holds a code, 64 bits if none does."""
    return np.uint16 if n_bits <= 16 else np.uint32 if n_bits <= 32 else np.uint64


def to_words(packed: NDArray[np.uint8], n_bits: int) -> Words:
    """Packed codes, [n, bytes], as words whose order is that of the codes, [n] or [n, w]."""
    size = np.dtype(word_type(n_bits)).itemsize
    n_words = -(-n_bits // (8 * size))
    padded = np.zeros((len(packed), size * n_words), np.uint8)
    padded[:, : packed.shape[1]] = packed
    words = padded.view(np.dtype(word_type(n_bits)).newbyteorder(">")).astype(word_type(n_bits))
    return words[:, 0] if n_words == 1 else words


def to_packed(words: Words, n_bits: int) -> NDArray[np.uint8]:
    """Undo `to_words`."""
    table = words[:, None] if words.ndim == 1 else words
    octets = np.ascontiguousarray(table.astype(table.dtype.newbyteorder(">"))).view(np.uint8)
    return np.ascontiguousarray(octets[:, : -(-n_bits // 8)])


def group(words: Words, ids: Ids) -> Buckets:
    """Buckets of codes [n] or [n, w] with their ids [n]."""
    order = np.argsort(ids, kind="stable")
    columns = [words] if words.ndim == 1 else list(words.T)
    for column in reversed(columns):
        order = order[np.argsort(column[order], kind="stable")]
    words, ids = words[order], ids[order]
    new = np.ones(len(words), bool)
    if len(words):
        differs = words[1:] != words[:-1]
        new[1:] = differs if words.ndim == 1 else differs.any(axis=1)
    starts = np.append(np.flatnonzero(new), len(words))
    return build(words[new], starts, ids)


def build(codes: Words, starts: NDArray[Any], ids: Ids) -> Buckets:
    """Buckets from their parts, none of which can be written to: the compiled search knows arrays of one kind only."""
    small = np.uint32 if len(ids) < 2**32 else np.int64
    parts = np.ascontiguousarray(codes), starts.astype(small, copy=False), ids.astype(np.int64, copy=False)
    views = [np.asarray(part).view() for part in (*parts, *_summarise(codes))]
    for view in views:
        view.setflags(write=False)
    return Buckets(*views)


def empty(n_bits: int) -> Buckets:
    """No buckets at all."""
    return group(to_words(np.empty((0, -(-n_bits // 8)), np.uint8), n_bits), np.empty(0, np.int64))


def keep(buckets: Buckets, kept: NDArray[np.bool_]) -> Buckets:
    """The buckets with some of their items only; `kept` has a mark for every place in `ids`."""
    if kept.all():
        return buckets
    sizes = counts(buckets, kept)
    full = sizes > 0
    starts = np.concatenate([[0], np.cumsum(sizes[full])])
    return build(buckets.codes[full], starts, buckets.ids[kept])


def merge(*several: Buckets) -> Buckets:
    """All items of several sets of buckets."""
    full = [one for one in several if one.n_items] or [several[0]]
    if len(full) == 1:
        return full[0]
    return group(np.concatenate([spread(one) for one in full]), np.concatenate([one.ids for one in full]))


def spread(buckets: Buckets) -> Words:
    """The code of every item, in the order of `ids`."""
    return np.repeat(buckets.codes, sizes(buckets), axis=0)


def sizes(buckets: Buckets) -> NDArray[np.int64]:
    """How many items every bucket has, [u]."""
    starts = buckets.starts.astype(np.int64)
    found: NDArray[np.int64] = starts[1:] - starts[:-1]
    return found


def sums(buckets: Buckets, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of every bucket's amounts, [u], where the ids are places in `amounts`."""
    return np.add.reduceat(amounts[buckets.ids], buckets.starts[:-1].astype(np.int64)) if len(amounts) else amounts


def counts(buckets: Buckets, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many of every bucket's items are marked, [u]."""
    sums = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
    return np.diff(sums[buckets.starts.astype(np.int64)])


def fault(codes: Words, starts: NDArray[Any], ids: Ids, n_bits: int) -> str:
    """Why arrays of the right shapes are no buckets, on which the compiled search relies; nothing if they are."""
    if int(starts[0]) != 0 or int(starts[-1]) != len(ids) or not (starts[1:] > starts[:-1]).all():
        return "its starts do not divide its ids among its codes"
    if len(codes) and np.bitwise_or.reduce(codes if codes.ndim == 1 else codes[:, -1]) & _spare(n_bits):
        return f"its codes have more than {n_bits} bits"
    if not _ascend(codes):
        return "its codes are not in ascending order, each of them once"
    rises = ids[1:] > ids[:-1]
    rises[starts[1:-1].astype(np.int64) - 1] = True
    if not rises.all() or not _are_distinct(ids):
        return "its ids are not in ascending order within a code, each of them once"
    return ""


def _spare(n_bits: int) -> np.unsignedinteger[Any]:
    """The bits of a code's last word that no code has."""
    word = word_type(n_bits)
    return word((1 << (-n_bits % (8 * np.dtype(word).itemsize))) - 1)


def _ascend(codes: Words) -> bool:
    undecided = np.arange(len(codes) - 1)
    for column in codes[None] if codes.ndim == 1 else codes.T:
        if (column[undecided + 1] < column[undecided]).any():
            return False
        undecided = undecided[column[undecided + 1] == column[undecided]]
    return not len(undecided)


def _are_distinct(ids: Ids) -> bool:
    if not len(ids) or int(ids.max()) - (first := int(ids.min())) >= 8 * len(ids):
        return len(np.unique(ids)) == len(ids)
    seen = np.zeros(int(ids.max()) - first + 1, bool)  # nearly all ids are numbers of rows: quicker than to sort them
    seen[ids - first] = True
    return int(np.count_nonzero(seen)) == len(ids)


def _summarise(codes: Words) -> tuple[Words, Words]:
    """For every block, the bits that all its codes share, and one of the codes masked to them."""
    if not len(codes):
        return codes[:0], codes[:0]
    firsts = np.arange(0, len(codes), BLOCK)
    ones: Words = np.bitwise_and.reduceat(codes, firsts, axis=0)
    zeros: Words = ~np.bitwise_or.reduceat(codes, firsts, axis=0)
    return ones | zeros, ones
