"""Small supervised problems from scikit-learn's digits, and settings under which GPHasher learns them in a moment."""

import numpy as np
from sklearn.datasets import load_digits

from gphash import Pairs

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
tags = np.stack([y % 2 == 0, y >= 5, np.isin(y, [3, 8, 9])], axis=1).astype(int)  # 1 has none

QUICK = {"n_bits": 8, "n_inducing": 50, "n_starts": 1, "length_scale": 0.9, "signal_scale": 4.0, "random_state": 0}


def pairs(n_rows: int, n_pairs: int) -> Pairs:
    """Random pairs of the first rows, judged by their labels."""
    i, j = np.random.default_rng(1).integers(0, n_rows, (2, n_pairs))
    i, j = i[i != j], j[i != j]
    return Pairs(i, j, np.where(y[i] == y[j], 1, -1))
