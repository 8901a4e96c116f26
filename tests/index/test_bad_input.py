"""What makes no sense is refused by name, and changes nothing."""

import re

import numpy as np
import pytest

from gphash import HammingIndex
from gphash.codes import packing
from gphash.hashers import methods
from gphash.index.contents import Where
from tests import digits

N_BITS = 12
BITS = np.random.default_rng(0).integers(0, 2, (20, N_BITS), dtype=np.uint8)
PACKED = packing.pack(BITS)
CHANCES = np.full((2, N_BITS), 0.5)


@pytest.fixture
def index():
    return HammingIndex.build(PACKED, n_bits=N_BITS, model="abcdef")


def spoilt(place, value):
    chances = CHANCES.copy()
    chances[place] = value
    return chances


def spare_bits():
    packed = PACKED[:2].copy()
    packed[1, 1] |= 1
    return packed


WRONG_CODES = {
    "narrow": (PACKED[:2, :1], ValueError, "1 bytes per code"),
    "wide": (np.zeros((2, 3), np.uint8), ValueError, "3 bytes per code"),
    "one row": (PACKED[0], ValueError, "one code per row"),
    "three dimensions": (PACKED[None], ValueError, "one code per row"),
    "signed": (PACKED.astype(np.int8), TypeError, "dtype int8"),
    "words": (PACKED.astype(np.uint16), TypeError, "dtype uint16"),
    "floats": (PACKED.astype(float), TypeError, "dtype float64"),
    "booleans": (PACKED.astype(bool), TypeError, "dtype bool"),
    "bits": (BITS, ValueError, "12 bytes per code"),
    "spare bits": (spare_bits(), ValueError, "4 spare bits"),
}


@pytest.mark.parametrize(("packed", "error", "message"), WRONG_CODES.values(), ids=WRONG_CODES)
def test_wrong_codes(index, packed, error, message):
    for ask in (
        lambda: HammingIndex.build(packed, n_bits=N_BITS),
        lambda: index.search(packed),
        lambda: index.within(packed),
        lambda: index.rank(packed),
        lambda: index.add(packed, range(100, 100 + len(packed))),
    ):
        with pytest.raises(error, match=re.escape(message)) as caught:
            ask()
        assert re.match("packed|queries", str(caught.value))
    assert len(index) == 20


@pytest.mark.parametrize("n_bits", [0, -1, 1025, 10**9, 1.5, 12.0, True, "12"], ids=repr)
def test_wrong_lengths_of_codes(n_bits):
    with pytest.raises(ValueError, match=re.escape(f"n_bits={n_bits!r}")):
        HammingIndex.build(PACKED, n_bits=n_bits)


def test_the_longest_code():
    assert HammingIndex.build(np.zeros((1, 128), np.uint8)).n_bits == 1024
    with pytest.raises(ValueError, match="at most 1024"):
        HammingIndex.build(np.zeros((1, 129), np.uint8))


WRONG_IDS = {
    "repeated": ([4, 100, 100], "100 2 times"),
    "too few": ([100, 101], "2 numbers and packed has 3 rows"),
    "too many": ([100, 101, 102, 103], "4 numbers and packed has 3 rows"),
    "none": ([], "0 numbers and packed has 3 rows"),
    "floats": ([100.0, 101.0, 102.0], "float64"),
    "strings": (["a", "b", "c"], "whole numbers"),
    "booleans": ([True, False, True], "bool"),
    "table": ([[100], [101], [102]], "shape (3, 1)"),
    "one": (100, "shape ()"),
    "too large": (np.array([1, 2, 2**63], np.uint64), "fit in 64 bits"),
    "far too large": ([100, 101, 2**70], "fit in 64 bits"),
    "large and negative": ([2**63, -1, 5], "fit in 64 bits"),
}


@pytest.mark.parametrize(("ids", "message"), WRONG_IDS.values(), ids=WRONG_IDS)
def test_wrong_ids(index, ids, message):
    for ask in (lambda: HammingIndex.build(PACKED[:3], ids, n_bits=N_BITS), lambda: index.add(PACKED[:3], ids)):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            ask()
        assert "ids" in str(caught.value)
    assert index.ids.tolist() == list(range(20))


@pytest.mark.parametrize("ids", [[0.5], ["a"], [[1]], 3, [True], [2**70]], ids=repr)
def test_wrong_ids_to_remove(index, ids):
    with pytest.raises(ValueError, match=r"ids (is|has)"):
        index.remove(ids)
    assert len(index) == 20


def test_removing_counts_what_was_there(index):
    assert index.remove([5, 77, 5, -1]) == 1
    assert index.remove([5]) == 0
    assert index.remove([]) == 0
    assert index.remove(np.array([6, 7], np.uint8)) == 2
    assert index.remove(np.arange(100)) == 17
    assert len(index) == 0


