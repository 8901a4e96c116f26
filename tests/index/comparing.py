"""Searches compared with the oracles of tests/reference.py."""

from unittest import mock

import numpy as np

from gphash.codes import packing
from gphash.index import search
from tests import reference


def assert_ranking(found, row, wanted, k):
    """One row of a search is the beginning of an oracle's ranking."""
    assert found.ids.dtype == found.distances.dtype == np.int64
    assert list(zip(found.distances[row].tolist(), found.ids[row].tolist(), strict=True)) == wanted[:k]


def assert_expected(ids, distances, wanted, k):
    """The same for expected distances: the order is exact, the distances to rounding."""
    assert list(ids) == [number for _, number, _ in wanted[:k]]
    np.testing.assert_allclose(distances, [distance for _, _, distance in wanted[:k]], rtol=0, atol=1e-9)


def assert_ball(found, row, wanted, radius):
    here = slice(found.offsets[row], found.offsets[row + 1])
    assert list(zip(found.distances[here].tolist(), found.ids[here].tolist(), strict=True)) == [
        pair for pair in wanted if pair[0] <= radius
    ]


def assert_all_as_brute_force(*asked, **filtered):
    """Every way to search, in numpy and compiled."""
    for compiled in (False, True):
        with mock.patch.object(search.scanner, "is_worth_it", lambda *_, compiled=compiled: compiled):
            assert_as_brute_force(*asked, **filtered)


def assert_as_brute_force(index, bits, ids, queries, chances, k, radius, **filtered):
    """Every way to search, against the items that may be found."""
    packed = packing.pack(queries)
    near = index.search(packed, k, **filtered)
    ball = index.within(packed, radius, **filtered)
    expected = index.search_expected(chances, k, **filtered)
    assert near.ids.shape == near.distances.shape == (len(queries), min(k, len(ids)))
    assert expected.ids.shape == expected.distances.shape == (len(chances), min(k, len(ids)))
    assert expected.distances.dtype == np.float64
    for row, query in enumerate(queries):
        wanted = reference.hamming_ranking(bits, ids, query)
        assert_ranking(near, row, wanted, k)
        assert_ball(ball, row, wanted, radius)
    for row, chance in enumerate(chances):
        wanted = reference.expected_ranking(bits, ids, chance)
        assert_expected(expected.ids[row], expected.distances[row], wanted, k)
        probed = list(index.iterate(chance, **filtered))
        assert_expected([number for number, _ in probed], [distance for _, distance in probed], wanted, len(ids))
        assert all(type(number) is int and type(distance) is float for number, distance in probed)


def some_bits(seed, n, n_bits, n_centres=None, noise=0.1):
    """Random codes, or learned-like ones: scattered around a few centres."""
    rng = np.random.default_rng(seed)
    if n_centres is None:
        return rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    centres = rng.integers(0, 2, (n_centres, n_bits), dtype=np.uint8)
    return centres[rng.integers(0, n_centres, n)] ^ (rng.random((n, n_bits)) < noise).astype(np.uint8)


def some_chances(seed, n, n_bits):
    """Bit probabilities with many ties: certain, even and a few values in between."""
    rng = np.random.default_rng(seed)
    chances = rng.choice([0, 0.125, 0.25, 0.5, 0.75, 1, 0.9, 0.1], (n, n_bits))
    chances[: n // 2] = rng.random((n // 2, n_bits))
    return chances
