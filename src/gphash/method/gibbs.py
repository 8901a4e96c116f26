"""Gibbs sampling of the codes Y given the leave-one-out z-scores γ of the Gaussian processes.

    log-odds of Y_ij = +1:   log Φ(γ_ij) − log Φ(−γ_ij) + κ Σ_l Y_lj dT(s_il, V_il − Y_ij Y_lj)
    dT(s, b) = log Φ(σ_y s (b + 1)) − log Φ(σ_y s (b − 1)),   V_il = Σ_j Y_ij Y_lj

b is an integer, so dT is a table. The sum runs over distinct groups of partners with the same code and signature. With
a_g = n_g dT(s, V_g − 1) and d_g = n_g dT(s, V_g + 1) the sum for every bit j of a row is

    Σ_g Y_gj n_g dT(s, V_g − Y_ij Y_gj) = Y_ij Σ_g (a_g − d_g)/2 + Σ_g Y_gj (a_g + d_g)/2,

one dot product per bit until a bit flips. And dT(−1, b) = −dT(+1, −b), so that s_g V_g stands for s_g and V_g.

Long codes hardly form groups, and the sum is long. But a bit drawn with the uniform number u becomes +1 when its
log-odds exceed log u/(1 − u), and mostly they are far from it. So log-odds are computed roughly, in single precision
and with polynomials for the table, with a bound on the error. Only where that leaves the outcome open are they
computed exactly: every draw is the one that exact log-odds lead to.

Representatives interact among themselves only, one after another (`sample_central`); the other rows interact
with the representatives only, hence independently of each other (`sample_rows`). docs/decisions.md says why.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from gphash.arrays import Floats, Indices, Signs
from gphash.compiled import alike_pair, jit, popcount
from gphash.method.probit import ROUGHLY, log_odds, rough_log_odds
from gphash.supervision.similarity import PairGraph, Signatures, Supervision

ROUNDING = 2.0**-24  # relative, in single precision
DEGREE = 7  # of the polynomials


class Groups(NamedTuple):
    """Partners that share code and signature, counted together."""

    signs: Signs  # codes, one column per group, [m, g]
    signatures: Signatures
    counts: Floats  # members, [g], float64


def pair_table(n_bits: int, similarity_scale: float | None, pair_weight: float) -> Floats:
    """κ dT(s, b) for s = −1 (first row) and s = +1 (second), b = −m − 1, …, m + 1, [2, 2 m + 3]; σ_y is 2/m if None."""
    b = np.arange(-n_bits - 1, n_bits + 2, dtype=np.float64)
    scaled = (similarity_scale or 2 / n_bits) * np.array([[-1.0], [1.0]])
    table: Floats = pair_weight * (log_ndtr(scaled * (b + 1)) - log_ndtr(scaled * (b - 1)))
    return table


def group(signs: Signs, signatures: Signatures) -> tuple[Groups, Indices]:
    """Groups of equal (code, signature), in a fixed order, and the number of every row's group, [n]."""
    keys = np.concatenate([np.packbits(signs > 0, axis=1), signatures.masks.view(np.uint8)], axis=1)
    flat = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, member, counts = np.unique(flat, return_index=True, return_inverse=True, return_counts=True)
    columns = np.ascontiguousarray(signs[first].T)
    return Groups(columns, signatures[first], counts.astype(np.float64)), member.astype(np.int64)


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
    groups, member = group(signs, supervision)
    size, (n, m) = len(groups.counts), signs.shape
    # Room for one group per row and one more: a row founds its new group before emptied ones are cleared away.
    codes, counts = np.zeros((m, n + 1), np.int8), np.zeros(n + 1)
    words = np.zeros((-(-m // 64), n + 1), np.uint64)
    masks = np.zeros((n + 1, supervision.masks.shape[1]), np.uint64)
    codes[:, :size], words[:, :size] = groups.signs, _words(groups.signs.T).T
    masks[:size], counts[:size] = groups.signatures.masks, groups.counts
    rows = signs, _words(signs), gamma, uniforms, _thresholds(uniforms), supervision.masks, supervision.exact
    _sample_representatives(rows, order, member, (codes, words, masks, counts), size, _halves(table))
    return signs, group(signs, supervision)[0]


def sample_rows(
    signs: Signs, gamma: Floats, uniforms: Floats, signatures: Signatures, groups: Groups, table: Floats
) -> Signs:
    """New codes of rows that interact with the groups' members only."""
    signs = signs.copy()
    rows = signs, _words(signs), gamma, uniforms, _thresholds(uniforms), signatures.masks, signatures.exact
    words = np.ascontiguousarray(_words(groups.signs.T).T)
    _sample_rows(rows, (groups.signs, words, groups.signatures.masks, groups.counts), _halves(table))
    return signs


def _words(signs: Signs) -> NDArray[np.uint64]:
    """Codes in machine words, [n, w]: bit j of a code is bit j mod 64, the lowest being 0, of word j div 64."""
    packed = np.packbits(signs > 0, axis=1, bitorder="little")
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u8").astype(np.uint64)


def _thresholds(uniforms: Floats) -> Floats:
    """The log-odds above which a bit becomes +1."""
    with np.errstate(divide="ignore"):
        thresholds: Floats = -np.log(1 / uniforms - 1)
    return thresholds


class Halves(NamedTuple):
    """(a + d)/2 and (a − d)/2 of one similar partner, for V = −m, …, m."""

    exact: Floats  # [2, 2 m + 1]
    rough: Floats  # coefficients of polynomials in V, the constant first, float32 [2, DEGREE + 1]
    error: float  # of both polynomials together, at most
    size: float  # of both polynomials together, at most, all terms taken as positive


def _halves(table: Floats) -> Halves:
    similar = table[1]
    assert np.allclose(table[0], -similar[::-1])
    exact = np.stack([similar[:-2] + similar[2:], similar[:-2] - similar[2:]]) / 2
    m = exact.shape[1] // 2
    powers = (np.arange(-m, m + 1)[:, None] / m) ** np.arange(DEGREE + 1)
    fitted = np.linalg.lstsq(powers, exact.T, rcond=None)[0]
    error = np.abs(powers @ fitted - exact.T).max(axis=0).sum()
    rough = (fitted.T / float(m) ** np.arange(DEGREE + 1)).astype(np.float32)
    return Halves(exact, rough, float(error), float(np.abs(fitted).sum()))


@jit(fastmath=True)
def _compare(own_words, own_mask, exact, n_bits, words, masks, counts, room):  # type: ignore[no-untyped-def]
    """Fill s, s n and s V of every group, and return Σ_g n_g."""
    sides, weights, products, total = room[0][0], room[0][1], room[0][2], 0.0
    for g in range(len(counts)):
        side = np.float32(2 * alike_pair(own_mask, masks[g], exact) - 1)
        sides[g], products[g] = side, side * n_bits
        weights[g] = side * counts[g]
        total += counts[g]
    for w in range(len(own_words)):
        mine, theirs = own_words[w], words[w]
        for g in range(len(counts)):
            products[g] -= 2 * sides[g] * np.float32(np.int32(popcount(mine ^ theirs[g])))
    return total


@jit(fastmath=True)
def _weigh_roughly(weights, products, coefficients, half_sum):  # type: ignore[no-untyped-def]
    """Fill (a_g + d_g)/2 of every group and return Σ_g (a_g − d_g)/2, by the polynomials."""
    s, d = coefficients
    s0, s1, s2, s3, s4, s5, s6, s7 = s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
    d0, d1, d2, d3, d4, d5, d6, d7 = d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]
    half_difference = np.float32(0)
    for g in range(len(half_sum)):
        v = products[g]
        half_sum[g] = weights[g] * (s0 + v * (s1 + v * (s2 + v * (s3 + v * (s4 + v * (s5 + v * (s6 + v * s7)))))))
        difference = d0 + v * (d1 + v * (d2 + v * (d3 + v * (d4 + v * (d5 + v * (d6 + v * d7))))))
        half_difference += abs(weights[g]) * difference
    return half_difference


@jit(fastmath=True)
def _weigh(sides, products, counts, exact, half_sum):  # type: ignore[no-untyped-def]
    """The same by the table."""
    middle = exact.shape[1] // 2
    half_difference = 0.0
    for g in range(len(half_sum)):
        place = np.uint32(np.int32(products[g]) + middle)  # unsigned: it needs no look whether it is negative
        half_sum[g] = sides[g] * counts[g] * exact[0, place]
        half_difference += counts[g] * exact[1, place]
    return half_difference


@jit(fastmath=True)
def _dots(codes, j, half_sum, dots):  # type: ignore[no-untyped-def]
    """Rough dot products of bit j and the next three, together: what is loaded serves all of them."""
    last = codes.shape[0] - 1
    a, b, c, d = codes[j], codes[min(j + 1, last)], codes[min(j + 2, last)], codes[min(j + 3, last)]
    p = q = r = s = np.float32(0)
    for g in range(len(half_sum)):
        h = half_sum[g]
        p += np.float32(a[g]) * h
        q += np.float32(b[g]) * h
        r += np.float32(c[g]) * h
        s += np.float32(d[g]) * h
    dots[0], dots[1], dots[2], dots[3] = p, q, r, s


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
def _sample_row(code, own_words, gamma, uniforms, thresholds, codes, counts, slack, halves, room):  # type: ignore[no-untyped-def]
    """Sample the bits of one row in turn against the groups, and tell whether any flipped; `slack` is for errors."""
    size = len(counts)
    singles, half_sum, dots = room[0], room[1][:size], room[2]
    sides, weights, products, rough = singles[0, :size], singles[1, :size], singles[2, :size], singles[3, :size]
    rough_difference, half_difference = _weigh_roughly(weights, products, halves.rough, rough), 0.0
    known, weighed, flipped = 0, False, False  # up to which bit dots are known; whether there are exact weights
    for j in range(len(code)):
        y = code[j]
        if j >= known:
            _dots(codes, j, rough, dots)
            first, known = j, j + len(dots)
        odds = rough_log_odds(gamma[j]) + y * rough_difference + dots[j - first]
        if abs(odds - thresholds[j]) > slack:
            new = 1 if odds > thresholds[j] else -1
        else:
            if not weighed:
                half_difference, weighed = _weigh(sides, products, counts, halves.exact, half_sum), True
            new = _draw(log_odds(gamma[j]) + y * half_difference + _dot(codes[j], half_sum), uniforms[j])
        if new != y:
            code[j] = new
            own_words[j >> 6] ^= np.uint64(1) << np.uint64(j & 63)
            theirs, step = codes[j], np.float32(2 * new)
            for g in range(size):
                products[g] += step * sides[g] * np.float32(theirs[g])
            rough_difference = _weigh_roughly(weights, products, halves.rough, rough)
            known, weighed, flipped = j + 1, False, True
    return flipped


@jit(inline="always")
def _slack(total, size, halves):  # type: ignore[no-untyped-def]
    """How far rough log-odds can be from exact ones: polynomials, and rounding of their terms and of sums."""
    return ROUGHLY + total * (halves.error + (size + 32) * ROUNDING * halves.size)


@jit
def _room(size):  # type: ignore[no-untyped-def]
    """What a row is sampled in: s, s n, s V and rough (a + d)/2 of every group; exact (a + d)/2; rough dot products."""
    return np.empty((4, size), np.float32), np.empty(size), np.empty(4)


@jit
def _sample_rows(rows, groups, halves):  # type: ignore[no-untyped-def]
    signs, own_words, gamma, uniforms, thresholds, own_masks, exact = rows
    codes, words, masks, counts = groups
    room = _room(len(counts))
    for i in range(signs.shape[0]):
        total = _compare(own_words[i], own_masks[i], exact, signs.shape[1], words, masks, counts, room)
        own = signs[i], own_words[i], gamma[i], uniforms[i], thresholds[i]
        _sample_row(*own, codes, counts, _slack(total, len(counts), halves), halves, room)


@jit
def _sample_representatives(rows, order, member, groups, size, halves):  # type: ignore[no-untyped-def]
    signs, own_words, gamma, uniforms, thresholds, own_masks, exact = rows
    codes, words, masks, counts = groups
    most = len(counts)
    room = _room(most)
    empty = 0
    for i in order:
        counts[member[i]] -= 1.0  # a row is not its own partner
        total = _compare(own_words[i], own_masks[i], exact, signs.shape[1], words, masks, counts[:size], room)
        own = signs[i], own_words[i], gamma[i], uniforms[i], thresholds[i]
        if _sample_row(*own, codes, counts[:size], _slack(total, size, halves), halves, room):
            alone = counts[member[i]] == 0.0
            found = _find(own_masks[i], signs.shape[1], masks, counts[:size], room)
            if found >= 0:
                empty += alone
            else:
                found = member[i] if alone else size
                size += not alone
                # Element by element: an assigned slice would take seconds to compile.
                for j in range(signs.shape[1]):
                    codes[j, found] = signs[i, j]
                for w in range(own_words.shape[1]):
                    words[w, found] = own_words[i, w]
                for w in range(own_masks.shape[1]):
                    masks[found, w] = own_masks[i, w]
                counts[found] = 0.0
            member[i] = found
        counts[member[i]] += 1.0
        if 2 * empty > size or size == most:
            size, empty = _compact(codes, words, masks, counts, member, size), 0


@jit
def _find(mask, n_bits, masks, counts, room):  # type: ignore[no-untyped-def]
    """Number of the group with the code that was last sampled, and this signature, or −1."""
    sides, products = room[0][0], room[0][2]
    for g in range(len(counts)):
        if sides[g] * products[g] == n_bits:
            same = counts[g] > 0.0
            for w in range(len(mask)):
                same = same and masks[g, w] == mask[w]
            if same:
                return g
    return -1


@jit
def _compact(codes, words, masks, counts, member, size):  # type: ignore[no-untyped-def]
    """Close the gaps that emptied groups left; returns how many groups there are."""
    kept = np.flatnonzero(counts[:size] > 0.0)
    place = np.empty(size, np.int64)
    for k, g in enumerate(kept):
        place[g], counts[k] = k, counts[g]
        for w in range(masks.shape[1]):
            masks[k, w] = masks[g, w]
    for w in range(words.shape[0]):
        for k, g in enumerate(kept):
            words[w, k] = words[w, g]
    for j in range(codes.shape[0]):
        for k, g in enumerate(kept):
            codes[j, k] = codes[j, g]
    for i in range(len(member)):
        member[i] = place[member[i]]
    return len(kept)


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
