"""From Gaussian processes that tell classes or tags apart to bits: questions, a read-out of answers, and words.

Every latent function answers a question about a row: does it have this class, this tag? (With very many classes, the
questions are about groups of them, by Hadamard words.) Leave-one-out means of the answers, which EP and least squares
give away, teach a logistic read-out to tell how probable every class is,

    P(c | x) = softmax(f(x) A + b),   for tags a logistic function each,

and directions are searched for along which the signs of (powers of) these probabilities retrieve best among the same
rows: the bits. Nothing has to be held out. The read-out is linear in f(x) = k(x, Z) w, so that the weights of the
logits are w A: encoding costs no more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Signs
from gphash.codes.reading import CodeReader
from gphash.execution.local import Executor
from gphash.method import posteriors, readout, words
from gphash.method.hashing import HashFunction
from gphash.method.posteriors import PosteriorFunction, Reading
from gphash.method.words import Tally
from gphash.supervision import similarity
from gphash.supervision.similarity import Signatures

MOST_QUESTIONS = 128
POWERS = {True: 0.5, False: 1.0}  # of probabilities that are quantised: of classes, of tags
BROAD = 1 / 3  # of the rows; to share nothing but a tag on more of them tells nothing


def questions(signatures: Signatures, seed: int) -> Signs:
    """True answers ±1 of all rows, [n, q]; those of rows without a label mean nothing."""
    known = signatures.known
    told = 2 * truth(signatures[known], signatures).astype(np.int8) - 1
    if told.shape[1] > MOST_QUESTIONS:
        grouping = words.hadamard(told.shape[1], MOST_QUESTIONS, np.random.default_rng([seed, 41]))
        told = words.spell(words.votes(signatures[known]), grouping)
    answers = np.full((signatures.n_rows, told.shape[1]), -1, dtype=np.int8)
    answers[known] = told
    return answers


def truth(some: Signatures, whole: Signatures) -> NDArray[np.bool_]:
    """Which classes or tags of all rows some rows have, [s, c]."""
    if whole.exact:
        names = np.unique(whole.masks[whole.known, 0])
        return np.asarray(some.masks[:, :1] == names)
    own = np.unpackbits(some.masks.view(np.uint8), axis=1)
    return np.asarray(own[:, similarity.tags_there(whole[whole.known])] == 1)


class Learned(NamedTuple):
    """A hash function, and what it makes of the rows asked if each is left out."""

    function: PosteriorFunction
    codes: Signs  # [s, m]
    classes: Floats  # P(class) or P(tag), [s, c]
    held: NDArray[np.bool_]  # rows that taught neither directions, nor the reader, nor their own classes, [s]
    reader: CodeReader  # of a trial: what others teach


def learn(
    answers: Floats,
    signatures: Signatures,
    whole: Signatures,
    n_bits: int,
    seeds: Sequence[int],
    machine: HashFunction,
    executor: Executor,
) -> Learned:
    """The hash function from leave-one-out answers of some rows, [s, q], and what it makes of these rows.

    The machine answers for new rows. `signatures` are of the rows asked, and `whole` of all: what is rare among those
    is as probable as it is among all.
    """
    # Blocks follow the table, and that may be sorted: those who are taught and those who judge are drawn from all.
    order = np.random.default_rng([seeds[0], 42]).permutation(len(answers))
    answers, signatures = answers[order], signatures[order]
    told, exclusive = truth(signatures, whole).astype(np.float64), signatures.exact
    weights, power = importance(signatures, whole), POWERS[exclusive]
    n = min(words.JUDGED, len(answers) // 2)
    # Of rows that directions were searched for, codes tell more. Every second of the others tries what has been taught.
    fresh = np.arange(len(answers)) >= n
    held = fresh & (np.arange(len(answers)) % 2 == 1)
    own = answers.shape[1] == told.shape[1]
    others, ridge = readout.fit(answers[~held], told[~held], exclusive, weights[~held], own=own)
    found, _ = readout.fit(answers, told, exclusive, weights, ridge, own)
    logits = answers @ found.weights + found.bias
    taught, judged = slice(0, n), slice(n, 2 * n)
    alike = [wanted(signatures[part]) for part in (taught, judged)]

    def quantiser(seed: int) -> tuple[float, Floats, Floats]:
        q = posteriors.powers(logits, exclusive, power)
        centre, generator = weights @ q / weights.sum(), np.random.default_rng([seed, 43])
        scores = q - centre
        first = words.rotation(scores, n_bits, generator)
        directions, _ = words.search(scores[taught], alike[0], first, seed)
        sure = np.eye(len(centre)) - centre if exclusive else None
        directions = words.distinct(scores, directions, generator, sure)
        if exclusive:
            directions = words.apart(directions, centre)
        promise = Tally(words.spell(scores[judged], directions), alike[1]).quality
        return promise, directions, -centre @ directions

    _, directions, offset = max(executor.collect(quantiser, seeds), key=lambda one: one[0])
    column = (machine.weights.astype(np.float64) @ found.weights).astype(np.float32)
    classifier = HashFunction(machine.scaling, machine.kernel, machine.Z, column, found.bias)
    margins = posteriors.powers(logits, exclusive, power) @ directions + offset
    signs = np.where(margins >= 0, 1, -1).astype(np.int8)
    places = words.in_order(signs[judged], alike[1])
    directions, offset, signs = directions.take(places, 1), offset[places], signs.take(places, 1)
    often = occurrence(signatures, whole)

    def reader(rows: NDArray[np.bool_]) -> Reading:
        return readout.fit(signs[rows].astype(np.float64), told[rows], exclusive, often[rows])[0].rounded()

    function = PosteriorFunction(classifier, exclusive, power, directions, offset, _shift(whole), reader(fresh))
    teaching = fresh & ~held if (fresh & ~held).any() else fresh  # two rows are too few for a trial
    logits[held] = answers[held] @ others.weights + others.bias
    back, trial = np.argsort(order), CodeReader(*reader(teaching), exclusive)
    return Learned(function, signs[back], function.believe(logits)[back], held[back], trial)


def _shift(whole: Signatures) -> Floats:
    """Logarithm of how much more often than they were weighed classes occur, [c]; 0 for tags."""
    names = truth(whole[:1], whole).shape[1]
    if whole.shares is None:
        return np.zeros(names)
    numbers, weights = whole.masks[whole.known, 0].astype(np.int64), whole.row_weights
    weighed = np.bincount(numbers, None if weights is None else weights[whole.known])
    here = np.unique(numbers)
    return np.asarray(np.log(whole.shares[here]) - np.log(weighed[here] / weighed.sum()))


def true_codes(function: PosteriorFunction, some: Signatures, whole: Signatures) -> Signs:
    """Codes that some rows have if nothing is uncertain, from what is known of them, [s, m]."""
    margins = truth(some, whole).astype(np.float64) ** function.power @ function.directions + function.offset
    return np.where(margins >= 0, 1, -1).astype(np.int8)


def importance(signatures: Signatures, whole: Signatures) -> Floats:
    """How often every one of some rows counts, so that together they are like all rows with their weights, [s]."""
    own = np.ones(signatures.n_rows) if signatures.row_weights is None else signatures.row_weights
    if not signatures.exact:
        return own
    numbers, everyone = (rows.masks[:, 0].astype(np.int64) for rows in (signatures, whole[whole.known]))
    weights = own * (np.bincount(everyone)[numbers] / np.bincount(numbers)[numbers])
    return np.asarray(weights / weights.mean())


def occurrence(signatures: Signatures, whole: Signatures) -> Floats:
    """The same, so that together they are like all rows however classes are weighed, [s]."""
    if whole.shares is None:
        return importance(signatures, whole)
    numbers, own = signatures.masks[:, 0].astype(np.int64), signatures.row_weights
    own = np.ones(len(numbers)) if own is None else own
    weights = own * (whole.shares[numbers] / np.bincount(numbers, own)[numbers])
    return np.asarray(weights / weights.mean())


def wanted(signatures: Signatures) -> NDArray[np.bool_]:
    """Which rows every row should find, [s, s]: every other one looks for narrow tags only, if there are broad ones."""
    alike, narrower = similarity.alike(signatures, signatures), narrow(signatures)
    if narrower is not signatures:
        alike[1::2] = similarity.alike(narrower[np.arange(1, signatures.n_rows, 2)], narrower)
    return alike


def narrow(signatures: Signatures) -> Signatures:
    """The same rows without tags that are on so many of them that sharing one tells nothing."""
    if signatures.exact:
        return signatures
    bits = np.unpackbits(signatures.masks.view(np.uint8), axis=1)
    broad = bits.mean(axis=0) > BROAD
    if not broad.any() or not (bits & ~broad).any():
        return signatures
    masks = np.packbits(np.where(broad, 0, bits), axis=1).view(np.uint64)
    return Signatures(masks, False, signatures.kind, signatures.row_weights)
