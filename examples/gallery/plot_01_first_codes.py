"""
Sixteen bits for a digit
========================

The shortest way from rows to codes: fit, encode, and look at the bits. Each bit is shaded by its probability, so that
you see how sure the model is of it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher, HammingIndex

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, y)
codes = hasher.encode(X_new)
print(f"{X_new.shape[1] * 8} bytes of numbers became {codes.shape[1]} bytes of code.")
print(f"mean average precision among rows never seen: {hasher.score(X_new, y_new):.3f}")

# %%
# An index finds the nearest codes. Here are eight new digits, their bits, and the three training rows whose codes are
# nearest. Dark blue is a sure 1, white a sure 0, and what is between is doubt.

index = HammingIndex.build(hasher.encode(X), n_bits=16, model=hasher)
doubt = np.abs(hasher.bit_probabilities(X_new) - 0.5).min(axis=1)
shown = np.concatenate([np.argsort(doubt)[:4], np.argsort(-doubt)[:4]])  # the least sure, and the surest
found = index.search(codes[shown], k=3).ids

figure, axes = plt.subplots(len(shown), 5, figsize=(6.4, 6.6), width_ratios=[1, 6, 1, 1, 1], layout="constrained")
for row, (query, neighbours) in enumerate(zip(shown, found, strict=True)):
    axes[row, 0].imshow(X_new[query].reshape(8, 8), cmap="gray_r")
    axes[row, 1].imshow(hasher.bit_probabilities(X_new[[query]]), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for column, neighbour in enumerate(neighbours, start=2):
        axes[row, column].imshow(X[neighbour].reshape(8, 8), cmap="gray_r")
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
for column, title in enumerate(["query", "P(bit = 1): least sure above, surest below", "", "nearest", ""]):
    axes[0, column].set_title(title, fontsize=9)
plt.show()
