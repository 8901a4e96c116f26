"""Boosted decision trees on features quantised to bytes (GentleBoost with shrinkage η), for one bit.

    F(x) = η Σ_t f_t(x),   f_t minimises Σ_i w_i (z_i − f_t(x_i))²,   w_i = a_i exp(−z_i F(x_i))

z are the signs to predict and a the weights of the examples. A tree of fixed depth is grown level by level; a node
tries some random features (LazyBoost) and takes the split with the largest G_L²/H_L + G_R²/H_R, where G = Σ w z and
H = Σ w, and a leaf predicts G/H. Rows with the least weight, together at most 1 % of the mass, sit a tree out.

Weights are whole numbers, so that sums are exact in any order: G and H share one 64-bit integer per bin of a histogram.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.compiled import jit
from gphash.execution.local import Executor, row_blocks
from gphash.functions.trees import Trees

BINS = 256
SHRINKAGE = 0.3  # η; the authors' AdaBoost has none
SAMPLE = 20_000  # rows from which the borders of bins are taken
KEPT_MASS = 0.99
STEPS = 4096  # of weight, in which the lightest rows are found
UNIT = 2.0**30  # the sum of all weights as a whole number
HALF = 32  # bits for either sum


class Quantised(NamedTuple):
    """Features in bytes.

    bins
        How many of its column's borders a value is not below, uint8 [d, n].
    borders
        Ascending, padded with infinity, float64 [d, BINS − 1].
    """

    bins: NDArray[np.uint8]
    borders: Floats


def quantise(X: Floats, generator: np.random.Generator, executor: Executor) -> Quantised:
    """Bytes for features [n, d]: bins that hold about as many rows each, or single values where there are few."""
    sample = X if len(X) <= SAMPLE else X[np.sort(generator.choice(len(X), SAMPLE, replace=False))]
    n_rows, n_features = X.shape
    bins = np.empty((n_features, n_rows), dtype=np.uint8)
    borders = np.full((n_features, BINS - 1), np.inf)

    def fill(columns: slice) -> None:
        for column in range(columns.start, columns.stop):
            edges = find_borders(sample[:, column].astype(np.float64))
            borders[column, : len(edges)] = edges
            bins[column] = np.searchsorted(edges, X[:, column].astype(np.float64), side="right")

    list(executor.collect(fill, row_blocks(n_features, 16)))
    return Quantised(bins, borders)


def find_borders(values: Floats) -> Floats:
    """At most BINS − 1 borders between the distinct values of a column, ascending; none if it is constant."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) > BINS:
        below = np.cumsum(counts)[:-1] / len(values)
        places = np.unique(np.searchsorted(below, np.arange(1, BINS) / BINS))
        places = places[places < len(below)]
    else:
        places = np.arange(len(distinct) - 1)
    low, high = distinct[places], distinct[places + 1]
    middle = low + (high - low) / 2
    return np.where(middle > low, middle, high)


