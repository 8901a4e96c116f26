"""Inducing inputs Z: random rows, as in the paper, or k-means centres, which cover the data better."""

import numpy as np

from gphash.arrays import Floats
from gphash.execution.local import Executor, row_blocks
from gphash.features import scaling
from gphash.features.scaling import Scaling

CHOICES = ("kmeans", "random")

ROWS_PER_CENTRE = 20
ITERATIONS = 8
BLOCK = 2048


def choose(
    X: Floats, scaled: Scaling, n_inducing: int, how: str, generator: np.random.Generator, executor: Executor
) -> Floats:
    """Scaled inducing inputs for raw rows X, [r, d]: k-means centres or random rows, all rows if there are no more."""
    n_inducing = min(n_inducing, len(X))
    if how == "kmeans" and n_inducing < len(X):
        n_rows = min(len(X), ROWS_PER_CENTRE * n_inducing)
        chosen = np.sort(generator.choice(len(X), n_rows, replace=False))
        return kmeans(scaling.apply(scaled, X[chosen]), n_inducing, generator, executor)
    return scaling.apply(scaled, random_rows(X, n_inducing, generator))


def random_rows(X: Floats, n_inducing: int, generator: np.random.Generator) -> Floats:
    """Distinct rows of X drawn at random, [r, d]."""
    return X[np.sort(generator.choice(len(X), n_inducing, replace=False))]


def kmeans(
    X: Floats, n_inducing: int, generator: np.random.Generator, executor: Executor, iterations: int = ITERATIONS
) -> Floats:
    """Centres of k-means from random rows, [r, d].

    A few of Lloyd's iterations are all that inducing inputs gain from. Each is a map over row blocks and a sum, hence
    the same for any number of threads.
    """
    centres = random_rows(X, n_inducing, generator)
    blocks = row_blocks(len(X), BLOCK)
    for _ in range(iterations):
        # argmin ‖x − z‖² = argmax x·z − ‖z‖²/2
        offset = (np.einsum("ij,ij->i", centres, centres) / 2).astype(X.dtype)

        def assign(rows: slice, centres: Floats = centres, offset: Floats = offset) -> tuple[Floats, Floats]:
            score = X[rows] @ centres.T
            score -= offset
            nearest = score.argmax(axis=1)
            order = np.argsort(nearest, kind="stable")
            counts = np.bincount(nearest, minlength=len(centres))
            filled = np.flatnonzero(counts)
            starts = np.cumsum(counts[filled]) - counts[filled]
            sums = np.zeros_like(centres)
            sums[filled] = np.add.reduceat(X[rows][order], starts, axis=0)
            return sums, counts.astype(np.float64)

        sums, counts = executor.sum(assign, blocks)
        # A centre that lost all its rows stays where it was.
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres).astype(X.dtype)
    return centres
