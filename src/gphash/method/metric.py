"""A metric from gradients: directions along which the functions to learn change count for more, others for nothing.

With least squares for some code columns, f_j(x) = k(x, Z) w_j, the average outer product of gradients

    M = mean over rows x and columns j of ∇f_j(x) ∇f_j(x)ᵀ,   ∇f_j(x) = Σ_k w_kj k(x, z_k) (z_k − x) / ℓ²,

has few large eigenvalues. The map x ↦ Uᵀx · (λ/λ₁)^p, from its leading eigenvectors, stretches what matters. Gradients
are taken at rows that have not taught the weights (two halves, crossed): elsewhere they would show the noise of these
rows. The map is accepted only if rows that have not taught it are found better with it.

M itself is never made: its product with a few random directions is a sum over row blocks, and gives its leading part
(Nyström's approximation), so that rows may be as wide as they like.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from gphash.arrays import Floats, Indices, Signs
from gphash.data.blocks import Table
from gphash.execution.local import Executor, row_blocks
from gphash.method import ep, kernels, scaling, words
from gphash.method import prior as priors
from gphash.method.kernels import Kernel
from gphash.method.partition import read
from gphash.method.prior import Prior
from gphash.method.scaling import Scaling
from gphash.method.words import Tally
from gphash.supervision import similarity
from gphash.supervision.similarity import Signatures

ROWS = 10_000  # that gradients are taken at, at most
COLUMNS = 16  # code columns that are learned for it
RANK = 128  # dimensions that are kept, at most
SKETCH = 256  # random directions
POWER = 0.2  # p
JUDGING = 1000  # inducing inputs of those who judge it
CLEAR = 2.0  # standard errors of their gain that are not chance
BLOCK = 1024
NOTHING = 1e-9  # of the largest eigenvalue


class Plain(NamedTuple):
    """How rows are compared without a metric."""

    scaling: Scaling
    kernel: Kernel
    Z: Floats  # inducing inputs, scaled, [r, d]
    power: float  # α


def learn(
    table: Table, rows: Indices, signatures: Signatures, plain: Plain, seed: int, executor: Executor
) -> Scaling | None:
    """Scaling with a metric from some rows; None if unseen rows are not found better by it."""
    generator = np.random.default_rng([seed, 31])
    rows = np.sort(rows[:ROWS])
    known = signatures[rows]
    ballots = words.votes(known)
    codes = words.spell(ballots, words.hadamard(ballots.shape[1], COLUMNS, generator))
    parts = row_blocks(len(rows), BLOCK)
    pieces = executor.hold([table.select(rows[part]) for part in parts])
    scaled = plain.scaling
    blocks = executor.map(lambda piece: scaling.apply(scaled, piece.read()), pieces)
    prior, directions = priors.build(plain.kernel, plain.Z, plain.power), _directions(table.n_features, generator)
    targets = [codes[part] for part in parts]
    first, second = (_products(prior, blocks, targets, parity, directions, executor) for parity in (0, 1))
    # What even rows have taught is judged by odd ones; the other way round would say much the same.
    trial = _scaling(plain.scaling, first, directions)
    judged = np.concatenate([np.arange(part.start + 1, part.stop, 2) for part in parts])
    judged = np.sort(generator.permutation(judged)[: words.JUDGED])
    if trial is None or not _is_better(plain, trial, read(table, rows[judged], executor), codes[judged], known[judged]):
        return None
    return _scaling(plain.scaling, first + second, directions)


def mapped(kernel: Kernel, before: Floats, after: Floats) -> Kernel:
    """The kernel for rows that a metric has mapped: as long, in terms of the distances between rows."""
    ratio = kernels.median_distance(after) / kernels.median_distance(before)
    return type(kernel)(kernel.length_scale * ratio, kernel.signal_scale)


def _directions(n_features: int, generator: np.random.Generator) -> Floats:
    """Orthonormal directions, [d, k]; all of them if there are few."""
    if n_features <= SKETCH:
        return np.eye(n_features)
    drawn: Floats = np.linalg.qr(generator.standard_normal((n_features, SKETCH)))[0]
    return drawn


def _products(
    prior: Prior, blocks: Sequence[Any], codes: Sequence[Signs], parity: int, directions: Floats, executor: Executor
) -> Floats:
    """Sum of ∇f (∇fᵀ Ω) for directions Ω, [d, k], over all columns, at rows of one parity, from the codes of others."""

    def teach(X: Floats, signs: Signs) -> tuple[Floats, Floats]:
        Phi, residual = priors.features(prior, X[parity::2])
        precision = words.first_precision(residual).astype(Phi.dtype)
        return ep.precision_sum(Phi, precision), Phi.T @ (precision[:, None] * signs[parity::2])

    total, target = executor.sum(teach, blocks, codes)
    mean = scipy.linalg.cho_solve((ep.shared_factor(total, np.float32).lower, True), target, check_finite=False)
    root = prior.root.lower
    weights = scipy.linalg.solve_triangular(root, mean, lower=True, trans="T", check_finite=False).astype(np.float32)
    kernel, landmarks, Z, few = prior.kernel, prior.landmarks, prior.Z, directions.astype(np.float32)

    def gradients(X: Floats) -> tuple[Floats]:
        x = X[1 - parity :: 2]
        K, found = kernel.evaluate(landmarks, x), np.zeros(few.shape)
        for column in weights.T:
            pulled = K * column
            gradient = pulled @ Z - pulled.sum(axis=1)[:, None] * x
            found += gradient.T @ (gradient @ few)
        return (found,)

    return executor.sum(gradients, blocks)[0]


def _scaling(plain: Scaling, products: Floats, directions: Floats) -> Scaling | None:
    """Scaling by the leading part of M, from its products M Ω with directions Ω; None if all gradients vanish."""
    core = directions.T @ products
    shift = 1e-10 * float(np.trace(core))
    if not np.isfinite(shift) or shift <= 0:
        return None
    root = scipy.linalg.cholesky((core + core.T) / 2 + shift * np.eye(len(core)), lower=True)
    half = scipy.linalg.solve_triangular(root, (products + shift * directions).T, lower=True).T
    axes, singular, _ = scipy.linalg.svd(half, full_matrices=False)
    values = np.maximum(singular**2 - shift, 0.0)
    kept = int(min((values > NOTHING * values[0]).sum(), RANK))
    return plain._replace(metric=axes[:, :kept] * (values[:kept] / values[0]) ** POWER)


def _is_better(plain: Plain, trial: Scaling, raw: Floats, codes: Signs, judge: Signatures) -> bool:
    """Whether rows that predict each other's codes are found better with a metric, by more than chance explains."""
    before, after = scaling.apply(plain.scaling, raw), scaling.apply(trial, raw)
    targets, alike = codes.astype(np.float32), similarity.alike(judge, judge)

    def precisions(kernel: Kernel, X: Floats) -> Floats:
        # Many inducing inputs: a metric that makes up for too few of them is not needed later.
        prior = priors.build(kernel, X[:JUDGING], plain.power)
        predicted = words.left_out(words.smoother(prior, X), targets)
        return Tally(np.where(predicted >= 0, 1, -1).astype(np.int8), alike).precisions

    without = precisions(plain.kernel, before)
    gains = (precisions(mapped(plain.kernel, before, after), after) - without)[without >= 0]
    return bool(len(gains) and gains.mean() > CLEAR * gains.std() / np.sqrt(len(gains)))
