"""What the methods that learn a linear hash function have in common."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gphash import validation
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.contract import Hasher
from gphash.execution.local import LocalExecutor, count_jobs
from gphash.features import scaling
from gphash.functions.linear import LinearFunction


class LinearHasher(Hasher):
    """A method whose bits are the sides of hyperplanes; it learns them in `_directions`.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        Seed of everything random.
    """

    hash_function_: LinearFunction

    def __init__(
        self,
        n_bits: int = 16,
        *,
        scaling: str = "unit",
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.scaling = scaling
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        self._check()
        generator = np.random.default_rng(validation.seed(self.random_state))
        features = validation.features(self, X, reset=True)
        supervision = self._supervision(y, len(features), balance_pairs=True) if self.takes else None
        scaled = scaling.fit(features, self.scaling == "unit")
        with LocalExecutor(self.n_jobs):  # one BLAS thread: the same sums on any machine
            weights, offset = self._directions(scaling.apply(scaled, features, np.float64), supervision, generator)
        return {"hash_function_": LinearFunction(scaled, np.ascontiguousarray(weights), offset)}

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        count_jobs(self.n_jobs)

    def _directions(
        self, X: Floats, supervision: Signatures | PairGraph | None, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Weights [d, m] and offset [m], from scaled rows [n, d]."""
        raise NotImplementedError

    def _restrict_bits(self, X: Floats) -> None:
        """Refuse more bits than the features have directions."""
        if self.n_bits > X.shape[1]:
            raise ValueError(
                f"n_bits={self.n_bits}, but X has {X.shape[1]} feature(s), and {type(self).__name__} takes one "
                "direction of them per bit; give at most as many bits."
            )
