"""What may be promised, learned from leave-one-out rows; see `codes.trust`."""

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.codes import packing, trust
from gphash.codes.trust import Trust
from gphash.evaluation import promises, retrieval
from gphash.evaluation.retrieval import Beliefs, Queries
from gphash.method import decoding, posteriors
from gphash.method.decoding import Learned
from gphash.supervision.similarity import Signatures

STORED = 10_000  # rows, at most, that are searched among
ASKED = 2500  # of them, that are searched for


def like_all(some: Signatures, whole: Signatures, seed: int) -> Indices:
    """Numbers of some rows, in random order, that together are like all rows."""
    weights, generator = decoding.occurrence(some, whole), np.random.default_rng([seed, 44])
    return generator.permutation(np.flatnonzero(generator.random(len(weights)) < weights / weights.max()))


def learn(learned: Learned, some: Signatures, like: Indices, near: Indices, nearness: Floats) -> Trust:
    """What the rows asked promise: those `like` all rows about lists, others about being near."""
    function = learned.function
    few = like[learned.held[like]][:STORED]
    packed, stored = packing.pack(learned.codes[few] > 0), some[few]
    beliefs = Beliefs(learned.classes[few[:ASKED]], learned.reader)
    queries = Queries(packed[:ASKED], some[few[:ASKED]], leave_one_out=True, beliefs=beliefs)
    cuts = promises.learn(queries, retrieval.store(packed, stored))
    return Trust(*trust.learn(nearness, posteriors.sureness(learned.classes[near], function.exclusive)), *cuts)
