"""Free bits: iterative quantisation of rows, without any label, behind the supervised bits of a code.

What no class says, such as which rows of a class are near one another, or what a class is like that training has not
seen, is in the features. The first principal components of the scaled rows, turned so that taking signs loses least,
keep most of it. Rows without a label teach free bits as others do.
"""

import numpy as np

from gphash.arrays import Floats
from gphash.data.blocks import Table
from gphash.execution.local import Executor
from gphash.functions.projections import LinearFunction
from gphash.hashers.projection_methods import principal_components, rotated
from gphash.method import partition, scaling

ROWS = 20_000  # that directions are learned from, at most
FLAT = 1e-9  # of the largest spread: one that is none but for rounding


def check(n_free_bits: int, n_features: int) -> None:
    """Refuse more free bits than rows have directions."""
    if n_free_bits > n_features:
        has = f"but X has {n_features} feature(s)"
        raise ValueError(f"n_free_bits={n_free_bits}, {has}; give at most as many.")


def learn(table: Table, n_free_bits: int, unit_length: bool, seed: int, executor: Executor) -> LinearFunction:
    """The function of so many free bits, from the rows of a table."""
    generator = np.random.default_rng([seed, 45])
    drawn = np.sort(generator.choice(table.n_rows, min(table.n_rows, ROWS), replace=False))
    raw = partition.read(table, drawn.astype(np.int64), executor)
    scaled = scaling.fit(raw, unit_length)
    rows = scaling.apply(scaled, raw, np.float64)
    weights, offset = rotated(rows, *principal_components(rows, n_free_bits), generator)
    spread = _spread(rows @ weights + offset)
    return LinearFunction(scaled, np.ascontiguousarray(weights / spread), offset / spread)


def _spread(margins: Floats) -> Floats:
    """Standard deviations, [m]; 1 where rows do not differ."""
    found = margins.std(axis=0)
    return np.where(found > FLAT * max(float(found.max()), 1e-300), found, 1.0)
