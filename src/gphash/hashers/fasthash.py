"""FastHash: bits that obey pairs, then boosted trees that predict them (Lin, Shen, Shi, van den Hengel, Suter, 2014).

Bit by bit, in two steps. First the bits z of the training rows that lower the loss of the pairs most, given their
Hamming distances h over the k − 1 bits before,

    min over z ∈ {−1, 1}ⁿ of Σ_pairs w_il z_i z_l,   w_il = L(h_il) − L(h_il + 1),
    L(h) = (h/k)² for similar pairs, max(0, 1/2 − h/k)² for dissimilar ones

by block coordinate descent. Given the other rows, a block without a dissimilar pair inside has a submodular cost, which
a minimum cut solves:

    Σ_i u_i [z_i = 1] + Σ_{i, l inside} |w_il| [z_i ≠ z_l],   u_i = Σ_{l outside} w_il z_l

A block's costs are four arrays: u [b], and |w| of the pairs inside as compressed rows (offsets, partners, capacities),
every pair twice. Then trees learn z from the features (`boosted_trees`), a row weighing what a wrong bit of it would
cost; what they predict, and not z, counts in the distances that the next bit goes by.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from gphash.arrays import Floats, Indices, Signs
from gphash.compiled import alike_pair, jit
from gphash.execution.local import Executor, count_jobs
from gphash.functions.trees import DEEPEST, Trees, TreesFunction, no_trees
from gphash.hashers import boosted_trees, validation
from gphash.hashers.contract import Hasher
from gphash.supervision.similarity import PairGraph, Signatures, class_numbers

TRIED = 200  # features per node
PASSES = 2
LARGEST_FLOW = 2.0**30  # scipy's capacities are 32-bit integers, and residual ones are up to twice as large


@dataclass(kw_only=True, eq=False, repr=False)
class FastHash(Hasher):
    """FastHash: bits from minimum cuts, predicted by boosted decision trees.

    Learns from labels, tags or pairs. Scales of features do not matter. The parameters are those of `Hasher`, and

    Parameters
    ----------
    n_trees : int
        Trees per bit.
    depth : int
        Of a tree; 1 is a single split.
    n_partners : int
        With labels or tags: how many similar rows, and how many dissimilar ones, are drawn for every row.
    """

    n_trees: int = validation.whole(200)
    depth: int = validation.whole(4, DEEPEST)
    n_partners: int = validation.whole(30)

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        generator, graph = np.random.default_rng(seed), supervision
        if supervision.form != "pairs":  # a sample of those that labels or tags make
            graph = draw_partners(supervision, self.n_partners, generator)
        blocks = divide(supervision, graph, generator)
        distances = np.zeros(len(graph.partners), dtype=np.int16)
        quantised = boosted_trees.quantise(X, generator, executor)
        learned = no_trees(self.n_bits, self.n_trees, self.depth)
        for bit, trees in enumerate(map(Trees, *learned), 1):
            costs = pair_costs(graph, distances, bit)
            signs = infer(graph, costs, blocks, generator)
            weights, threads = urgency(graph, costs, signs), count_jobs(self.n_jobs)
            ones = boosted_trees.boost(trees, *quantised, signs, weights, TRIED, generator, executor, threads) >= 0
            distances += ones[graph.owners] != ones[graph.partners]
        return {"hash_function_": TreesFunction(learned, X.shape[1])}


def pair_costs(graph: PairGraph, distances: NDArray[np.int16], bit: int) -> Floats:
    """Costs w_il of pairs [2 p] that are so far apart before bit k, counted from 1; times 4 k², to be whole."""
    h = np.arange(bit + 1)
    losses = np.stack([np.maximum(0, bit - 2 * h) ** 2, 4 * h**2]).astype(np.float64)
    return graph.weights * (losses[:, :-1] - losses[:, 1:])[graph.similar, distances]


def draw_partners(signatures: Signatures, n_partners: int, generator: np.random.Generator) -> PairGraph:
    """Similar and dissimilar partners for every row, up to so many of each; a pair drawn twice weighs two."""
    n_rows = len(signatures.masks)
    if signatures.exact:
        groups = scipy.sparse.csr_array((np.ones(n_rows, np.int8), class_numbers(signatures), np.arange(n_rows + 1)))
    else:
        groups = scipy.sparse.csr_array(np.unpackbits(signatures.masks.view(np.uint8), axis=1).astype(np.int8))
    members = groups.T.tocsr()
    lists = (part.astype(np.int64) for part in (groups.indptr, groups.indices, members.indptr, members.indices))
    owners, partners, signs = _draw_partners(*lists, signatures.masks, signatures.exact, n_partners, generator)
    drawn = scipy.sparse.coo_array((signs, (owners, partners)), shape=(n_rows, n_rows)).tocsr()
    both = (drawn + drawn.T).tocsr()
    both.sort_indices()
    similar, weights = (both.data > 0).astype(np.uint8), np.abs(both.data).astype(np.float64)
    return PairGraph(both.indptr.astype(np.int64), both.indices.astype(np.int64), similar, weights)


@jit
def _draw_partners(offsets, groups, starts, members, masks, exact, n_partners, generator):  # type: ignore[no-untyped-def]
    """Row, partner and ±1 of every draw: similar ones from a group of the row's, dissimilar ones by rejection."""
    n = len(masks)
    owners, partners = np.empty(2 * n * n_partners, np.int64), np.empty(2 * n * n_partners, np.int64)
    signs = np.empty(2 * n * n_partners, np.int32)
    size = 0
    for i in range(n):
        n_groups = offsets[i + 1] - offsets[i]
        if n_groups > 0:
            for _ in range(n_partners):
                g = groups[offsets[i] + int(generator.random() * n_groups)]
                other = members[starts[g] + int(generator.random() * (starts[g + 1] - starts[g]))]
                if other != i:
                    owners[size], partners[size], signs[size] = i, other, 1
                    size += 1
        wanted = n_partners
        for _ in range(4 * n_partners):
            other = int(generator.random() * n)
            if other != i and not alike_pair(masks[i], masks[other], exact):
                owners[size], partners[size], signs[size] = i, other, -1
                size += 1
                wanted -= 1
                if wanted == 0:
                    break
    return owners[:size], partners[:size], signs[:size]


