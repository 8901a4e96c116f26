"""Rankings of a whole database for many queries, measured without ever holding a distance matrix.

Learned codes pile up in few buckets, so the database is kept as groups of equal (code, signature) with their counts:
exact, and much smaller than its rows. Queries rank it by Hamming distance, or by expected Hamming distance
Σ_j P(bit_j ≠ b_j) when they keep their bit probabilities; blocks of queries run side by side.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.coding.alike import alike_pair
from gphash.coding.similarity import Signatures
from gphash.compiled import jit
from gphash.evaluation.metrics import harmonic_numbers, mean, tie_precision
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.hamming import packing

Sides: TypeAlias = tuple[Any, Any, bool, Any, Any, Any, Any]

QUERIES = 256  # per block, fewer if the distances to all codes would take more than BLOCK_BYTES
BLOCK_BYTES = 1 << 26
INDEX_BITS, DISTANCE_BITS = 24, 38  # of a sort key: number of a code, and expected distance as a share of the bits


class Database(NamedTuple):
    """Stored rows, grouped.

    packed, words
        Distinct codes in ascending order, packed uint8 [u, bytes] and as uint64 [u, w].
    offsets
        Groups of code i are offsets[i]:offsets[i + 1], [u + 1].
    signatures, counts
        Signature and number of rows of every group, [g].
    n_rows
        All rows.
    """

    packed: NDArray[np.uint8]
    words: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    signatures: Signatures
    counts: NDArray[np.int64]
    n_rows: int


class Retrieval(NamedTuple):
    """Quality of rankings. Average precision and recall of a query that has nothing to find are NaN, left out of means.

    average_precision
        Of every query, [q].
    precision_within
        Of every query, within the Hamming radius, [q]; NaN when ranked by expected distance, which has no radius.
    average_precision_at, precision_at, recall_at
        Means over queries, for every depth asked for, [k].
    depths
        Those depths, at most the number of candidates, [k].
    """

    average_precision: Floats
    precision_within: Floats
    average_precision_at: Floats
    precision_at: Floats
    recall_at: Floats
    depths: NDArray[np.int64]


def store(packed: NDArray[np.uint8], signatures: Signatures) -> Database:
    """Group the rows of a database."""
    if len(packed) == 0 or len(packed) != len(signatures.masks):
        raise ValueError(
            f"{len(packed)} codes and {len(signatures.masks)} signatures; give one of each per row, at least one."
        )
    width = packed.shape[1]
    keys = np.concatenate([packed, signatures.masks.view(np.uint8)], axis=1)
    groups, counts = np.unique(keys, axis=0, return_counts=True)
    codes = groups[:, :width]
    first = np.flatnonzero(np.concatenate([[True], (codes[1:] != codes[:-1]).any(axis=1)]))
    masks = np.ascontiguousarray(groups[:, width:]).view(np.uint64)
    distinct = np.ascontiguousarray(codes[first])
    offsets = np.append(first, len(groups)).astype(np.int64)
    grouped = Signatures(masks, signatures.exact)
    return Database(distinct, packing.words(distinct), offsets, grouped, counts.astype(np.int64), len(packed))


def rank_by_hamming(
    packed: NDArray[np.uint8],
    signatures: Signatures,
    database: Database,
    n_bits: int,
    *,
    leave_one_out: bool = False,
    radius: int = 2,
    depths: Sequence[int] = (),
    n_jobs: int | None = -1,
) -> Retrieval:
    """Measure rankings by Hamming distance.

    Parameters
    ----------
    packed, signatures
        Codes and supervision of the queries.
    database
        What is ranked.
    n_bits
        Length of a code.
    leave_one_out
        Whether every query is itself a row of the database, to be left out of its own ranking.
    radius
        Of the ball for `precision_within`.
    depths
        The k of the metrics at k.
    n_jobs
        Threads.
    """
    words = packing.words(packed)

    def measure(rows: slice, depths: NDArray[np.int64], harmonic: Floats) -> Floats:
        found = np.empty((rows.stop - rows.start, 2 + 3 * len(depths)))
        _by_hamming(
            *_sides(words[rows], signatures[rows], database),
            n_bits,
            leave_one_out,
            radius,
            depths,
            harmonic,
            found,
        )
        return found

    return _measure(measure, len(packed), database, leave_one_out, depths, n_jobs)


def rank_by_expected(
    probabilities: Floats,
    packed: NDArray[np.uint8],
    signatures: Signatures,
    database: Database,
    *,
    leave_one_out: bool = False,
    depths: Sequence[int] = (),
    n_jobs: int | None = -1,
) -> Retrieval:
    """Measure rankings by expected Hamming distance of queries that keep their bit probabilities, [q, m].

    `packed` are the queries' own codes, by which each is left out of its ranking; see `rank_by_hamming` for the rest.
    Distances are rounded to multiples of m/2³⁸, so that what should be a tie is one.
    """
    words = packing.words(packed)
    n_codes, n_bits = len(database.packed), probabilities.shape[1]
    if n_codes >= 1 << INDEX_BITS:
        raise ValueError(f"the database has {n_codes:,} distinct codes; wanted are fewer than {1 << INDEX_BITS:,}.")

    def measure(rows: slice, depths: NDArray[np.int64], harmonic: Floats) -> Floats:
        found = np.empty((rows.stop - rows.start, 2 + 3 * len(depths)))
        keys = np.empty((len(found), n_codes), dtype=np.int64)
        _keys(_byte_tables(probabilities[rows]), database.packed, 2.0**DISTANCE_BITS / n_bits, keys)
        keys.sort(axis=1)
        _by_keys(
            keys,
            *_sides(words[rows], signatures[rows], database),
            leave_one_out,
            depths,
            harmonic,
            found,
        )
        return found

    return _measure(measure, len(packed), database, leave_one_out, depths, n_jobs)


def _sides(words: NDArray[np.uint64], signatures: Signatures, database: Database) -> Sides:
    """Queries and database as the kernels take them."""
    stored = database.words, database.offsets, database.signatures.masks, database.counts
    return words, signatures.masks, signatures.exact, *stored


def _measure(
    measure: Callable[[slice, NDArray[np.int64], Floats], Floats],
    n_queries: int,
    database: Database,
    leave_one_out: bool,
    depths: Sequence[int],
    n_jobs: int | None,
) -> Retrieval:
    """Run blocks of queries and put their results together."""
    n_candidates = database.n_rows - int(leave_one_out)
    wanted = np.minimum(np.asarray(depths, dtype=np.int64), n_candidates)
    order = np.argsort(wanted, kind="stable")
    ascending, harmonic = wanted[order], harmonic_numbers(max(n_candidates, 0))
    block = int(np.clip(BLOCK_BYTES // (8 * max(len(database.packed), 1)), 1, QUERIES))
    with LocalExecutor(n_jobs) as executor:
        parts = list(executor.collect(lambda rows: measure(rows, ascending, harmonic), row_blocks(n_queries, block)))
    found = np.concatenate(parts) if parts else np.empty((0, 2 + 3 * len(wanted)))
    at = np.empty((3, len(wanted)))
    at[:, order] = np.array([mean(column) for column in found[:, 2:].T]).reshape(3, len(wanted))
    return Retrieval(found[:, 0], found[:, 1], at[0], at[1], at[2], wanted)


def _byte_tables(probabilities: Floats) -> Floats:
    """Expected distance that every value of every byte of a stored code adds, [q, bytes, 256]."""
    n_queries, n_bits = probabilities.shape
    n_bytes = -(-n_bits // 8)
    padded = np.zeros((n_queries, 8 * n_bytes))
    padded[:, :n_bits] = probabilities
    chance = padded.reshape(n_queries, n_bytes, 8)
    values = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)
    # P(bit ≠ b) is P for b = 0 and 1 − P for b = 1; spare bits are always 0 and add 0.
    tables: Floats = chance.sum(axis=2)[:, :, None] + (1 - 2 * chance) @ values.T
    return tables


@jit(inline="always")
def _ones(word):  # type: ignore[no-untyped-def]
    """Number of bits set in a 64-bit word; LLVM knows this pattern as one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def _write(sizes, hits, within, depths, harmonic, found):  # type: ignore[no-untyped-def]
    """Fill one query's row of results from the ties of its ranking; depths ascend, so that one walk serves them all."""
    relevant = 0
    for tie in range(len(sizes)):
        relevant += hits[tie]
    k = len(depths)
    total = 0.0
    a = 0
    b = 0
    at = 0
    for tie in range(len(sizes)):
        n = sizes[tie]
        r = hits[tie]
        while at < k and depths[at] <= a + n:
            q = depths[at] - a
            hit = b + r * q / n if n > 0 else b
            sum_here = total + tie_precision(n, r, a, b, q, harmonic)
            found[2 + at] = sum_here / max(min(relevant, depths[at]), 1)
            found[2 + k + at] = hit / max(depths[at], 1)
            found[2 + 2 * k + at] = hit / max(relevant, 1)
            at += 1
        total += tie_precision(n, r, a, b, n, harmonic)
        a += n
        b += r
    found[0] = total / max(relevant, 1)
    found[1] = within
    if relevant == 0:
        # Nothing to find: precision is 0, but average precision and recall are shares of nothing.
        found[0] = np.nan
        found[2 : 2 + k] = np.nan
        found[2 + 2 * k :] = np.nan


