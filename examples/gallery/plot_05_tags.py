"""
Tags: similar in one way or another
===================================

With tags, rows are similar if they share one. A digit may be even, a multiple of three, and prime, all at once. Codes
then group digits by what they have in common.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher
from gphash.codes import distance

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)


def tags_of(digit):
    return np.column_stack([digit % 2 == 0, digit % 3 == 0, np.isin(digit, [2, 3, 5, 7])]).astype(int)


hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, tags_of(y))
print(f"mean average precision among rows never seen: {hasher.score(X_new, tags_of(y_new)):.3f}")
print("P(even), P(multiple of three), P(prime) of a new", y_new[0], hasher.predict_proba(X_new[:1]).round(2)[0])

# %%
# Left, the mean Hamming distance between digits: 1 has no tag at all, and is like no other. Right, the number of tags
# that two digits share. Dark is similar in both.

apart = distance.pairwise(hasher.encode(X_new), hasher.encode(X_new))
mean = np.array([[apart[np.ix_(y_new == a, y_new == b)].mean() for b in range(10)] for a in range(10)])
shared = tags_of(np.arange(10)) @ tags_of(np.arange(10)).T

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.5), layout="constrained")
figure.colorbar(left.imshow(mean, cmap="Blues_r"), ax=left, shrink=0.8)
figure.colorbar(right.imshow(shared, cmap="Blues"), ax=right, shrink=0.8, ticks=[0, 1, 2])
for axis, title in ((left, "mean Hamming distance, of 16 bits"), (right, "tags in common")):
    axis.set(title=title, xticks=range(10), yticks=range(10), xlabel="digit", ylabel="digit")
plt.show()
