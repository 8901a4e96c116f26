"""Spectral hashing (Weiss, Torralba, Fergus, 2008): standing waves along the principal components.

On rows spread evenly over a box with edges R_i, the smoothest codes are signs of the eigenfunctions of the Laplacian,

    cos(k π (v_i − a_i) / R_i)   with eigenvalue (k π / R_i)²,   k = 1, 2, …

v are principal components, a and R the minimum and the range of each over the training rows. The m waves of smallest
eigenvalue, of one component each, are the bits: a long component gets several.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gphash import validation
from gphash.arrays import Floats, Indices
from gphash.baselines.pcah import principal_components
from gphash.coding.similarity import Pairs
from gphash.contract import Hasher
from gphash.execution.local import LocalExecutor, count_jobs
from gphash.features import scaling
from gphash.functions.sinusoids import SinusoidFunction

NOTHING = 1e-10  # of the longest row: a range that is none but for rounding


class SpectralHashing(Hasher):
    """Spectral hashing: every bit is the sign of a standing wave along a principal component. Learns from X alone.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        As other methods have; nothing is random here.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    hash_function_: SinusoidFunction

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
        features = validation.features(self, X, reset=True)
        scaled = scaling.fit(features, self.scaling == "unit")
        with LocalExecutor(self.n_jobs):  # one BLAS thread: the same sums on any machine
            rows = scaling.apply(scaled, features, np.float64)
            directions, _ = principal_components(rows, min(self.n_bits, rows.shape[1]))
            components = rows @ directions
        least, extent = components.min(axis=0), np.ptp(components, axis=0)
        wide = extent > NOTHING * np.sqrt(np.square(rows).sum(axis=1).max())
        if not wide.any():
            raise ValueError("X has rows that are all the same once scaled, and no wave can tell them apart.")
        modes = smoothest_waves(extent[wide], self.n_bits)
        return {
            "hash_function_": SinusoidFunction(
                scaled, np.ascontiguousarray(directions[:, wide]), least[wide], extent[wide], *modes
            )
        }

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        validation.seed(self.random_state)
        count_jobs(self.n_jobs)


def smoothest_waves(extent: Floats, n_waves: int) -> tuple[Indices, Indices]:
    """Dimension and frequency of the waves of smallest eigenvalue in a box, [m] each; longer edges first on a tie."""
    # The longest edge alone has m waves, so that no frequency above m can be among the smallest.
    frequency = np.arange(1, n_waves + 1)
    roots = frequency / extent[:, None]
    first = np.argsort(roots, axis=None, kind="stable")[:n_waves]
    dimension, place = np.unravel_index(first, roots.shape)
    return dimension.astype(np.int64), frequency[place].astype(np.int64)
