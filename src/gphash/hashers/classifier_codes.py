"""Codes of a classifier: what it says of a row's classes, quantised to bits.

Sablayrolles, Douze, Usunier and Jégou ("How should we evaluate supervised hashing?", 2016) point out that where classes
decide what is similar, a classifier needs no hashing: its answer, in few bits, is a code that retrieval rewards. Here
the classifier is a multinomial logistic regression on kernel values and a constant, K,

    min over W of −Σ log P(y | K W) + λ/2 ‖W‖²,   P = softmax(K W); for tags a logistic function each

whose Hessian is at most ½ KᵀK + λ I. L-BFGS works in the coordinates V = Lᵀ W of L Lᵀ = KᵀK + λ I, in which that is
next to the identity, so that few steps do.

The posterior p of a row becomes bits in one of two ways, centred on the mean of the training rows:

    rotation   sign((pᵃ − mean) R), R from iterative quantisation, of the first m principal components if m < c
    words      sign(Σ_c (p_cᵃ − mean) word_c), the words of classes being far apart

Which way, which power a and which random start is best is found by cross-validated retrieval on training rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from gphash.arrays import Floats
from gphash.execution.local import Executor
from gphash.hashers.kernel_methods import Teaching, best, known_mean
from gphash.hashers.projection_methods import principal_components, rotation
from gphash.hashers.ridge_methods import Ridge, RidgeHasher
from gphash.method import posteriors, scaling, selection, words
from gphash.method.posteriors import PosteriorFunction
from gphash.schema import Number, Rule, Text
from gphash.supervision import similarity

WAYS = ("rotation", "words")
POWERS = (0.5, 0.25, 1.0)  # a
STARTS = 4
UNTIL = {"maxiter": 100, "ftol": 1e-3}  # steps of L-BFGS, and the gain of a step per row that is too little


class Quantiser(NamedTuple):
    """A way from posteriors to bits."""

    way: str = WAYS[0]
    power: float = POWERS[0]
    start: int = 0

    def learn(self, logits: Floats, exclusive: bool, n_bits: int, seed: int) -> tuple[Floats, Floats]:
        """Directions [c, m] and offset [m], from the logits of training rows, [n, c]."""
        q = posteriors.powers(logits, exclusive, self.power)
        mean, n_classes = q.mean(axis=0), q.shape[1]
        generator = np.random.default_rng([seed, 13, self.start])
        if self.way == "words":
            directions = words.hadamard(n_classes, n_bits, generator).astype(np.float64)
        else:
            axes = principal_components(q, n_bits)[0] if n_bits < n_classes else np.eye(n_classes)
            directions = axes @ rotation((q - mean) @ axes, generator, n_bits=n_bits)
        return directions, -mean @ directions

    def margins(self, learned: Floats, others: Floats, exclusive: bool, n_bits: int, seed: int) -> Floats:
        """Margins of other rows, from their logits, if it is learned from those of some rows."""
        directions, offset = self.learn(learned, exclusive, n_bits, seed)
        return np.asarray(posteriors.powers(others, exclusive, self.power) @ directions + offset)


@dataclass(kw_only=True, eq=False, repr=False)
class ClassifierCodes(RidgeHasher):
    """Posteriors of a kernel classifier, quantised. Learns from labels or tags.

    The parameters are those of `RidgeHasher`; `ridge` is the penalty of the logistic regression.

    Attributes
    ----------
    quantiser_ : {"rotation", "words"}
        How posteriors became bits.
    power_ : float
        The power of the posteriors that did.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags")
    LEARNED: ClassVar[Mapping[str, Rule]] = {**RidgeHasher.LEARNED, "quantiser_": Text(WAYS), "power_": Number(0)}

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        learned = super()._train(X, supervision, seed, executor)
        classifier = learned["hash_function_"]
        some = supervision.order(np.random.default_rng([seed, 11]), selection.SAMPLE)[: self.SAMPLE]
        K = self._values(classifier.kernel, classifier.Z, scaling.apply(classifier.scaling, X[some]), executor)
        folds = list(self._folds(K, supervision.among(some), learned["ridge_"], seed))

        def quality(one: Quantiser) -> float:
            return known_mean(
                selection.quality(judge, one.margins(kept, held, judge.exact, self.n_bits, seed))
                for kept, held, judge in folds
            )

        ways = WAYS if classifier.n_bits > 1 else WAYS[:1]  # a single tag has no words to tell apart
        candidates = [Quantiser(*each) for each in product(ways, POWERS, range(STARTS))]
        chosen = best(candidates, list(executor.collect(quality, candidates)))
        logits = classifier.margins(X, self.n_jobs)
        directions, offset = chosen.learn(logits, supervision.exact, self.n_bits, seed)
        shift = np.zeros(len(directions))
        function = PosteriorFunction(classifier, supervision.exact, chosen.power, directions, offset, shift)
        return learned | {"hash_function_": function, "quantiser_": chosen.way, "power_": chosen.power}

    def _validate(self, K: Floats, supervision: Any, ridge: float, seed: int) -> float:
        """Retrieval by rotated square roots."""
        return known_mean(
            selection.quality(judge, Quantiser().margins(kept, held, judge.exact, self.n_bits, seed))
            for kept, held, judge in self._folds(K, supervision, ridge, seed)
        )

    def _bits(self, given: Teaching) -> tuple[Floats, Floats]:
        """Weights [r, c] and offset [c] of the logits."""
        Y, exclusive = similarity.indicators(given.supervision), given.supervision.exact
        regression = Ridge(given.K, given.ridge, given.executor)
        lower, shape = regression.lower, (given.K.shape[1] + 1, Y.shape[1])

        def solve(right: Floats, transposed: bool) -> Floats:
            solved: Floats = scipy.linalg.solve_triangular(lower, right, transposed, lower=True, check_finite=False)
            return solved

        def objective(flat: Floats) -> tuple[float, Floats]:
            W = solve(flat.reshape(shape), True)
            logits = regression.times(W[:-1]) + W[-1]
            likelihood, slopes = posteriors.likelihood(logits, Y, exclusive)
            gradient = given.ridge * W - np.vstack([regression.transposed(slopes), slopes.sum(axis=0)])
            loss = given.ridge / 2 * float(np.square(W).sum()) - float(likelihood.sum())
            return loss / len(Y), solve(gradient, False).ravel() / len(Y)

        found = scipy.optimize.minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=UNTIL)
        W = solve(found.x.reshape(shape), True)
        return W[:-1], W[-1]
