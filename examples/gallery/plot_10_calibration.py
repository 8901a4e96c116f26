"""
A probability that means something
==================================

Every hit has the probability that it is similar. If probabilities are good, nine in ten hits with .9 are similar. On
new rows we can count.
"""

import matplotlib.pyplot as plt
import numpy as np

from gphash import GPHasher

# %%
# Five overlapping clusters, so that many rows are in doubt.

rng = np.random.default_rng(0)
centres = rng.normal(0, 1.5, (5, 6))


def draw(n):
    y = rng.integers(5, size=n)
    return centres[y] + rng.normal(0, 1.3, (n, 6)), y


X, y = draw(2000)
X_new, y_new = draw(1500)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, y)

# %%
# P(similar) of all pairs of 1,000 queries and 500 stored codes, and how often such pairs are similar.

queries, stored = slice(0, 1000), slice(1000, 1500)
probability = hasher.similarity_probability(X_new[queries], hasher.encode(X_new[stored]))
similar = y_new[queries][:, None] == y_new[stored]
places = np.digitize(probability, np.linspace(0, 1, 11)[1:-1])
predicted = [probability[places == place].mean() for place in range(10)]
observed = [similar[places == place].mean() for place in range(10)]
error = np.average(np.abs(np.subtract(predicted, observed)), weights=np.bincount(places.ravel(), minlength=10))
print(f"calibration error of P(similar): {error:.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.3), layout="constrained")
left.plot([0, 1], [0, 1], "--", color="#808080", linewidth=1)
left.plot(predicted, observed, "o-", color="#0072B2")
left.set(xlabel="P(similar)", ylabel="share that is similar", title="all pairs", aspect="equal")

# The same of single bits: how often they are those of the row's class.
bits = hasher.bit_probabilities(X_new)
wanted = hasher.class_codes_[np.searchsorted(hasher.classes_, y_new)]
places = np.digitize(bits, np.linspace(0, 1, 11)[1:-1])
right.plot([0, 1], [0, 1], "--", color="#808080", linewidth=1)
right.plot(
    [bits[places == place].mean() for place in range(10)],
    [wanted[places == place].mean() for place in range(10)],
    "s-",
    color="#D55E00",
)
right.set(xlabel="P(bit = 1)", ylabel="share of such bits that are 1", title="single bits", aspect="equal")
plt.show()
