"""What inference works on: row blocks, their codes and sites, the problem, the state between sweeps, the schedule."""

from collections.abc import Sequence
from typing import NamedTuple

from gphash.arrays import Floats, Signs
from gphash.coding.similarity import PairGraph, Signatures
from gphash.gp.ep import Shared, Sites
from gphash.gp.triangular import Factor


class Rows(NamedTuple):
    """What a row block knows and inference does not change.

    number
        Which block this is; seeds its random numbers.
    Phi, residual
        Whitened features, [b, r], and FITC residual, [b].
    signatures
        Labels or tags of the rows; None when the supervision is a pair list.
    """

    number: int
    Phi: Floats
    residual: Floats
    signatures: Signatures | None


class Latent(NamedTuple):
    """What inference finds out about a row block.

    signs
        Codes, int8 [b, m].
    sites
        EP sites, [b, m].
    shared
        Cavity variances under the shared factor; None before there is one.
    """

    signs: Signs
    sites: Sites
    shared: Shared | None


class Prediction(NamedTuple):
    """What another model says about the latent functions at a row block.

    mean
        [b, m].
    variance
        The same for all bits, [b].
    """

    mean: Floats
    variance: Floats


class Problem(NamedTuple):
    """Everything that stays the same from sweep to sweep.

    rows
        Row blocks; the first `n_central` are sampled together, one row after another.
    n_central
        Number of blocks that hold the representatives; all of them for a pair list.
    representatives
        Labels or tags of the rows of those blocks; None for a pair list.
    graph
        The pair list, rows numbered through the blocks; None for labels and tags.
    table
        From `gibbs.pair_table`.
    seed
        Of all random numbers, together with the numbers of sweep and block.
    """

    rows: Sequence[Rows]
    n_central: int
    representatives: Signatures | None
    graph: PairGraph | None
    table: Floats
    seed: int

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.table.shape[1] // 2 - 1)


class State(NamedTuple):
    """What the next sweep needs.

    sweep
        Number of sweeps done.
    latents
        Codes and sites of the row blocks.
    mean
        Posterior mean of the whitened inducing values, one column per bit, [r, m].
    factor
        Shared factor; None before the first sweep.
    drift
        How far τ̄ has moved since the factor was made, relative to its mean.
    calm
        Whether codes are frozen and the sites hardly move any more.
    quiet
        Sweeps in a row that flipped next to nothing.
    flips, steady
        Fewest bits that a sweep has flipped; sweeps in a row that did not flip fewer.
    frozen
        Whether codes have settled, so that only EP goes on.
    finishing
        Sweeps since then.
    finished
        Whether EP has converged too.
    damping
        Share of the way that sites go to their new values; less than 1 after EP was seen to oscillate.
    change
        Of the last sweep; see `Sweep`.
    """

    sweep: int
    latents: Sequence[Latent]
    mean: Floats
    factor: Factor | None
    drift: float
    calm: bool
    quiet: int
    flips: float
    steady: int
    frozen: bool
    finishing: int
    finished: bool
    damping: float
    change: float


class Sweep(NamedTuple):
    """What a reader of diagnostics wants to know about one sweep.

    number
        Counted from 1.
    flips
        Bits that Gibbs sampling changed.
    leave_one_out
        Mean of log Φ(y γ) over rows and bits; higher is better, log ½ is chance.
    change
        Mean absolute change of the site precisions, relative to their mean.
    refreshed
        Whether the shared factor was made anew.
    frozen
        Whether codes were fixed already.
    seconds
        Time that the sweep took.
    """

    number: int
    flips: int
    leave_one_out: float
    change: float
    refreshed: bool
    frozen: bool
    seconds: float


class Schedule(NamedTuple):
    """When to stop, and how much to do in a sweep.

    max_sweeps
        Sweeps before codes are frozen whatever they do.
    settled
        Share of bits that may still flip when codes count as settled.
    patience
        Settled sweeps in a row before codes are frozen.
    steadiness
        Sweeps in a row without fewer flips than ever, after which the sampler counts as having reached its stationary
        distribution: more sweeps would draw other codes, not better ones.
    drift, late_drift
        Movement of τ̄ that calls for a new factor; the smaller one once EP is about to converge.
    steps
        Conjugate gradient steps per sweep.
    converged
        Relative change of the site precisions at which EP ends.
    max_finish
        Sweeps after the freeze at the most.
    """

    max_sweeps: int = 50
    settled: float = 1e-4
    patience: int = 3
    steadiness: int = 8
    drift: float = 0.3
    late_drift: float = 0.1
    steps: int = 2
    converged: float = 1e-2
    max_finish: int = 40
