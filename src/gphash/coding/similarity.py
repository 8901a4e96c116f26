"""Supervision: which rows are similar, never as an n × n matrix.

Class labels and tag sets become one signature per row (`Signatures`); judged pairs become a list of partners per row
(`PairGraph`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats, Indices


class Pairs(NamedTuple):
    """Pairs of rows judged alike or unlike.

    i, j
        Row numbers, [p] each.
    similar
        +1 (or True) where the two rows are similar, −1 (or False) where they are not, [p].
    """

    i: ArrayLike
    j: ArrayLike
    similar: ArrayLike


@dataclass(frozen=True)
class Signatures:
    """One bit mask per row, from which the similarity of any two rows follows.

    masks
        uint64 [n, w]: the number of the class, or the set of tags, 64 to a word.
    exact
        True for class labels, similar when equal; False for tag sets, similar when they share a tag.
    """

    masks: NDArray[np.uint64]
    exact: bool

    def __getitem__(self, rows: Any) -> "Signatures":
        """Signatures of some rows."""
        return Signatures(self.masks[rows], self.exact)


class PairGraph(NamedTuple):
    """Judged pairs as a list of partners for every row (compressed rows).

    offsets
        Row i's partners are at offsets[i]:offsets[i + 1], [n + 1].
    partners
        Row numbers, [2 p].
    similar
        1 where alike, 0 where unlike, uint8 [2 p].
    weights
        How much a pair counts, [2 p].
    """

    offsets: Indices
    partners: Indices
    similar: NDArray[np.uint8]
    weights: Floats

    @property
    def owners(self) -> Indices:
        """The row that every entry of `partners` belongs to, [2 p]."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.offsets))

    @property
    def n_rows(self) -> int:
        """Number of rows that the graph spans."""
        return len(self.offsets) - 1


def from_labels(y: ArrayLike) -> Signatures:
    """Signatures of class labels, [n]; two rows are similar when their labels are equal."""
    _, numbers = np.unique(np.asarray(y), return_inverse=True)
    return Signatures(numbers.reshape(-1, 1).astype(np.uint64), True)


