"""Gibbs sampling of the codes Y given the leave-one-out z-scores γ of the Gaussian processes.

    log-odds of Y_ij = +1:   log Φ(γ_ij) − log Φ(−γ_ij) + κ Σ_l Y_lj dT(s_il, V_il − Y_ij Y_lj)
    dT(s, b) = log Φ(σ_y s (b + 1)) − log Φ(σ_y s (b − 1)),   V_il = Σ_j Y_ij Y_lj

b is an integer, so dT is a table. The sum runs over distinct groups of partners with the same code and signature. With
a_g = n_g dT(s, V_g − 1) and d_g = n_g dT(s, V_g + 1) the sum for every bit j of a row is

    Σ_g Y_gj n_g dT(s, V_g − Y_ij Y_gj) = Y_ij Σ_g (a_g − d_g)/2 + Σ_g Y_gj (a_g + d_g)/2,

one dot product per bit until a bit flips.

Representatives interact among themselves only, one after another (`sample_central`); the other rows interact
with the representatives only, hence independently of each other (`sample_rows`). docs/decisions.md says why.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from gphash.arrays import Floats, Indices, Signs
from gphash.compiled import grade_pair, jit
from gphash.method.probit import log_odds
from gphash.supervision.similarity import PairGraph, Signatures, Supervision


class Groups(NamedTuple):
    """Partners that share code and signature, counted together."""

    signs: Floats  # codes, one column per group, [m, g], float64
    signatures: Signatures
    counts: Floats  # how much its members count, [g], float64


def pair_table(
    n_bits: int, similarity_scale: float | None, pair_weight: float, chances: Sequence[float] = (1.0,)
) -> Floats:
    """κ dT(s, b) for s = −1 (first row) and s = +1 (second), b = −m − 1, …, m + 1, [2, 2 m + 3]; σ_y is 2/m if None.

    Partners that are similar with a chance p < 1 have p dT(+1, b) + (1 − p) dT(−1, b), a row for each of the `chances`.
    """
    b = np.arange(-n_bits - 1, n_bits + 2, dtype=np.float64)
    scaled = (similarity_scale or 2 / n_bits) * np.array([[-1.0], [1.0]])
    unlike, like = pair_weight * (log_ndtr(scaled * (b + 1)) - log_ndtr(scaled * (b - 1)))
    return np.stack([unlike, *(p * like + (1 - p) * unlike for p in chances)])


def group(signs: Signs, signatures: Signatures, pulls: Floats | None = None) -> tuple[Groups, Indices]:
    """Groups of equal (code, signature), in a fixed order, and the number of every row's group, [n].

    Rows count as much as they pull, [n], or once if that is None.
    """
    keys = np.concatenate([np.packbits(signs > 0, axis=1), signatures.masks.view(np.uint8)], axis=1)
    flat = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, member = np.unique(flat, return_index=True, return_inverse=True)
    counts = np.bincount(member, pulls).astype(np.float64)
    columns = np.ascontiguousarray(signs[first].T, dtype=np.float64)
    return Groups(columns, signatures[first], counts), member.astype(np.int64)


def sample_central(
    supervision: Supervision, signs: Signs, gamma: Floats, uniforms: Floats, order: Indices, table: Floats
) -> tuple[Signs, Groups | None]:
    """Sample rows that depend on each other, each against its partners as they are by then.

    `signs`, `gamma` and `uniforms` are present codes, z-scores and one uniform random number for every bit, [n, m].
    Returns new codes, and the groups that all other rows see, if there are others.
    """
    signs = signs.copy()
    if isinstance(supervision, PairGraph):
        _sample_pairs(signs, gamma, uniforms, order, *supervision.parts().values(), table)
        return signs, None
    pulls = supervision.pulls()
    groups, member = group(signs, supervision, pulls)
    size, (n, m) = len(groups.counts), signs.shape
    # Room for one group per row and one more: a row founds its new group before emptied ones are cleared away.
    codes, counts = np.zeros((m, n + 1)), np.zeros(n + 1)
    masks = np.zeros((n + 1, supervision.masks.shape[1]), dtype=np.uint64)
    codes[:, :size], masks[:size], counts[:size] = groups.signs, groups.signatures.masks, groups.counts
    own = supervision.masks, supervision.exact, _kinds(supervision, table), pulls
    _sample_representatives(signs, gamma, uniforms, order, *own, member, codes, masks, counts, size, table)
    return signs, group(signs, supervision, pulls)[0]


def sample_rows(
    signs: Signs, gamma: Floats, uniforms: Floats, signatures: Signatures, groups: Groups, table: Floats
) -> Signs:
    """New codes of rows that interact with the groups' members only."""
    signs = signs.copy()
    theirs = groups.signs, groups.signatures.masks, groups.counts
    own = signatures.masks, signatures.exact, _kinds(signatures, table)
    _sample_rows(signs, gamma, uniforms, *own, *theirs, table)
    return signs


def _kinds(signatures: Signatures, table: Floats) -> NDArray[np.uint64]:
    """Masks of the kinds of tags that the table tells apart, [k, w]."""
    if len(table) == 2 or signatures.grades is None:
        return np.full((1, signatures.masks.shape[1]), ~np.uint64(0))
    return signatures.grades.masks


