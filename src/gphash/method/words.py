"""Code words: the codes that classes or sets of tags have, chosen by the retrieval that they promise on unseen rows.

A word is a row of W ∈ {−1, 1}^{c × m}, one for each of c classes or tags; the code of a row is its class's word, or
the vote of its tags. Bits that unseen rows would have are signs of scores along directions, one direction a bit: a
column of words, or any other. The scores are how probable a classifier finds the classes of rows that have not taught
it, or what least squares on the whitened features, with EP's first sites (τ = ½), predicts at rows that are left out,
in closed form:

    S = Phi (I + Phiᵀ diag(τ) Phi)⁻¹ Phiᵀ diag(τ),   f = (S t − diag(S) t) / (1 − diag(S))

Directions begin as columns of Hadamard words, far from each other, or as a rotation of the scores. Changes of one at a
time are kept when they raise the mean average precision among rows of a sample: what is hard to tell apart gets words
that differ little, and no bit is spent on what cannot be predicted. At last, bits are put in the order of what they add
to those before them, so that the first of many bits are a code, too.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices, Signs
from gphash.compiled import jit
from gphash.method import ep, triangular
from gphash.method import prior as priors
from gphash.method.prior import Prior
from gphash.supervision import similarity
from gphash.supervision.similarity import Signatures

DRAWS = 200  # of Hadamard words
JUDGED = 3000  # rows whose retrieval is looked at
PROPOSALS = 1200  # changes of a column that are tried
ALIKE = 0.99  # correlation of two bits from which one of them tells nothing
REDRAWS = 100  # of a column that repeats another
REDRAWN = 0.1  # share of proposals that draw a direction anew; others change one entry, or two,
MOVING_TWO = 0.4
FLIPPED = 0.5  # by their sign, or else by a normal draw
ROTATIONS = 50
GLANCE = 64  # rows asked between two looks at the sum of gains,
CLEAR = 1.5  # of whose standard deviations below zero are clear
FIRST = 32  # bits that are put in order,
ORDERED = 1000  # by the retrieval of so many rows, or of fewer if there are more than
SOME = 64  # bits to choose among


class Smoother(NamedTuple):
    """What the rows of a sample predict of each other by least squares."""

    half: Floats  # Phi C⁻ᵀ with C the factor of I + Phiᵀ diag(τ) Phi, [s, r]
    precision: Floats  # τ, [s]
    leverage: Floats  # diag(S), [s]


def smoother(prior: Prior, X: Floats) -> Smoother:
    """Least squares for scaled rows X, [s, d]."""
    Phi, residual = priors.features(prior, X)
    precision = first_precision(residual).astype(Phi.dtype)
    factor = ep.shared_factor(ep.precision_sum(Phi, precision), Phi.dtype)
    half = triangular.solve_rows(factor, Phi)
    leverage = precision * np.einsum("ir,ir->i", half, half)
    return Smoother(half, precision, np.minimum(leverage, 1 - 1e-3))


def first_precision(residual: Floats) -> Floats:
    """Precision of a row's code as a target of least squares, [n]: EP's first sites, and the residual as noise."""
    return np.asarray(0.5 / (1 + 0.5 * residual))


def left_out(found: Smoother, targets: Floats) -> Floats:
    """What the other rows predict of every row's targets, [s] or [s, q]."""
    own = (slice(None), *[None] * (targets.ndim - 1))
    leverage = found.leverage[own]
    predicted = found.half @ (found.half.T @ (found.precision[own] * targets))
    return np.asarray((predicted - leverage * targets) / (1 - leverage))


def votes(signatures: Signatures) -> Floats:
    """How much each class or tag decides on the code of a row, float32 [n, c]; rare tags decide before common ones."""
    columns = similarity.indicators(signatures)
    return np.asarray(columns / np.sqrt(columns.mean(axis=0)), dtype=np.float32)


def spell(scores: Floats, words: Signs | Floats) -> Signs:
    """Codes of rows, [n, m], from their scores (or votes) for classes or tags, [n, c], and words of these, [c, m]."""
    return np.where(scores @ words.astype(scores.dtype) >= 0, 1, -1).astype(np.int8)


