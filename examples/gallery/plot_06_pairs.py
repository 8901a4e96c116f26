"""
Pairs: nobody says what the classes are
=======================================

Sometimes all that is known are judgements: these two are alike, those two are not. Codes are learned from such pairs,
and no class has a name. Of 840,456 possible pairs, at most 8,000 are judged here.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher, Pairs
from gphash.hashers import ITQ

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), test_size=500, random_state=0)
rng = np.random.default_rng(0)
i = rng.integers(len(X), size=60_000)
j = (i + rng.integers(1, len(X), size=60_000)) % len(X)
same = y[i] == y[j]
alike, unlike = np.flatnonzero(same), np.flatnonzero(~same)


def judgements(n):
    chosen = np.concatenate([alike[: n // 2], unlike[: n // 2]])
    return Pairs(i[chosen], j[chosen], np.where(same[chosen], 1, -1))


# %%
# Codes that nobody taught are the comparison: ITQ keeps near what is near. All rows that are searched for are new.

COUNTS = [500, 2000, 8000]
scores = []
for n in COUNTS:
    taught = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(X, judgements(n))
    scores.append(taught.score(X_new, y_new))
    print(f"{n:5,} judgements: mean average precision {scores[-1]:.3f}")
untaught = ITQ(16, random_state=0).fit(X).score(X_new, y_new)

# %%
# A few judgements are worse than none. With thousands, codes know digits that nobody has named.

figure, axis = plt.subplots(figsize=(6.2, 3.2), layout="constrained")
axis.plot(COUNTS, scores, "o-", color="#0072B2", label="learned from pairs")
axis.axhline(untaught, color="#808080", linestyle="--", label="learned from nothing (ITQ)")
axis.set_xscale("log")
axis.minorticks_off()
axis.set(xticks=COUNTS, xticklabels=[f"{n:,}" for n in COUNTS], ylim=(0, 1), xlabel="judged pairs")
axis.set_ylabel("mean average precision")
axis.legend(frameon=False, loc="lower right")
plt.show()