def from_tags(tags: ArrayLike) -> Signatures:
    """Signatures of tag sets, a 0/1 matrix [n, c]; rows are similar when they share a tag, an empty row to none."""
    tags = np.asarray(tags)
    if tags.ndim != 2:
        raise ValueError(f"tags y have shape {tags.shape}; give a 0/1 matrix [n_rows, n_tags].")
    known = np.isin(tags, (0, 1))
    if not known.all():
        raise ValueError(f"tags y hold {tags[~known].tolist()[0]!r}; give a matrix [n_rows, n_tags] of 0 and 1 only.")
    n_rows, n_tags = tags.shape
    octets = np.zeros((n_rows, -(-n_tags // 64) * 8), dtype=np.uint8)
    packed = np.packbits(tags.astype(bool), axis=1)
    octets[:, : packed.shape[1]] = packed
    return Signatures(octets.view(np.uint64), False)


def class_numbers(signatures: Signatures) -> Indices:
    """Numbers from 0 of the classes of labels, [n]."""
    return np.unique(signatures.masks[:, 0], return_inverse=True)[1].astype(np.int64)


def indicators(signatures: Signatures) -> Floats:
    """One column per class or tag, 1 where a row has it, else 0, [n, c]; tags that no row has are left out."""
    if signatures.exact:
        numbers = class_numbers(signatures)
        return np.eye(int(numbers.max()) + 1)[numbers]
    columns = np.unpackbits(signatures.masks.view(np.uint8), axis=1)
    return columns[:, columns.any(axis=0)].astype(np.float64)


def check_teaches(signatures: Signatures) -> None:
    """Refuse labels or tags from which nothing can be learned: all rows alike, or none."""
    masks = signatures.masks
    if signatures.exact:
        if (masks == masks[0]).all():
            raise ValueError("y has one class only; hashing needs at least 2 classes to tell apart.")
        return
    if not masks.any():
        raise ValueError("tags y are all 0, so that no two rows are similar; give some rows a tag in common.")
    everywhere = np.flatnonzero(np.unpackbits(np.bitwise_and.reduce(masks, axis=0).view(np.uint8)))
    if len(everywhere):
        raise ValueError(f"tag {everywhere[0]} of y is on every row, so that all rows are similar; leave it out.")


def from_pairs(pairs: Pairs, n_rows: int, balance: bool = True) -> PairGraph:
    """Partners of every row, from judged pairs.

    Parameters
    ----------
    pairs
        Each pair once or more often, in either order; with both signs it is an error.
    n_rows
        Number of rows that the pairs may name.
    balance
        Weight the pairs so that the similar ones and the dissimilar ones have the same total; few random pairs are
        similar, and unweighted they drown.
    """
    i, j = _row_numbers("pairs.i", pairs.i, n_rows), _row_numbers("pairs.j", pairs.j, n_rows)
    similar = np.asarray(pairs.similar)
    if similar.dtype == bool:
        similar = np.where(similar, 1, -1)
    if similar.ndim != 1 or not len(i) == len(j) == len(similar):
        raise ValueError(
            f"pairs.i, pairs.j and pairs.similar have lengths {len(i)}, {len(j)} and {similar.shape}; they must agree."
        )
    if len(i) == 0:
        raise ValueError("pairs are empty; give at least one similar and one dissimilar pair.")
    if not np.isin(similar, (-1, 1)).all():
        odd = similar[~np.isin(similar, (-1, 1))].tolist()[0]
        raise ValueError(f"pairs.similar holds {odd!r}; give +1 (alike) or -1 (unlike) for every pair.")
    if (i == j).any():
        raise ValueError(f"pairs name row {int(i[i == j][0])} with itself; give pairs of two different rows.")
    positive = similar > 0
    key = np.minimum(i, j) * np.int64(n_rows) + np.maximum(i, j)
    # Each pair once; a pair that occurs with both signs keeps two distinct (key, sign) entries.
    entries = np.unique(np.stack([key, positive.astype(np.int64)]), axis=1)
    clash = np.flatnonzero(np.diff(entries[0]) == 0)
    if len(clash):
        first, second = divmod(int(entries[0, clash[0]]), n_rows)
        raise ValueError(f"pairs judge rows {first} and {second} both alike and unlike; keep one judgement.")
    if positive.all() or not positive.any():
        raise ValueError(f"pairs are all {'alike' if positive.all() else 'unlike'}; give some of both.")
    low, high = np.divmod(entries[0], n_rows)
    signs = entries[1].astype(np.uint8)
    share = signs.mean()
    weights = np.where(signs == 1, 0.5 / share, 0.5 / (1 - share)) if balance else np.ones(len(signs))
    both = np.concatenate([low, high]), np.concatenate([high, low])
    return _compress(*both, np.tile(signs, 2), np.tile(weights, 2), n_rows)


def alike(mine: Signatures, theirs: Signatures) -> NDArray[np.bool_]:
    """Which rows are similar to which, [a, b]; for small numbers of rows."""
    if mine.exact:
        equal: NDArray[np.bool_] = mine.masks[:, None, 0] == theirs.masks[None, :, 0]
        return equal
    return np.asarray((mine.masks[:, None, :] & theirs.masks[None, :, :]).any(axis=2))


def among(graph: PairGraph, rows: Indices) -> PairGraph:
    """The pairs among some rows, which are numbered anew in the order given."""
    number = np.full(graph.n_rows, -1, dtype=np.int64)
    number[rows] = np.arange(len(rows))
    owner = number[graph.owners]
    partners = number[graph.partners]
    keep = (owner >= 0) & (partners >= 0)
    return _compress(owner[keep], partners[keep], graph.similar[keep], graph.weights[keep], len(rows))


def select(graph: PairGraph, keep: NDArray[np.bool_]) -> PairGraph:
    """Some of the pairs, for the same rows; `keep` marks both directions of a pair alike, [2 p]."""
    return _compress(graph.owners[keep], graph.partners[keep], graph.similar[keep], graph.weights[keep], graph.n_rows)


def _compress(rows: Indices, partners: Indices, similar: NDArray[np.uint8], weights: Floats, n_rows: int) -> PairGraph:
    """Sort directed pairs into compressed rows."""
    order = np.lexsort((partners, rows))
    offsets = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=offsets[1:])
    return PairGraph(offsets, partners[order], similar[order], weights[order])


def _row_numbers(name: str, values: ArrayLike, n_rows: int) -> Indices:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} has shape {numbers.shape} and dtype {numbers.dtype}; give a list of whole row numbers."
        )
    outside = (numbers < 0) | (numbers >= n_rows)
    if outside.any():
        raise ValueError(f"{name} names row {int(numbers[outside][0])}, but X has rows 0 to {n_rows - 1}.")
    return numbers.astype(np.int64)
