"""Supervision: which rows are similar, never as an n × n matrix.

Class labels and tag sets become one signature per row (`Signatures`); judged pairs become a list of partners per row
(`PairGraph`). Both know how rows are drawn, divided and held out, and training asks them.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats, Indices
from gphash.codes import packing


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


@dataclass(frozen=True, eq=False)
class Signatures:
    """One bit mask per row, from which the similarity of any two rows follows."""

    masks: NDArray[np.uint64]  # [n, w]: the number of the class, or the set of tags, 64 to a word
    exact: bool  # True for class labels, similar when equal; False for tag sets, similar when they share a tag
    kind: str = ""  # registered name of what the user handed in; see `targets.KINDS`. Files keep it
    row_weights: Floats | None = None  # how often each row counts, [n], 0 if nothing is known of it; once each if None
    classes: NDArray[Any] | None = None  # what the user calls the classes, by their numbers, [c]
    shares: Floats | None = None  # of the rows, that every class has before it is weighed, [c]; None if none is
    masses: Floats | None = None  # how much every class counts for the centre, by their numbers, [c]

    complete = True  # it judges any two rows, so a few rows can represent all, and retrieval can be measured by it

    def __getitem__(self, rows: Any) -> "Signatures":
        """Signatures of some rows, numbered anew in the order given."""
        weights = None if self.row_weights is None else self.row_weights[rows]
        return replace(self, masks=self.masks[rows], row_weights=weights)

    among = __getitem__

    @property
    def form(self) -> str:
        """What a method must be able to learn from: "labels" or "tags"."""
        return "labels" if self.exact else "tags"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.masks)

    @property
    def known(self) -> Indices:
        """Numbers of the rows that something is known of, and that count."""
        return np.arange(self.n_rows) if self.row_weights is None else np.flatnonzero(self.row_weights)

    def weighted(self, weights: Floats) -> "Signatures":
        """The same rows with other weights, [n], in proportion; those that count have a mean of 1."""
        weights = weights / weights[weights > 0].mean()
        even = bool((weights == 1).all())
        return replace(self, row_weights=None if even else weights, masses=_masses(self, weights))

    def pulls(self) -> Floats:
        """How much every row counts for the centre of all, [n]; 1 on average.

        A class counts in proportion to the square root of its rows.
        """
        own = np.ones(self.n_rows) if self.row_weights is None else self.row_weights
        if self.masses is not None:
            numbers = self.masks[:, 0].astype(np.int64)
            own = own * (self.masses / np.maximum(np.bincount(numbers, own, len(self.masses)), 1e-300))[numbers]
        return np.asarray(own / own.mean())

    def check_teaches(self) -> None:
        """Refuse labels or tags by which all rows are alike, or none."""
        if not len(self.known):
            raise ValueError("y has a label for no row; hashing needs rows of at least 2 classes.")
        masks = self.masks[self.known]
        if self.exact and (masks == masks[0]).all():
            raise ValueError("y has one class only; hashing needs at least 2 classes to tell apart.")
        if not self.exact and not masks.any():
            raise ValueError("tags y are all 0, so no two rows are similar; give some rows a tag in common.")
        everywhere = np.flatnonzero(np.unpackbits(np.bitwise_and.reduce(masks, axis=0).view(np.uint8)))
        if not self.exact and len(everywhere):
            raise ValueError(f"tag {everywhere[0]} of y is on every row, so all rows are similar; leave it out.")

    def order(self, generator: np.random.Generator, n_sample: int) -> Indices:
        """All rows that are known, in random order; of classes, the square roots of their sizes have their turn."""
        order = generator.permutation(self.known).astype(np.int64)
        if self.masses is None:
            return order
        _, numbers, sizes = np.unique(self.masks[order, 0], return_inverse=True, return_counts=True)
        by_class = np.argsort(numbers, kind="stable")
        turn = np.empty(len(order))
        turn[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return order[np.argsort((turn + generator.random(len(order))) / np.sqrt(sizes)[numbers], kind="stable")]

    def hold_out(self, held: NDArray[np.bool_], seed: int) -> tuple[Indices, "Signatures", Indices, "Signatures"]:
        """Rows to learn from and what is known of them, then rows to judge and their judge; `held` marks these, [n]."""
        return np.flatnonzero(~held), self[~held], np.flatnonzero(held), self[held]

    def n_partners(self, n_central: int) -> float:
        """How many partners a row has, if so many rows are sampled one after another: all of them."""
        return n_central

    def parts(self) -> dict[str, NDArray[Any]]:
        """Everything it holds as arrays, to tell one run from another."""
        weights = {} if self.row_weights is None else {"row_weights": self.row_weights}
        return {"masks": self.masks, "exact": np.asarray(self.exact), **weights}


@dataclass(frozen=True, eq=False)
class PairGraph:
    """Judged pairs as a list of partners for every row (compressed rows). Its methods are those of `Signatures`."""

    offsets: Indices  # row i's partners are at offsets[i]:offsets[i + 1], [n + 1]
    partners: Indices  # row numbers, [2 p]
    similar: NDArray[np.uint8]  # 1 where alike, 0 where unlike, [2 p]
    weights: Floats  # how much a pair counts, [2 p]
    kind: str = "pairs"

    form = "pairs"
    complete = False
    row_weights = None  # rows count as often as pairs name them

    @property
    def owners(self) -> Indices:
        """The row that every entry of `partners` belongs to, [2 p]."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.offsets))

    @property
    def n_rows(self) -> int:
        """Number of rows that the graph spans."""
        return len(self.offsets) - 1

    @property
    def known(self) -> Indices:
        """All rows."""
        return np.arange(self.n_rows)

    def check_teaches(self) -> None:
        """Nothing is left to check: `from_pairs` takes only lists with both signs."""

    def order(self, generator: np.random.Generator, n_sample: int) -> Indices:
        """Rows that some pair names, following each other along pairs until there is a sample, then at random.

        Other rows have no likelihood, and codes sampled for them would only teach the Gaussian processes what they say
        already. The sample is walked breadth first from random rows, or it would hold next to no pair.
        """
        from scipy.sparse import csr_array  # only training needs these
        from scipy.sparse.csgraph import breadth_first_order

        order = generator.permutation(self.n_rows).astype(np.int64)
        order = order[np.diff(self.offsets)[order] > 0]
        if len(order) <= n_sample:
            return order
        ones = np.ones(len(self.partners), np.int8)
        matrix = csr_array((ones, self.partners, self.offsets), shape=(self.n_rows, self.n_rows))
        first, seen = np.empty(0, np.int64), np.zeros(self.n_rows, dtype=bool)
        for row in order:
            if not seen[row]:
                found = breadth_first_order(matrix, row, return_predecessors=False).astype(np.int64)[:n_sample]
                seen[found] = True
                first = np.concatenate([first, found])
            if len(first) >= n_sample:
                break
        first = first[:n_sample]
        return np.concatenate([first, order[~np.isin(order, first)]])

    def among(self, rows: Indices) -> "PairGraph":
        """The pairs among some rows, which are numbered anew in the order given."""
        number = np.full(self.n_rows, -1, dtype=np.int64)
        number[rows] = np.arange(len(rows))
        owners, partners = number[self.owners], number[self.partners]
        return self._some((owners >= 0) & (partners >= 0), owners, partners, len(rows))

    def select(self, keep: NDArray[np.bool_]) -> "PairGraph":
        """Some of the pairs, for the same rows; `keep` marks both directions of a pair alike, [2 p]."""
        return self._some(keep, self.owners, self.partners, self.n_rows)

    def hold_out(self, held: NDArray[np.bool_], seed: int) -> tuple[Indices, "PairGraph", Indices, "PairGraph"]:
        """All rows stay, and a fifth of the pairs is the judge."""
        # Both directions of a pair must fall on the same side: decide by a number that both share.
        draw = np.random.default_rng([seed, 5]).random(self.n_rows)
        apart = (draw[self.owners] + draw[self.partners]) % 1 < 0.2
        everyone = np.arange(self.n_rows)
        return everyone, self.select(~apart), everyone, self.select(apart)

    def n_partners(self, n_central: int) -> float:
        """Those that pairs name, on average."""
        return len(self.partners) / n_central

    def parts(self) -> dict[str, NDArray[Any]]:
        """Partners, signs and weights."""
        return {name: part for name, part in vars(self).items() if name != "kind"}

    def _some(self, keep: NDArray[np.bool_], owners: Indices, partners: Indices, n_rows: int) -> "PairGraph":
        made = compress(owners[keep], partners[keep], self.similar[keep], self.weights[keep], n_rows)
        return replace(made, kind=self.kind)