def divide(supervision: Any, graph: PairGraph, generator: np.random.Generator) -> list[Indices]:
    """All rows in blocks without a dissimilar pair inside: the classes of labels, or blocks grown along pairs."""
    if supervision.form == "labels":
        numbers = class_numbers(supervision)
    else:
        numbers = _grow_blocks(generator.permutation(graph.n_rows), graph.offsets, graph.partners, graph.similar)
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])


@jit
def _grow_blocks(order, offsets, partners, similar):  # type: ignore[no-untyped-def]
    """The block of every row: each grows along similar pairs, then takes what fits."""
    block, forbidden = np.full(len(order), -1), np.full(len(order), -1)
    queue = np.empty(len(partners) + 1, np.int64)
    waiting = order
    number = 0
    while len(waiting):
        for seed in waiting:
            queue[0], size, done = seed, 1, 0
            while done < size:
                i = queue[done]
                done += 1
                if block[i] >= 0 or forbidden[i] == number:
                    continue
                block[i] = number
                for p in range(offsets[i], offsets[i + 1]):
                    if similar[p]:
                        queue[size] = partners[p]
                        size += 1
                    else:
                        forbidden[partners[p]] = number
        waiting = waiting[block[waiting] < 0]
        number += 1
    return block


def infer(graph: PairGraph, costs: Floats, blocks: list[Indices], generator: np.random.Generator) -> Signs:
    """The new bit of every row, z, [n], from the costs w of pairs, [2 p]."""
    signs = np.ones(graph.n_rows, dtype=np.int8)
    for _ in range(PASSES):
        for number in generator.permutation(len(blocks)):
            rows = blocks[number]
            signs[rows] = np.where(min_cut(*block_costs(graph.offsets, graph.partners, costs, rows, signs)), 1, -1)
    return signs


@jit
def block_costs(offsets, partners, costs, rows, signs):  # type: ignore[no-untyped-def]
    """What the bits of some rows cost, given those of the others."""
    place = np.full(len(signs), -1)
    place[rows] = np.arange(len(rows))
    room = (offsets[rows + 1] - offsets[rows]).sum()
    unary, bounds = np.zeros(len(rows)), np.zeros(len(rows) + 1, np.int64)
    inside, capacities = np.empty(room, np.int64), np.empty(room)
    size = 0
    for k in range(len(rows)):
        for p in range(offsets[rows[k]], offsets[rows[k] + 1]):
            other = partners[p]
            if place[other] < 0:
                unary[k] += costs[p] * signs[other]
            elif costs[p] < 0:
                inside[size], capacities[size] = place[other], -costs[p]
                size += 1
        bounds[k + 1] = size
    return unary, bounds, inside[:size], capacities[:size]


