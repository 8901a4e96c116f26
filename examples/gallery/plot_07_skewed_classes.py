"""
One class has nearly all the rows
=================================

Nine in ten rows are of one class. Who will be searched for decides how rows should count: queries as skewed as the
training rows, or queries of all classes alike.
"""

import matplotlib.pyplot as plt
import numpy as np

from gphash import GPHasher

# %%
# Ten clusters in eight dimensions. The first has 1,800 of the 2,000 training rows.

rng = np.random.default_rng(3)
centres = rng.normal(0, 1.2, (10, 8))
sizes = np.array([1800, *[22] * 8, 24])
y = np.repeat(np.arange(10), sizes)
X = centres[y] + rng.normal(0, 1, (len(y), 8))
y_alike = np.repeat(np.arange(10), 60)
X_alike = centres[y_alike] + rng.normal(0, 1, (len(y_alike), 8))
y_skewed = rng.choice(10, 600, p=sizes / sizes.sum())
X_skewed = centres[y_skewed] + rng.normal(0, 1, (600, 8))

WEIGHTS = {"every row once": None, "auto, the default": "auto", "balanced": "balanced"}
scores = []
for weight in WEIGHTS.values():
    hasher = GPHasher(16, n_inducing=200, class_weight=weight, random_state=0).fit(X, y)
    scores.append([hasher.score(X_alike, y_alike), hasher.score(X_skewed, y_skewed)])

# %%
# Weights help queries of all classes alike, and do no harm to the others: most of these are of the large class
# anyway.

figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for place, (name, colour) in enumerate((("queries of all classes alike", "#0072B2"), ("queries as skewed", "#D55E00"))):
    bars = axis.bar(np.arange(3) + 0.4 * place - 0.2, np.array(scores)[:, place], 0.36, color=colour, label=name)
    axis.bar_label(bars, fmt="%.2f", fontsize=8)
axis.set(xticks=range(3), xticklabels=[*WEIGHTS], ylabel="mean average precision", ylim=(0, 1.25))
axis.legend(frameon=False, ncols=2, loc="upper left")
plt.show()
