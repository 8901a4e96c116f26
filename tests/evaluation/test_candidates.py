"""Recall of what is nearest by cosine among the first candidates, against counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.evaluation import candidates
from gphash.hashers import LSH


class Bits:
    """The signs of the first features, which many rows share."""

    def __init__(self, n_bits, unsure=False):
        self.n_bits = n_bits
        if unsure:
            self.bit_probabilities = lambda X: 1 / (1 + np.exp(-np.asarray(X)[:, :n_bits]))

    def transform(self, X):
        return (np.asarray(X)[:, : self.n_bits] > 0).astype(np.uint8)

    def encode(self, X):
        return np.packbits(self.transform(X), axis=1)


def counted(hasher, X, stored, c, ranking, rng, orders=300):
    """Recall among the first c, with ties in random orders."""
    found = []
    for row in range(len(X)):
        others = np.delete(X, row, axis=0) if stored is None else stored
        cosines = others @ X[row] / np.linalg.norm(others, axis=1) / np.linalg.norm(X[row])
        wanted = np.argsort(-cosines, kind="stable")[:10]
        codes = hasher.transform(others).astype(float)
        if ranking == "hamming":
            costs = np.abs(codes - hasher.transform(X[row : row + 1])).sum(axis=1)
        else:
            chance = hasher.bit_probabilities(X[row : row + 1])
            costs = np.round((chance * (1 - codes) + (1 - chance) * codes).sum(axis=1), 9)
        for _ in range(orders):
            first = np.lexsort((rng.random(len(costs)), costs))[:c]
            found.append(np.isin(wanted, first).mean())
    return np.mean(found)


@settings(max_examples=8)
@given(st.integers(0, 99), st.booleans(), st.booleans())
def test_it_is_what_counting_gives(seed, apart, unsure):
    rng = np.random.default_rng(seed)
    X, stored = rng.standard_normal((6 if apart else 40, 5)), rng.standard_normal((90, 5)) if apart else None
    hasher = Bits(3, unsure)
    told = candidates.recall(hasher, X, stored)
    assert list(told["recall"]) == (["hamming", "expected"] if unsure else ["hamming"])
    assert told["database_rows"] == (90 if apart else 39)
    for ranking, found in told["recall"].items():
        assert list(found) == (["10", "20", "50", "90"] if apart else ["10", "20", "39"])
        assert found["20"] == pytest.approx(counted(hasher, X, stored, 20, ranking, rng, 100), abs=0.05)
        assert [*found.values()] == sorted(found.values())
        assert [*found.values()][-1] == 1
        least = next(int(c) for c, value in found.items() if value >= 0.9)
        assert told["suggested"][ranking]["0.9"] == least <= told["suggested"][ranking]["0.95"]


def test_blocks_of_queries_change_nothing(monkeypatch):
    X = np.random.default_rng(0).standard_normal((300, 8))
    hasher = LSH(12, random_state=0).fit(X)
    whole = candidates.recall(hasher, X)
    monkeypatch.setattr(candidates, "BLOCK_BYTES", 4 * 300 * 7)
    assert candidates.recall(hasher, X) == whole


def test_long_codes_that_are_the_features_find_all():
    X = np.random.default_rng(0).standard_normal((2000, 16))
    hasher = LSH(512, random_state=0).fit(X)
    told = candidates.recall(hasher, X)
    assert told["queries"] == 1000
    assert told["recall"]["hamming"]["100"] > 0.9
    with pytest.raises(ValueError, match="there are 10 rows to search among; give more than 10"):
        candidates.recall(hasher, X[:11])
