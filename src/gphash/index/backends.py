"""What every index can do, wherever its items are kept, and how a place becomes one.

To add a back end, subclass `Index`, give what is abstract, and register the class: ``BACKENDS.register("mine", Mine)``.
`open_index("mine://anything")` then opens it.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing
from gphash.codes.reading import DistanceReader
from gphash.index import checks
from gphash.index.contents import Allowed, Filter, Where
from gphash.index.rankings import EXPECTED, HAMMING, RANKINGS, Ranking, Similar
from gphash.registry import Registry

FIRST, GROWTH = 64, 8  # items that iterating asks for at first, and how many times as many each time after


class Neighbours(NamedTuple):
    """The nearest items of every query in the order of (distance, id), [q, k]; Hamming distances are int64."""

    ids: NDArray[np.int64]
    distances: NDArray[Any]


class Ball(NamedTuple):
    """Everything within a radius: items of query i are at offsets[i]:offsets[i + 1], in the order of (distance, id)."""

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    distances: NDArray[np.int32]


class Stats(NamedTuple):
    """Items, distinct codes, items that share a code, and what memory, mapped file or tables all of them take."""

    n_items: int
    n_codes: int
    largest_bucket: int
    mean_bucket: float
    bytes: int


class Index(ABC):
    """Exact search among packed codes.

    Results are ordered by distance and, at equal distance, by id, so that they never depend on the order in which items
    came. Methods check their arguments, and hand them to what a back end gives.
    """

    def __init__(self, n_bits: int, model: str | None) -> None:
        self.n_bits = n_bits
        self.model = model  # fingerprint of what made the codes, if it is known

    @classmethod
    @abstractmethod
    def open(cls, *place: Any, **options: Any) -> "Index":
        """Open the index at a place."""

    @property
    @abstractmethod
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending; masks and labels for filters have this order."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All items, ids ascending: packed codes, [n, ⌈n_bits/8⌉], and ids, [n]."""

    @abstractmethod
    def codes_of(self, ids: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of some items, [n, ⌈n_bits/8⌉]; a KeyError names an id that is not there."""

    @abstractmethod
    def stats(self) -> Stats:
        """How many items and codes there are, how large the buckets are, and how much room they take."""

    @abstractmethod
    def _fullest(self, n: int) -> NDArray[np.uint8]:
        """The n codes that most items have, fullest first and ascending within ties, packed."""

    @abstractmethod
    def close(self) -> None:
        """Release what the index holds open."""

    @abstractmethod
    def _search(self, *asked: Any, **narrowed: Any) -> Neighbours:
        """Search; takes a `Ranking`, queries as it needs them, k, `allowed`, `n_jobs`, and what the back end knows."""

    @abstractmethod
    def _within(self, *asked: Any, **narrowed: Any) -> Ball:
        """Find balls; takes packed queries, a radius, `allowed`, `n_jobs`, and what the back end knows."""

    @abstractmethod
    def _add(self, packed: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
        """Add items with different ids; refuse ids that are there."""

    @abstractmethod
    def _remove(self, ids: NDArray[np.int64]) -> int:
        """Remove those of some ids, ascending, that are there."""

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        ranking: str | Ranking = HAMMING,
        allowed: Allowed | None = None,
        model: Any = None,
        n_jobs: int | None = -1,
        **narrowed: Any,
    ) -> Neighbours:
        """Find the k nearest items of every query, ordered by (distance, id).

        Returns ids first, then distances: other libraries have it the other way round.

        Parameters
        ----------
        queries : uint8 array of shape [q, ⌈n_bits/8⌉], or probabilities [q, n_bits] or [q, c]
            Packed codes; or P(bit = 1) for a ranking that needs probabilities; or P(class), as `predict_proba` gives
            it, for "similarity", and P(bit = 1) if the model has learned from pairs.
        k : int
            How many; fewer columns come back if there are fewer items.
        ranking : str or Ranking
            What items are ordered by, one of `RANKINGS`: "hamming", "expected", or "similarity", which needs `model`
            and has probabilities in place of distances, the largest first.
        allowed : boolean mask in the order of `ids`, ids, `Where(labels, value)`, or what `filter` gave
            Which items may be returned; all if None.
        model : hasher or str
            What made the query codes; refused if the index holds codes of another model.
        n_jobs : int or None
            Threads for more than a few queries; −1 for all cores.
        narrowed
            What else a back end can narrow a search by, such as the `condition` of a `PostgresIndex`.
        """
        by = ranking if isinstance(ranking, Ranking) else RANKINGS.find(ranking, "ranking")
        self._check_model(model)
        checks.whole("k", k, 0)
        by = by.of(model)
        if isinstance(by, Similar):
            assert by.reader is not None
            if by.reader.n_bits != self.n_bits:
                raise ValueError(f"model has {by.reader.n_bits} bits; the index has codes of {self.n_bits}.")
            asked: NDArray[Any] = by.reader.check(queries)
            if isinstance(by.reader, DistanceReader):
                asked = by.reader.blurred(asked)
                found = self._search(EXPECTED, asked, int(k), allowed, n_jobs, **narrowed)
                return Neighbours(found.ids, by.reader.judge(asked, found.distances))
        elif by.needs == "probabilities":
            asked = checks.probabilities(queries, self.n_bits)
        else:
            asked = packing.check_packed(queries, self.n_bits, "queries")
        return self._search(by, asked, int(k), allowed, n_jobs, **narrowed)

    def search_expected(self, probabilities: ArrayLike, k: int = 10, **options: Any) -> Neighbours:
        """Find the k nearest items by expected Hamming distance, for queries that keep their bit probabilities.

        Parameters
        ----------
        probabilities : array of shape [q, n_bits]
            P(bit = 1), as `bit_probabilities` gives it. Distances are exact to 2⁻⁴⁰ per bit.
        k, options
            As for `search`; `ranking` is another way to order by probabilities.
        """
        return self.search(probabilities, k, **{"ranking": EXPECTED, **options})

    def within(
        self,
        packed: ArrayLike,
        radius: int = 2,
        *,
        allowed: Allowed | None = None,
        model: Any = None,
        n_jobs: int | None = -1,
        **narrowed: Any,
    ) -> Ball:
        """Find everything within a Hamming radius of every query, never cut off.

        Parameters
        ----------
        packed : uint8 array of shape [q, ⌈n_bits/8⌉]
            Query codes.
        radius : int
            Largest distance.
        allowed, model, n_jobs, narrowed
            As for `search`.
        """
        self._check_model(model)
        checks.whole("radius", radius, 0)
        codes = packing.check_packed(packed, self.n_bits)
        return self._within(codes, min(int(radius), self.n_bits), allowed, n_jobs, **narrowed)

    def rank(self, packed: ArrayLike, **options: Any) -> Neighbours:
        """All items for every query, ordered by (Hamming distance, id); options as for `search`."""
        return self.search(packed, checks.LAST, **options)

    def fullest(self, n: int = 10) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """The n codes that most items have, fullest first, then by code: the packed code and its ids, ascending."""
        checks.whole("n", n, 0)
        frozen = self._snapshot()
        packed = frozen._fullest(int(n))
        found = frozen.within(packed, 0)
        return list(zip(packed, np.split(found.ids, found.offsets[1:-1]), strict=False))

    def warm(self) -> None:
        """Get ready for searches, which the first one would do otherwise."""
        self.search(np.zeros((1, -(-self.n_bits // 8)), np.uint8), 1)

    def iterate(
        self, probabilities: ArrayLike, *, allowed: Allowed | None = None, model: Any = None, **narrowed: Any
    ) -> Iterator[tuple[int, float]]:
        """Yield items of one query, nearest first by expected distance, until the caller stops.

        Parameters
        ----------
        probabilities : array of shape [n_bits]
            P(bit = 1); for a certain code, 0 and 1.
        allowed, model, narrowed
            As for `search`.
        """
        self._check_model(model)
        chances = np.asarray(probabilities)[None]
        if chances.ndim != 2:
            raise ValueError(f"probabilities has shape {chances.shape[1:]}; give P(bit = 1) of one, [{self.n_bits}].")
        checks.probabilities(chances, self.n_bits)
        if not isinstance(allowed, Filter | Where | None):
            allowed = checks.as_sequence(allowed)  # an iterator would be empty the second time
        return self._snapshot()._iterated(chances, allowed=allowed, **narrowed)

    def _iterated(self, chances: NDArray[Any], **narrowed: Any) -> Iterator[tuple[int, float]]:
        told, k = (-np.inf, 0), FIRST
        while True:
            found = self.search_expected(chances, k, n_jobs=1, **narrowed)
            for pair in zip(found.distances[0].tolist(), found.ids[0].tolist(), strict=True):
                # Those before it were found last time; items may come and go meanwhile.
                if pair > told:
                    told = pair
                    yield pair[1], pair[0]
            if found.ids.shape[1] < k:
                return
            k *= GROWTH

    def _snapshot(self) -> "Index":
        """The items of this moment, where a back end can hold them."""
        return self

    def add(self, packed: ArrayLike, ids: ArrayLike, *, model: Any = None) -> None:
        """Add items with new ids, all of them or none.

        Parameters
        ----------
        packed : uint8 array of shape [n, ⌈n_bits/8⌉]
            Their codes.
        ids : integers [n]
            Distinct, and none of them in the index.
        model : hasher or str
            What made the codes; refused if the index holds codes of another model.
        """
        self._check_model(model)
        codes = packing.check_packed(packed, self.n_bits)
        self._add(codes, checks.distinct_ids(ids, len(codes)))

    def remove(self, ids: ArrayLike | Iterable[int]) -> int:
        """Remove items, and return how many there were; ids that are not in the index are passed over."""
        return self._remove(np.unique(checks.distinct_ids(ids, None)))

    def _check_model(self, model: Any) -> None:
        given = checks.fingerprint_of(model)
        if given is not None and self.model is not None and given != self.model:
            raise ValueError(
                f"model has the fingerprint {given[:12]}…, but the index holds codes of the model {self.model[:12]}…; "
                "codes of two models cannot be compared (docs/questions.md#another-model)."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


BACKENDS: Registry[type[Index]] = Registry(
    "index",
    {
        "file": "gphash.index.hamming_index:HammingIndex",
        "postgresql": "gphash.index.postgres.postgres_index:PostgresIndex",
    },
)


def open_index(place: str | os.PathLike[str], **options: Any) -> Index:
    """Open an index wherever it is.

    Parameters
    ----------
    place
        A file, or an address that begins with the name of a back end and "://", such as
        "postgresql://me@localhost/shop#photos", the tables `photos` of a database.
    options
        As the back end's own `open` has them.
    """
    address = re.match(r"(\w+)://", str(place)) if isinstance(place, str) else None
    return BACKENDS.find(address[1] if address else "file", "place").open(place, **options)
