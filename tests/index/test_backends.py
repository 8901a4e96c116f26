"""Back ends and rankings of one's own: one file and one name each."""

import numpy as np
import pytest

from gphash import HammingIndex
from gphash.codes import packing
from gphash.index.backends import BACKENDS, Ball, Index, Neighbours, Stats, open_index
from gphash.index.rankings import RANKINGS, Ranking

BITS = np.random.default_rng(0).integers(0, 2, (30, 12), dtype=np.uint8)
PACKED = packing.pack(BITS)


class Agreement(Ranking):
    """By the share of bits that agree with the likeliest, the first bit counting double."""

    needs, title, unit, descending = "probabilities", "agreement", "share", True

    def scores(self, query, packed, n_bits):
        agree = packing.unpack(packed, n_bits) == (query >= 0.5)
        return (agree.sum(axis=1) + agree[:, 0]) / (n_bits + 1)


class Listed(Index):
    """Items in a dict, and every search a loop over all of them."""

    @classmethod
    def open(cls, place):
        index = cls(12, None)
        index.kept = {}
        return index

    @property
    def ids(self):
        return np.array(sorted(self.kept), np.int64)

    def __len__(self):
        return len(self.kept)

    def items(self):
        return np.array([self.kept[number] for number in self.ids.tolist()], np.uint8).reshape(-1, 2), self.ids

    def codes_of(self, ids):
        return np.array([self.kept[number] for number in ids])

    def stats(self):
        return Stats(len(self.kept), len(set(map(bytes, self.kept.values()))), 0, 0.0, 0)

    def close(self):
        pass

    def _search(self, ranking, queries, k, allowed, n_jobs):
        packed, ids = self.items()
        scores = np.array([ranking.scores(query, packed, self.n_bits) for query in queries], ranking.dtype)
        order = np.lexsort((np.broadcast_to(ids, scores.shape), -scores if ranking.descending else scores))[:, :k]
        return Neighbours(ids[order], np.take_along_axis(scores, order, 1))

    def _within(self, packed, radius, allowed, n_jobs):
        found = self.rank(packed)
        near = found.distances <= radius
        offsets = np.concatenate([[0], near.sum(axis=1).cumsum()])
        return Ball(offsets, found.ids[near], found.distances[near].astype(np.int32))

    def _add(self, packed, ids):
        self.kept.update(zip(ids.tolist(), packed, strict=True))

    def _remove(self, ids):
        return sum(self.kept.pop(number, None) is not None for number in ids.tolist())


@pytest.fixture
def agreement(monkeypatch):
    monkeypatch.setattr(RANKINGS, "_things", dict(RANKINGS._things))
    return RANKINGS.register("agreement", Agreement())


def test_a_ranking_from_outside_is_searched_by(agreement, tmp_path):
    chances = np.random.default_rng(1).random((3, 12))
    index = HammingIndex.build(PACKED, n_bits=12)
    index.add(PACKED[:5], range(100, 105))
    found = index.search(chances, 9, ranking="agreement", allowed=range(3, 200))
    ids, bits = np.arange(3, 35), np.concatenate([BITS[3:], BITS[:5]])
    ids[27:] = range(100, 105)
    for row, query in enumerate(chances):
        scores = agreement.scores(query, packing.pack(bits), 12)
        order = np.lexsort((ids, -scores))[:9]
        assert found.ids[row].tolist() == ids[order].tolist()
        np.testing.assert_array_equal(found.distances[row], scores[order])
    assert index.search(chances, 9, ranking=agreement).distances.dtype == np.float64
    assert {"hamming", "expected", "agreement"} <= set(RANKINGS)


def test_rankings_by_name_are_those_of_the_methods():
    index, chances = HammingIndex.build(PACKED, n_bits=12), np.random.default_rng(2).random((4, 12))
    np.testing.assert_equal(index.search(chances, 7, ranking="expected"), index.search_expected(chances, 7))
    np.testing.assert_equal(index.search(PACKED[:4], 7, ranking="hamming"), index.search(PACKED[:4], 7))
    with pytest.raises(ValueError, match="ranking='nearest'; give one of 'hamming', 'expected'"):
        index.search(PACKED[:4], 7, ranking="nearest")
    with pytest.raises(ValueError, match="probabilities has shape"):
        index.search(PACKED[:4], 7, ranking="expected")


def test_a_back_end_from_outside_is_opened_by_its_name(monkeypatch):
    monkeypatch.setattr(BACKENDS, "_things", dict(BACKENDS._things))
    BACKENDS.register("listed", Listed)
    index, chances = HammingIndex.build(PACKED, n_bits=12), np.random.default_rng(3).random((2, 12))
    with open_index("listed://anywhere") as other:
        other.add(PACKED, range(30))
        assert other.remove([3, 99]) == index.remove([3, 99]) == 1
        np.testing.assert_equal(other.search(PACKED[:4], 7), index.search(PACKED[:4], 7))
        np.testing.assert_equal(other.search_expected(chances, 7), index.search_expected(chances, 7))
        np.testing.assert_equal(other.within(PACKED[:4], 3), index.within(PACKED[:4], 3))
        assert list(other.iterate(chances[0])) == list(index.iterate(chances[0]))
        with pytest.raises(ValueError, match="k=-1"):
            other.search(PACKED[:4], -1)


def test_a_place_is_opened_by_what_it_is(tmp_path):
    index = HammingIndex.build(PACKED, n_bits=12, model="ab")
    index.save(tmp_path / "one.index")
    assert type(open_index(tmp_path / "one.index")) is HammingIndex
    with pytest.raises(ValueError, match="place='redis'; give one of 'file', 'postgresql'"):
        open_index("redis://localhost")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_index(tmp_path / "nowhere")
