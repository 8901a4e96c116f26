"""`HammingIndex`: exact search among packed codes, by Hamming or by expected Hamming distance."""

import heapq
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import schema
from gphash.arrays import Floats
from gphash.execution.local import row_blocks, side_by_side
from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index import checks, engines, filters, journal, scan, storage
from gphash.index.buckets import Buckets, Words
from gphash.index.contents import Contents, Filter, Marks, Part, Stats
from gphash.index.filters import Allowed
from gphash.persistence import FormatError
from gphash.schema import FaultError

QUERIES = 32  # per unit of parallel work


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


class HammingIndex:
    """Exact search among packed codes; made by `build` or `open`.

    Distinct codes are stored once, in ascending order, with the ids that have them. Results are ordered by distance
    and, at equal distance, by id, so that they never depend on the order in which items came.

    Threads may share an index: a search sees the items of one moment, and changes wait for each other. A process that
    was forked may search in it, but not change its file.
    """

    def __init__(
        self, contents: Contents, n_bits: int, model: str | None = None, place: "storage.Place | None" = None
    ) -> None:
        self.n_bits = n_bits
        self.model = model
        self._contents = contents
        self._place = place
        self._changing = threading.RLock()
        self._patience = 0

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
        return cls(Contents((Part(bucketing.group(words, numbers)),)), int(n_bits), fingerprint_of(model))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Self:
        """Open an index that `save` wrote; codes and ids stay in the file until they are used.

        A reader keeps what it has opened, whatever a writer does meanwhile; open again to see more. While a writer has
        the index open, and after one was killed, `NAME.journal` beside the file is part of it. To put another index in
        its place, `save` it or rename it there: a file that is overwritten in place takes its readers down.

        Parameters
        ----------
        path
            The file; its journal is beside it.
        writable
            Whether items may be added and removed. There can be one writer at a time.
        """
        opened = storage.open_index(path, writable)
        try:
            with schema.reading(f"{opened.place.path}.journal", storage.AGAIN):
                contents = _replayed(Contents((Part(opened.buckets),)), opened.changes, opened.n_bits)
            index = cls(contents, opened.n_bits, opened.model, opened.place)
        except BaseException:
            opened.place.close()
            raise
        return index

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the index to one file, whole or not at all, and return the file's fingerprint."""
        with self._changing:
            if self._place is not None and self._place.is_at(path):
                self._place.check_writable()
                return self.compact()
        return storage.save_index(path, self._contents.whole(), self.n_bits, self.model)

    def compact(self) -> str:
        """Fold what was added and removed into one set of buckets, and the journal into the file.

        The file is replaced by a complete one. Returns its fingerprint; an empty text if the index has no file.
        """
        with self._changing:
            whole = self._contents.whole()
            if self._place is None:
                self._contents = self._contents.stored_as(whole)
                return ""
            self._place.check_writable()
            mark = self._place.replace(whole, self.n_bits, self.model)
            self._contents = self._contents.stored_as(self._place.buckets())
            return mark

    def close(self) -> None:
        """Fold the journal into the file, and give it free for another writer; the index can still be searched."""
        if self._place is None:
            return
        with self._changing:
            try:
                if self._place.journalled() and self._place.is_mine():
                    self._try_to_compact()
            finally:
                self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._contents.n_items

    def __repr__(self) -> str:
        stats = self.stats()
        return f"HammingIndex({stats.n_items:,} items, {stats.n_codes:,} distinct codes of {self.n_bits} bits)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""
        return self._contents.ids

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending.

        Returns
        -------
        packed
            Their codes, [n, ceil(n_bits / 8)].
        ids
            [n].
        """
        whole = self._contents.whole()
        ids = whole.ids.astype(np.int64)
        order = np.argsort(ids)
        return bucketing.to_packed(bucketing.spread(whole)[order], self.n_bits), ids[order]

    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ceil(n_bits / 8)]; a KeyError names an id that is not there."""
        numbers = checks.distinct_ids(ids, None)
        packed = np.zeros((len(numbers), -(-self.n_bits // 8)), np.uint8)
        missing = np.ones(len(numbers), bool)
        for part in self._contents.parts:
            places = part.places(numbers)
            here = places >= 0
            # Of one type, else all starts would be converted.
            starts = part.buckets.starts
            rows = np.searchsorted(starts, places[here].astype(starts.dtype), side="right") - 1
            packed[here] = bucketing.to_packed(part.buckets.codes[rows], self.n_bits)
            missing &= ~here
        if missing.any():
            raise KeyError(int(numbers[missing][0]))
        return packed

    def fullest(self, n: int = 10) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The n codes that most items have, fullest first: the packed code and its ids, ascending."""
        checks.whole("n", n, 0)
        contents = self._contents
        codes, sizes = contents.bucket_sizes()
        chosen = np.argsort(-sizes, kind="stable")[:n]
        parts = [_arrays(part.buckets, part.marks) for part in contents.parts]
        return [
            (
                bucketing.to_packed(codes[number : number + 1], self.n_bits)[0],
                np.sort(np.concatenate([_items(arrays, codes[number : number + 1]) for arrays in parts])),
            )
            for number in chosen
        ]

    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets, and how much memory they take."""
        return self._contents.stats()

    def filter(self, allowed: Allowed) -> Filter:
        """Work out a filter once, for many searches; it holds until items are added or removed."""
        return filters.resolve(allowed, self._contents)

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

        Returns ids first, then distances: other libraries have it the other way round.

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

        def run(arrays: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
            scan.search_many(arrays, queries[rows], k, self.n_bits, ids[rows], costs[rows])

        checks.whole("k", k, 0)
        return Neighbours(*_nearest(run, _marked(self._contents, allowed), len(queries), int(k), n_jobs))

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

        def run(arrays: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
            scan.search_many_expected(arrays, modes[rows], weights[rows], k, ids[rows], costs[rows])

        checks.whole("k", k, 0)
        ids, costs = _nearest(run, _marked(self._contents, allowed), len(modes), int(k), n_jobs)
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
        parts = _marked(self._contents, allowed)
        balls = [_ball(arrays, queries, reach, n_jobs) for arrays, _ in parts]
        return balls[0] if len(balls) == 1 else _together(balls)

    def rank(
        self, packed: ArrayLike, *, allowed: Allowed | None = None, model: Any = None, n_jobs: int | None = -1
    ) -> Neighbours:
        """All items for every query, ordered by (Hamming distance, id); parameters as for `search`."""
        return self.search(packed, np.iinfo(np.int64).max, allowed=allowed, model=model, n_jobs=n_jobs)

    def probe(
        self, probabilities: ArrayLike, *, allowed: Allowed | None = None, model: Any = None
    ) -> Iterator[tuple[int, float]]:
        """Items of one query, nearest first by expected distance, until the caller stops.

        Codes are visited in the order of their expected distance: the likeliest one first, then with its least certain
        bits flipped. When that has met mostly codes that nobody has, the rest is ranked at once. Items are those of the
        moment of the call.

        Parameters
        ----------
        probabilities : array of shape [n_bits]
            P(bit = 1); for a certain code, 0 and 1.
        allowed, model
            As for `search`.
        """
        self._check_model(model)
        chances = np.asarray(probabilities)[None]
        if chances.ndim != 2:
            raise ValueError(f"probabilities has shape {chances.shape[1:]}; give P(bit = 1) of one, [{self.n_bits}].")
        certain, weights, modes = self._uncertain(chances)
        parts = _marked(self._contents, allowed)

        def items() -> Iterator[tuple[int, float]]:
            seen = 0
            for cost, ids in _probes(parts, modes[0], weights[0], self.n_bits):
                for number in ids:
                    yield int(number), float(certain[0] + cost * scan.UNIT)
                seen += len(ids)

            def run(arrays: Any, rows: slice, k: int, ids: Any, costs: Any) -> None:
                scan.search_many_expected(arrays, modes[rows], weights[rows], k, ids[rows], costs[rows])

            numbers, costs = _nearest(run, parts, 1, np.iinfo(np.int64).max, 1)
            for number, cost in zip(numbers[0, seen:], costs[0, seen:], strict=True):
                yield int(number), float(certain[0] + cost * scan.UNIT)

        return items()

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
        words = checks.words(np.asarray(packed), self.n_bits, "packed")
        numbers = checks.distinct_ids(ids, len(words))
        with self._changing:
            self._check_writable()
            self._refuse_known(numbers)
            if self._place is not None and len(numbers):
                self._place.append(journal.ADD, numbers, bucketing.to_packed(words, self.n_bits))
            self._contents = self._contents.inserted(words, numbers)
            self._fold()

    def remove(self, ids: ArrayLike | Iterable[int]) -> int:
        """Remove items, and return how many there were; ids that are not in the index are passed over."""
        numbers = np.unique(checks.distinct_ids(ids, None))
        with self._changing:
            self._check_writable()
            numbers = numbers[np.isin(numbers, self.ids, assume_unique=True)]
            if self._place is not None and len(numbers):
                self._place.append(journal.REMOVE, numbers, None)
            self._contents = self._contents.without(numbers)
            self._fold()
        return len(numbers)

    def _fold(self) -> None:
        """Compact the file when its journal has grown large beside it."""
        if self._place is not None and self._place.journalled() > self._patience and self._place.is_overgrown():
            self._try_to_compact()

    def _try_to_compact(self) -> None:
        """Compact; every change is on disk already, and must not look as if it had failed because of this."""
        assert self._place is not None
        size = self._place.journalled()
        try:
            self.compact()
            self._patience = 0
        except (OSError, FormatError) as error:
            self._patience = 2 * size
            warnings.warn(
                f"the journal could not be folded into the index ({error}); nothing is lost, and it will be tried "
                "again when the journal has doubled",
                RuntimeWarning,
                stacklevel=4,
            )

    def to_faiss(self) -> Any:
        """The same items in a faiss index: an IDMap over the exact IndexBinaryFlat; see docs/engines.md."""
        return engines.to_faiss(self)

    def to_sql(self, dialect: "engines.Dialect", table: str = "items") -> "engines.Sql":
        """Statements, rows and the two queries for PostgreSQL, pgvector, SQLite or DuckDB; see docs/engines.md."""
        return engines.to_sql(self, dialect, table)

    def _refuse_known(self, numbers: NDArray[np.int64]) -> None:
        known = self._contents.ids
        places = np.minimum(np.searchsorted(known, numbers), max(len(known) - 1, 0))
        if len(known) and (there := known[places] == numbers).any():
            raise ValueError(
                f"ids has {int(numbers[there][0])}, which is in the index already ({int(there.sum())} such); "
                "remove it first, or give another id."
            )

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


def fingerprint_of(model: Any) -> str | None:
    """The fingerprint of a hasher, or as it is given."""
    if model is None or isinstance(model, str):
        return model
    if not hasattr(model, "fingerprint_"):
        raise ValueError(f"model={model!r}; give a fitted hasher or its fingerprint.")
    mark: str = model.fingerprint_
    return mark


def _replayed(
    contents: Contents, changes: list[tuple[int, NDArray[np.int64], NDArray[np.uint8]]], n_bits: int
) -> Contents:
    """Make the changes of a journal, all at once: what counts of every id is the last that befell it."""
    if not changes:
        return contents
    numbers = np.concatenate([ids for _, ids, _ in changes])
    added = np.concatenate([np.full(len(ids), kind == journal.ADD) for kind, ids, _ in changes])
    packed = np.concatenate([codes for _, _, codes in changes])
    _check_turns(contents, numbers, added)
    _, last = np.unique(numbers[::-1], return_index=True)
    last = len(numbers) - 1 - last
    last = last[added[last]]
    rows = np.cumsum(added)[last] - 1
    return contents.without(numbers[~added]).inserted(bucketing.to_words(packed[rows], n_bits), numbers[last])


def _check_turns(contents: Contents, numbers: NDArray[np.int64], added: NDArray[np.bool_]) -> None:
    """Refuse changes that nobody can have made: whatever is added is not there, and whatever is removed is."""
    order = np.argsort(numbers, kind="stable")
    ids, adds = numbers[order], added[order]
    first = np.ones(len(ids), bool)
    first[1:] = ids[1:] != ids[:-1]
    (base,) = contents.parts
    there = np.empty(len(ids), bool)
    there[first] = base.places(ids[first]) >= 0
    there[~first] = adds[:-1][~first[1:]]
    if (wrong := there == adds).any():
        place = int(np.flatnonzero(wrong)[0])
        what = "adds an item that is there" if adds[place] else "removes an item that is not there"
        raise FaultError(f"it {what} (id {ids[place]})")


def _arrays(buckets: Buckets, marks: Marks) -> Any:
    """What the compiled search takes first."""
    return buckets.codes, buckets.starts, buckets.ids, marks.kept, marks.counts, buckets.same, buckets.value


def _marked(contents: Contents, allowed: Allowed | None) -> list[tuple[Any, int]]:
    """Arrays of every part, as the compiled search takes them, and how many of its items count."""
    if allowed is None:
        return [(_arrays(part.buckets, part.marks), part.marks.total) for part in contents.parts]
    chosen = filters.resolve(allowed, contents)
    found = [(part.buckets, chosen.marks(part)) for part in contents.parts]
    return [(_arrays(buckets, marks), marks.total) for buckets, marks in found]


def _nearest(
    run: Callable[..., None], parts: list[tuple[Any, int]], n_queries: int, k: int, n_jobs: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The k best of every part, put together."""
    found = []
    for arrays, there in parts:
        columns = min(k, there)
        ids, costs = np.empty((n_queries, columns), np.int64), np.empty((n_queries, columns), np.int64)

        def work(rows: slice, arrays: Any = arrays, n: int = columns, ids: Any = ids, costs: Any = costs) -> None:
            run(arrays, rows, n, ids, costs)

        if columns:
            _over(work, n_queries, n_jobs)
        found.append((ids, costs))
    if len(found) == 1:
        return found[0]
    ids, costs = _in_order(*(np.concatenate(both, axis=1) for both in zip(*found, strict=True)))
    return ids[:, :k], costs[:, :k]


def _ball(arrays: Any, queries: Words, radius: int, n_jobs: int | None) -> Ball:
    """Everything within a radius in one part: first the codes, then, as many as they are, the items."""
    found = _over(lambda rows: scan.balls(arrays, queries[rows], radius), len(queries), n_jobs)
    offsets = np.zeros(len(queries) + 1, np.int64)
    for number, (_, n_items, _, _) in enumerate(found):
        offsets[number * QUERIES + 1 :][: len(n_items)] = n_items
    np.cumsum(offsets, out=offsets)
    ids, distances = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int32)

    def emit(rows: slice) -> None:
        items = slice(offsets[rows.start], offsets[rows.stop])
        scan.emit_balls(arrays, found[rows.start // QUERIES], ids[items], distances[items])

    _over(emit, len(queries), n_jobs)
    return Ball(offsets, ids, distances)


def _over(work: Callable[[slice], Any], n_queries: int, n_jobs: int | None) -> list[Any]:
    """Work on blocks of queries side by side; few queries are not worth a thread."""
    return side_by_side(work, row_blocks(n_queries, QUERIES), n_jobs)


def _probes(
    parts: list[tuple[Any, int]], mode: Words, weights: NDArray[np.int64], n_bits: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Ids by cost, as long as probing single codes is cheaper than ranking all."""
    order = np.argsort(weights, kind="stable")
    steps = weights[order]
    budget = 64 + sum(len(arrays[0]) for arrays, _ in parts) // 32
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
        codes = _flipped(mode, [order[list(places)] for places in flips], n_bits)
        ids = np.concatenate([_items(arrays, codes) for arrays, _ in parts])
        if len(ids):
            yield cost, np.sort(ids)


def _flipped(mode: Words, flips: list[Any], n_bits: int) -> Words:
    """Codes that differ from the likeliest one in certain bits."""
    bits = np.repeat(packing.unpack(bucketing.to_packed(mode[None], n_bits), n_bits), len(flips), axis=0)
    for row, places in enumerate(flips):
        bits[row, places] ^= 1
    return bucketing.to_words(packing.pack(bits), n_bits)


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
