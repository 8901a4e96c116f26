"""
Candidates by codes, order by vectors
=====================================

Codes of two bytes find candidates. If the collection keeps the vectors too, these put the nearest first. More
candidates cost more time and find more of the rows that are nearest by cosine.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import Collection, GPHasher

X, asked, y, _ = train_test_split(*load_digits(return_X_y=True), test_size=200, random_state=0)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, y)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


nearest = np.argsort(-(unit(asked) @ unit(X).T), axis=1)[:, :10]  # by cosine, in floats

COUNTS = [10, 20, 50, 100, 200, 400]
with (
    tempfile.TemporaryDirectory() as folder,
    Collection.create(f"{folder}/digits.gphash", hasher, X, vectors="float16") as digits,
):
    shares = []
    for count in COUNTS:
        found = digits.search(asked, k=10, rerank=count)
        hits = [len({hit.key for hit in row} & set(true)) for row, true in zip(found, nearest.tolist(), strict=True)]
        shares.append(np.mean(hits) / 10)

# %%
# Rows of a digit share few codes, so ten candidates are any ten of that digit. A hundred and fifty are nearly all of
# them.

figure, axis = plt.subplots(figsize=(6.2, 3.2), layout="constrained")
axis.plot(COUNTS, shares, "o-", color="#0072B2")
axis.set_xscale("log")
axis.minorticks_off()
axis.set(xticks=COUNTS, xticklabels=COUNTS, ylim=(0, 1.03))
axis.set(xlabel="candidates (rerank=)", ylabel="share of the ten nearest found")
axis.grid(color="#E0E0E0")
plt.show()
