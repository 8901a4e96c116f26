"""`HammingIndex`: exact search among packed codes, by Hamming or by expected Hamming distance."""

import contextlib
import heapq
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.execution.local import row_blocks, side_by_side
from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index import checks, engines, filters, journal, scan, storage
from gphash.index.buckets import Buckets, Words
from gphash.index.filters import Allowed, Filter

QUERIES = 32  # per unit of parallel work
SMALL, SHARE = 1024, 8  # recent items are folded in beyond so many, or this part of all


class Neighbours(NamedTuple):
    """The nearest items of every query.

    ids
        In the order of (distance, id), int64 [q, k].
    distances
        int64, or float64 if expected, [q, k].
    """

    ids: NDArray[np.int64]
    distances: NDArray[Any]


class Ball(NamedTuple):
    """Everything within a radius of every query.

    offsets
        Items of query i are at offsets[i]:offsets[i + 1], [q + 1].
    ids, distances
        In the order of (distance, id) for every query, int64 and int32.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    distances: NDArray[np.int32]


class Stats(NamedTuple):
    """What an index holds.

    n_items, n_codes
        Items, and distinct codes among them.
    largest_bucket, mean_bucket
        Items that share a code.
    bytes
        Memory, or mapped file, that codes and ids take.
    """

    n_items: int
    n_codes: int
    largest_bucket: int
    mean_bucket: float
    bytes: int


class Part(NamedTuple):
    """Buckets, and which of their items have not been removed.

    buckets
        As built.
    alive
        A mark for every place in `buckets.ids`; empty if none was removed.
    """

    buckets: Buckets
    alive: NDArray[np.bool_]


class HammingIndex:
    """Exact search among packed codes; made by `build` or `open`.

    Distinct codes are stored once, in ascending order, with the ids that have them. Results are ordered by distance
    and, at equal distance, by id, so that they never depend on the order in which items came.
    """

    def __init__(
        self, parts: list[Part], n_bits: int, model: str | None = None, place: "storage.Place | None" = None
    ) -> None:
        self.n_bits = n_bits
        self.model = model
        self._parts = parts
        self._place = place
        self._version = 0
        self._known: NDArray[np.int64] | None = None

    @classmethod
    def build(
        cls, packed: ArrayLike, ids: ArrayLike | None = None, *, n_bits: int | None = None, model: Any = None
    ) -> Self:
        """Index packed codes.

        Parameters
        ----------
        packed : uint8 array of shape [n, ceil(n_bits / 8)]
            Codes, as `encode` gives them.
        ids : integers [n]
            Distinct; 0, 1, … if None.
        n_bits : int
            Length of a code; all bits of the bytes if None.
        model : hasher or str
            What made the codes, or its fingerprint; codes of another one are then refused.
        """
        octets = np.asarray(packed)
        if n_bits is None:
            n_bits = 8 * octets.shape[1] if octets.ndim == 2 else 0
        words = checks.words(octets, n_bits, "packed")
        numbers = checks.distinct_ids(ids, len(words)) if ids is not None else np.arange(len(words))
        return cls([Part(bucketing.group(words, numbers), _ALL)], int(n_bits), fingerprint_of(model))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open an index that `save` wrote; codes and ids stay in the file until they are used.

        A reader keeps what it has opened, whatever a writer does meanwhile; open again to see more.

        Parameters
        ----------
        path
            The file; its journal is beside it.
        writable
            Whether items may be added and removed. There can be one writer at a time.
        """
        opened = storage.open_index(path, writable)
        try:
            index = cls([Part(opened.buckets, _ALL)], opened.n_bits, opened.model, opened.place)
            index._replay(opened.changes)
        except BaseException:
            opened.place.close()
            raise
        return index

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the index to one file, whole or not at all, and return the file's fingerprint."""
        if self._place is not None and self._place.is_at(path):
            self._place.check_writable()
            return self.compact()
        return storage.save_index(path, self._compact(), self.n_bits, self.model)

    def compact(self) -> str:
        """Fold the journal into the file, which is replaced by a complete one; returns its fingerprint."""
        if self._place is None:
            raise ValueError("the index has no file; save(path) writes one.")
        self._place.check_writable()
        mark = self._place.replace(self._compact(), self.n_bits, self.model)
        self._parts = [Part(self._place.buckets(), _ALL)]
        self._version += 1
        return mark

    def close(self) -> None:
        """Give the file free for another writer; everything acknowledged is on disk already."""
        if self._place is not None:
            self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(_count(part) for part in self._parts)

    def __repr__(self) -> str:
        stats = self.stats()
        return f"HammingIndex({stats.n_items:,} items, {stats.n_codes:,} distinct codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        if self._known is None:
            self._known = np.sort(np.concatenate([_living(part) for part in self._parts]))
        return self._known

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending.

        Returns
        -------
        packed
            Their codes, [n, ceil(n_bits / 8)].
        ids
            [n].
        """
        whole = self._compact()
        ids = whole.ids.astype(np.int64)
        order = np.argsort(ids)
        return bucketing.to_packed(bucketing.spread(whole)[order], self.n_bits), ids[order]

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets, and how much memory they take."""
        sizes = np.concatenate([_sizes(part) for part in self._parts])
        sizes = sizes[sizes > 0]
        taken = sum(array.nbytes for part in self._parts for array in (*part.buckets, part.alive))
        largest, mean = (int(sizes.max()), float(sizes.mean())) if len(sizes) else (0, 0.0)
        return Stats(int(sizes.sum()), len(sizes), largest, mean, taken)

    def filter(self, allowed: Allowed) -> Filter:
        """Work out a filter once, for many searches; it holds until items are added or removed."""
        return filters.resolve(allowed, self.ids, self._version)

    def search(
        self,
        packed: ArrayLike,
        k: int = 10,
        *,
        allowed: Allowed | None = None,
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Neighbours:
        """The k nearest items of every query, ordered by (Hamming distance, id).

        Parameters
        ----------
        packed : uint8 array of shape [q, ceil(n_bits / 8)]
            Query codes.
        k : int
            How many; fewer columns come back if there are fewer items.
        allowed : boolean mask in the order of `ids`, ids, `Where(labels, value)`, or what `filter` gave
            Which items may be returned; all if None.
        model : hasher or str
            What made the query codes; refused if the index holds codes of another.
        n_jobs : int or None
            Threads for more than a few queries; −1 for all cores.
        """
        self._check_model(model)
        queries = _queries(checks.words(np.asarray(packed), self.n_bits, "packed"))

        def run(part: Part, marks: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
            scan.search_many(_arrays(part.buckets, *marks), queries[rows], k, self.n_bits, ids[rows], costs[rows])

        return Neighbours(*self._nearest(run, len(queries), k, allowed, n_jobs))

    def search_expected(
        self,
        probabilities: ArrayLike,
        k: int = 10,
        *,
        allowed: Allowed | None = None,
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Neighbours:
        """The k nearest items by expected Hamming distance, for queries that keep their bit probabilities.

        Parameters
        ----------
        probabilities : array of shape [q, n_bits]
            P(bit = 1), as `bit_probabilities` gives it. Distances are exact to 2⁻⁴⁰ per bit.
        k, allowed, model, n_jobs
            As for `search`.
        """
        self._check_model(model)
        certain, weights, modes = self._uncertain(probabilities)

        def run(part: Part, marks: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
            scan.search_many_expected(
                _arrays(part.buckets, *marks), modes[rows], weights[rows], k, ids[rows], costs[rows]
            )

        ids, costs = self._nearest(run, len(modes), k, allowed, n_jobs)
        return Neighbours(ids, certain[:, None] + costs * scan.UNIT)

    def within(
        self,
        packed: ArrayLike,
        radius: int = 2,
        *,
        allowed: Allowed | None = None,
        model: Any = None,
        n_jobs: int | None = -1,
    ) -> Ball:
        """Everything within a Hamming radius of every query, never cut off.

        Parameters
        ----------
        packed : uint8 array of shape [q, ceil(n_bits / 8)]
            Query codes.
        radius : int
            Largest distance.
        allowed, model, n_jobs
            As for `search`.
        """
        self._check_model(model)
        checks.whole("radius", radius, 0)
        queries = _queries(checks.words(np.asarray(packed), self.n_bits, "packed"))
        reach = min(int(radius), self.n_bits)
        parts = self._marked(allowed)

        balls = [self._ball(arrays, queries, reach, n_jobs) for arrays in parts]
        return balls[0] if len(balls) == 1 else _together(balls)

    def rank(self, packed: ArrayLike, *, n_jobs: int | None = -1) -> Neighbours:
        """All items for every query, ordered by (Hamming distance, id)."""
        return self.search(packed, max(len(self), 1), n_jobs=n_jobs)

    def probe(self, probabilities: ArrayLike, *, allowed: Allowed | None = None) -> Iterator[tuple[int, float]]:
        """Items of one query, nearest first by expected distance, until the caller stops.

        Codes are visited in the order of their expected distance: the likeliest one first, then with its least certain
        bits flipped. When that has met mostly codes that nobody has, the rest is ranked at once.

        Parameters
        ----------
        probabilities : array of shape [n_bits]
            P(bit = 1); for a certain code, 0 and 1.
        allowed
            As for `search`.
        """
        chances = np.asarray(probabilities)[None]
        if chances.ndim != 2:
            raise ValueError(f"probabilities has shape {chances.shape[1:]}; give P(bit = 1) of one, [{self.n_bits}].")
        certain, weights, modes = self._uncertain(chances)
        allowed = None if allowed is None else self.filter(allowed)
        seen, version = 0, self._version
        for cost, ids in self._probes(modes[0], weights[0], allowed):
            for number in ids:
                yield int(number), float(certain[0] + cost * scan.UNIT)
            seen += len(ids)
        if self._version != version:
            raise RuntimeError("the index changed while it was being probed; probe it again.")
        rest = self.search_expected(chances, max(len(self), 1), allowed=allowed, n_jobs=1)
        for number, distance in zip(rest.ids[0, seen:], rest.distances[0, seen:], strict=True):
            yield int(number), float(distance)

    def add(self, packed: ArrayLike, ids: ArrayLike, *, model: Any = None) -> None:
        """Add items with new ids.

        Parameters
        ----------
        packed : uint8 array of shape [n, ceil(n_bits / 8)]
            Their codes.
        ids : integers [n]
            Distinct, and none of them in the index.
        model : hasher or str
            What made the codes; refused if the index holds codes of another.
        """
        self._check_model(model)
        self._check_writable()
        words = checks.words(np.asarray(packed), self.n_bits, "packed")
        numbers = checks.distinct_ids(ids, len(words))
        self._refuse_known(numbers)
        if self._place is not None and len(numbers):
            self._place.append(journal.ADD, numbers, bucketing.to_packed(words, self.n_bits))
        self._insert(words, numbers)
        self._fold()

    def remove(self, ids: ArrayLike) -> int:
        """Remove items, and return how many there were; ids that are not in the index are passed over."""
        self._check_writable()
        numbers = np.unique(checks.distinct_ids(ids, None))
        numbers = numbers[np.isin(numbers, self.ids, assume_unique=True)]
        if self._place is not None and len(numbers):
            self._place.append(journal.REMOVE, numbers, None)
        removed = self._delete(numbers)
        self._fold()
        return removed

    def _fold(self) -> None:
        """Compact the file when its journal has grown large beside it."""
        if self._place is not None and self._place.is_overgrown():
            # The change that led here is on disk already, and must not look as if it had failed.
            with contextlib.suppress(OSError):
                self.compact()

    def to_faiss(self) -> Any:
        """The same items in a faiss index: an IDMap over the exact IndexBinaryFlat; see docs/engines.md."""
        return engines.to_faiss(self)

    def to_sql(self, dialect: "engines.Dialect", table: str = "items") -> "engines.Sql":
        """Statements, rows and the two queries for PostgreSQL, pgvector, SQLite or DuckDB; see docs/engines.md."""
        return engines.to_sql(self, dialect, table)

    def _refuse_known(self, numbers: NDArray[np.int64]) -> None:
        known = self.ids
        places = np.minimum(np.searchsorted(known, numbers), max(len(known) - 1, 0))
        if len(known) and (there := known[places] == numbers).any():
            raise ValueError(
                f"ids has {int(numbers[there][0])}, which is in the index already ({int(there.sum())} such); "
                "remove it first, or give another id."
            )

    def _insert(self, words: Words, numbers: NDArray[np.int64]) -> None:
        base, recent = self._parts[0], self._parts[1:]
        fresh = bucketing.group(words, numbers)
        for part in recent:
            fresh = bucketing.merge(_compacted(part), fresh)
        if fresh.n_items > max(SMALL, base.buckets.n_items // SHARE):
            self._parts = [Part(bucketing.merge(_compacted(base), fresh), _ALL)]
        else:
            self._parts = [base, Part(fresh, _ALL)]
        if self._known is not None:
            new = np.sort(numbers)
            self._known = np.insert(self._known, np.searchsorted(self._known, new), new)
        self._version += 1

    def _replay(self, changes: list[tuple[int, NDArray[np.int64], NDArray[np.uint8]]]) -> None:
        """Make the changes of a journal, all at once: what counts of every id is the last that befell it."""
        if not changes:
            return
        numbers = np.concatenate([ids for _, ids, _ in changes])
        added = np.concatenate([np.full(len(ids), kind == journal.ADD) for kind, ids, _ in changes])
        packed = np.concatenate([codes for _, _, codes in changes])
        self._delete(numbers[~added])
        _, last = np.unique(numbers[::-1], return_index=True)
        last = len(numbers) - 1 - last
        last = last[added[last]]
        rows = np.cumsum(added)[last] - 1
        self._insert(bucketing.to_words(packed[rows], self.n_bits), numbers[last])

    def _delete(self, numbers: NDArray[np.int64]) -> int:
        removed, parts = 0, []
        for part in self._parts:
            hit = np.isin(part.buckets.ids, numbers)
            alive = part.alive if len(part.alive) else np.ones(len(hit), bool)
            removed += int((hit & alive).sum())
            parts.append(Part(part.buckets, alive & ~hit) if hit.any() else part)
        self._parts = parts
        if self._known is not None:
            self._known = self._known[~np.isin(self._known, numbers)]
        self._version += 1
        return removed

    def _compact(self) -> Buckets:
        """All living items as one set of buckets."""
        whole = _compacted(self._parts[0])
        for part in self._parts[1:]:
            whole = bucketing.merge(whole, _compacted(part))
        return whole

    def _check_writable(self) -> None:
        if self._place is not None:
            self._place.check_writable()

    def _check_model(self, model: Any) -> None:
        given = fingerprint_of(model)
        if given is not None and self.model is not None and given != self.model:
            raise ValueError(
                f"model has the fingerprint {given[:12]}…, but the index holds codes of the model {self.model[:12]}…; "
                "codes of two models have nothing to do with each other."
            )

    def _uncertain(self, probabilities: ArrayLike) -> tuple[Floats, NDArray[np.int64], Words]:
        """What cannot be helped, costs of the bits, and likeliest codes of uncertain queries."""
        chances = np.asarray(probabilities)
        if chances.ndim != 2 or chances.shape[1] != self.n_bits:
            raise ValueError(f"probabilities has shape {chances.shape}; give P(bit = 1), [q, {self.n_bits}].")
        if chances.dtype.kind not in "fiub" or not ((chances >= 0) & (chances <= 1)).all():
            raise ValueError("probabilities holds NaN or values outside of 0 to 1; give P(bit = 1) for every bit.")
        chances = chances.astype(np.float64)
        weights = np.rint(np.abs(1 - 2 * chances) / scan.UNIT).astype(np.int64)
        modes = bucketing.to_words(packing.pack(chances >= 0.5), self.n_bits)
        return np.minimum(chances, 1 - chances).sum(axis=1), weights, _queries(modes)

    def _marked(self, allowed: Allowed | None) -> list[Any]:
        """Arrays of every part, as the compiled search takes them."""
        chosen = None if allowed is None else self.filter(allowed)
        return [_arrays(part.buckets, *filters.marks(part.buckets, chosen, part.alive)) for part in self._parts]

    def _nearest(
        self, run: Callable[..., None], n_queries: int, k: int, allowed: Allowed | None, n_jobs: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The k best of every part, put together."""
        checks.whole("k", k, 0)
        chosen = None if allowed is None else self.filter(allowed)
        found = []
        for part in self._parts:
            marks = filters.marks(part.buckets, chosen, part.alive)
            there = int(marks[1].sum()) if len(marks[0]) else part.buckets.n_items
            columns = min(int(k), there)
            ids, costs = (np.empty((n_queries, columns), np.int64) for _ in range(2))
            if columns:

                def work(
                    rows: slice,
                    part: Part = part,
                    marks: Any = marks,
                    n: int = columns,
                    ids: Any = ids,
                    costs: Any = costs,
                ) -> None:
                    run(part, marks, rows, n, ids, costs)

                self._over(work, n_queries, n_jobs)
            found.append((ids, costs))
        if len(found) == 1:
            return found[0]
        ids, costs = _in_order(*(np.concatenate(both, axis=1) for both in zip(*found, strict=True)))
        return ids[:, : int(k)], costs[:, : int(k)]

    def _ball(self, arrays: Any, queries: Words, radius: int, n_jobs: int | None) -> Ball:
        """Everything within a radius in one part: first the codes, then, as many as they are, the items."""
        found = self._over(lambda rows: scan.balls(arrays, queries[rows], radius), len(queries), n_jobs)
        totals = np.concatenate([np.empty(0, np.int64), *(n_items for _, n_items, _, _ in found)])
        offsets = np.concatenate([[0], np.cumsum(totals)])
        ids, distances = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int32)

        def emit(rows: slice) -> None:
            items = slice(offsets[rows.start], offsets[rows.stop])
            scan.emit_balls(arrays, found[rows.start // QUERIES], ids[items], distances[items])

        self._over(emit, len(queries), n_jobs)
        return Ball(offsets, ids, distances)

    def _over(self, work: Callable[[slice], Any], n_queries: int, n_jobs: int | None) -> list[Any]:
        """Work on blocks of queries side by side; few queries are not worth a thread."""
        return side_by_side(work, row_blocks(n_queries, QUERIES), n_jobs)

    def _probes(
        self, mode: Words, weights: NDArray[np.int64], allowed: Filter | None
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Ids by cost, as long as probing single codes is cheaper than ranking all."""
        order = np.argsort(weights, kind="stable")
        steps = weights[order]
        parts = self._marked(allowed)
        budget = 64 + sum(len(arrays[0]) for arrays in parts) // 32
        # Every set of flipped bits comes once: the last flipped bit moves on, or the next one is flipped as well.
        waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        while waiting and budget > 0:
            cost = waiting[0][0]
            flips: list[tuple[int, ...]] = []
            while waiting and waiting[0][0] == cost and len(flips) < budget:
                _, places = heapq.heappop(waiting)
                flips.append(places)
                last = places[-1] if places else -1
                if last + 1 < len(steps):
                    heapq.heappush(waiting, (cost + int(steps[last + 1]), (*places, last + 1)))
                    if places:
                        moved = cost - int(steps[last]) + int(steps[last + 1])
                        heapq.heappush(waiting, (moved, (*places[:-1], last + 1)))
            budget -= len(flips)
            if waiting and waiting[0][0] == cost:
                return  # this level is not complete: let the ranking of all have it
            codes = self._flipped(mode, [order[list(places)] for places in flips])
            ids = np.concatenate([_items(arrays, codes) for arrays in parts])
            if len(ids):
                yield cost, np.sort(ids)

    def _flipped(self, mode: Words, flips: list[Any]) -> Words:
        """Codes that differ from the likeliest one in certain bits."""
        bits = np.repeat(packing.unpack(bucketing.to_packed(mode[None], self.n_bits), self.n_bits), len(flips), axis=0)
        for row, places in enumerate(flips):
            bits[row, places] ^= 1
        return bucketing.to_words(packing.pack(bits), self.n_bits)


_ALL = np.empty(0, bool)


def fingerprint_of(model: Any) -> str | None:
    """The fingerprint of a hasher, or as it is given."""
    if model is None or isinstance(model, str):
        return model
    mark: str = model.fingerprint_
    return mark


def _arrays(buckets: Buckets, kept: NDArray[Any], counts: NDArray[Any]) -> Any:
    """What the compiled search takes first."""
    return buckets.codes, buckets.starts, buckets.ids, kept, counts, buckets.same, buckets.value


def _items(arrays: tuple[Any, ...], codes: Words) -> NDArray[np.int64]:
    """Ids that have one of some codes and count."""
    stored, starts, ids, kept, _, same, value = arrays
    numbers = bucketing.find(Buckets(stored, starts, ids, same, value), codes)
    found = [np.empty(0, np.int64)]
    for number in numbers[numbers >= 0]:
        here = slice(int(starts[number]), int(starts[number + 1]))
        found.append(ids[here][kept[here]] if len(kept) else ids[here])
    return np.concatenate(found).astype(np.int64)


def _in_order(ids: NDArray[np.int64], costs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.lexsort((ids, costs), axis=-1)
    return np.take_along_axis(ids, order, -1), np.take_along_axis(costs, order, -1)


def _together(balls: list[Ball]) -> Ball:
    """Balls of the same queries in several parts of an index as one."""
    queries = np.concatenate([np.repeat(np.arange(len(ball.offsets) - 1), np.diff(ball.offsets)) for ball in balls])
    ids, distances = (np.concatenate([ball[place] for ball in balls]) for place in (1, 2))
    order = np.lexsort((ids, distances, queries))
    return Ball(np.sum([ball.offsets for ball in balls], axis=0), ids[order], distances[order])


def _queries(words: Words) -> Words:
    """Codes as [q, w] whatever their length."""
    return words[:, None] if words.ndim == 1 else words


def _count(part: Part) -> int:
    return int(part.alive.sum()) if len(part.alive) else part.buckets.n_items


def _living(part: Part) -> NDArray[np.int64]:
    return (part.buckets.ids[part.alive] if len(part.alive) else part.buckets.ids).astype(np.int64)


def _sizes(part: Part) -> NDArray[np.int64]:
    if len(part.alive):
        return bucketing.counts(part.buckets, part.alive)
    return bucketing.sizes(part.buckets)


def _compacted(part: Part) -> Buckets:
    return bucketing.keep(part.buckets, part.alive) if len(part.alive) else part.buckets
