"""Signs of sums of decision trees."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import schema
from gphash.arrays import Floats, Rows, widened
from gphash.codes.packing import MOST_BITS
from gphash.compiled import jit
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.schema import Array, Schema, Whole

TILE = 64
DEEPEST = 10

SCHEMA = Schema(
    {"n_features": Whole(1, 2**31)},
    {
        "features": Array("<u4", ("bits", "trees", "nodes")),
        "thresholds": Array("<f8", ("bits", "trees", "nodes"), -np.inf, np.inf),
        "values": Array("<f8", ("bits", "trees", "leaves")),
    },
    {"bits": (1, MOST_BITS), "trees": (1, 2**31), "nodes": (1, 2**DEEPEST), "leaves": (2, 2**DEEPEST)},
)
"""What a file holds of trees."""


class Trees(NamedTuple):
    """Complete binary trees; the children of node v are 2 v + 1 and 2 v + 2."""

    features: NDArray[np.uint32]  # column that a node looks at, [..., t, 2^depth − 1]
    thresholds: Floats  # a row goes right where its value is at least this; infinite for a node that does not split
    values: Floats  # what a leaf adds to the margin, [..., t, 2^depth]


def no_trees(n_bits: int, n_trees: int, depth: int) -> Trees:
    """Trees that do not split and add nothing, to be filled in."""
    inner, leaves = (n_bits, n_trees, 2**depth - 1), (n_bits, n_trees, 2**depth)
    return Trees(np.zeros(inner, np.uint32), np.full(inner, np.inf), np.zeros(leaves))


@dataclass(frozen=True, eq=False)
class TreesFunction:
    """Everything needed to encode a row: one ensemble per bit, [m, t, nodes], for rows of so many features."""

    has_probabilities: ClassVar[bool] = False

    trees: Trees
    n_features: int

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return len(self.trees.features)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """Sums of what the trees say, [n, m]."""
        tiles = row_blocks(len(X), TILE)
        with LocalExecutor(n_jobs) as executor:
            parts = executor.collect(lambda rows: walk(np.ascontiguousarray(widened(X[rows]).T), *self.trees), tiles)
            return np.concatenate(list(parts))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        return {"n_features": self.n_features}, dict(self.trees._asdict())

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content, checked: the compiled walk does not check bounds."""
        sizes = schema.check(SCHEMA, meta, arrays)
        schema.check_values("features", arrays["features"], 0, meta["n_features"] - 1)
        nodes, leaves = sizes["nodes"], sizes["leaves"]
        if leaves not in [2**depth for depth in range(1, DEEPEST + 1)] or nodes != leaves - 1:
            raise schema.FaultError(f"its trees have {nodes} nodes and {leaves} leaves, which are no trees")
        return cls(Trees(**{name: arrays[name] for name in Trees._fields}), meta["n_features"])


@jit
def walk(columns, features, thresholds, values):  # type: ignore[no-untyped-def]
    """F of a few rows, given as columns [d, n], for every bit, [n, m]."""
    n_bits, n_trees, n_inner = features.shape
    n_rows = columns.shape[1]
    one, first_leaf = np.uint32(1), np.uint32(n_inner)  # unsigned indices spare numba the check for negative ones
    margin = np.zeros((n_bits, n_rows))
    nodes = np.empty(n_rows, np.uint32)
    for j in range(n_bits):
        mine = margin[j]
        for t in range(n_trees):
            feature, threshold, value = features[j, t], thresholds[j, t], values[j, t]
            # All rows go down a level before any goes further: the processor works on many at a time.
            column, least = columns[feature[0]], threshold[0]
            for i in range(n_rows):
                nodes[i] = one + np.uint32(column[i] >= least)
            depth_left = n_inner // 2
            while depth_left:
                for i in range(n_rows):
                    v = nodes[i]
                    nodes[i] = v + v + one + np.uint32(columns[feature[v], i] >= threshold[v])
                depth_left //= 2
            for i in range(n_rows):
                mine[i] += value[nodes[i] - first_leaf]
    return margin.T
