"""Distances against counting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.codes import distance, packing


@st.composite
def two_sets_of_bits(draw):
    q, n, m = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(1, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(0, 2, (q, m), dtype=np.uint8), rng.integers(0, 2, (n, m), dtype=np.uint8)


def count(bits_a, bits_b):
    return (bits_a[:, None, :] != bits_b[None, :, :]).sum(axis=2)


@given(sets=two_sets_of_bits())
def test_pairwise_counts_differing_bits(sets):
    bits_a, bits_b = sets
    distances = distance.pairwise(packing.pack(bits_a), packing.pack(bits_b))
    assert distances.dtype == np.uint16
    np.testing.assert_array_equal(distances, count(bits_a, bits_b))


@given(sets=two_sets_of_bits())
def test_pairwise_is_a_metric(sets):
    a, b = map(packing.pack, sets)
    np.testing.assert_array_equal(distance.pairwise(a, b), distance.pairwise(b, a).T)
    within = distance.pairwise(a, a).astype(int)
    assert not within.diagonal().any()
    assert np.all(within[:, None, :] <= within[:, :, None] + within[None, :, :])


def test_pairwise_does_not_depend_on_the_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    bits_a, bits_b = (rng.integers(0, 2, (n, 130), dtype=np.uint8) for n in (23, 31))
    monkeypatch.setattr(distance, "_ROWS", 5)
    monkeypatch.setattr(distance, "_COLUMNS", 7)
    distances = distance.pairwise(packing.pack(bits_a), packing.pack(bits_b))
    np.testing.assert_array_equal(distances, count(bits_a, bits_b))


def test_pairwise_holds_the_longest_codes():
    ones = np.full((1, 8191), 255, np.uint8)
    assert distance.pairwise(ones, np.zeros_like(ones)) == 8 * 8191


@given(sets=two_sets_of_bits(), seed=st.integers(0, 2**32 - 1))
def test_expected_is_the_sum_of_the_chances_to_differ(sets, seed):
    bits_a, bits = sets
    probabilities = np.random.default_rng(seed).random(bits_a.shape)
    expected = distance.expected(probabilities, packing.pack(bits), bits.shape[1])
    assert expected.dtype == np.float32
    differs = np.where(bits[None, :, :] == 1, 1 - probabilities[:, None, :], probabilities[:, None, :])
    np.testing.assert_allclose(expected, differs.sum(axis=2), rtol=1e-5, atol=1e-4)


@given(sets=two_sets_of_bits())
def test_expected_of_certain_codes_is_the_distance(sets):
    bits_a, bits_b = sets
    packed_b = packing.pack(bits_b)
    expected = distance.expected(bits_a.astype(np.float32), packed_b, bits_b.shape[1])
    np.testing.assert_array_equal(expected, distance.pairwise(packing.pack(bits_a), packed_b))


def test_expected_does_not_depend_on_the_blocks(monkeypatch):
    rng = np.random.default_rng(2)
    probabilities, bits = rng.random((3, 20)), rng.integers(0, 2, (50, 20))
    whole = distance.expected(probabilities, packing.pack(bits), 20)
    monkeypatch.setattr(distance, "_CODES", 7)
    np.testing.assert_allclose(distance.expected(probabilities, packing.pack(bits), 20), whole, atol=1e-5)


def test_expected_stays_within_the_bounds():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, (40, 200))
    probabilities = np.where(bits == 1, 1 - 1e-7, 1e-7)
    distances = distance.expected(probabilities, packing.pack(bits), 200)
    assert distances.min() >= 0
    assert distances.max() <= 200


two_bytes = np.zeros((1, 2), np.uint8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: distance.pairwise(two_bytes, two_bytes[:, :1]), ValueError, "packed_b has 1 bytes per code"),
        (lambda: distance.pairwise(two_bytes[0], two_bytes), ValueError, "packed_a has shape"),
        (lambda: distance.pairwise(two_bytes, two_bytes.astype(int)), TypeError, "packed_b has dtype int64"),
        (lambda: distance.pairwise(*[np.zeros((1, 8192), np.uint8)] * 2), ValueError, "at most 8191"),
        (lambda: distance.expected(np.zeros((1, 8)), two_bytes, 16), ValueError, r"probabilities has shape \(1, 8\)"),
        (lambda: distance.expected(np.zeros((1, 16), int), two_bytes, 16), TypeError, "probabilities has dtype int64"),
        (lambda: distance.expected(np.full((1, 16), 1.5), two_bytes, 16), ValueError, r"values from 1\.5 to 1\.5"),
        (lambda: distance.expected(np.full((1, 16), np.nan), two_bytes, 16), ValueError, "probabilities has values"),
        (lambda: distance.expected(np.zeros((1, 8)), two_bytes, 8), ValueError, "packed has 2 bytes per code"),
    ],
)
def test_errors_name_the_argument_and_the_remedy(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "; give " in str(caught.value) or " must " in str(caught.value)
