"""
Near-duplicates
===============

Codes find all pairs that may be duplicates, and vectors confirm them. Nothing is known of classes, and nothing needs
to be: ITQ keeps near what is near.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gphash import Collection
from gphash.hashers import ITQ

# %%
# Sixty rows are copied with a little noise. These pairs are to be found among 1.7 million.

rng = np.random.default_rng(0)
X = load_digits().data
chosen = rng.choice(len(X), 60, replace=False)
rows = np.concatenate([X, np.clip(X[chosen] + rng.normal(0, 0.6, (60, 64)), 0, 16)])
planted = {(int(row), len(X) + place) for place, row in enumerate(chosen)}

hasher = ITQ(64, random_state=0).fit(X)
folder = tempfile.TemporaryDirectory()
collection = Collection.create(f"{folder.name}/digits.gphash", hasher, rows, vectors="float16")
radii, candidates, confirmed, found = range(0, 13, 2), [], [], []
for radius in radii:
    pairs = {(pair.first, pair.second) for pair in collection.duplicates(radius, min_cosine=0.99).pairs()}
    candidates.append(len(collection.index.pairs(radius).first))
    confirmed.append(len(pairs))
    found.append(len(pairs & planted) / len(planted))

# %%
# A larger radius finds all planted pairs, and many others by their codes alone. Cosines leave out what is no
# duplicate.

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3), layout="constrained")
left.plot(radii, found, "o-", color="#0072B2")
left.set(xlabel="radius [bits of 64]", ylabel="planted pairs found", ylim=(0, 1.05))
right.plot(radii, candidates, "s--", color="#808080", label="pairs by their codes")
right.plot(radii, confirmed, "o-", color="#0072B2", label="confirmed by cosine")
right.axhline(len(planted), color="#D55E00", linewidth=1, linestyle=":", label="planted")
right.set(xlabel="radius [bits of 64]", ylabel="pairs", yscale="log")
right.legend(frameon=False)
plt.show()

# %%
# Some of them, with what they are taken for a copy of:

clusters = collection.duplicates(12, min_cosine=0.99).clusters()[:8]
figure, axes = plt.subplots(2, 8, figsize=(7.2, 1.9), layout="constrained")
for column, cluster in enumerate(clusters):
    for axis, key in zip(axes[:, column], cluster[:2], strict=True):
        axis.imshow(rows[key].reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
plt.show()
collection.close()
folder.cleanup()