@jit
def _by_hamming(queries, own, exact, words, offsets, masks, counts, n_bits, left_out, radius, depths, harmonic, found):  # type: ignore[no-untyped-def]
    sizes, hits = np.zeros(n_bits + 1, np.int64), np.zeros(n_bits + 1, np.int64)
    for q in range(len(queries)):
        sizes[:] = 0
        hits[:] = 0
        for code in range(len(words)):
            d = 0
            for w in range(words.shape[1]):
                d += _ones(queries[q, w] ^ words[code, w])
            for g in range(offsets[code], offsets[code + 1]):
                sizes[d] += counts[g]
                if alike_pair(own[q], masks[g], exact):
                    hits[d] += counts[g]
        if left_out:
            sizes[0] -= 1
            hits[0] -= alike_pair(own[q], own[q], exact)
        inside = sizes[: radius + 1].sum()
        within = hits[: radius + 1].sum() / inside if inside > 0 else 0.0
        _write(sizes, hits, within, depths, harmonic, found[q])


@jit
def _keys(tables, packed, scale, keys):  # type: ignore[no-untyped-def]
    """Distance of every query to every code as an integer, the code's number in the low bits: one sort for both."""
    for q in range(len(keys)):
        for code in range(len(packed)):
            total = 0.0
            for b in range(packed.shape[1]):
                total += tables[q, b, packed[code, b]]
            # To the nearest, as sums are whole numbers but for rounding when bits are certain.
            keys[q, code] = (np.int64(total * scale + 0.5) << INDEX_BITS) | code


@jit
def _by_keys(keys, queries, own, exact, words, offsets, masks, counts, left_out, depths, harmonic, found):  # type: ignore[no-untyped-def]
    n_codes = keys.shape[1]
    sizes, hits = np.empty(n_codes, np.int64), np.empty(n_codes, np.int64)
    for q in range(len(keys)):
        tie = -1
        for place in range(n_codes):
            code = keys[q, place] & ((1 << INDEX_BITS) - 1)
            if place == 0 or keys[q, place] >> INDEX_BITS != keys[q, place - 1] >> INDEX_BITS:
                tie += 1
                sizes[tie] = 0
                hits[tie] = 0
            for g in range(offsets[code], offsets[code + 1]):
                sizes[tie] += counts[g]
                if alike_pair(own[q], masks[g], exact):
                    hits[tie] += counts[g]
            if left_out:
                same = True
                for w in range(words.shape[1]):
                    same = same and words[code, w] == queries[q, w]
                if same:
                    sizes[tie] -= 1
                    hits[tie] -= alike_pair(own[q], own[q], exact)
        _write(sizes[: tie + 1], hits[: tie + 1], np.nan, depths, harmonic, found[q])
