"""
Pairs: nobody says what the classes are
=======================================

Sometimes all that is known are judgements: these two are alike, those two are not. Codes are learned from such pairs, and
no class has a name. Here 4,000 of 840,456 possible pairs are judged.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from gphash import GPHasher, Pairs
from gphash.hashers import ITQ

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)
rng = np.random.default_rng(0)
i = rng.integers(len(X), size=40_000)
j = (i + rng.integers(1, len(X), size=40_000)) % len(X)
same = y[i] == y[j]
judged = np.concatenate([np.flatnonzero(same)[:2000], np.flatnonzero(~same)[:2000]])
pairs = Pairs(i[judged], j[judged], np.where(same[judged], 1, -1))

# %%
# Codes that nobody taught are the comparison: ITQ keeps near what is near.

taught = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, pairs)
untaught = ITQ(16, random_state=0).fit(X)
for name, hasher in (("4,000 pairs", taught), ("nothing", untaught)):
    print(f"learned from {name:12} mean average precision {hasher.score(X_new, y_new):.3f}")

# %%
# The bits of new rows, drawn in the plane by principal components. Colours are digits, which neither of the two was told.

figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.6), layout="constrained")
for axis, (title, hasher) in zip(axes, (("learned from pairs", taught), ("learned from nothing", untaught)), strict=True):
    plane = PCA(2).fit_transform(hasher.transform(X_new).astype(float)) + rng.normal(0, 0.04, (500, 2))
    dots = axis.scatter(*plane.T, c=y_new, cmap="tab10", s=10, alpha=0.7, linewidths=0)
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(dots, ax=axes, ticks=range(10), label="digit")
plt.show()
