"""Locality-sensitive hashing: random hyperplanes through the mean of the data (Charikar, 2002)."""

from typing import ClassVar

import numpy as np

from gphash.arrays import Floats
from gphash.baselines.linear import LinearHasher
from gphash.coding.similarity import PairGraph, Signatures


class LSH(LinearHasher):
    """Locality-sensitive hashing: every bit is the side of a random hyperplane that a row is on.

    Learns from X alone, and only its mean; what every learned code has to beat. The parameters are those of
    `LinearHasher`.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        return generator.standard_normal((X.shape[1], self.n_bits)), np.zeros(self.n_bits)
