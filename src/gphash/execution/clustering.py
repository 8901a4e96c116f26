"""k-means over blocks of rows, wherever an executor holds them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.execution.local import Executor

ITERATIONS = 8
BLOCK = 2048


def draw(n_rows: int, n_wanted: int, generator: np.random.Generator) -> Indices:
    """Numbers of distinct random rows, in order."""
    return np.sort(generator.choice(n_rows, n_wanted, replace=False)).astype(np.int64)


def kmeans(
    blocks: Sequence[Any],
    n_rows: int,
    n_inducing: int,
    generator: np.random.Generator,
    executor: Executor,
    iterations: int = ITERATIONS,
) -> Floats:
    """Centres of k-means from random rows, [r, d].

    The executor holds the rows in blocks, all but the last of `BLOCK` rows; the generator draws those to begin with. A
    few of Lloyd's iterations are all that inducing inputs gain from. Each is a map over row blocks and a sum, hence the
    same wherever it is done.
    """
    first = draw(n_rows, n_inducing, generator)
    own = np.split(first, np.searchsorted(first, np.arange(BLOCK, n_rows, BLOCK)))
    parts = [part - place * BLOCK for place, part in enumerate(own)]
    centres: Floats = np.concatenate(list(executor.collect(lambda X, some: X[some], blocks, parts)))
    for _ in range(iterations):
        # argmin ‖x − z‖² = argmax x·z − ‖z‖²/2
        offset = (np.einsum("ij,ij->i", centres, centres) / 2).astype(centres.dtype)

        def assign(X: Floats, centres: Floats = centres, offset: Floats = offset) -> tuple[Floats, Floats]:
            score = X @ centres.T
            score -= offset
            nearest = score.argmax(axis=1)
            order = np.argsort(nearest, kind="stable")
            counts = np.bincount(nearest, minlength=len(centres))
            filled = np.flatnonzero(counts)
            starts = np.cumsum(counts[filled]) - counts[filled]
            sums = np.zeros_like(centres)
            sums[filled] = np.add.reduceat(X[order], starts, axis=0)
            return sums, counts.astype(np.float64)

        sums, counts = executor.sum(assign, blocks)
        # A centre that lost all its rows stays where it was.
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres).astype(centres.dtype)
    return centres
