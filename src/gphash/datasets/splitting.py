"""Splits of data that come without one."""

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices


def at_random(n_rows: int, n_test: int, seed: int) -> tuple[Indices, Indices]:
    """Row numbers to train with and to test with: all but the last, and the last `n_test`, of a permutation."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[: n_rows - n_test], order[n_rows - n_test :]


def stratified(y: NDArray[np.int64], n_test: int, seed: int) -> tuple[Indices, Indices]:
    """Row numbers to train with and to test with, in rising order, every class in proportion.

    Parameters
    ----------
    y
        Class labels, [n].
    n_test
        Number of rows to test with. Every class keeps a row to train with, so that n rows of c classes allow at most
        n − c.
    seed
        Decides which.
    """
    generator = np.random.default_rng(seed)
    _, numbers, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not 1 <= n_test <= len(y) - len(counts):
        raise ValueError(f"n_test={n_test}; {len(y)} rows of {len(counts)} classes allow 1 to {len(y) - len(counts)}.")
    # Largest remainders: whole shares first, and what is left goes where most was cut off.
    shares = n_test * counts / len(y)
    quotas = np.minimum(np.floor(shares).astype(np.int64), counts - 1)
    while quotas.sum() < n_test:
        quotas[np.argmax(np.where(quotas < counts - 1, shares - quotas, -np.inf))] += 1
    in_test = np.zeros(len(y), dtype=bool)
    for number, quota in enumerate(quotas):
        in_test[generator.permutation(np.flatnonzero(numbers == number))[:quota]] = True
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)
