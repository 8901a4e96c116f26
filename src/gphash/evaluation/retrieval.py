"""Rankings of a whole database for many queries, measured without ever holding a distance matrix.

Learned codes pile up in few buckets, so the database is kept as groups of equal (code, signature) with their counts:
exact, and much smaller than its rows. Queries rank it by Hamming distance; by expected Hamming distance
Σ_j P(bit_j ≠ b_j) when they keep their bit probabilities; or by P(similar) when they know those of their classes.
Blocks of queries run side by side.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.reading import DistanceReader, Reader
from gphash.compiled import alike_pair, jit, popcount
from gphash.evaluation.metrics import METRICS, harmonic_numbers, mean, rank
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.supervision.similarity import Signatures

QUERIES = 256  # per block, fewer if what is known of all codes would take more than BLOCK_BYTES
BLOCK_BYTES = 1 << 23
# Of a sort key: number of a code, and expected distance as a share of the bits, or how improbable it is to be similar.
INDEX_BITS, DISTANCE_BITS = 24, 38


class Database(NamedTuple):
    """Stored rows, grouped: the distinct codes in ascending order, packed and as words of 64 bits.

    Groups of code i are offsets[i]:offsets[i + 1]; each has a signature and a number of rows.
    """

    packed: NDArray[np.uint8]
    words: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    signatures: Signatures
    counts: NDArray[np.int64]
    n_rows: int


class Beliefs(NamedTuple):
    """What queries know of their classes or tags, [q, c], or of their bits, and what compares that with codes."""

    classes: Floats
    reader: Reader


class Queries(NamedTuple):
    """Codes to search for and their supervision; with `leave_one_out`, each is itself a row that does not count.

    Bit probabilities, [q, m], rank by expected distance; beliefs about classes by P(similar).
    """

    packed: NDArray[np.uint8]
    signatures: Signatures
    leave_one_out: bool = False
    probabilities: Floats | None = None
    beliefs: Beliefs | None = None


def beliefs(teller: Any, X: Any) -> Beliefs | None:
    """What a trained method knows of rows to compare them by P(similar); None if it cannot."""
    reader: Reader | None = getattr(teller, "reader_", None)
    if reader is None:
        return None
    known = teller.bit_probabilities if isinstance(reader, DistanceReader) else teller.predict_proba
    return Beliefs(np.asarray(known(X)), reader)


def store(packed: NDArray[np.uint8], signatures: Signatures) -> Database:
    """Group the rows of a database."""
    if len(packed) == 0 or len(packed) != len(signatures.masks):
        given = f"{len(packed)} codes and {len(signatures.masks)} signatures"
        raise ValueError(f"{given}; give one of each per row, at least one.")
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


def mean_average_precision(
    packed: NDArray[np.uint8], signatures: Signatures, n_bits: int, n_jobs: int | None = 1
) -> float:
    """Mean average precision by Hamming distance when every row is searched for among the others."""
    queries = Queries(packed, signatures, leave_one_out=True)
    return mean(measure(queries, store(packed, signatures), n_bits, n_jobs=n_jobs, names=["map"])["map"])


def measure(
    queries: Queries,
    database: Database,
    n_bits: int,
    radius: int = 2,
    depths: Sequence[int] = (),
    n_jobs: int | None = -1,
    names: Iterable[str] | None = None,
) -> dict[str, Floats]:
    """Measure rankings: values of every metric that applies, [q] or [q, k], by its name.

    Precision is measured within `radius`, if the ranking is by Hamming distance. `depths` are the k of the metrics at
    k, ascending; those beyond the database count as all of it. `names` are those of metrics; all of METRICS if None.
    Expected distances are rounded to multiples of m/2³⁸, and probabilities to multiples of 2⁻³⁸, so that what should be
    a tie is one.
    """
    n_codes, chances, beliefs = len(database.packed), queries.probabilities, queries.beliefs
    by_distance = chances is None and beliefs is None
    read = None if beliefs is None else beliefs.reader.read(database.packed)
    if not by_distance and n_codes >= 1 << INDEX_BITS:
        most = f"it must have fewer than {1 << INDEX_BITS:,} to be ranked by probabilities."
        raise ValueError(f"the database has {n_codes:,} distinct codes; {most}")
    wanted = METRICS.everything() if names is None else {name: METRICS.find(name) for name in names}
    n_candidates = database.n_rows - int(queries.leave_one_out)
    ends = np.minimum([*depths, n_candidates], n_candidates).astype(np.int64)
    harmonic, words = harmonic_numbers(n_candidates), packing.words(queries.packed)
    stored = database.words, database.offsets, database.signatures.masks, database.counts

    def measured(rows: slice) -> dict[str, Floats]:
        own = queries.signatures[rows]
        asked = words[rows], own.masks, *stored, own.exact, queries.leave_one_out
        n_ties = n_bits + 1 if by_distance else n_codes
        sizes, hits = (np.zeros((rows.stop - rows.start, n_ties), np.int64) for _ in range(2))
        if by_distance:
            _hamming_ties(*asked, sizes, hits)
        else:
            if beliefs is not None and read is not None:
                unlike = 2.0**DISTANCE_BITS * (1 - beliefs.reader.compare(beliefs.classes[rows], read))
                sizes[:] = (np.rint(unlike).astype(np.int64) << INDEX_BITS) | np.arange(n_codes)
            elif chances is not None:
                _keys(_byte_tables(chances[rows]), database.packed, 2.0**DISTANCE_BITS / n_bits, sizes)
            sizes.sort(axis=1)
            _sorted_ties(*asked, sizes, hits)
        ranking = rank(sizes, hits, ends, harmonic, radius if by_distance else None)
        values = {name: metric.measure(ranking) for name, metric in wanted.items()}
        return {name: value for name, value in values.items() if value is not None}

    block = int(np.clip(BLOCK_BYTES // (16 * n_codes), 1, QUERIES))
    with LocalExecutor(n_jobs) as executor:
        parts = list(executor.collect(measured, row_blocks(len(words), block)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _byte_tables(probabilities: Floats) -> Floats:
    """Expected distance that every value of every byte of a stored code adds, [q, bytes, 256]."""
    n_queries, n_bits = probabilities.shape
    n_bytes = -(-n_bits // 8)
    padded = np.zeros((n_queries, 8 * n_bytes))
    padded[:, :n_bits] = probabilities
    chance = padded.reshape(n_queries, n_bytes, 8)
    values = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)
    # P(bit ≠ b) is P for b = 0 and 1 − P for b = 1; spare bits are always 0 and add 0.
    return np.asarray(chance.sum(axis=2)[:, :, None] + (1 - 2 * chance) @ values.T)


@jit
def _hamming_ties(queries, own, words, offsets, masks, counts, exact, left_out, sizes, hits):  # type: ignore[no-untyped-def]
    for q in range(len(queries)):
        for code in range(len(words)):
            d = 0
            for w in range(words.shape[1]):
                d += int(popcount(queries[q, w] ^ words[code, w]))
            for g in range(offsets[code], offsets[code + 1]):
                sizes[q, d] += counts[g]
                if alike_pair(own[q], masks[g], exact):
                    hits[q, d] += counts[g]
        if left_out:
            sizes[q, 0] -= 1
            hits[q, 0] -= alike_pair(own[q], own[q], exact)


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
def _sorted_ties(queries, own, words, offsets, masks, counts, exact, left_out, sizes, hits):  # type: ignore[no-untyped-def]
    """Sizes of ties take the place of the sorted keys, which are never fewer: memory, not work, is what takes time."""
    for q in range(len(sizes)):
        tie, before = -1, -1
        for place in range(sizes.shape[1]):
            distance, code = sizes[q, place] >> INDEX_BITS, sizes[q, place] & ((1 << INDEX_BITS) - 1)
            if distance != before:
                tie, before = tie + 1, distance
                sizes[q, tie] = hits[q, tie] = 0
            for g in range(offsets[code], offsets[code + 1]):
                sizes[q, tie] += counts[g]
                if alike_pair(own[q], masks[g], exact):
                    hits[q, tie] += counts[g]
            if left_out:
                same = True
                for w in range(words.shape[1]):
                    same = same and words[code, w] == queries[q, w]
                if same:
                    sizes[q, tie] -= 1
                    hits[q, tie] -= alike_pair(own[q], own[q], exact)
        sizes[q, tie + 1 :] = 0
        hits[q, tie + 1 :] = 0
