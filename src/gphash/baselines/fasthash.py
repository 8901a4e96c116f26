"""FastHash: bits that obey pairs, then boosted trees that predict them (Lin, Shen, Shi, van den Hengel, Suter, 2014).

Bit by bit, in two steps. First the bits z of the training rows that lower the loss of the pairs most, given their
Hamming distances h over the k − 1 bits before,

    min over z ∈ {−1, 1}ⁿ of Σ_pairs w_il z_i z_l,   w_il = L(h_il) − L(h_il + 1),
    L(h) = (h/k)² for similar pairs, max(0, 1/2 − h/k)² for dissimilar ones,

by minimum cuts over blocks of rows (`binary_cut`). Then trees learn z from the features (`boosted_trees`), a row
weighing what a wrong bit of it would cost; what they predict, and not z, counts in the distances that the next bit goes
by.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gphash import validation
from gphash.baselines import binary_cut, boosted_trees
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.contract import Hasher
from gphash.execution.local import LocalExecutor, count_jobs
from gphash.functions.trees import DEEPEST, Trees, TreesFunction

TRIED = 200  # features per node


class FastHash(Hasher):
    """FastHash: bits from minimum cuts, predicted by boosted decision trees.

    Learns from labels, tags or pairs. Scales of features do not matter.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    n_trees : int
        Trees per bit.
    depth : int
        Of a tree; 1 is a single split.
    n_partners : int
        With labels or tags: how many similar rows, and how many dissimilar ones, are drawn for every row.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        Seed of everything random.

    Attributes
    ----------
    hash_function_ : TreesFunction
        All that encoding needs.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")
    hash_function_: TreesFunction

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_trees: int = 200,
        depth: int = 4,
        n_partners: int = 30,
        n_jobs: int | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_trees = n_trees
        self.depth = depth
        self.n_partners = n_partners
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        self._check()
        generator = np.random.default_rng(validation.seed(self.random_state))
        features = validation.features(self, X, reset=True)
        supervision = self._supervision(y, len(features), balance_pairs=True)
        graph = self._graph(supervision, generator)
        if isinstance(supervision, Signatures) and supervision.exact:
            blocks = binary_cut.class_blocks(supervision)
        else:
            blocks = binary_cut.greedy_blocks(graph, generator)
        distances = np.zeros(len(graph.partners), dtype=np.int16)
        learned = []
        with LocalExecutor(self.n_jobs) as executor:
            data = boosted_trees.quantise(features, generator, executor)
            for bit in range(1, self.n_bits + 1):
                signs = binary_cut.infer(graph, distances, bit, blocks, generator)
                urgency = binary_cut.urgency(graph, distances, bit, signs)
                trees, margin = boosted_trees.boost(
                    data, signs, urgency, self.n_trees, self.depth, TRIED, generator, executor, executor.n_threads
                )
                learned.append(trees)
                predicted = np.where(margin >= 0, 1, -1).astype(np.int8)
                binary_cut.add_bit(graph.offsets, graph.partners, predicted, distances)
        stacked = Trees(*(np.stack(part) for part in zip(*learned, strict=True)))
        return {"hash_function_": TreesFunction(stacked, features.shape[1])}

    def _check(self) -> None:
        """Refuse bad parameters."""
        validation.code_length("n_bits", self.n_bits)
        for name in ("n_trees", "depth", "n_partners"):
            validation.whole_number(name, getattr(self, name))
        if self.depth > DEEPEST:
            raise ValueError(f"depth={self.depth!r}; give at most {DEEPEST}.")
        count_jobs(self.n_jobs)

    def _graph(self, supervision: Signatures | PairGraph, generator: np.random.Generator) -> PairGraph:
        """Pairs to learn from: those given, or a sample of those that labels or tags make."""
        if isinstance(supervision, PairGraph):
            return supervision
        return binary_cut.draw_partners(supervision, self.n_partners, generator)
