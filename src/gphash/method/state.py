"""What inference works on: row blocks, their codes and sites, the problem, the state between sweeps, the schedule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.method.ep import Shared, Sites
from gphash.method.triangular import Factor
from gphash.supervision.similarity import Signatures, Supervision


class RowBlock(NamedTuple):
    """What a block of rows knows and inference does not change."""

    number: int  # seeds its random numbers
    Phi: Floats  # whitened features, [b, r]
    residual: Floats  # of FITC, [b]
    signatures: Signatures | None  # by which rows are compared with representatives, if there are any
    weights: Floats | None = None  # how often every row counts, [b]; None if each counts once


class Latent(NamedTuple):
    """What inference finds out about a row block."""

    signs: Signs  # codes, [b, m]
    sites: Sites
    shared: Shared | None  # None before there is a factor


class Problem(NamedTuple):
    """Everything that stays the same from sweep to sweep."""

    rows: Sequence[RowBlock]
    n_central: int  # blocks at the beginning that are sampled together, row by row; all of them for a pair list
    supervision: Supervision  # of the rows of those blocks, numbered through the blocks
    table: Floats  # from `gibbs.pair_table`
    seed: int  # of all random numbers, together with the numbers of sweep and block

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.table.shape[1] // 2 - 1)


class State(NamedTuple):
    """What the next sweep needs."""

    sweep: int  # number of sweeps done
    latents: Sequence[Latent]
    mean: Floats  # posterior mean of the whitened inducing values, one column per bit, [r, m]
    factor: Factor | None = None  # None before the first sweep
    # How far the sum of τ̄ has moved since the factor was made, relative to it: cavity variances follow the sum of many
    # rows, and a row's own change is not in its cavity.
    drift: float = np.inf
    calm: bool = False  # codes are frozen, and the sites hardly move any more
    quiet: int = 0  # sweeps in a row that flipped next to nothing
    flips: float = np.inf  # fewest bits that a sweep has flipped
    steady: int = 0  # sweeps in a row that did not flip fewer
    frozen: bool = False  # codes have settled, and only EP goes on
    finishing: int = 0  # sweeps since then
    finished: bool = False  # EP has converged too
    damping: float = 1.0  # share of the way that sites go to their new values; below 1 after EP was seen to oscillate
    change: float = np.inf  # of the last sweep


class Sweep(NamedTuple):
    """What a reader of diagnostics needs to know about one sweep."""

    number: int  # counted from 1
    flips: int  # bits that Gibbs sampling changed
    # Mean of log Φ(y γ) over rows and bits; higher is better, log ½ is chance. Conjugate gradients know no variance:
    # there γ is the mean that the fold tells which leaves the row out.
    leave_one_out: float
    change: float  # mean absolute change of the site precisions, relative to their mean
    refreshed: bool  # whether the shared factor was made anew
    frozen: bool  # whether codes were fixed already
    seconds: float


class Schedule(NamedTuple):
    """When to stop, and how much to do in a sweep."""

    max_sweeps: int = 50  # before codes are frozen whatever they do
    settled: float = 1e-4  # share of bits that may still flip when codes count as settled
    patience: int = 3  # settled sweeps in a row before codes are frozen
    # Sweeps in a row without fewer flips than ever, after which the sampler counts as having reached its stationary
    # distribution: more sweeps would draw other codes, not better ones.
    steadiness: int = 8
    drift: float = 0.3  # of τ̄ that calls for a new factor
    late_drift: float = 0.1  # the same once EP is about to converge
    steps: int = 2  # of conjugate gradients per sweep
    converged: float = 2e-2  # relative change of the site precisions at which EP ends
    max_finish: int = 40  # sweeps after the freeze
