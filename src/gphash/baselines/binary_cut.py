"""Bits that obey pairs: block coordinate descent whose every step is an exact minimum cut.

    min over z ∈ {−1, 1}ⁿ of Σ_pairs w_il z_i z_l,   w ≤ 0 for similar pairs and w ≥ 0 for dissimilar ones

A block of rows without a dissimilar pair inside has, given the other rows, the submodular cost

    Σ_i u_i [z_i = 1] + Σ_{i, l inside} |w_il| [z_i ≠ z_l],   u_i = Σ_{l outside} w_il z_l,

which a minimum cut solves. Rows whose bit follows already from bounds on the others' (in every optimum, by
submodularity) are decided beforehand.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from gphash.arrays import Floats, Indices, Signs
from gphash.coding.alike import alike_pair
from gphash.coding.similarity import PairGraph, Signatures, class_numbers
from gphash.compiled import jit

PASSES = 2
LARGEST_FLOW = 2.0**30  # scipy's capacities are 32-bit integers, and residual ones are up to twice as large


class Block(NamedTuple):
    """What a block's bits cost.

    unary
        u, [b].
    offsets, partners, capacities
        |w| of pairs inside, as compressed rows; every pair twice.
    """

    unary: Floats
    offsets: Indices
    partners: Indices
    capacities: Floats


def loss_differences(bit: int) -> Floats:
    """Loss with equal bits less loss with different ones, by similarity and distance before, [2, bit].

    `bit` is the number of the new bit, k, from 1 on. The loss is (h/k)² for similar pairs at Hamming distance h and
    max(0, 1/2 − h/k)² for dissimilar ones; here times 4 k², which makes whole numbers of all.
    """
    h = np.arange(bit + 1)
    losses = np.stack([np.maximum(0, bit - 2 * h) ** 2, 4 * h**2]).astype(np.float64)
    return losses[:, :-1] - losses[:, 1:]


def draw_partners(signatures: Signatures, n_partners: int, generator: np.random.Generator) -> PairGraph:
    """Similar and dissimilar partners for every row, up to so many of each; a pair drawn twice weighs two."""
    n_rows = len(signatures.masks)
    if signatures.exact:
        groups = scipy.sparse.csr_array(
            (np.ones(n_rows, np.int8), class_numbers(signatures), np.arange(n_rows + 1)),
        )
    else:
        groups = scipy.sparse.csr_array(np.unpackbits(signatures.masks.view(np.uint8), axis=1).astype(np.int8))
    members = groups.T.tocsr()
    owners, partners, signs = _draw_partners(
        groups.indptr.astype(np.int64),
        groups.indices.astype(np.int64),
        members.indptr.astype(np.int64),
        members.indices.astype(np.int64),
        signatures.masks,
        signatures.exact,
        n_partners,
        generator,
    )
    drawn = scipy.sparse.coo_array((signs, (owners, partners)), shape=(n_rows, n_rows)).tocsr()
    both = (drawn + drawn.T).tocsr()
    both.sort_indices()
    similar = (both.data > 0).astype(np.uint8)
    return PairGraph(
        both.indptr.astype(np.int64), both.indices.astype(np.int64), similar, np.abs(both.data).astype(np.float64)
    )


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


def class_blocks(signatures: Signatures) -> list[Indices]:
    """The rows of every class."""
    numbers = class_numbers(signatures)
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])


def greedy_blocks(graph: PairGraph, generator: np.random.Generator) -> list[Indices]:
    """Blocks without a dissimilar pair inside, that hold every row.

    A block grows from a seed along similar pairs, and then takes in any row that fits.
    """
    order = generator.permutation(graph.n_rows)
    numbers = _greedy_blocks(order, graph.offsets, graph.partners, graph.similar)
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])


@jit
def _forbid(offsets, partners, similar, i, number, forbidden):  # type: ignore[no-untyped-def]
    """Keep rows that are dissimilar to a new member out of its block."""
    for p in range(offsets[i], offsets[i + 1]):
        if not similar[p]:
            forbidden[partners[p]] = number


@jit
def _greedy_blocks(order, offsets, partners, similar):  # type: ignore[no-untyped-def]
    block, forbidden = np.full(len(order), -1), np.full(len(order), -1)
    queue = np.empty(len(order), np.int64)
    waiting = order
    number = 0
    while len(waiting):
        for seed in waiting:
            if block[seed] >= 0 or forbidden[seed] == number:
                continue
            block[seed] = number
            _forbid(offsets, partners, similar, seed, number, forbidden)
            queue[0] = seed
            size, done = 1, 0
            while done < size:
                i = queue[done]
                done += 1
                for p in range(offsets[i], offsets[i + 1]):
                    other = partners[p]
                    if similar[p] and block[other] < 0 and forbidden[other] != number:
                        block[other] = number
                        _forbid(offsets, partners, similar, other, number, forbidden)
                        queue[size] = other
                        size += 1
        waiting = waiting[block[waiting] < 0]
        number += 1
    return block


def infer(
    graph: PairGraph, distances: NDArray[np.int16], bit: int, blocks: list[Indices], generator: np.random.Generator
) -> Signs:
    """The new bit of every row, z, [n].

    Parameters
    ----------
    graph
        Pairs.
    distances
        Hamming distance of every pair over the bits before, as the pairs are listed, [2 p].
    bit
        Number of the new bit, from 1 on.
    blocks
        Rows that are decided together.
    generator
        Draws the order of the blocks.
    """
    table = loss_differences(bit)
    signs = np.ones(graph.n_rows, dtype=np.int8)
    for _ in range(PASSES):
        for number in generator.permutation(len(blocks)):
            rows = blocks[number]
            signs[rows] = np.where(min_cut(cost(graph, distances, table, rows, signs)), 1, -1)
    return signs


def cost(graph: PairGraph, distances: NDArray[np.int16], table: Floats, rows: Indices, signs: Signs) -> Block:
    """What the bits of some rows cost, given those of the others."""
    place = np.full(graph.n_rows, -1)
    place[rows] = np.arange(len(rows))
    return Block(*_cost(*graph, distances, table, rows, signs, place))


@jit
def _cost(offsets, partners, similar, weights, distances, table, rows, signs, place):  # type: ignore[no-untyped-def]
    room = 0
    for i in rows:
        room += offsets[i + 1] - offsets[i]
    unary, bounds = np.zeros(len(rows)), np.zeros(len(rows) + 1, np.int64)
    inside, capacities = np.empty(room, np.int64), np.empty(room)
    size = 0
    for k in range(len(rows)):
        i = rows[k]
        for p in range(offsets[i], offsets[i + 1]):
            w = weights[p] * table[similar[p], distances[p]]
            if place[partners[p]] < 0:
                unary[k] += w * signs[partners[p]]
            elif w < 0:
                inside[size] = place[partners[p]]
                capacities[size] = -w
                size += 1
        bounds[k + 1] = size
    return unary, bounds, inside[:size], capacities[:size]


def min_cut(block: Block) -> NDArray[np.bool_]:
    """Which rows of a block are +1 in the best solution (the one with fewest, if there are several), [b]."""
    certain = settle(*block)
    chosen: NDArray[np.bool_] = certain > 0
    open_rows = np.flatnonzero(certain == 0)
    if len(open_rows):
        chosen[open_rows] = flow_cut(_restrict(*block, certain, open_rows))
    return chosen


@jit
def settle(unary, offsets, partners, capacities):  # type: ignore[no-untyped-def]
    """+1 or −1 for rows that have it in every best solution, 0 for those that this does not tell.

    A row that is worth adding to a set within every best solution belongs to all of them, as more of its partners in
    the set never make it worth less; likewise for rows that are worth taking out of a set around all of them. Rows
    are added to the empty set, and taken out of the full one, until there are none such.
    """
    n = len(unary)
    result = np.zeros(n, np.int8)
    slack = np.empty(n)
    stack = np.empty(n, np.int64)
    for side in (1, -1):
        size = 0
        for i in range(n):
            slack[i] = side * unary[i] + capacities[offsets[i] : offsets[i + 1]].sum()
            if slack[i] < 0:
                result[i] = side
                stack[size] = i
                size += 1
        while size:
            size -= 1
            i = stack[size]
            for p in range(offsets[i], offsets[i + 1]):
                other = partners[p]
                if result[other] != side:
                    slack[other] -= 2 * capacities[p]
                    if slack[other] < 0:
                        result[other] = side
                        stack[size] = other
                        size += 1
    return result


@jit
def _restrict_block(unary, offsets, partners, capacities, certain, rows, place):  # type: ignore[no-untyped-def]
    mine, bounds = unary[rows], np.zeros(len(rows) + 1, np.int64)
    inside, kept = np.empty_like(partners), np.empty_like(capacities)
    size = 0
    for k in range(len(rows)):
        for p in range(offsets[rows[k]], offsets[rows[k] + 1]):
            other = partners[p]
            if certain[other] == 0:
                inside[size] = place[other]
                kept[size] = capacities[p]
                size += 1
            else:
                mine[k] -= certain[other] * capacities[p]
        bounds[k + 1] = size
    return mine, bounds, inside[:size], kept[:size]


def _restrict(
    unary: Floats, offsets: Indices, partners: Indices, capacities: Floats, certain: Signs, rows: Indices
) -> Block:
    """The block of the rows that are open, given those that are not."""
    if len(rows) == len(unary):
        return Block(unary, offsets, partners, capacities)
    place = np.full(len(unary), -1)
    place[rows] = np.arange(len(rows))
    return Block(*_restrict_block(unary, offsets, partners, capacities, certain, rows, place))


def flow_cut(block: Block) -> NDArray[np.bool_]:
    """The same by maximum flow: +1 are the rows that the source still reaches when the flow is as large as can be."""
    unary = block.unary
    if (unary >= 0).all():  # nothing to gain from +1
        return np.zeros(len(unary), dtype=bool)
    total = float(np.abs(unary).sum())
    scale = 2.0 ** np.floor(np.log2(LARGEST_FLOW / total))  # a power of two leaves whole numbers whole
    n = len(unary)
    for_one, against = np.flatnonzero(unary < 0), np.flatnonzero(unary > 0)
    owners = np.repeat(np.arange(n), np.diff(block.offsets))
    ends = (
        np.concatenate([owners, np.full(len(for_one), n), against]),
        np.concatenate([block.partners, for_one, np.full(len(against), n + 1)]),
    )
    capacities = np.concatenate([np.minimum(block.capacities, total), np.abs(unary[for_one]), unary[against]])
    whole = np.rint(capacities * scale).astype(np.int32)
    network = scipy.sparse.csr_array((whole, ends), shape=(n + 2, n + 2))
    residual = network - maximum_flow(network, n, n + 1).flow
    residual.eliminate_zeros()
    reached = np.zeros(n + 2, dtype=bool)
    reached[breadth_first_order(residual, n, return_predecessors=False)] = True
    return reached[:n]


def urgency(graph: PairGraph, distances: NDArray[np.int16], bit: int, signs: Signs) -> Floats:
    """What it would cost to turn each row's bit over, up to a factor: max(0, −z_i Σ_l w_il z_l), [n].

    All are 1 if no row's bit matters.
    """
    costs: Floats = np.maximum(_urgency(*graph, distances, loss_differences(bit), signs), 0.0)
    return costs if costs.any() else np.ones(len(costs))


@jit
def _urgency(offsets, partners, similar, weights, distances, table, signs):  # type: ignore[no-untyped-def]
    costs = np.zeros(len(signs))
    for i in range(len(signs)):
        for p in range(offsets[i], offsets[i + 1]):
            costs[i] -= weights[p] * table[similar[p], distances[p]] * signs[i] * signs[partners[p]]
    return costs


@jit
def add_bit(offsets, partners, signs, distances):  # type: ignore[no-untyped-def]
    """Count a bit in the distances of all pairs, in place."""
    for i in range(len(signs)):
        for p in range(offsets[i], offsets[i + 1]):
            distances[p] += signs[i] != signs[partners[p]]