def hadamard(n_words: int, n_bits: int, generator: np.random.Generator) -> Signs:
    """Words of ±1 far from each other, [n_words, n_bits].

    Random rows of a Hadamard matrix of that many columns, any two of which differ in half of the bits, if there is one
    with enough rows; else the best of many random cuts of a larger one.
    """
    order = 1 << (max(n_bits, n_words) - 1).bit_length()
    matrix = scipy.linalg.hadamard(order, dtype=np.int8)
    draw = partial(generator.choice, order, replace=False)
    if order == n_bits or n_words == 1:
        return np.asarray(matrix[draw(n_words), :n_bits])

    def spread(words: Signs) -> tuple[float, float]:
        wide = words.astype(np.float32)  # whole numbers, exactly, and much faster than as integers
        distances = (n_bits - wide @ wide.T) / 2
        apart = distances[~np.eye(n_words, dtype=bool)]
        return float(apart.min()), float(apart.mean())

    return max((matrix[draw(n_words)][:, draw(n_bits)] for _ in range(DRAWS)), key=spread)


def rotation(scores: Floats, n_bits: int, generator: np.random.Generator) -> Floats:
    """Directions T, [c, m], along which the signs of scores, [s, c], are nearest to the scores: min ‖sign(Q T) − Q T‖.

    Iterative quantisation: T is orthogonal, as far as c and m let it be.
    """
    directions, _ = np.linalg.qr(generator.standard_normal((max(scores.shape[1], n_bits),) * 2))
    return rotated(scores, directions[: scores.shape[1], :n_bits], ROTATIONS)


def rotated(scores: Floats, directions: Floats, iterations: int) -> Floats:
    """Directions after some iterations, each of which brings them nearest to the signs that the last ones gave."""
    for _ in range(iterations):
        left, _, right = scipy.linalg.svd(
            scores.T @ np.where(scores @ directions >= 0, 1.0, -1.0), full_matrices=False, check_finite=False
        )
        directions = left @ right
    return np.asarray(directions)


def search(
    scores: Floats, alike: NDArray[np.bool_], directions: Floats, seed: int, n_proposals: int = PROPOSALS
) -> tuple[Floats, float]:
    """Better directions than the first ones, [c, m], and the retrieval that they promise.

    Bits of the judged rows are the signs of their scores, [s, c], along the directions; `alike` says which are similar.
    """
    generator, scores = np.random.default_rng([seed, 21]), np.asarray(scores, np.float32)
    directions = directions.astype(np.float64)
    tally = Tally(spell(scores, directions), alike)
    for _ in range(n_proposals):
        bit = int(generator.integers(directions.shape[1]))
        column = _proposal(directions[:, bit], generator)
        signs = spell(scores, column)
        if not _is_taken(tally.signs, bit, signs) and tally.take_if_better(bit, signs):
            directions[:, bit] = column
    return directions, tally.quality


def distinct(scores: Floats, directions: Floats, generator: np.random.Generator, sure: Floats | None = None) -> Floats:
    """The same directions, with those that give a bit which others give already drawn anew, where that helps.

    `sure` are scores of rows that are sure of their class, one each, [c, c]; if classes can be divided in enough ways,
    no two bits divide them in the same way: rows that are all sure would have two equal bits.
    """
    signs, directions = spell(scores, directions), directions.copy()
    pure = None if sure is None or 2.0 ** (len(sure) - 2) < directions.shape[1] else spell(sure, directions)
    for bit in range(directions.shape[1]):
        for _ in range(REDRAWS):
            if not _is_taken(signs, bit, signs[:, bit]) and (pure is None or not _is_taken(pure, bit, pure[:, bit])):
                break
            directions[:, bit] = np.where(generator.random(len(directions)) < 0.5, -1, 1)
            signs[:, bit] = spell(scores, directions[:, bit])
            if pure is not None and sure is not None:
                pure[:, bit] = spell(sure, directions[:, bit])
    return directions


def apart(directions: Floats, centre: Floats) -> Floats:
    """The same directions, with those changed that let two classes have one word, where that helps.

    The word of a class is the signs of its direction minus the centre's, [c]. What changes is the bit that it is least
    sure of and that gives it a word of its own.
    """
    directions = directions.copy()

    def spelled(directions: Floats) -> NDArray[np.bool_]:
        return np.asarray(directions - centre @ directions >= 0)

    _, first, which = np.unique(spelled(directions), axis=0, return_index=True, return_inverse=True)
    n_words = len(first)
    most = 2.0 ** min(directions.shape[1], 60)
    for twin in np.flatnonzero(first[which.reshape(-1)] != np.arange(len(directions))):
        if n_words >= most:
            break
        margins = directions[twin] - centre @ directions
        for bit in np.argsort(np.abs(margins), kind="stable"):
            changed = directions.copy()
            step = 2 * margins[bit] or np.finfo(np.float32).eps
            changed[twin, bit] -= step / max(1 - centre[twin], 1e-3)
            found = spelled(changed)
            n_found = len(np.unique(found, axis=0))
            if n_found > n_words and not _is_taken(2 * found.astype(np.int8) - 1, bit, 2 * found[:, bit] - 1):
                directions, n_words = changed, n_found
                break
    return directions