Supervision = Signatures | PairGraph
"""What is known of which rows are similar, checked and ready to learn from."""


def from_labels(y: ArrayLike, known: NDArray[np.bool_] | None = None) -> Signatures:
    """Signatures of class labels, [n]; two rows are similar when their labels are equal.

    Rows that are not marked as `known`, [n], have no label and are similar to none.
    """
    labels = np.asarray(y).reshape(-1)
    known = np.ones(len(labels), dtype=bool) if known is None else known
    classes, numbers = np.unique(labels[known], return_inverse=True)
    masks = np.uint64(1 << 63) + np.arange(len(labels), dtype=np.uint64)  # to each its own
    masks[known] = numbers.reshape(-1)
    return _where_known(Signatures(masks.reshape(-1, 1), True, "labels", classes=classes), known)


def from_tags(tags: ArrayLike, known: NDArray[np.bool_] | None = None) -> Signatures:
    """Signatures of tag sets, a 0/1 matrix [n, c]; rows are similar when they share a tag, an empty row to none.

    Nothing is known of rows that are not marked as `known`, [n], while an empty row is known to be like no other.
    """
    tags = np.asarray(tags)
    if tags.ndim != 2:
        raise ValueError(f"tags y have shape {tags.shape}; give a 0/1 matrix [n_rows, n_tags].")
    if len(odd := tags[~np.isin(tags, (0, 1))]):
        raise ValueError(f"tags y hold {odd.tolist()[0]!r}; give a matrix [n_rows, n_tags] of 0 and 1 only.")
    known = np.ones(len(tags), dtype=bool) if known is None else known
    return _where_known(Signatures(packing.words(np.packbits(tags.astype(bool), axis=1)), False, "tags"), known)


