"""The self-join of an index against all pairs, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.codes import packing
from gphash.codes.reading import WEIGHT_UNIT, CodeReader, rounded
from gphash.index import joining
from gphash.index.hamming_index import HammingIndex


@st.composite
def codes(draw, most_bits=150):
    """Packed codes that pile up and lie near each other, and their length."""
    n_bits, n = draw(st.integers(1, most_bits)), draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    centres = rng.integers(0, 2, (draw(st.integers(1, 8)), n_bits))
    flips = rng.random((n, n_bits)) < draw(st.sampled_from([0.0, 0.02, 0.1, 0.5]))
    return packing.pack(centres[rng.integers(0, len(centres), n)] ^ flips), n_bits


def all_pairs(packed, ids, radius):
    """Every pair of items that are near, by comparing all."""
    found = []
    for i in range(len(ids)):
        for j in range(len(ids)):
            apart = int(np.unpackbits(packed[i] ^ packed[j]).sum())
            if ids[i] < ids[j] and apart <= radius:
                found.append((int(ids[i]), int(ids[j]), apart))
    return sorted(found)


def connected(pairs):
    """Clusters by joining sets, one pair after another."""
    owner = {}
    for first, second, *_ in pairs:
        joint = owner.get(first, {first}) | owner.get(second, {second})
        owner |= dict.fromkeys(joint, joint)
    groups = {min(group): sorted(group) for group in owner.values()}
    return sorted(groups.values(), key=lambda group: (-len(group), group[0]))


@given(codes(), st.integers(0, 8), st.integers(0, 99))
def test_pairs_and_clusters_are_those_of_all_comparisons(given_, radius, seed):
    packed, n_bits = given_
    ids = np.random.default_rng(seed).permutation(500)[: len(packed)] - 100
    index = HammingIndex.build(packed, ids, n_bits=n_bits)
    wanted = all_pairs(packed, ids, radius)
    found = index.pairs(radius)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == wanted
    assert [group.tolist() for group in index.clusters(radius)] == connected(wanted)


@settings(max_examples=30)
@given(codes(40), st.integers(0, 6), st.integers(1, 50))
def test_blocks_change_nothing(given_, radius, block):
    packed, n_bits = given_
    index = HammingIndex.build(packed, n_bits=n_bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "BLOCK", block)
        found = index.pairs(radius)
    np.testing.assert_array_equal(np.stack(found), np.stack(index.pairs(radius)))


@given(codes(20), st.booleans(), st.floats(0, 1), st.integers(0, 99))
def test_similar_codes_are_those_of_all_comparisons(given_, exclusive, least, seed):
    packed, n_bits = given_
    distinct = np.unique(packed, axis=0)
    rng = np.random.default_rng(seed)
    weights = rounded(rng.standard_normal((n_bits, 3)), WEIGHT_UNIT)
    reader = CodeReader(weights, rounded(rng.standard_normal(3), WEIGHT_UNIT), exclusive)
    found = joining.similar(reader, distinct, least)
    read = reader.read(distinct)
    chances = reader.compare(read, read) if len(read) else np.empty((0, 0))
    wanted = [(i, j) for i in range(len(read)) for j in range(i, len(read)) if chances[i, j] >= least]
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == wanted
    told = joining.probabilities(reader, distinct[found.first], distinct[found.second])
    np.testing.assert_allclose(told, chances[found.first, found.second], rtol=1e-12)


def test_many_codes_that_are_far_apart():
    """A join of many codes compares few of them, and finds what was planted."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (100_000, 64)).astype(np.uint8)
    near = bits[:500].copy()
    near[np.arange(500), rng.integers(0, 64, 500)] ^= 1
    index = HammingIndex.build(packing.pack(np.concatenate([bits, near])))
    found = index.pairs(3)
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [
        (row, 100_000 + row) for row in range(500)
    ]
    assert [group.tolist() for group in index.clusters(3)] == [[row, 100_000 + row] for row in range(500)]


def test_too_many_pairs_are_refused(monkeypatch):
    index = HammingIndex.build(np.zeros((100, 2), np.uint8))
    monkeypatch.setattr(joining, "MOST", 4949)
    with pytest.raises(ValueError, match="there are more than 4,949 pairs of items; ask for nearer ones"):
        index.pairs()
    assert [len(group) for group in index.clusters()] == [100]
    monkeypatch.setattr(joining, "MOST", 4950)
    assert len(index.pairs().first) == 4950
    with pytest.raises(ValueError, match="radius=-1"):
        index.pairs(-1)
