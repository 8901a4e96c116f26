"""
The paper's toy: two bits for four classes
==========================================

Four classes lie on the arms of a pinwheel. Two bits have to tell them apart, so each bit must be a curve. The paper
samples the codes of the training rows, and every bit is a Gaussian process classifier of these codes.
"""

from gphash.paper import illustrations

X, y, trained = illustrations.train_toy(seed=0)
words, share = illustrations.toy_words(trained, y)
print(f"codes of the four classes: {', '.join(words)}; {share:.1%} of {len(X)} points have the code of their class")

# %%
# From left to right: the points, the thirty that were drawn as inducing points, and the probability of each bit. The
# dashed line is where a bit changes.

figure = illustrations.toy(X, y, trained)