def test_ids_in_the_index_already(index):
    before = index.rank(PACKED[:1])
    with pytest.raises(ValueError, match=r"ids has 19, which is in the index already \(2 such\)"):
        index.add(PACKED[:3], [50, 19, 3])
    np.testing.assert_array_equal(index.rank(PACKED[:1]).ids, before.ids)
    index.remove([19])
    index.add(PACKED[:1], [19])
    with pytest.raises(ValueError, match="ids has 19"):
        index.add(PACKED[:1], [19])
    assert len(index) == 20


@pytest.mark.parametrize("value", [-1, 1.5, 3.0, True, "3", None, np.float64(2)], ids=repr)
def test_wrong_k_and_radius(index, value):
    with pytest.raises(ValueError, match="k="):
        index.search(PACKED[:1], value)
    with pytest.raises(ValueError, match="k="):
        index.search_expected(CHANCES, value)
    with pytest.raises(ValueError, match="radius="):
        index.within(PACKED[:1], value)


def test_numbers_of_numpy_are_numbers(index):
    assert index.search(PACKED[:1], np.int32(3)).ids.shape == (1, 3)
    assert index.within(PACKED[:1], np.uint8(0)).ids[0] == 0


@pytest.mark.parametrize(
    "chances",
    [
        spoilt((1, 3), np.nan),
        spoilt((0, 0), -1e-9),
        spoilt((1, 11), 1 + 1e-9),
        spoilt((0, 5), np.inf),
        CHANCES[:, :-1],
        np.full((2, N_BITS + 1), 0.5),
        2 * BITS,
        2.0 * BITS - 1,
        CHANCES[None],
        CHANCES + 0j,
        np.full((2, N_BITS), "0.5"),
    ],
    ids=["nan", "negative", "large", "infinite", "narrow", "wide", "twos", "signs", "stack", "complex", "strings"],
)
def test_wrong_probabilities(index, chances):
    with pytest.raises(ValueError, match="probabilities"):
        index.search_expected(chances)


@pytest.mark.parametrize(
    "chances",
    [
        spoilt((0, 0), np.nan)[0],
        spoilt((0, 0), 1.1)[0],
        CHANCES[0, 1:],
        CHANCES,
        np.full((2, N_BITS // 2), 0.5),
        0.5,
    ],
    ids=["nan", "large", "narrow", "two", "folded", "number"],
)
def test_wrong_probabilities_to_probe(index, chances):
    with pytest.raises(ValueError, match="probabilities"):
        next(index.iterate(chances))


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        (np.ones(19, bool), "mask of shape (19,)"),
        ([True, False], "mask of shape (2,)"),
        (np.ones((20, 1), bool), "mask of shape (20, 1)"),
        ([1.0, 2.0], "float64"),
        (["a"], "give a mask"),
        ([[1, 2]], "shape (1, 2)"),
        (5, "shape ()"),
        (Where([1, 2], 1), "allowed.labels has shape (2,)"),
        (Where(np.zeros((20, 2)), 0), "allowed.labels has shape (20, 2)"),
    ],
)
def test_wrong_filters(index, allowed, message):
    for ask in (
        lambda: index.filter(allowed),
        lambda: index.search(PACKED[:1], allowed=allowed),
        lambda: index.within(PACKED[:1], allowed=allowed),
        lambda: index.search_expected(CHANCES, allowed=allowed),
        lambda: next(index.iterate(CHANCES[0], allowed=allowed)),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            ask()


def test_codes_of_another_model(index, tmp_path):
    index.save(tmp_path / "a")
    for here in (index, HammingIndex.open(tmp_path / "a")):
        for ask in (
            lambda here=here: here.search(PACKED[:1], model="other"),
            lambda here=here: here.within(PACKED[:1], model="other"),
            lambda here=here: here.search_expected(CHANCES, model="other"),
            lambda here=here: here.add(PACKED[:1], [50], model="other"),
        ):
            with pytest.raises(ValueError, match="model has the fingerprint other"):
                ask()
        assert here.search(PACKED[:1], 1, model="abcdef").ids.tolist() == [[0]]
        assert here.search(PACKED[:1], 1).ids.tolist() == [[0]]


def test_codes_of_another_hasher():
    X, y = digits.X[:200], digits.y[:200]
    one, other = (methods.METHODS.find("itq")(n_bits=8, random_state=seed).fit(X, y) for seed in (0, 1))
    index = HammingIndex.build(one.encode(X), n_bits=8, model=one)
    assert index.model == one.fingerprint_ != other.fingerprint_
    assert index.search(one.encode(X[:1]), 3, model=one).distances[0, 0] == 0
    index.add(one.encode(X[:1]), [500], model=one)
    with pytest.raises(ValueError, match="codes of two models"):
        index.search(other.encode(X[:1]), 3, model=other)
    with pytest.raises(ValueError, match="codes of two models"):
        index.add(other.encode(X[:1]), [501], model=other)
    assert len(index) == 201
    unmarked = HammingIndex.build(one.encode(X), n_bits=8)
    assert unmarked.search(other.encode(X[:1]), 3, model=other).ids.shape == (1, 3)
