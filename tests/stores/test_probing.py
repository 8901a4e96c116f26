"""What is looked up misses nothing that is near."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.hamming import packing
from gphash.stores import conditions, probing, wire


@pytest.mark.parametrize("n_bits", [1, 8, 16, 17, 32, 33, 63, 64, 65, 100, 128, 1024])
def test_parts_cover_a_code(n_bits):
    parts = probing.parts(n_bits)
    assert [place for part in parts for place in range(part.start, part.start + part.length)] == list(range(n_bits))
    assert max(part.length for part in parts) <= 16


@given(n_bits=st.sampled_from([3, 16, 17, 40, 65]), radius=st.integers(0, 12), seed=st.integers(0, 999), data=st.data())
def test_whatever_is_within_a_radius_shares_a_part(n_bits, radius, seed, data):
    bits = np.random.default_rng(seed).integers(0, 2, n_bits, dtype=np.uint8)
    flipped = data.draw(st.lists(st.integers(0, n_bits - 1), unique=True, max_size=min(radius, n_bits)))
    other = bits.copy()
    other[flipped] ^= 1
    # The part of the other code itself is its ball of radius nothing.
    own = [int("".join(map(str, other[part.start : part.start + part.length])), 2) for part in probing.parts(n_bits)]
    looked_up = probing.values(bits, radius, n_bits)
    assert any(value in asked for value, asked in zip(own, looked_up, strict=True))


def test_few_codes_are_read_and_many_looked_up():
    assert probing.steps(16, 0, 0, 1) == probing.steps(32, 10, 10, 1) == []
    assert probing.steps(16, 60_000, 10**6, 10)[:3] == [0, 1, 2]
    assert probing.steps(32, 10**6, 10**6, 10)[:2] == [1, 3]
    assert not probing.is_worth_it(16, 16, 60_000)
    assert probing.budget(0) == probing.LEAST
    assert probing.budget(10**9) == probing.MOST


def test_many_items_are_not_looked_for_where_few_can_be():
    assert probing.steps(16, 60_000, 10**6, 1000)[0] == 1
    assert probing.steps(32, 10**6, 10**6, 1000)[0] == 3
    assert probing.steps(32, 10**6, 10**6, 10**6) == []


@pytest.mark.parametrize("most", [1, 5, 64, 10**6])
def test_levels_are_whole_and_in_order(most):
    weights = np.array([3, 1, 0, 2, 3, 5])
    mode = packing.pack(np.array([[1, 0, 0, 1, 1, 0]]))[0]
    every = {}
    for flips in itertools.product([0, 1], repeat=6):
        code = packing.unpack(mode[None], 6)[0] ^ np.array(flips, np.uint8)
        every.setdefault(int(weights @ flips), set()).add(tuple(code.tolist()))
    named = probing.levels(mode, weights, most)
    found = [(cost, {tuple(row) for row in packing.unpack(codes, 6).tolist()}) for cost, codes in named]
    assert found == sorted(every.items())[: len(found)]
    assert sum(len(codes) for _, codes in found) <= most
    assert len(found) == len(every) or sum(len(codes) for _, codes in sorted(every.items())[: len(found) + 1]) > most


@given(st.integers(1, 130), st.integers(0, 5), st.integers(0, 99))
def test_codes_come_back_from_the_wire(n_bits, n, seed):
    packed = packing.pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))
    for kind in ("bigint", "bit") if n_bits <= 64 else ("bit",):
        form = wire.form(n_bits, kind)
        np.testing.assert_array_equal(wire.packed_of(wire.read_array(wire.codes(packed, form)), form), packed)


@pytest.mark.parametrize(
    ("where", "params", "text"),
    [
        ("price < %s", [10], "price < %(value_0)s"),
        ("name LIKE 'a%%' AND b = ANY(%s)", [[1]], "name LIKE 'a%%' AND b = ANY(%(value_0)s)"),
        ("%s IS NULL OR note = '{}'", (None,), "%(value_0)s IS NULL OR note = '{{}}'"),
    ],
)
def test_conditions_have_named_parameters(where, params, text):
    found = conditions.read(where, params)
    assert found.text == text
    assert list(found.values.values()) == list(params)
