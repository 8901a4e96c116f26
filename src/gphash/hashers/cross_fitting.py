"""P(similar) for any method: what its margins and codes say about classes or tags, learned without leave-one-out.

`GPHasher` learns to read codes from leave-one-out answers. Other methods have none, and rows that taught a method get
codes that tell more than those of new rows. So a twin is trained on four fifths of the rows. How much too sure a
read-out of its own training rows is, is seen on the last fifth: its logits need a factor, a temperature. The read-out
of the method itself, which has learned from all rows, gets the same factor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.codes.reading import CodeReader, log_posteriors
from gphash.data.dataset import Split
from gphash.method import decoding, posteriors, readout
from gphash.method.posteriors import Reading
from gphash.supervision import targets
from gphash.supervision.similarity import Signatures

PARTS = 5  # of the rows; the last one judges
TAUGHT = 20_000  # rows, at most, that teach a read-out
TEMPERATURES = (-4.0, 2.0)  # bounds of the logarithm of the factor


class CrossFitted(NamedTuple):
    """Tells classes or tags of rows by their margins, and of items by their codes."""

    hasher: Any
    asked: Reading  # of margins
    reader_: CodeReader

    def predict_proba(self, X: Any) -> Floats:
        """P(class | margins), or P(tag | margins), [n, c]."""
        logits = self.hasher.hash_function_.margins(X, -1) @ self.asked.weights + self.asked.bias
        return np.exp(log_posteriors(logits, self.reader_.exclusive))


def read(hasher: Any, twin: Callable[[], Any], train: Split, seed: int = 0) -> CrossFitted:
    """What reads the codes of a trained hasher; `twin` makes one like it, untrained."""
    y, X = np.asarray(train.y), np.asarray(train.X)
    whole = targets.signatures(y, len(y))
    order = np.random.default_rng([seed, 61]).permutation(whole.known)
    rest, held = np.split(order, [len(order) - len(order) // PARTS])
    other = twin().fit(X[rest], y[rest])

    def learned(soft: bool) -> Reading:
        """From margins, or from codes."""
        near = _regress(_answers(other, X[rest[:TAUGHT]], soft), whole[rest[:TAUGHT]], whole)
        factor = _temperature(near, _answers(other, X[held], soft), whole[held], whole)
        found = _regress(_answers(hasher, X[order[:TAUGHT]], soft), whole[order[:TAUGHT]], whole)
        return Reading(factor * found.weights, factor * found.bias).rounded()

    weights, bias = learned(soft=False)
    return CrossFitted(hasher, learned(soft=True), CodeReader(weights, bias, whole.exact))


def _answers(hasher: Any, X: Floats, soft: bool) -> Floats:
    """Margins, or the bits ±1 that follow from them, [n, m]."""
    margins = hasher.hash_function_.margins(X, -1)
    return np.asarray(margins if soft else np.where(margins >= 0, 1.0, -1.0))


def _regress(answers: Floats, some: Signatures, whole: Signatures) -> Reading:
    told = decoding.truth(some, whole).astype(np.float64)
    return readout.fit(answers, told, whole.exact, decoding.importance(some, whole))[0]


def _temperature(near: Reading, answers: Floats, some: Signatures, whole: Signatures) -> float:
    """The factor of the logits with which unseen rows are most probable."""
    from scipy.optimize import minimize_scalar

    logits, told = answers @ near.weights + near.bias, decoding.truth(some, whole).astype(np.float64)

    def loss(logarithm: float) -> float:
        return -float(posteriors.likelihood(np.exp(logarithm) * logits, told, whole.exact)[0].mean())

    return float(np.exp(minimize_scalar(loss, bounds=TEMPERATURES, method="bounded").x))
