"""Boosted decision trees on features quantised to bytes (GentleBoost with shrinkage η), for one bit.

    F(x) = η Σ_t f_t(x),   f_t minimises Σ_i w_i (z_i − f_t(x_i))²,   w_i = a_i exp(−z_i F(x_i))

z are the signs to predict and a the weights of the examples. A tree of fixed depth is grown level by level; a node
tries some random features (LazyBoost) and takes the split with the largest G_L²/H_L + G_R²/H_R, where G = Σ w z and
H = Σ w, and a leaf predicts G/H. Rows with the least weight, together at most 1 % of the mass, sit a tree out.

Weights are whole numbers, so that sums are exact in any order: G and H share one 64-bit integer per bin of a histogram.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.compiled import jit
from gphash.execution.local import Executor, row_blocks
from gphash.functions.trees import Trees, walk

BINS = 256
SHRINKAGE = 0.3  # η; the authors' AdaBoost has none
SAMPLE = 20_000  # rows from which the borders of bins are taken
KEPT_MASS = 0.99
STEPS = 4096  # of weight, in which the lightest rows are found
UNIT = 2.0**30  # the sum of all weights as a whole number
HALF = 32  # bits for either sum


def quantise(X: Floats, generator: np.random.Generator, executor: Executor) -> tuple[NDArray[np.uint8], Floats]:
    """Features [n, d] in bytes, [d, n]: how many of its column's borders a value is not below; and the borders.

    Borders ascend and are padded with infinity, [d, BINS − 1].
    """
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
    return bins, borders


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
    trees: Trees,
    bins: NDArray[np.uint8],
    borders: Floats,
    signs: Signs,
    weights: Floats,
    n_tried: int,
    generator: np.random.Generator,
    executor: Executor,
    n_parts: int,
) -> Floats:
    """Fill in the trees of one bit, of signs z and weights a, and give their margins F for the training rows, [n]."""
    n_features, n_rows = bins.shape
    n_tried, margin = min(n_tried, n_features), np.zeros(n_rows)
    parts = row_blocks(n_tried, -(-n_tried // n_parts))  # how many there are changes no result
    for features, thresholds, values in zip(*trees, strict=True):
        rows, packed = weigh(signs, weights, margin)
        places = np.full(len(features), np.inf)  # bin from which on a row goes right
        starts = np.array([0, len(rows)])
        while len(starts) <= len(features) + 1:
            n_nodes = len(starts) - 1
            tried = np.argsort(generator.random((n_nodes, n_features)), axis=1)[:, :n_tried]
            look = partial(search, bins, rows, packed, starts)
            found = executor.collect(look, [tried[:, part] for part in parts])
            gains, columns, firsts = (np.stack(part) for part in zip(*found, strict=True))
            best = gains.argmax(axis=0), np.arange(n_nodes)  # the first of equals
            column, first = columns[best], firsts[best]
            level = slice(n_nodes - 1, 2 * n_nodes - 1)
            features[level], split = column, first >= 0
            places[level][split] = first[split]
            thresholds[level][split] = borders[column[split], first[split] - 1]
            rows, packed, starts = partition(bins, rows, packed, starts, column, first)
        totals = np.diff(np.append(0, np.cumsum(packed))[starts])
        G, H = _sums(totals)
        values[:] = SHRINKAGE * np.divide(G, H, out=np.zeros(len(totals)), where=totals != 0)
        margin += walk(bins, features[None, None], places[None, None], values[None, None])[:, 0]
    return margin


def weigh(signs: Signs, weights: Floats, margin: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that take part in the next tree, ascending, and H · 2³² + G of each as one whole number."""
    exponent = -signs * margin
    weight = weights * np.exp(exponent - exponent.max())
    weight /= weight.max()
    total = float(weight.sum())
    steps, units = (weight * STEPS).astype(np.int64), (weight * (UNIT / total) + 0.5).astype(np.int64)
    mass = np.cumsum(np.bincount(steps, weight, STEPS + 1))
    least = np.searchsorted(mass, (1.0 - KEPT_MASS) * total, side="right")
    rows = np.flatnonzero((steps >= least) & (units > 0))
    return rows, (units[rows] << HALF) + signs[rows] * units[rows]


@jit(inline="always")
def _sums(packed):  # type: ignore[no-untyped-def]
    """G and H."""
    signed = (packed << HALF) >> HALF
    return signed, (packed - signed) >> HALF


@jit(inline="always")
def _score(packed):  # type: ignore[no-untyped-def]
    """G²/H."""
    signed, total = _sums(packed)
    return float(signed) ** 2 / float(total)


@jit
def search(bins, rows, packed, starts, tried):  # type: ignore[no-untyped-def]
    """Best split of every node among the features that it tries, [nodes, f].

    Node v has the rows, and their weights, from starts[v] to starts[v + 1]. Given are gain, feature and first bin that
    goes right; 0 for the gain and −1 for the bin if no split gains anything.
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
        least = before + 1e-9 * _sums(total)[1]
        for first in range(0, n_tried, 4):
            # Four histograms at a time, so that additions do not wait for each other.
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
                        gains[v], features[v], places[v] = score - before, tried[v, first + c], b + 1
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
                    moved[at], weights[at] = rows[k], packed[k]
                    at += 1
            borders[2 * v + 1 + right] = at
    return moved, weights, borders
