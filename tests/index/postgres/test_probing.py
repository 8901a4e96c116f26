"""What is looked up misses nothing that is near."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.codes import packing

pytest.importorskip("psycopg", reason="psycopg is not installed")

from gphash.index.postgres import database, queries, relations
from gphash.index.postgres.queries import Sizes


@pytest.mark.parametrize("n_bits", [1, 8, 16, 17, 32, 33, 63, 64, 65, 100, 128, 1024])
def test_parts_cover_a_code(n_bits):
    parts = relations.parts(n_bits)
    assert [place for start, length in parts for place in range(start, start + length)] == list(range(n_bits))
    assert max(length for _, length in parts) <= 16


@given(n_bits=st.sampled_from([3, 16, 17, 40, 65]), radius=st.integers(0, 12), seed=st.integers(0, 999), data=st.data())
def test_whatever_is_within_a_radius_shares_a_part(n_bits, radius, seed, data):
    bits = np.random.default_rng(seed).integers(0, 2, n_bits, dtype=np.uint8)
    flipped = data.draw(st.lists(st.integers(0, n_bits - 1), unique=True, max_size=min(radius, n_bits)))
    other = bits.copy()
    other[flipped] ^= 1
    # The part of the other code itself is its ball of radius nothing.
    parts = relations.parts(n_bits)
    own = [int("".join(map(str, other[start : start + length])), 2) for start, length in parts]
    looked_up = queries.values_of(bits, radius)
    assert any(value in asked for value, asked in zip(own, looked_up, strict=True))


def test_few_codes_are_read_and_many_looked_up():
    assert queries.steps(16, Sizes(0, 0), 1) == queries.steps(32, Sizes(10, 10), 1) == []
    assert queries.steps(16, Sizes(60_000, 10**6), 10)[:3] == [0, 1, 2]
    assert queries.steps(32, Sizes(10**6, 10**6), 10)[:2] == [1, 3]
    assert not queries.is_worth_it(16, 16, 60_000)


def test_many_items_are_not_looked_for_where_few_can_be():
    assert queries.steps(16, Sizes(60_000, 10**6), 1000)[0] == 1
    assert queries.steps(32, Sizes(10**6, 10**6), 1000)[0] == 3
    assert queries.steps(32, Sizes(10**6, 10**6), 10**6) == []


@pytest.mark.parametrize("most", [1, 5, 64, 10**6])
def test_batches_hold_whole_levels_in_order(most, monkeypatch):
    monkeypatch.setattr(queries, "BATCH", 1)
    monkeypatch.setattr(queries, "GROWTH", 4)
    weights = np.array([3, 1, 0, 2, 3, 5])
    mode = packing.pack(np.array([[1, 0, 0, 1, 1, 0]]))[0]
    every = {}
    for flips in itertools.product([0, 1], repeat=6):
        code = packing.unpack(mode[None], 6)[0] ^ np.array(flips, np.uint8)
        every.setdefault(int(weights @ flips), set()).add(tuple(code.tolist()))
    found, last = {}, -1
    for codes, costs in queries.batches(mode, weights, most):
        assert costs[0] > last
        assert (np.diff(costs) >= 0).all()
        last = costs[-1]
        for cost, row in zip(costs.tolist(), packing.unpack(codes, 6).tolist(), strict=True):
            assert tuple(row) not in found.setdefault(cost, set())
            found[cost].add(tuple(row))
    assert list(found.items()) == sorted(every.items())[: len(found)]
    assert sum(map(len, found.values())) <= most
    assert len(found) == len(every) or sum(len(codes) for _, codes in sorted(every.items())[: len(found) + 1]) > most


@given(st.integers(1, 130), st.integers(0, 5), st.integers(0, 99))
def test_codes_come_back_from_the_wire(n_bits, n, seed):
    packed = packing.pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))
    sent = database._ArrayDumper(np.ndarray).dump(database.elements(packed, n_bits))
    found = database._ArrayLoader(database.BITS).load(sent)
    np.testing.assert_array_equal(database.packed_of(found, n_bits), packed)