def in_order(signs: Signs, alike: NDArray[np.bool_]) -> Indices:
    """Numbers of the bits of codes, [s, m], such that the first ones are a good code by themselves.

    Every next bit is the one that raises the mean average precision of those before it most, up to `FIRST`.
    """
    n = int(ORDERED * min(1.0, SOME / signs.shape[1]) ** 0.5)
    signs, alike = signs[:n], alike[:n, :n]
    n, m = signs.shape
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
    found: list[int] = []
    cells, left = alike.astype(np.uint16), list(range(m))
    while left and len(found) < FIRST:
        promised = [_promise(cells, signs[:, bit], len(found) + 1, harmonic) for bit in left]
        found.append(left.pop(int(np.argmax(promised))))
        column = signs[:, found[-1]]
        cells += 2 * (column[:, None] != column).astype(np.uint16)
    return np.array(found + left, np.int64)


@jit
def _promise(cells, column, n_bits, harmonic):  # type: ignore[no-untyped-def]
    """Mean average precision if codes of one bit less, counted as in `Tally`, had this bit as well."""
    total, asked = 0.0, 0
    counts = np.empty(2 * (n_bits + 1), np.int64)
    for i in range(len(cells)):
        counts[:] = 0
        for k in range(len(cells)):
            counts[cells[i, k] + 2 * (column[i] != column[k])] += 1
        counts[cells[i, i]] -= 1
        found = _average_precision(counts, harmonic)
        if found >= 0:
            total += found
            asked += 1
    return total / max(asked, 1)


def _proposal(column: Floats, generator: np.random.Generator) -> Floats:
    """Another direction, next to this one or drawn anew."""
    kind, size = generator.random(), float(np.sqrt(np.mean(column**2)))
    if kind < REDRAWN:
        return np.where(generator.random(len(column)) < 0.5, -size, size)
    changed = column.copy()
    some = generator.choice(len(column), min(2 if kind > 1 - MOVING_TWO else 1, len(column)), replace=False)
    if generator.random() < FLIPPED:
        changed[some] *= -1
    else:
        changed[some] += size * generator.standard_normal(len(some))
    return changed


def _is_taken(signs: Signs, bit: int, column: Signs) -> bool:
    """Whether another bit of the rows, [s, m], is next to this one already, or its opposite, or it hardly changes."""
    agreement = np.abs(column.astype(np.float32) @ signs.astype(np.float32))
    agreement[bit] = np.abs(column.sum(dtype=np.int64))
    return bool((agreement >= ALIKE * len(column)).any())


class Tally:
    """The mean average precision of rows among themselves, kept up to date while columns of their codes change.

    For every row, the similar ones and all others are counted by distance; average precision follows from the counts,
    in expectation over orders within equal distances.
    """

    def __init__(self, signs: Signs, alike: Any) -> None:
        """Codes ±1, [s, m], and which rows are similar, [s, s]."""
        self.signs = signs.copy()
        n, m = signs.shape
        wide = signs.astype(np.float32)
        # Twice the distance of two rows, and one more if they are similar: the cell that the pair is counted in.
        small = np.uint8 if 2 * (m + 1) <= 256 else np.uint16  # memory is what the search waits for
        self.cells = np.rint(m - wide @ wide.T).astype(small) + np.asarray(alike, small)
        self.counts = np.zeros((n, 2 * (m + 1)), np.int32)
        _count(self.cells, self.counts)
        self.harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
        # Of every row without similar ones, −1: it does not count.
        self.precisions, self._found = np.full(n, -1.0), np.full(n, -1.0)
        first = self.signs[:, 0]
        _try(*_moves(first, first), first, *self._parts(), self.harmonic, self.precisions, self._found)
        self.precisions[:] = self._found

    @property
    def quality(self) -> float:
        """Mean average precision; 0 if no two rows are similar."""
        asked = self.precisions >= 0
        return float(self.precisions[asked].mean()) if asked.any() else 0.0

    def take_if_better(self, bit: int, signs: Signs) -> bool:
        """Replace a column, [s], if that raises the quality; tells whether it did.

        Rows are asked one after another, and no more of them once it is clear that most would lose.
        """
        moves = _moves(self.signs[:, bit], signs)
        if not len(moves[0]) + len(moves[1]):
            return False
        if not _try(*moves, signs, *self._parts(), self.harmonic, self.precisions, self._found):
            return False
        _move(*moves, signs, *self._parts())
        self.signs[:, bit], self.precisions[:] = signs, self._found
        return True

    def _parts(self) -> tuple[Any, ...]:
        return self.cells, self.counts


