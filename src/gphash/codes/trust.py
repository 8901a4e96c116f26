"""What may be promised about answers, learned from leave-one-out rows: is a query familiar, and where to cut a list.

A query is familiar if it is like the rows that taught the model, in two ways: how near the nearest inducing input is,
and how sure its classes are. Each is compared with leave-one-out rows of training: a share p of them is no better. The
two shares become one surprise, −log p₁ − log p₂, and the familiarity of a query is the share of training rows that
surprise at least as much. That is a conformal p-value, and a cautious one where references are few: of queries like the
training rows, at most a share α has a familiarity of α or less.

A list is cut for precision where the mean of its probabilities falls below a level, and for recall where a probability
falls below a share of the first one. Which level and which share keep a promise was seen on leave-one-out rows.
"""

from typing import NamedTuple

import numpy as np

from gphash.arrays import Floats
from gphash.schema import Array

LEVELS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)
"""Precision or recall for which cuts are learned; between them, the next higher one holds."""
NEVER = 2.0  # a mean probability that no list has
REFERENCES = 1000  # rows that stand for all of training, at most
WRONG = 0.05
"""How often "nothing similar" may be said of queries that are like the training rows."""

PROBABLE = 0.5

ARRAYS = {
    **dict.fromkeys(("nearness", "sureness", "surprise"), Array("<f8", ("references",))),
    **dict.fromkeys(("precision_cuts", "recall_cuts"), Array("<f8", (len(LEVELS),), 0.0, NEVER)),
    "least_probability": Array("<f8", (1,), 0.0, 1.0),
}
"""What a file keeps of it."""
SIDES = {"references": (1, REFERENCES)}


class Trust(NamedTuple):
    """Leave-one-out rows in short; the first three are sorted."""

    nearness: Floats  # of rows to inducing inputs, as a correlation, [g]
    sureness: Floats  # probability that two rows with such beliefs are similar, [g]
    surprise: Floats  # of both together, [g]
    precision_cuts: Floats  # the least mean probability for every level of precision, [l]
    recall_cuts: Floats  # the least share of the first probability for every level of recall, [l]
    least_probability: Floats  # that of the first hit, below which few rows have it, [1]

    def familiarity(self, nearness: Floats, sureness: Floats) -> Floats:
        """The share of training rows that are at least as unlike the others, above 0, [n]."""
        strange = surprise(self.nearness, self.sureness, nearness, sureness)
        return np.asarray(1 - np.searchsorted(self.surprise, strange, "left") / (len(self.surprise) + 1))

    def cut(self, kind: str, level: float) -> float:
        """Where to cut so that the "precision", or "recall", is at least at this level."""
        place = int(np.searchsorted(LEVELS, level - 1e-12))
        if place == len(LEVELS):
            return NEVER if kind == "precision" else 0.0
        return float((self.precision_cuts if kind == "precision" else self.recall_cuts)[place])

    def nothing(self, familiarity: float | None, first: float | None) -> bool:
        """Whether to say that nothing is similar: the query is too strange, or the first hit too improbable.

        A hit that is more probably similar than not is never too improbable. On easy data nearly all first hits of the
        trial have a probability of 1, and .99 would be called unusual.
        """
        strange = familiarity is not None and familiarity <= WRONG / 2
        return bool(strange or first is None or first < min(self.least_probability[0], PROBABLE))


def surprise(
    known_nearness: Floats, known_sureness: Floats, nearness: Floats, sureness: Floats, own: bool = False
) -> Floats:
    """−log p₁ − log p₂ of rows, [n], by two sorted references; `own` says that the rows are among these."""
    total = np.zeros(len(nearness))
    for known, values in ((known_nearness, nearness), (known_sureness, sureness)):
        before = np.searchsorted(known, values, "right") + (not own)
        total -= np.log(np.maximum(before, 1) / (len(known) + 1))
    return total


def learn(nearness: Floats, sureness: Floats) -> tuple[Floats, Floats, Floats]:
    """The three references from leave-one-out rows, [n] each."""
    known = reference(nearness), reference(sureness)
    # These rows are among the references themselves; a new row is one more, and must not look stranger for that.
    return *known, reference(surprise(*known, nearness, sureness, own=True))


def reference(values: Floats) -> Floats:
    """Sorted values, or as many of them, spread evenly, as are enough."""
    places = np.linspace(0, len(values) - 1, min(len(values), REFERENCES)).round().astype(np.int64)
    return np.asarray(np.sort(values)[places], np.float64)
