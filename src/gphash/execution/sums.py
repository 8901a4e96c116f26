"""Sums that do not depend on where their terms are: neighbours are added first, then pairs of pairs, and so on.

Floating-point addition is not associative, so a sum over row blocks must be the same tree for any number of threads,
processes or machines. Here term i is leaf i of a binary tree: (level, place) is the sum of the terms place · 2^level
to (place + 1) · 2^level − 1. Whoever has both halves of a node can make it; what is missing at the right edge, when the
number of terms is no power of two, is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gphash.arrays import Floats

Terms = Sequence[Any]  # arrays or numbers; every term of a sum has as many


class Sum:
    """Part of a sum: the largest nodes that the terms so far make, each given with its place."""

    def __init__(self, terms: Iterable[tuple[int, Terms]] = ()) -> None:
        self.nodes: dict[tuple[int, int], Terms] = {}
        for place, values in terms:
            self.add(place, values)

    def add(self, place: int, terms: Terms, level: int = 0) -> None:
        """Take a node in, and make those that it completes."""
        while (sibling := self.nodes.pop((level, place ^ 1), None)) is not None:
            terms = [np.add(one, other, dtype=np.float64) for one, other in zip(sibling, terms, strict=True)]
            level, place = level + 1, place // 2
        self.nodes[level, place] = terms

    def merge(self, other: "Sum") -> "Sum":
        """Take in what another part has."""
        for (level, place), terms in other.nodes.items():
            self.add(place, terms, level)
        return self

    def total(self) -> tuple[Floats, ...]:
        """The sum, once every term is in."""
        # The nodes left are as many ones as the number of terms has in binary, the smallest at the right edge.
        totals: list[Floats] = []
        for _, terms in sorted(self.nodes.items()):
            if totals:
                totals = [part + total for part, total in zip(terms, totals, strict=True)]
            else:
                totals = [np.array(part, dtype=np.float64) for part in terms]
        return tuple(totals)
