"""Inducing inputs Z: random rows, as in the paper, or k-means centres, which cover the data better."""

import numpy as np

from gphash.arrays import Floats
from gphash.data.blocks import Table
from gphash.execution.clustering import BLOCK, draw, kmeans
from gphash.execution.local import Executor, row_blocks
from gphash.method import scaling
from gphash.method.scaling import Scaling

CHOICES = ("kmeans", "random")

ROWS_PER_CENTRE = 20


def choose(
    table: Table, scaled: Scaling, n_inducing: int, how: str, generator: np.random.Generator, executor: Executor
) -> Floats:
    """Scaled inducing inputs for raw rows, [r, q]: k-means centres or random rows, all rows if there are no more."""
    n_rows, n_inducing = table.n_rows, min(n_inducing, table.n_rows)
    centres = how == "kmeans" and n_inducing < n_rows
    chosen = draw(n_rows, min(n_rows, ROWS_PER_CENTRE * n_inducing) if centres else n_inducing, generator)
    pieces = executor.hold([table.select(chosen[rows]) for rows in row_blocks(len(chosen), BLOCK)])
    blocks = executor.map(lambda piece: scaling.apply(scaled, piece.read()), pieces)
    if centres:
        return kmeans(blocks, len(chosen), n_inducing, generator, executor)
    return np.concatenate(list(executor.collect(lambda X: X, blocks)))
