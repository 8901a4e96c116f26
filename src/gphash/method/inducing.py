"""Inducing inputs Z: random rows, as in the paper, or k-means centres, which cover the data better."""

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.data.blocks import Piece, Table
from gphash.execution.clustering import BLOCK, draw, kmeans
from gphash.execution.local import Executor, row_blocks
from gphash.method import scaling
from gphash.method.hashing import HashFunction
from gphash.method.scaling import Scaling

CHOICES = ("kmeans", "random")

ROWS_PER_CENTRE = 20
SPARED = 0.1  # of the rows, but
LEAST_SPARED = 200
NONE: Indices = np.empty(0, np.int64)


def choose(
    table: Table,
    scaled: Scaling,
    n_inducing: int,
    how: str,
    generator: np.random.Generator,
    executor: Executor,
    spared: Indices = NONE,
) -> Floats:
    """Scaled inducing inputs for raw rows, [r, q]: k-means centres or random rows, all rows if there are no more.

    Rows with the numbers `spared` have no part in it.
    """
    left = np.ones(table.n_rows, bool)
    left[spared] = False
    rows = np.flatnonzero(left)
    n_inducing = min(n_inducing, len(rows))
    centres = how == "kmeans" and n_inducing < len(rows)
    chosen = rows[draw(len(rows), min(len(rows), ROWS_PER_CENTRE * n_inducing) if centres else n_inducing, generator)]
    pieces = executor.hold([table.select(chosen[part]) for part in row_blocks(len(chosen), BLOCK)])
    blocks = executor.map(lambda piece: scaling.apply(scaled, piece.read()), pieces)
    if centres:
        return kmeans(blocks, len(chosen), n_inducing, generator, executor)
    return np.concatenate(list(executor.collect(lambda X: X, blocks)))


def spare(n_rows: int, n_inducing: int, seed: int) -> Indices:
    """Numbers of rows of which no inducing input is to be made: how near they are to one, new rows are too.

    There are none if almost all rows are inducing inputs.
    """
    n_spared = max(int(SPARED * n_rows), min(LEAST_SPARED, n_rows // 3))
    if n_rows - n_spared < n_inducing:
        return NONE
    return np.sort(np.random.default_rng([seed, 45]).choice(n_rows, n_spared, replace=False))


def nearness(table: Table, rows: Indices, first: int, machine: HashFunction, executor: Executor) -> Floats:
    """How near some rows, by ascending numbers, are to an inducing input, as a correlation, [s].

    `first` is 0 for the nearest one, and 1 for the next: a row that is an inducing input itself is as near to that as
    it would be to the nearest of the others.
    """
    pieces = executor.hold([table.select(rows[part]) for part in row_blocks(len(rows), BLOCK)])
    scaled, kernel, landmarks = machine.scaling, machine.kernel, machine.landmarks

    def look(piece: Piece) -> Floats:
        K = kernel.evaluate(landmarks, scaling.apply(scaled, piece.read()))
        nth = min(first + 1, K.shape[1])
        return np.asarray(np.partition(K, -nth, axis=1)[:, -nth] / kernel.diagonal)

    return np.concatenate(list(executor.collect(look, pieces)))
