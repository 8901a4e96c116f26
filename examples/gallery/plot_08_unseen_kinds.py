"""
Is there anything similar at all?
=================================

A search always finds something nearest, even if nothing is similar. ``familiarity`` says how much a query resembles
what the model was taught: it is the share of training rows that are at least as strange.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=600, random_state=0)
seen = y < 7
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X[seen], y[seen])

# %%
# The model knows 0 to 6. Digits 7, 8 and 9 are new to it, and so is a digit in black on white, and noise.

rng = np.random.default_rng(0)
KINDS = {
    "0 to 6, never seen": X_new[y_new < 7],
    "7, 8 and 9": X_new[y_new >= 7],
    "0 to 6, inverted": 16 - X_new[y_new < 7],
    "noise": rng.integers(0, 17, (300, 64)).astype(float),
}
for name, rows in KINDS.items():
    print(f"{name:20} strange, with a familiarity of .05 or less: {np.mean(hasher.familiarity(rows) <= 0.05):4.0%}")

# %%
# Of rows like the training rows, about one in twenty has a familiarity of .05 or less. Of the others, most have. A
# search in a collection uses it to say that nothing is similar.

figure, axes = plt.subplots(1, 4, figsize=(8.4, 2.5), sharey=True, layout="constrained")
for axis, (name, rows) in zip(axes, KINDS.items(), strict=True):
    axis.hist(hasher.familiarity(rows), bins=np.linspace(0, 1, 21), weights=np.full(len(rows), 1 / len(rows)))
    axis.axvline(0.05, color="#D55E00", linewidth=1, linestyle="--")
    axis.set(title=name, xlabel="familiarity", xlim=(0, 1), ylim=(0, 1))
axes[0].set_ylabel("share of rows")
plt.show()