def min_cut(unary: Floats, offsets: Indices, partners: Indices, capacities: Floats) -> NDArray[np.bool_]:
    """Which rows of a block are +1 in the best solution (the one with fewest, if there are several), [b]."""
    certain = settle(unary, offsets, partners, capacities)
    chosen: NDArray[np.bool_] = certain > 0
    if not certain.all():
        # The costs of the rows that are open, given those that are not.
        owners, is_open = np.repeat(np.arange(len(unary)), np.diff(offsets)), certain == 0
        left, place, settled = unary.copy(), np.cumsum(is_open) - 1, ~is_open[partners]
        np.subtract.at(left, owners[settled], certain[partners[settled]] * capacities[settled])
        inside = is_open[owners] & ~settled
        pairs = place[owners[inside]], place[partners[inside]], capacities[inside]
        chosen[is_open] = flow_cut(left[is_open], *pairs)
    return chosen


@jit
def settle(unary, offsets, partners, capacities):  # type: ignore[no-untyped-def]
    """+1 or −1 for rows that have it in every best solution, 0 for those that this does not tell.

    A row that is worth adding to a set within every best solution belongs to all of them, as more of its partners in
    the set never make it worth less; likewise for rows that are worth taking out of a set around all of them. Rows
    are added to the empty set, and taken out of the full one, until there are none such.
    """
    n = len(unary)
    result, slack, stack = np.zeros(n, np.int8), np.empty(n), np.empty(n, np.int64)
    for side in (1, -1):
        size = 0
        for i in range(n):
            slack[i] = side * unary[i] + capacities[offsets[i] : offsets[i + 1]].sum()
            if slack[i] < 0:
                result[i], stack[size] = side, i
                size += 1
        while size:
            size -= 1
            i = stack[size]
            for p in range(offsets[i], offsets[i + 1]):
                other = partners[p]
                if result[other] != side:
                    slack[other] -= 2 * capacities[p]
                    if slack[other] < 0:
                        result[other], stack[size] = side, other
                        size += 1
    return result


def flow_cut(unary: Floats, owners: Indices, partners: Indices, capacities: Floats) -> NDArray[np.bool_]:
    """The same by maximum flow: +1 are the rows that the source still reaches when the flow is as large as can be."""
    n = len(unary)
    if (unary >= 0).all():  # nothing to gain from +1
        return np.zeros(n, dtype=bool)
    total = float(np.abs(unary).sum())
    scale = 2.0 ** np.floor(np.log2(LARGEST_FLOW / total))  # a power of two leaves whole numbers whole
    for_one, against = np.flatnonzero(unary < 0), np.flatnonzero(unary > 0)
    starts = np.concatenate([owners, np.full(len(for_one), n), against])
    ends = np.concatenate([partners, for_one, np.full(len(against), n + 1)])
    flows = np.concatenate([np.minimum(capacities, total), np.abs(unary[for_one]), unary[against]])
    whole = np.rint(flows * scale).astype(np.int32)
    places = starts.astype(np.int32), ends.astype(np.int32)  # all that flows are computed of in older versions of SciPy
    network = scipy.sparse.csr_array((whole, places), shape=(n + 2, n + 2))
    residual = network - maximum_flow(network, n, n + 1).flow
    residual.eliminate_zeros()
    reached = np.zeros(n + 2, dtype=bool)
    reached[breadth_first_order(residual, n, return_predecessors=False)] = True
    return reached[:n]


def urgency(graph: PairGraph, costs: Floats, signs: Signs) -> Floats:
    """What it would cost to turn each row's bit over: max(0, −z_i Σ_l w_il z_l), [n]; all 1 if no row's bit matters."""
    owners = graph.owners
    terms = costs * signs[owners] * signs[graph.partners]
    turned = np.maximum(-np.bincount(owners, terms, graph.n_rows), 0.0)
    return turned if turned.any() else np.ones(len(turned))
