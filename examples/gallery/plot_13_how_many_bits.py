"""
How many bits?
==============

One training gives codes of all lengths, and rows held out tell which length to take: the shortest that is nearly as
good as any. ``gphash suggest`` does the same on the command line.
"""

from sklearn.datasets import load_digits

from gphash import GPHasher
from gphash.paper import lengths

X, y = load_digits(return_X_y=True)
suggestion = lengths.suggest(GPHasher(n_inducing=200, random_state=0), X, y, lengths=[4, 8, 16, 32, 64])
print(f"take {suggestion.n_bits} bits: {suggestion.reason}")

# %%
# Floats are ranked by cosine. Sign bits say of every pixel whether it is above its mean.

figure = lengths.draw(suggestion.curve, suggestion.n_bits, "digits")
