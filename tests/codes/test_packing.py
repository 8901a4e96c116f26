"""Bits and packed bytes hold the same code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gphash.codes import packing

shapes = st.tuples(st.integers(0, 12), st.integers(1, 200))
bit_matrices = hnp.arrays(np.uint8, shapes, elements=st.integers(0, 1))


@given(bits=bit_matrices)
def test_unpack_undoes_pack(bits):
    packed = packing.pack(bits)
    assert packed.dtype == np.uint8
    assert packed.shape == (bits.shape[0], -(-bits.shape[1] // 8))
    unpacked = packing.unpack(packed, bits.shape[1])
    assert unpacked.dtype == np.uint8
    np.testing.assert_array_equal(unpacked, bits)


@given(bits=bit_matrices)
def test_bit_j_stands_where_the_layout_says(bits):
    packed = packing.pack(bits)
    for j in range(8 * packed.shape[1]):
        column = packed[:, j // 8] >> (7 - j % 8) & 1
        np.testing.assert_array_equal(column, bits[:, j] if j < bits.shape[1] else 0)


@given(bits=bit_matrices)
def test_words_hold_the_packed_bytes_and_zeros(bits):
    packed = packing.pack(bits)
    words = packing.words(packed)
    assert words.dtype == np.uint64
    assert words.shape == (bits.shape[0], -(-bits.shape[1] // 64))
    as_bytes = words.view(np.uint8)
    np.testing.assert_array_equal(as_bytes[:, : packed.shape[1]], packed)
    assert not as_bytes[:, packed.shape[1] :].any()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.uint16])
def test_pack_takes_any_integer_dtype(dtype):
    bits = np.array([[1, 0, 1], [0, 0, 1]], dtype=dtype)
    np.testing.assert_array_equal(packing.pack(bits), [[0b10100000], [0b00100000]])


def test_memory_order_does_not_matter():
    bits = np.random.default_rng(0).integers(0, 2, (7, 21), dtype=np.uint8)
    np.testing.assert_array_equal(packing.pack(np.asfortranarray(bits)), packing.pack(bits))
    packed = packing.pack(bits)
    np.testing.assert_array_equal(packing.words(packed[::2]), packing.words(packed)[::2])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: packing.pack([0, 1]), ValueError, r"bits has shape \(2,\)"),
        (lambda: packing.pack(np.zeros((3, 0), np.uint8)), ValueError, r"bits has shape \(3, 0\)"),
        (lambda: packing.pack([[0.0, 1.0]]), TypeError, "bits has dtype float64"),
        (lambda: packing.pack([[0, 2]]), ValueError, "bits has values from 0 to 2"),
        (lambda: packing.pack([[-1, 1]]), ValueError, "bits has values from -1 to 1"),
        (lambda: packing.unpack([[1]], 8), TypeError, "packed has dtype int64"),
        (lambda: packing.unpack(np.zeros((1, 2), np.uint8), 8), ValueError, "2 bytes per code; it must have 1"),
        (lambda: packing.unpack(np.zeros((1, 1), np.uint8), 0), ValueError, "n_bits is 0"),
        (lambda: packing.unpack(np.zeros((1, 1), np.uint8), 7.0), TypeError, r"n_bits is 7\.0"),
        (lambda: packing.unpack(np.full((1, 1), 3, np.uint8), 7), ValueError, "ones in the 1 spare bits"),
        (lambda: packing.words(np.zeros(3, np.uint8)), ValueError, r"packed has shape \(3,\)"),
    ],
)
def test_errors_name_the_argument_and_the_remedy(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "; give " in str(caught.value) or " must " in str(caught.value)
