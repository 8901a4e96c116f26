"""The read-out: how probable every class or tag is, from answers or from codes, by logistic regression.

    logits = x A + b,   minimise   −Σ_i w_i log P(told_i | x_i) + ridge/2 ‖A − s D‖²   over A, b and s

D is what one would expect of A before anything is known, and s how much of it there is. A tag that has an answer of its
own is expected to follow it: D is the identity. Else D are the mean answers of each class or tag.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.execution.local import one_blas_thread
from gphash.method import posteriors
from gphash.method.posteriors import Reading

RIDGES = (1000.0, 100.0, 10.0)  # to choose from
STEPS, GAIN = 200, 1e-6  # of the solver: at most so many, until they gain less
UNCHANGING = 1e-9  # of its mean is the deviation of an answer that never changes


class Regression(NamedTuple):
    """What is regressed on what; answers have a mean of 0 and a deviation of 1."""

    X: Floats  # answers, [n, q]
    told: Floats  # 1 for classes or tags that rows have, [n, c]
    exclusive: bool  # whether classes share a soft-max
    weights: Floats  # [n]
    own: bool = False  # whether every tag has an answer of its own

    def of(self, rows: NDArray[np.bool_]) -> "Regression":
        """The same of some rows."""
        return self._replace(X=self.X[rows], told=self.told[rows], weights=self.weights[rows])


def fit(
    answers: Floats, told: Floats, exclusive: bool, weights: Floats, ridge: float | None = None, own: bool = False
) -> tuple[Reading, float]:
    """Logits of classes or tags, [s, c], from answers, [s, q], and the ridge; None takes what unseen rows prefer.

    `own` says that every tag has an answer of its own, in their order.
    """
    centre, spread = answers.mean(axis=0), answers.std(axis=0)
    scale = np.where(spread > UNCHANGING * np.abs(centre), spread, 1.0)
    whole = Regression((answers - centre) / scale, told, exclusive, weights, own and not exclusive)
    odd, start = np.arange(len(answers)) % 2 == 1, None
    with one_blas_thread:
        if ridge is None:
            tried: list[tuple[float, float, Reading]] = []
            for candidate in RIDGES:  # each begins where the last one ended
                start = _minimise(whole.of(~odd), candidate, start)
                likelihood, _ = posteriors.likelihood(whole.X[odd] @ start.weights + start.bias, told[odd], exclusive)
                tried.append((-float(weights[odd] @ likelihood), candidate, start))
            _, ridge, start = min(tried, key=lambda one: one[0])
        found = _minimise(whole, ridge, start)
    A = found.weights / scale[:, None]
    return Reading(A, found.bias - centre @ A), ridge


def _minimise(given: Regression, ridge: float, start: Reading | None) -> Reading:
    from scipy.optimize import minimize

    X, told, exclusive, weights, own = _grouped(given)
    (n, q), c = X.shape, told.shape[1]
    D = np.eye(q) if own else _means(X, told, weights)
    prior = np.clip(weights @ told / weights.sum(), 1e-6, 1 - 1e-6)
    bias = np.log(prior) if exclusive else np.log(prior / (1 - prior))
    # In these coordinates the loss is about as curved in every direction, and the solver needs fewer steps.
    curvature = np.sqrt(np.mean(prior * (1 - prior)))
    spread, axes = np.linalg.eigh((X * weights[:, None]).T @ X / n)
    reach = curvature * np.sqrt(spread.clip(0.0))
    steep = np.hypot(reach, np.sqrt(ridge / n))
    even = axes / steep
    along = max(float(np.linalg.norm(reach[:, None] * (axes.T @ D))), 1e-12)

    def parts(flat: Floats) -> tuple[Floats, Floats, Floats]:
        free = even @ flat[: q * c].reshape(q, c)
        return free, free + flat[-1] / along * D, bias + flat[q * c : -1] / curvature

    def objective(flat: Floats) -> tuple[float, Floats]:
        free, A, b = parts(flat)
        likelihood, slopes = posteriors.likelihood(X @ A + b, told, exclusive)
        slopes *= weights[:, None]
        pull = X.T @ slopes
        slope = even.T @ (ridge * free - pull), slopes.sum(axis=0) / -curvature, (D * pull).sum() / -along
        value = float(ridge / 2 * np.square(free).sum() - weights @ likelihood)
        return value / n, np.concatenate([np.ravel(part) for part in slope]) / n

    first = np.concatenate([np.zeros(q * c + c), [along]])
    if start is not None:
        s = (D * start.weights).sum() / max(float(np.square(D).sum()), 1e-12)
        free = steep[:, None] * (axes.T @ (start.weights - s * D))
        first = np.concatenate([free.ravel(), curvature * (start.bias - bias), [s * along]])
    found: Any = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": GAIN})
    return Reading(*parts(found.x)[1:])


def _means(X: Floats, told: Floats, weights: Floats) -> Floats:
    """Mean answers of each class or tag, [q, c], less those of all."""
    weighted = X * weights[:, None]
    means = weighted.T @ told / np.maximum(weights @ told, 1e-9)
    return np.asarray(means - weighted.sum(axis=0)[:, None] / weights.sum())


def _grouped(given: Regression) -> Regression:
    """The same with equal rows as one, which has the mean of what they were told: codes are often equal."""
    _, first, which = np.unique(given.X, axis=0, return_index=True, return_inverse=True)
    if 2 * len(first) > len(given.X):
        return given
    order = np.argsort(which.reshape(-1), kind="stable")
    starts = np.searchsorted(which.reshape(-1)[order], np.arange(len(first)))
    sums = np.add.reduceat((given.told * given.weights[:, None])[order], starts)
    total = np.add.reduceat(given.weights[order], starts)
    return given._replace(X=given.X[first], told=sums / np.maximum(total, 1e-300)[:, None], weights=total)
