"""Ways to order the items of an index: by their codes, and by what a query has.

To add one, subclass `Ranking` and register an instance: ``RANKINGS.register("mine", Mine())``. Every index can then
search by it: ``index.search(queries, ranking="mine")``.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.reading import Reader
from gphash.registry import Registry

UNIT = 2.0**-40
NO_READER = "the model does not know P(similar), which only GPHasher learns"


class Ranking(ABC):
    """A way to order items; at equal scores, ids decide.

    needs
        What it needs of a query: its packed "code", or "probabilities" of its bits; `Similar` alone needs "classes".
    title, unit
        What it orders by, in words, and in what that is measured.
    dtype
        Type of the scores that a search returns.
    descending
        Whether the largest score comes first, as a probability does.
    """

    needs: Literal["code", "probabilities", "classes"] = "code"
    title: str = "distance"
    unit: str = "bits"
    dtype: type[np.number[Any]] = np.float64
    descending: bool = False

    def of(self, model: Any) -> "Ranking":
        """The same for codes of a certain model, a hasher or a `Model`; most rankings need none."""
        return self

    @abstractmethod
    def scores(self, query: NDArray[Any], packed: NDArray[np.uint8], n_bits: int) -> NDArray[Any]:
        """Score codes for one query.

        Parameters
        ----------
        query
            A packed code, [⌈n_bits/8⌉], P(bit = 1), [n_bits], or P(class), [c].
        packed
            The codes, [n, ⌈n_bits/8⌉].
        n_bits
            Length of a code.

        Returns
        -------
        scores : array of shape [n], never NaN
        """


class Hamming(Ranking):
    """By the number of bits that differ."""

    title, dtype = "Hamming distance", np.int64

    def scores(self, query: NDArray[Any], packed: NDArray[np.uint8], n_bits: int) -> NDArray[Any]:
        """Hamming distances; small numbers, which are quick to sort."""
        distances: NDArray[Any] = np.bitwise_count(packed ^ query).sum(axis=1, dtype=np.uint16)
        return distances


class Expected(Ranking):
    """By the number of bits that are expected to differ, for a query that is known in probability."""

    needs, title = "probabilities", "expected Hamming distance"

    def scores(self, query: NDArray[Any], packed: NDArray[np.uint8], n_bits: int) -> NDArray[Any]:
        """Expected distances."""
        asked = uncertain(query[None])
        weights = np.zeros(8 * packed.shape[1], np.int64)
        weights[:n_bits] = asked.weights[0]
        patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.int64)
        costs = np.zeros(len(packed), np.int64)
        for column, part in zip((packed ^ asked.modes[0]).T, weights.reshape(-1, 8), strict=True):
            costs += (patterns @ part)[column]
        distances: NDArray[Any] = asked.distances(costs[None])[0]
        return distances


class Similar(Ranking):
    """By how probable it is that an item is similar, for a query that knows the probabilities of its classes or tags.

    A model says what codes tell about classes. If it has learned from pairs, the query knows those of its bits, and an
    index searches by expected distance, which orders items alike.
    """

    needs, title, unit, descending = "classes", "P(similar)", "probability", True

    def __init__(self, reader: Reader | None = None) -> None:
        self.reader = reader

    def of(self, model: Any) -> "Similar":
        """The same for codes of a certain model."""
        if self.reader is not None:
            return self
        found = getattr(model, "reader_", None)
        if found is None:
            if model is None or isinstance(model, str):
                raise ValueError(
                    f"ranking='similarity', but model={model!r}; give the model itself, which reads codes."
                )
            raise ValueError(f"ranking='similarity', but {NO_READER}; give 'hamming'.")
        return Similar(found)

    def scores(self, query: NDArray[Any], packed: NDArray[np.uint8], n_bits: int) -> NDArray[Any]:
        """Probabilities."""
        assert self.reader is not None
        return np.asarray(self.reader.compare(query[None], self.reader.read(packed))[0])


HAMMING, EXPECTED, SIMILAR = Hamming(), Expected(), Similar()

RANKINGS: Registry[Ranking] = Registry(
    "ranking",
    {
        "hamming": "gphash.index.rankings:HAMMING",
        "expected": "gphash.index.rankings:EXPECTED",
        "similarity": "gphash.index.rankings:SIMILAR",
    },
)


class Uncertain(NamedTuple):
    """Queries that are known in probability, with expected distances as whole numbers.

    A bit that differs from the likeliest code costs w_j = |1 − 2 P_j|, beyond the Σ_j min(P_j, 1 − P_j) that no code
    can avoid. Costs are whole multiples of 2⁻⁴⁰, so that sums are exact in any order, and equal distances are equal.

    `weights` are in units, [q, m], and `modes` are the likeliest codes, packed, [q, ⌈m/8⌉].
    """

    certain: Floats
    weights: NDArray[np.int64]
    modes: NDArray[np.uint8]

    def distances(self, costs: NDArray[np.int64]) -> Floats:
        """Expected distances of costs, [q, k]."""
        found: Floats = self.certain[:, None] + costs * UNIT
        return found


def uncertain(chances: Floats) -> Uncertain:
    """Queries from P(bit = 1), [q, m]."""
    weights = np.rint(np.abs(1 - 2 * chances) / UNIT).astype(np.int64)
    return Uncertain(np.minimum(chances, 1 - chances).sum(axis=1), weights, packing.pack(chances >= 0.5))
