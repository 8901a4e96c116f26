"""
Where to cut a list of hits
===========================

Ten hits may be too many or too few. ``precision=.9`` returns only as many that nine in ten are similar, ``recall=.9``
only as many that nine in ten of what is similar are there. Training ends with a trial that such promises come from.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from gphash import Collection, GPHasher

# %%
# Eight clusters; some lie apart, and some overlap.

rng = np.random.default_rng(1)
centres = rng.normal(0, 1.6, (8, 6))


def draw(n):
    y = rng.integers(8, size=n)
    return centres[y] + rng.normal(0, 0.7, (n, 6)), y


X, y = draw(2000)
stored, y_stored = draw(300)
asked, y_asked = draw(200)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, y)
folder = tempfile.TemporaryDirectory()
items = {"label": y_stored.astype(str).tolist()}
collection = Collection.create(f"{folder.name}/clusters.gphash", hasher, stored, items)

# %%
# Each dot is a promise. On the dashed line and above it is kept; with 200 queries, a hundredth or two below is
# chance. Queries in doubt get no hits at all.

levels, kept = [0.5, 0.6, 0.7, 0.8, 0.9], {"precision": [], "recall": []}
for level in levels:
    precisions, recalls = [], []
    for label, sure, whole in zip(
        y_asked.astype(str),
        collection.search(asked, k=300, precision=level),
        collection.search(asked, k=300, recall=level),
        strict=True,
    ):
        if sure:  # a query that nothing can be promised of has no hits
            precisions.append(np.mean([hit.labels[0] == label for hit in sure]))
        recalls.append(sum(hit.labels[0] == label for hit in whole) / np.sum(y_stored.astype(str) == label))
    kept["precision"].append(np.mean(precisions))
    kept["recall"].append(np.mean(recalls))

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.3), layout="constrained")
left.plot([0.45, 1], [0.45, 1], "--", color="#808080", linewidth=1)
for (name, values), style in zip(kept.items(), ("o-", "s--"), strict=True):
    left.plot(levels, values, style, label=name)
left.set(xlabel="promised", ylabel="kept, on new rows", xlim=(0.45, 1), ylim=(0.45, 1.02))
left.legend(frameon=False)

# How many hits a query gets: few where it is in doubt.
sizes = [len(hits) for hits in collection.search(asked, k=300, precision=0.9)]
right.hist(sizes, bins=np.arange(0, 66, 3), color="#0072B2")
right.set(xlabel="hits with precision=.9", ylabel="queries")
plt.show()
collection.close()
folder.cleanup()
