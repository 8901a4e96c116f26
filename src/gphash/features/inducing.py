"""Inducing inputs Z: random rows, as in the paper, or k-means centres, which cover the data better."""

import numpy as np

from gphash.arrays import Floats
from gphash.execution.local import Executor, row_blocks

ROWS_PER_CENTRE = 20
ITERATIONS = 8
BLOCK = 2048


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
