"""Supervised bits and, behind them, free bits: the sides of hyperplanes, which no label has taught.

    code = (supervised bits, free bits),   P(free bit = 1) = Φ(margin)

Margins of free bits have unit spread over the training rows, so that Φ says how near to its hyperplane a row is: a free
bit of a query counts for less in the expected distance the nearer it is. Whatever is known of classes comes from the
supervised bits alone: the weights that read a code are zero for the free ones.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Rows
from gphash.codes.packing import MOST_BITS
from gphash.codes.reading import DistanceReader, Reader
from gphash.codes.trust import Trust
from gphash.functions import model as models
from gphash.functions.projections import LinearFunction
from gphash.method.hashing import HashFunction
from gphash.method.posteriors import PosteriorFunction, Seen
from gphash.schema import Named, Record

PARTS: dict[str, tuple[str, ...]] = {"supervised": ("kernel", "posteriors"), "free": ("linear",)}
"""Forms that the parts may have; a file keeps the arrays of each with the part's name and a dot in front."""


@dataclass(frozen=True, eq=False)
class JoinedFunction:
    """Everything needed to encode a row."""

    supervised: HashFunction | PosteriorFunction
    free: LinearFunction

    def __repr__(self) -> str:
        return f"JoinedFunction({self.supervised}, {self.free.n_bits} free bits)"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.supervised.n_bits + self.free.n_bits

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return self.supervised.n_features

    @property
    def has_probabilities(self) -> bool:
        """Whether the supervised function knows how certain its bits are."""
        return self.supervised.has_probabilities

    @property
    def trust(self) -> Trust | None:
        """What may be promised; None if the supervised function does not know."""
        return getattr(self.supervised, "trust", None)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]."""
        return np.hstack([self.supervised.margins(X, n_jobs), self.free.margins(X, n_jobs)])

    def probabilities(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1), [n, m]."""
        return np.hstack([self.supervised.probabilities(X, n_jobs), _sides(self.free.margins(X, n_jobs))])

    def look(self, X: Rows, n_jobs: int | None = 1) -> Seen:
        """Everything about rows; only a supervised function with a reader knows it."""
        assert isinstance(self.supervised, PosteriorFunction)
        seen, free = self.supervised.look(X, n_jobs), self.free.margins(X, n_jobs)
        both = np.hstack([seen.margins, free]), np.hstack([seen.chances, _sides(free)])
        return Seen(*both, seen.classes, seen.familiarity)

    def classes(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(class | x), or P(tag | x), [n, c]; only a supervised function with a reader knows it."""
        return self.supervised.classes(X, n_jobs)

    def tell(self, chances: Floats) -> Floats:
        """The same from P(bit = 1) of sampled codes, [n, m]."""
        assert isinstance(self.supervised, HashFunction)
        return self.supervised.tell(chances[:, : self.supervised.n_bits])

    def reader(self) -> Reader | None:
        """What reads codes; None if the supervised function cannot."""
        return self._reader

    @cached_property
    def _reader(self) -> Reader | None:
        # Kept, since a search keeps what it has read as long as these arrays are there.
        read = self.supervised.reader() if self.supervised.reading is not None else None
        if read is None or isinstance(read, DistanceReader):
            return read and read._replace(n_bits=self.n_bits)
        return read._replace(weights=np.pad(read.weights, [(0, self.free.n_bits), (0, 0)]))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for part in PARTS:
            meta[part], own = models.content(getattr(self, part))
            arrays |= {f"{part}.{name}": array for name, array in own.items()}
        return meta, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        Record(dict.fromkeys(PARTS, Named())).check(meta, "")
        if strange := [name for name in arrays if name.partition(".")[0] not in PARTS]:
            raise schema.FaultError(f"the array {strange[0]!r} belongs to none of {', '.join(PARTS)}")
        found: dict[str, Any] = {}
        for part, forms in PARTS.items():
            if meta[part].get("form") not in forms:
                raise schema.FaultError(f"the field '{part}.form' must be {' or '.join(forms)}")
            own = {name.removeprefix(f"{part}."): one for name, one in arrays.items() if name.startswith(f"{part}.")}
            found[part] = models.restore(meta[part], own)
        joined = cls(**found)
        if joined.free.n_features != joined.n_features:
            raise schema.FaultError(f"its parts take {joined.n_features} and {joined.free.n_features} features")
        if joined.n_bits > MOST_BITS:
            raise schema.FaultError(f"it has {joined.n_bits} bits; there may be {MOST_BITS}")
        return joined


def _sides(margins: Floats) -> Floats:
    """P(bit = 1) of free bits, [n, m]."""
    from scipy.special import ndtr  # takes longer to import than most rows to encode

    # Next to zero, Φ rounds to ½, which is the 1 bit's.
    return np.asarray(np.where(margins < 0, np.minimum(ndtr(margins), np.nextafter(0.5, 0)), ndtr(margins)))
