"""
Comparing methods
=================

All methods keep one contract: ``fit``, ``encode``, ``score``. So they can be compared in a loop. These are rows that
none of them has seen, each searched for among the others.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher
from gphash.hashers import ITQ, LSH, SDH, HadamardRidge

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)
METHODS = {
    "GPH": lambda bits: GPHasher(bits, n_inducing=200, random_state=0),
    "Hadamard words, ridge": lambda bits: HadamardRidge(bits, n_inducing=200, random_state=0),
    "SDH": lambda bits: SDH(bits, n_inducing=200, random_state=0),
    "ITQ, no labels": lambda bits: ITQ(bits, random_state=0),
    "LSH, no labels": lambda bits: LSH(bits, random_state=0),
}
LENGTHS = [4, 8, 16, 32]
scores = {name: [make(bits).fit(X, y).score(X_new, y_new) for bits in LENGTHS] for name, make in METHODS.items()}

# %%
# Digits are easy, and fixed Hadamard words are as good here as anything: look at :doc:`/figures` for data on which
# they are not. One seed of one small data set proves little; ``gphash compare`` does it with several.

figure, axis = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
for (name, values), marker in zip(scores.items(), "os^Dv", strict=True):
    axis.plot(LENGTHS, values, marker=marker, label=name)
axis.set_xscale("log", base=2)
axis.set(xlabel="bits", ylabel="mean average precision", xticks=LENGTHS, xticklabels=LENGTHS, ylim=(0, 1.02))
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
