"""`HammingIndex`: exact search among packed codes, by Hamming or by expected Hamming distance."""

import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import schema
from gphash.index import buckets as bucketing
from gphash.index import checks, costs, engines, filters, journal, ranking, storage
from gphash.index.contents import Contents, Filter, Part, Stats
from gphash.index.filters import Allowed
from gphash.persistence import FormatError
from gphash.schema import FaultError


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
        """Fold the journal into the file, and release it for another writer; the index can still be searched."""
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
        parts = ranking.parts_of(contents, None)
        chosen = (codes[number : number + 1] for number in np.argsort(-sizes, kind="stable")[:n])
        return [(bucketing.to_packed(code, self.n_bits)[0], ranking.items_of(parts, code)) for code in chosen]

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
        checks.whole("k", k, 0)
        queries = checks.words(np.asarray(packed), self.n_bits, "packed")
        parts = ranking.parts_of(self._contents, allowed)
        return Neighbours(*ranking.nearest(parts, queries, int(k), self.n_bits, n_jobs))

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
        checks.whole("k", k, 0)
        asked = costs.uncertain(probabilities, self.n_bits)
        modes = bucketing.to_words(asked.modes, self.n_bits)
        parts = ranking.parts_of(self._contents, allowed)
        ids, found = ranking.cheapest(parts, modes, asked.weights, int(k), n_jobs)
        return Neighbours(ids, asked.distances(found))

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
        queries = checks.words(np.asarray(packed), self.n_bits, "packed")
        parts = ranking.parts_of(self._contents, allowed)
        return Ball(*ranking.balls(parts, queries, min(int(radius), self.n_bits), n_jobs))

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
        asked = costs.uncertain(chances, self.n_bits)
        modes = bucketing.to_words(asked.modes, self.n_bits)
        parts = ranking.parts_of(self._contents, allowed)

        def items() -> Iterator[tuple[int, float]]:
            seen = 0
            for cost, ids in ranking.probes(parts, modes[0], asked.weights[0], self.n_bits):
                distance = asked.distances(np.array([[cost]]))[0, 0]
                for number in ids:
                    yield int(number), float(distance)
                seen += len(ids)
            rest, found = ranking.cheapest(parts, modes, asked.weights, np.iinfo(np.int64).max, 1)
            for number, distance in zip(rest[0, seen:], asked.distances(found)[0, seen:], strict=True):
                yield int(number), float(distance)

        return items()

    def warm(self) -> None:
        """Get the compiled search ready now; otherwise it is when there is enough to search for.

        It takes seconds after an installation, and a moment later on. Threads may search meanwhile.
        """
        ranking.warm(ranking.parts_of(self._contents, None), self.n_bits)

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