def _where_known(given: Signatures, known: NDArray[np.bool_]) -> Signatures:
    return given.weighted(known.astype(np.float64)) if known.any() else replace(given, row_weights=np.zeros(len(known)))


def _masses(given: Signatures, weights: Floats) -> Floats | None:
    """Square roots of the numbers of rows in the classes, [c]; None if there are no classes."""
    if given.classes is None:
        return None
    some = weights > 0
    return np.sqrt(np.bincount(given.masks[some, 0].astype(np.int64), weights[some], len(given.classes)))


def tags_there(signatures: Signatures) -> Indices:
    """Numbers of the tags that some row has, ascending, [c]."""
    return np.flatnonzero(np.unpackbits(signatures.masks.view(np.uint8), axis=1).any(axis=0))


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


def from_pairs(pairs: Pairs, n_rows: int, balance: bool = True) -> PairGraph:
    """Partners of every row, from judged pairs, each once or more often and in either order.

    `balance` weights the pairs so that the similar ones and the dissimilar ones have the same total: few random pairs
    are similar, and unweighted they drown.
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
    if len(odd := similar[~np.isin(similar, (-1, 1))]):
        raise ValueError(f"pairs.similar holds {odd.tolist()[0]!r}; give +1 (alike) or -1 (unlike) for every pair.")
    if (i == j).any():
        raise ValueError(f"pairs name row {int(i[i == j][0])} with itself; give pairs of two different rows.")
    positive = similar > 0
    key = np.minimum(i, j) * np.int64(n_rows) + np.maximum(i, j)
    # Each pair once; a pair that occurs with both signs keeps two distinct (key, sign) entries.
    entries = np.unique(np.stack([key, positive.astype(np.int64)]), axis=1)
    if len(clash := np.flatnonzero(np.diff(entries[0]) == 0)):
        first, second = divmod(int(entries[0, clash[0]]), n_rows)
        raise ValueError(f"pairs judge rows {first} and {second} both alike and unlike; keep one judgement.")
    if positive.all() or not positive.any():
        raise ValueError(f"pairs are all {'alike' if positive.all() else 'unlike'}; give some of both.")
    low, high = np.divmod(entries[0], n_rows)
    signs, share = entries[1].astype(np.uint8), entries[1].mean()
    weights = np.where(signs == 1, 0.5 / share, 0.5 / (1 - share)) if balance else np.ones(len(signs))
    both = np.concatenate([low, high]), np.concatenate([high, low])
    return compress(*both, np.tile(signs, 2), np.tile(weights, 2), n_rows)


def alike(mine: Signatures, theirs: Signatures) -> NDArray[np.bool_]:
    """Which rows are similar to which, [a, b]; for small numbers of rows."""
    if mine.exact:
        return np.equal.outer(mine.masks[:, 0], theirs.masks[:, 0])
    return np.asarray((mine.masks[:, None, :] & theirs.masks[None, :, :]).any(axis=2))


def compress(rows: Indices, partners: Indices, similar: NDArray[np.uint8], weights: Floats, n_rows: int) -> PairGraph:
    """Sort directed pairs into compressed rows."""
    order = np.lexsort((partners, rows))
    offsets = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=offsets[1:])
    return PairGraph(offsets, partners[order], similar[order], weights[order])


def _row_numbers(name: str, values: ArrayLike, n_rows: int) -> Indices:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{name} has shape {numbers.shape} and dtype {numbers.dtype}; give row numbers.")
    if len(outside := numbers[(numbers < 0) | (numbers >= n_rows)]):
        raise ValueError(f"{name} names row {int(outside[0])}, but X has rows 0 to {n_rows - 1}.")
    return numbers.astype(np.int64)
