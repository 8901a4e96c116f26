"""A search by P(similar) finds what comparing with every item finds, in the same order, wherever items are."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.codes import packing
from gphash.codes.reading import CodeReader, DistanceReader
from gphash.index import search, similar
from gphash.index.hamming_index import HammingIndex


def reader(exclusive, n_bits, n_classes, seed):
    generator = np.random.default_rng(seed)
    return CodeReader(generator.normal(size=(n_bits, n_classes)), generator.normal(size=n_classes), exclusive)


def known(one):
    """A model that knows this of codes."""
    return SimpleNamespace(fingerprint_="a", reader_=one)


def by_comparing(one, asked, packed, ids, k):
    """Ids and probabilities of the k most probable items of every query."""
    chances = one.compare(asked, one.read(packed))
    order = [np.lexsort((ids, -row))[:k] for row in chances]
    return np.array([ids[row] for row in order]), np.array([row[o] for row, o in zip(chances, order, strict=True)])


@pytest.fixture(autouse=True, scope="module", params=["compiled", "numpy"])
def way(request):
    """Both ways of searching, however little is asked for."""
    before, search.scanner.compiled = search.scanner.compiled, request.param == "compiled"
    patience, search.PATIENCE = search.PATIENCE, 10**18
    yield request.param
    search.scanner.compiled, search.PATIENCE = before, patience


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([3, 16, 40, 70]), st.integers(2, 900), st.integers(0, 20)
)
def test_it_is_exact(seed, exclusive, n_bits, n_items, k):
    generator = np.random.default_rng(seed)
    one = reader(exclusive, n_bits, 4, seed)
    if seed % 2:  # with whole numbers, different codes have equal probabilities
        one = one._replace(weights=np.rint(one.weights), bias=np.rint(one.bias))
    words = generator.random((8, n_bits)) < 0.5
    bits = words[generator.integers(0, 8, n_items)] ^ (generator.random((n_items, n_bits)) < 0.05)
    packed, ids = packing.pack(bits), generator.permutation(10 * n_items)[:n_items]
    asked = generator.dirichlet(np.ones(4), 5)
    index, model = HammingIndex.build(packed, ids, n_bits=n_bits), known(one)
    found = index.search(asked, k, ranking="similarity", model=model)
    expected = by_comparing(one, asked, packed, ids, min(k, n_items))
    np.testing.assert_array_equal(found.ids, expected[0])
    np.testing.assert_array_equal(found.distances, expected[1])
    # In parts, without what was removed, and with what was added.
    index.remove(ids[::3])
    index.add(packed[:2], np.array([10 * n_items, 10 * n_items + 1]))
    left = np.delete(np.arange(n_items), np.arange(0, n_items, 3))
    packed = np.concatenate([packed[left], packed[:2]])
    ids = np.concatenate([ids[left], [10 * n_items, 10 * n_items + 1]])
    found = index.search(asked, k, ranking="similarity", model=model)
    expected = by_comparing(one, asked, packed, ids, min(k, len(ids)))
    np.testing.assert_array_equal(found.ids, expected[0])
    np.testing.assert_array_equal(found.distances, expected[1])
    allowed = ids[: len(ids) // 2]
    found = index.search(asked, k, ranking="similarity", model=model, allowed=allowed)
    expected = by_comparing(one, asked, packed[: len(allowed)], allowed, min(k, len(allowed)))
    np.testing.assert_array_equal(found.ids, expected[0].reshape(found.ids.shape))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 16, 40, 70]), st.integers(0, 2), st.integers(2, 400))
def test_of_judged_pairs_it_is_the_order_of_expected_distances(seed, n_bits, n_free, n_items):
    generator = np.random.default_rng(seed)
    one = DistanceReader(np.array([1.0, 0.7]), np.array([0.5, 0.9]), n_bits - n_free, n_bits)
    packed = packing.pack(generator.random((n_items, n_bits)) < 0.5)
    ids, asked = generator.permutation(10 * n_items)[:n_items], generator.random((5, n_bits))
    asked[0] = asked[0] < 0.5  # a code
    index = HammingIndex.build(packed, ids, n_bits=n_bits)
    found = index.search(asked, 20, ranking="similarity", model=known(one))
    expected = by_comparing(one, asked, packed, ids, min(20, n_items))
    np.testing.assert_array_equal(found.ids, expected[0])
    np.testing.assert_array_equal(found.distances, expected[1])
    if not n_free:
        near = index.search(np.rint(asked * 2**24) / 2**24, 20, ranking="expected")
        np.testing.assert_array_equal(found.ids, near.ids)


def test_what_codes_say_is_kept_as_long_as_they_are(way):
    if way == "numpy":
        pytest.skip("numpy keeps nothing")
    one, generator = reader(True, 8, 3, 0), np.random.default_rng(0)
    index = HammingIndex.build(packing.pack(generator.random((50, 8)) < 0.5), n_bits=8)
    model, asked = known(one), np.full((1, 3), 1 / 3)
    gc.collect()
    before = len(similar._tables)
    for _ in range(3):
        index.search(asked, 5, ranking="similarity", model=model)
    assert len(similar._tables) == before + 1
    del index
    gc.collect()
    assert len(similar._tables) == before


def test_it_needs_a_model_that_knows_classes_and_has_as_many_bits():
    index = HammingIndex.build(np.zeros((3, 1), np.uint8), n_bits=8)
    asked = np.full((1, 3), 1 / 3)
    with pytest.raises(ValueError, match="ranking='similarity', but model=None; give the model itself"):
        index.search(asked, ranking="similarity")
    with pytest.raises(ValueError, match="'similarity', but the model does not know P"):
        index.search(asked, ranking="similarity", model=known(None))
    with pytest.raises(ValueError, match="model has 9 bits; the index has codes of 8"):
        index.search(asked, ranking="similarity", model=known(reader(True, 9, 3, 0)))
    model = known(reader(True, 8, 3, 0))
    with pytest.raises(ValueError, match="give the probabilities of classes"):
        index.search(np.zeros((1, 1), np.uint8), ranking="similarity", model=model)


def test_other_engines_can_rank_by_products():
    """As docs/engines.md has it: expected distance is linear in the bits, P(similar) in what codes say of classes."""
    generator = np.random.default_rng(0)
    one, bits = reader(True, 12, 4, 0), generator.integers(0, 2, (200, 12))
    packed = np.packbits(bits, axis=1)
    index, chances = HammingIndex.build(packed, n_bits=12), generator.random(12)
    found = index.search(chances[None], 200, ranking="expected")
    expected = bits @ (1 - 2 * chances) + chances.sum()
    np.testing.assert_allclose(found.distances[0], expected[found.ids[0]], atol=1e-9)
    classes = generator.dirichlet(np.ones(4))
    found = index.search(classes[None], 200, ranking="similarity", model=known(one))
    np.testing.assert_allclose(found.distances[0], (one.read(packed) @ classes)[found.ids[0]], atol=1e-6)
    tags = reader(False, 12, 4, 0)
    asked = generator.random(4)
    assert (tags.compare(asked[None], tags.read(packed))[0] <= tags.read(packed) @ asked + 1e-6).all()
