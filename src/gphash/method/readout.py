"""The read-out: how probable every class or tag is, from answers or from codes, by logistic regression.

    logits = x A + b,   minimise   −Σ_i w_i log P(told_i | x_i) + ridge/2 ‖A − Σ_k s_k D_k‖²   over A, b and s

D is what one would expect of A before anything is known, and s how much of it there is. D_k takes a tag's k-th own
answer for the tag. For classes, and of answers that are nobody's own, there is one D: the mean answers of each class.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.method import posteriors
from gphash.method.posteriors import Reading

RIDGES = (1000.0, 100.0, 10.0)  # to choose from
STEPS, GAIN = 200, 1e-6  # of the solver: at most so many, and each gains at least this share


class Regression(NamedTuple):
    """What is regressed on what; answers have a deviation of 1."""

    X: Floats  # answers, [n, q]
    told: Floats  # 1 for classes or tags that rows have, [n, c]
    exclusive: bool  # whether classes share a soft-max
    weights: Floats  # [n]
    n_own: int

    def of(self, rows: NDArray[np.bool_]) -> "Regression":
        """The same of some rows."""
        return self._replace(X=self.X[rows], told=self.told[rows], weights=self.weights[rows])


def fit(
    answers: Floats, told: Floats, exclusive: bool, weights: Floats, n_own: int = 0, ridge: float | None = None
) -> tuple[Reading, float]:
    """Logits of classes or tags, [s, c], from answers, [s, q], and the ridge; None takes what unseen rows prefer.

    `n_own` is how many answers every class or tag has of its own: the first of each, in their order, then the second.
    """
    spread = answers.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    whole = Regression(answers / scale, told, exclusive, weights, n_own)
    odd, start = np.arange(len(answers)) % 2 == 1, None
    if ridge is None:
        tried: list[tuple[float, float, Reading]] = []
        for candidate in RIDGES:  # each begins where the last one ended
            start = _minimise(whole.of(~odd), candidate, start)
            likelihood, _ = posteriors.likelihood(whole.X[odd] @ start.weights + start.bias, told[odd], exclusive)
            tried.append((-float(weights[odd] @ likelihood), candidate, start))
        _, ridge, start = min(tried, key=lambda one: one[0])
    found = _minimise(whole, ridge, start)
    return Reading(found.weights / scale[:, None], found.bias), ridge


def _minimise(given: Regression, ridge: float, start: Reading | None) -> Reading:
    from scipy.optimize import minimize

    X, told, exclusive, weights, n_own = given if given.n_own else _grouped(given)
    (n, q), c = X.shape, told.shape[1]
    usual = _usual(X, told, exclusive, weights, n_own)
    prior = np.clip(weights @ told / weights.sum(), 1e-6, 1 - 1e-6)
    bias = np.log(prior) if exclusive else np.log(prior / (1 - prior))
    # In these coordinates the loss is about as curved in every direction, and the solver needs fewer steps.
    curvature = np.sqrt(np.mean(prior * (1 - prior)))
    spread, axes = np.linalg.eigh((X * weights[:, None]).T @ X / n)
    reach = curvature * np.sqrt(spread.clip(0.0))
    even = axes / np.hypot(reach, np.sqrt(ridge / n))
    along = np.maximum([np.linalg.norm(reach[:, None] * (axes.T @ D)) for D in usual], 1e-12)

    def parts(flat: Floats) -> tuple[Floats, Floats, Floats]:
        free, b, s = np.split(flat, [q * c, q * c + c])
        free = even @ free.reshape(q, c)
        return free, free + np.tensordot(s / along, usual, 1), bias + b / curvature

    def objective(flat: Floats) -> tuple[float, Floats]:
        free, A, b = parts(flat)
        likelihood, slopes = posteriors.likelihood(X @ A + b, told, exclusive)
        slopes *= weights[:, None]
        pull = X.T @ slopes
        slope = even.T @ (ridge * free - pull), slopes.sum(axis=0) / -curvature, np.tensordot(usual, pull, 2) / -along
        value = float(ridge / 2 * np.square(free).sum() - weights @ likelihood)
        return value / n, np.concatenate([part.ravel() for part in slope]) / n

    first = np.concatenate([np.zeros(q * c + c), along / len(usual)])
    if start is not None:
        s = np.tensordot(usual, start.weights, 2) / np.maximum(np.square(usual).sum(axis=(1, 2)), 1e-12)
        free = np.linalg.solve(even, start.weights - np.tensordot(s, usual, 1))
        first = np.concatenate([free.ravel(), curvature * (start.bias - bias), s * along])
    found: Any = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": GAIN})
    return Reading(*parts(found.x)[1:])


def _usual(X: Floats, told: Floats, exclusive: bool, weights: Floats, n_own: int) -> Floats:
    """D_1, D_2, … [k, q, c]."""
    (_, q), c = X.shape, told.shape[1]
    if n_own and not exclusive:
        return np.eye(q).reshape(q, n_own, c).transpose(1, 0, 2)
    weighted = X * weights[:, None]
    means = weighted.T @ told / np.maximum(weights @ told, 1e-9)
    return np.asarray(means - weighted.sum(axis=0)[:, None] / weights.sum())[None]


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