def boost(
    data: Quantised,
    signs: Signs,
    weights: Floats,
    n_trees: int,
    depth: int,
    n_tried: int,
    generator: np.random.Generator,
    executor: Executor,
    n_parts: int,
) -> tuple[Trees, Floats]:
    """Trees for one bit, and their margins for the training rows.

    Parameters
    ----------
    data
        Features.
    signs, weights
        z and a, [n].
    n_trees, depth
        Size of the ensemble.
    n_tried
        Features that a node tries; no more than there are.
    generator
        Draws them.
    executor, n_parts
        Where features are tried, and in how many parts; neither changes a result.

    Returns
    -------
    Trees, and F, [n].
    """
    n_features, n_rows = data.bins.shape
    n_tried = min(n_tried, n_features)
    size = 2**depth
    trees = Trees(
        np.zeros((n_trees, size - 1), np.uint32), np.full((n_trees, size - 1), np.inf), np.zeros((n_trees, size))
    )
    margin = np.zeros(n_rows)
    parts = row_blocks(n_tried, -(-n_tried // n_parts))
    for t in range(n_trees):
        rows, packed = weigh(signs, weights, margin)
        splits = np.full(size - 1, -1, dtype=np.int64)  # bin from which on a row goes right
        starts = np.array([0, len(rows)])
        for level in range(depth):
            n_nodes = 2**level
            tried = np.argsort(generator.random((n_nodes, n_features)), axis=1)[:, :n_tried]
            look = partial(search, data.bins, rows, packed, starts)
            found = list(executor.collect(look, [tried[:, part] for part in parts]))
            features, bins = choose(found)
            nodes = slice(n_nodes - 1, 2 * n_nodes - 1)
            trees.features[t, nodes], splits[nodes] = features, bins
            split = bins >= 0
            trees.thresholds[t, nodes][split] = data.borders[features[split], bins[split] - 1]
            rows, packed, starts = partition(data.bins, rows, packed, starts, features, bins)
        trees.values[t] = SHRINKAGE * leaves(packed, starts)
        add_tree(data.bins, trees.features[t], splits, trees.values[t], margin)
    return trees, margin


def choose(found: list[tuple[Floats, NDArray[np.int64], NDArray[np.int64]]]) -> tuple[Any, Any]:
    """Feature and bin of the best split of every node over the parts searched; the first of equals, −1 for no bin."""
    best = np.argmax(np.stack([gains for gains, _, _ in found]), axis=0)
    nodes = np.arange(len(best))
    return np.stack([f for _, f, _ in found])[best, nodes], np.stack([b for _, _, b in found])[best, nodes]


def weigh(signs: Signs, weights: Floats, margin: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that take part in the next tree, ascending, and H · 2³² + G of each as one whole number."""
    exponent = -signs * margin
    weight = weights * np.exp(exponent - exponent.max())
    weight /= weight.max()
    rows, packed = _weigh(signs, weight, float(weight.sum()))
    return rows, packed


@jit
def _weigh(signs, weight, total):  # type: ignore[no-untyped-def]
    mass = np.zeros(STEPS + 1)
    for i in range(len(weight)):
        mass[int(weight[i] * STEPS)] += weight[i]
    below = 0.0
    least = 0
    while below + mass[least] <= (1.0 - KEPT_MASS) * total:
        below += mass[least]
        least += 1
    rows = np.empty(len(weight), np.int64)
    packed = np.empty(len(weight), np.int64)
    n = 0
    for i in range(len(weight)):
        units = int(weight[i] * (UNIT / total) + 0.5)
        if int(weight[i] * STEPS) >= least and units > 0:
            rows[n] = i
            packed[n] = (units << HALF) + signs[i] * units
            n += 1
    return rows[:n], packed[:n]


@jit(inline="always")
def _signed_sum(packed):  # type: ignore[no-untyped-def]
    """G."""
    return (packed << HALF) >> HALF


@jit(inline="always")
def _sum(packed):  # type: ignore[no-untyped-def]
    """H."""
    return (packed - _signed_sum(packed)) >> HALF


@jit(inline="always")
def _score(packed):  # type: ignore[no-untyped-def]
    """G²/H."""
    return float(_signed_sum(packed)) ** 2 / float(_sum(packed))


@jit
def search(bins, rows, packed, starts, tried):  # type: ignore[no-untyped-def]
    """Best split of every node among the features that it tries.

    Parameters
    ----------
    bins
        Quantised features, [d, n].
    rows, packed
        Rows by node, and their weights, [r] each.
    starts
        Node v has the rows from starts[v] to starts[v + 1].
    tried
        Features, [nodes, f].

    Returns
    -------
    Gain, feature and first bin that goes right; −1 for the bin, and 0 for the gain, if no split gains anything.
    """
    n_nodes, n_tried = tried.shape
    gains, features, places = np.zeros(n_nodes), np.zeros(n_nodes, np.int64), np.full(n_nodes, -1)
    histograms = np.empty((4, BINS), np.int64)
    for v in range(n_nodes):
        mine, weight = rows[starts[v] : starts[v + 1]], packed[starts[v] : starts[v + 1]]
        if len(mine) < 2:
            continue
        total = weight.sum()
        before = _score(total)
        least = before + 1e-9 * _sum(total)
        for first in range(0, n_tried, 4):
            # Four histograms at a time, for want of which the processor waits on one address.
            histograms[:] = 0
            f0, f1 = tried[v, first], tried[v, min(first + 1, n_tried - 1)]
            f2, f3 = tried[v, min(first + 2, n_tried - 1)], tried[v, min(first + 3, n_tried - 1)]
            for k in range(len(mine)):
                i, w = mine[k], weight[k]
                histograms[0, bins[f0, i]] += w
                histograms[1, bins[f1, i]] += w
                histograms[2, bins[f2, i]] += w
                histograms[3, bins[f3, i]] += w
            for c in range(min(4, n_tried - first)):
                left = np.int64(0)
                for b in range(BINS - 1):
                    here = histograms[c, b]
                    if here == 0:
                        continue
                    left += here
                    if left == total:
                        break
                    score = _score(left) + _score(total - left)
                    if score > least:
                        least = score
                        gains[v] = score - before
                        features[v] = tried[v, first + c]
                        places[v] = b + 1
    return gains, features, places


@jit
def partition(bins, rows, packed, starts, features, places):  # type: ignore[no-untyped-def]
    """Rows by child node, in the same form; the rows of a node that does not split are its left child's."""
    moved, weights = np.empty_like(rows), np.empty_like(packed)
    borders = np.zeros(2 * len(features) + 1, np.int64)
    for v in range(len(features)):
        at = starts[v]
        for right in (False, True):
            for k in range(starts[v], starts[v + 1]):
                if (places[v] >= 0 and bins[features[v], rows[k]] >= places[v]) == right:
                    moved[at] = rows[k]
                    weights[at] = packed[k]
                    at += 1
            borders[2 * v + 1 + right] = at
    return moved, weights, borders


@jit
def leaves(packed, starts):  # type: ignore[no-untyped-def]
    """G/H of every leaf; 0 where no row has come."""
    values = np.zeros(len(starts) - 1)
    for v in range(len(values)):
        total = packed[starts[v] : starts[v + 1]].sum()
        if total != 0:
            values[v] = float(_signed_sum(total)) / float(_sum(total))
    return values


@jit
def add_tree(bins, features, places, values, margin):  # type: ignore[no-untyped-def]
    """Add what a tree says to the margins of quantised rows."""
    n_inner = len(features)
    for i in range(len(margin)):
        v = 0
        while v < n_inner:
            v = 2 * v + (2 if places[v] >= 0 and bins[features[v], i] >= places[v] else 1)
        margin[i] += values[v - n_inner]