@jit(fastmath=True)
def _weigh(V, alike, counts, table, half_sum):  # type: ignore[no-untyped-def]
    """Fill (a_g + d_g)/2 of every group and return Σ_g (a_g − d_g)/2."""
    middle = table.shape[1] // 2
    half_difference = 0.0
    for g in range(len(half_sum)):
        at = V[g] + middle
        a = counts[g] * table[alike[g], at - 1]
        d = counts[g] * table[alike[g], at + 1]
        half_sum[g] = 0.5 * (a + d)
        half_difference += 0.5 * (a - d)
    return half_difference


@jit(fastmath=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(b)):
        total += a[k] * b[k]
    return total


@jit(inline="always")
def _draw(odds: float, uniform: float) -> int:
    """+1 with probability 1 / (1 + exp(−odds)), else −1; an overflowing exponential is infinite, which is right."""
    return 1 if uniform * (1.0 + math.exp(-odds)) < 1.0 else -1


@jit
def _sample_row(code, gamma, uniforms, mask, exact, kinds, codes, masks, counts, size, table, room):  # type: ignore[no-untyped-def]
    """Sample the bits of one row in turn against `size` groups, and tell whether any flipped; `room` is to work in."""
    V, alike, half_sum = room
    for g in range(size):
        alike[g] = grade_pair(mask, masks[g], exact, kinds)
        V[g] = 0
    for j in range(len(code)):
        y = code[j]
        for g in range(size):
            V[g] += np.int64(codes[j, g]) * y
    half_difference = _weigh(V, alike, counts, table, half_sum[:size])
    flipped = False
    for j in range(len(code)):
        y = code[j]
        odds = log_odds(gamma[j]) + y * half_difference + _dot(codes[j, :size], half_sum[:size])
        new = _draw(odds, uniforms[j])
        if new != y:
            code[j] = new
            flipped = True
            for g in range(size):
                V[g] += 2 * new * np.int64(codes[j, g])
            half_difference = _weigh(V, alike, counts, table, half_sum[:size])
    return flipped


@jit
def _sample_rows(signs, gamma, uniforms, own, exact, kinds, codes, masks, counts, table):  # type: ignore[no-untyped-def]
    size = len(counts)
    room = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    for i in range(signs.shape[0]):
        _sample_row(signs[i], gamma[i], uniforms[i], own[i], exact, kinds, codes, masks, counts, size, table, room)


@jit
def _sample_representatives(  # type: ignore[no-untyped-def]
    signs, gamma, uniforms, order, own, exact, kinds, pulls, member, codes, masks, counts, size, table
):
    most = len(counts)
    room = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    empty = 0
    for i in order:
        counts[member[i]] -= pulls[i]  # a row is not its own partner
        if _sample_row(signs[i], gamma[i], uniforms[i], own[i], exact, kinds, codes, masks, counts, size, table, room):
            if counts[member[i]] == 0.0:
                empty += 1
            found = _find(signs[i], own[i], codes, masks, counts, size)
            if found < 0:
                found = size
                size += 1
                # Element by element: an assigned slice would take seconds to compile.
                for j in range(signs.shape[1]):
                    codes[j, found] = signs[i, j]
                for w in range(own.shape[1]):
                    masks[found, w] = own[i, w]
                counts[found] = 0.0
            member[i] = found
        counts[member[i]] += pulls[i]
        if 2 * empty > size or size == most:
            size, empty = _compact(codes, masks, counts, member, size), 0


@jit
def _find(code, mask, codes, masks, counts, size):  # type: ignore[no-untyped-def]
    """Number of the group with this code and signature, or −1."""
    for g in range(size):
        same = counts[g] > 0.0
        for w in range(len(mask)):
            same = same and masks[g, w] == mask[w]
        for j in range(len(code)):
            if not same:
                break
            same = codes[j, g] == code[j]
        if same:
            return g
    return -1


@jit
def _compact(codes, masks, counts, member, size):  # type: ignore[no-untyped-def]
    """Close the gaps that emptied groups left; returns how many groups there are."""
    place = np.empty(size, np.int64)
    kept = 0
    for g in range(size):
        if counts[g] > 0.0:
            for j in range(codes.shape[0]):
                codes[j, kept] = codes[j, g]
            for w in range(masks.shape[1]):
                masks[kept, w] = masks[g, w]
            counts[kept] = counts[g]
            place[g] = kept
            kept += 1
    for i in range(len(member)):
        member[i] = place[member[i]]
    return kept


@jit
def _sample_pairs(signs, gamma, uniforms, order, offsets, partners, similar, weights, table):  # type: ignore[no-untyped-def]
    m, middle = signs.shape[1], table.shape[1] // 2
    V = np.empty(np.diff(offsets).max(), np.int64)
    for i in order:
        start, stop = offsets[i], offsets[i + 1]
        for p in range(start, stop):
            total = 0
            for j in range(m):
                total += signs[i, j] * signs[partners[p], j]
            V[p - start] = total
        for j in range(m):
            y = signs[i, j]
            odds = log_odds(gamma[i, j])
            for p in range(start, stop):
                theirs = signs[partners[p], j]
                odds += weights[p] * theirs * table[similar[p], V[p - start] - y * theirs + middle]
            new = _draw(odds, uniforms[i, j])
            if new != y:
                signs[i, j] = new
                for p in range(start, stop):
                    V[p - start] += 2 * new * signs[partners[p], j]