@jit
def _count(cells, counts):  # type: ignore[no-untyped-def]
    for i in range(len(cells)):
        for k in range(len(cells)):
            if k != i:
                counts[i, cells[i, k]] += 1


def _moves(old: Signs, new: Signs) -> tuple[NDArray[Any], ...]:
    """Rows whose bit changes to −1 and to 1, rows that keep −1 and 1, and which ones change, [s].

    Where one of two rows changes and not the other, their distance does: by −1 if they then agree, else by 1.
    """
    rows = (np.flatnonzero(which & (new == sign)) for which in (new != old, new == old) for sign in (-1, 1))
    return (*(some.astype(np.int32) for some in rows), new != old)


@jit
def _others(moves, sign, to_minus, to_plus, minus, plus):  # type: ignore[no-untyped-def]
    """Rows whose distance to one that moves, or not, changes, and that have this sign then."""
    if moves:
        return plus if sign > 0 else minus
    return to_plus if sign > 0 else to_minus


@jit
def _try(to_minus, to_plus, minus, plus, moves, new, cells, counts, harmonic, present, found):  # type: ignore[no-untyped-def]
    """Find the average precision of every row if some rows changed this bit; tells whether the mean would rise."""
    gain, square = 0.0, 0.0
    room = np.empty(counts.shape[1], np.int64)
    seen = np.zeros((2, counts.shape[1]), np.int64)
    for i in range(len(cells)):
        room[:] = counts[i]
        for sign in (-1, 1):
            others = _others(moves[i], sign, to_minus, to_plus, minus, plus)
            # Two counters in turn: a processor waits when it adds twice to the same one.
            for p in range(0, len(others) - 1, 2):
                seen[0, cells[i, others[p]]] += 1
                seen[1, cells[i, others[p + 1]]] += 1
            if len(others) % 2:
                seen[0, cells[i, others[-1]]] += 1
            step = -2 if new[i] == sign else 2
            for cell in range(len(room)):
                moved = seen[0, cell] + seen[1, cell]
                if moved > 0:
                    room[cell] -= moved
                    room[cell + step] += moved
                    seen[0, cell] = seen[1, cell] = 0
        found[i] = _average_precision(room, harmonic)
        gain += found[i] - present[i]
        square += (found[i] - present[i]) ** 2
        if i % GLANCE == 0 and gain < -CLEAR * math.sqrt(square):
            return False
    return gain > 0.0


@jit
def _move(to_minus, to_plus, minus, plus, moves, new, cells, counts):  # type: ignore[no-untyped-def]
    """Let some rows change this bit."""
    for i in range(len(cells)):
        for sign in (-1, 1):
            others = _others(moves[i], sign, to_minus, to_plus, minus, plus)
            step = -2 if new[i] == sign else 2
            for k in others:
                cell = np.int64(cells[i, k])
                cells[i, k] = cell + step
                counts[i, cell] -= 1
                counts[i, cell + step] += 1


@jit
def _average_precision(counts, harmonic):  # type: ignore[no-untyped-def]
    """Average precision from the dissimilar and similar rows at every distance, in turn; −1 without similar ones."""
    total, before, found = 0.0, 0, 0
    for d in range(len(counts) // 2):
        similar = counts[2 * d + 1]
        everyone = counts[2 * d] + similar
        if similar > 0:
            # Σ (found + 1 + (p − 1) slope) / (before + p) over the places p = 1, …, everyone
            slope = (similar - 1) / max(everyone - 1, 1)
            rest = found + 1 - slope - slope * before
            sums = slope * everyone + rest * (harmonic[before + everyone] - harmonic[before])
            total += similar / everyone * sums
        before += everyone
        found += similar
    return total / found if found else -1.0
