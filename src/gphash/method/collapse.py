"""Whether codes have collapsed, so that they tell fewer rows apart than they should, and what helps."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.method import gibbs
from gphash.supervision.similarity import Signatures, Supervision

CROWD = 0.5  # of the rows, at least, has a code that too many share
FEWEST = 100  # rows; fewer say nothing about codes of classes
ENOUGH = 0.75  # of the codes that classes or tags should have
EXCESS = 2  # times the share that the largest class or tag explains


class CodeCounts(NamedTuple):
    """How often codes occur, those of rows with different signatures apart."""

    masks: NDArray[np.uint64]  # the first word of the signature; 0 if there is none, [k]
    codes: NDArray[np.uint8]  # packed, [k, b]
    counts: Floats  # rows, [k]


def count(signs: Signs, signatures: Signatures | None) -> CodeCounts:
    """How often codes occur among some rows."""
    nothing = Signatures(np.zeros((len(signs), 1), dtype=np.uint64), True)
    groups, _ = gibbs.group(signs, signatures or nothing)
    return CodeCounts(groups.signatures.masks[:, 0], np.packbits(groups.signs.T > 0, axis=1), groups.counts)


def remark(tally: CodeCounts, supervision: Supervision, n_bits: int) -> str | None:
    """What is wrong with the codes of the training rows, and what to do about it; None if nothing is."""
    words, word = np.unique(tally.codes, axis=0, return_inverse=True)
    classes = supervision.form == "labels"
    n_words = len(np.unique(commonest(tally), axis=0)) if classes else len(words)
    sizes = np.bincount(word.reshape(-1), tally.counts)
    n_kinds, largest, remedy = _expected(supervision)
    n_kinds = min(n_kinds, len(np.unique(tally.masks))) if classes else n_kinds
    # As many as random codes would have: with few bits, some of them meet.
    n_codes = 2.0 ** min(n_bits, 60)
    wanted = round(-n_codes * np.expm1(n_kinds * np.log1p(-1 / n_codes)))
    bits = np.unpackbits(words, axis=1, count=n_bits)
    n_different = len(np.unique(bits ^ bits[:1], axis=1).T) - bool((bits == bits[:1]).all(axis=0).any())
    possible = min(n_bits, 2.0 ** (n_kinds - 1) - 1) if n_kinds < n_bits else n_bits
    crowd = sizes.max() / sizes.sum()
    if n_words < ENOUGH * wanted and sizes.sum() >= FEWEST:
        found = f"the training rows have {n_words} different codes for {n_kinds:.0f} tags"
        if classes:
            found = f"the commonest codes of {n_kinds:.0f} classes are only {n_words} different ones"
    elif crowd > max(CROWD, EXCESS * largest):
        found = f"{crowd:.0%} of the training rows have the same code"
    elif 2 * n_different < possible:
        found = f"of {n_bits} bits, {n_different} tell different things, and the others repeat them or never change"
        remedy = f"give fewer bits, such as n_bits={max(n_different, 1)}, or {remedy}"
    else:
        return None
    return f"codes have collapsed: {found}. To help, {remedy} (docs/questions.md#codes-have-collapsed)."


def commonest(tally: CodeCounts) -> NDArray[np.uint8]:
    """The commonest code of every class, packed, [c, b]; of equally common codes, the smallest."""
    classes, codes, counts = tally
    words, word = np.unique(codes, axis=0, return_inverse=True)
    cells, cell = np.unique(classes.astype(np.int64) * len(words) + word.reshape(-1), return_inverse=True)
    owner, word = np.divmod(cells, len(words))
    order = np.lexsort((word, -np.bincount(cell, counts), owner))
    return np.asarray(words[word[order][np.searchsorted(owner[order], np.unique(owner))]])


def _expected(supervision: Supervision) -> tuple[float, float, str]:
    """How many kinds of rows there are, which share of the rows the largest explains, and what helps."""
    if not isinstance(supervision, Signatures):
        return 2, 0.8, "give more pairs, or pairs of both signs for more of the rows"
    known = supervision[supervision.known]
    if known.exact:
        sizes = np.unique(known.masks[:, 0], return_counts=True)[1]
        remedy = 'give class_weight="balanced", more rows of small classes, more bits, or features that tell more'
        return len(sizes), float(sizes.max() / sizes.sum()), remedy
    tags = np.unpackbits(known.masks.view(np.uint8), axis=1).mean(axis=0)
    kinds = min(int(np.count_nonzero(tags)), len(np.unique(known.masks, axis=0)))
    return kinds, float(tags.max()), f"leave out the tag that is on {tags.max():.0%} of the rows, or give more bits"
