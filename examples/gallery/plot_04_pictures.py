"""
Pieces of two photographs
=========================

Pictures become rows by a descriptor, here GIST, the layout of edges. Pieces of two photographs that come with
scikit-learn are to be told apart by where they were cut from.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images

from gphash import GPHasher, HammingIndex
from gphash.data.descriptors.gist import Gist
from gphash.evaluation import plots

china, flower = load_sample_images().images
BOXES = {  # photograph, top, bottom, left, right
    "temple": (china, 130, 330, 80, 290),
    "trees": (china, 335, 427, 300, 640),
    "petals": (flower, 120, 330, 150, 420),
    "leaves": (flower, 330, 427, 0, 640),
}
SIDE = 48

figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.6), layout="constrained")
for axis, photograph in zip(axes, (china, flower), strict=True):
    axis.imshow(photograph)
    axis.axis("off")
    for name, (of, top, bottom, left, right) in BOXES.items():
        if of is photograph:
            axis.add_patch(plt.Rectangle((left, top), right - left, bottom - top, fill=False, color="white", lw=1.5))
            axis.text(left + 12, top + 40, name, color="white", weight="bold")
plt.show()

# %%
# Six hundred pieces, 48 × 48 pixels each. They may overlap, so this measures nothing; it shows how the parts fit
# together.

rng = np.random.default_rng(0)
kinds = rng.choice([*BOXES], 600)
pieces = []
for kind in kinds:
    photograph, top, bottom, left, right = BOXES[kind]
    down, across = rng.integers(top, bottom - SIDE + 1), rng.integers(left, right - SIDE + 1)
    pieces.append(photograph[down : down + SIDE, across : across + SIDE])
rows = Gist().describe_all(pieces)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(rows[:500], kinds[:500])

index = HammingIndex.build(hasher.encode(rows[:500]), n_bits=16, model=hasher)
asked = [500 + int(np.flatnonzero(kinds[500:] == kind)[0]) for kind in BOXES]
found = index.search(hasher.encode(rows[asked]), k=6)
figure = plots.contact_sheet(
    [pieces[query] for query in asked],
    [[pieces[one] for one in row] for row in found.ids],
    kinds[found.ids] == kinds[asked][:, None],
    found.distances,
)
