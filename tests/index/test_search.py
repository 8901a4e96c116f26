"""An index finds what comparing every item finds, in the same order."""

import contextlib
import itertools
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from gphash import HammingIndex
from gphash.codes import packing
from gphash.index import contents, rankings, scan, search, sorting
from tests import reference
from tests.index.comparing import assert_all_as_brute_force, assert_expected, some_bits, some_chances


@pytest.mark.parametrize("n_bits", [*range(1, 131), 1024])
def test_every_length_of_code(n_bits):
    bits, queries = some_bits(n_bits, 90, n_bits), some_bits(1000 + n_bits, 3, n_bits)
    queries[0] = bits[7]
    index = HammingIndex.build(packing.pack(bits), n_bits=n_bits)
    chances = some_chances(n_bits, 2, n_bits)
    assert_all_as_brute_force(index, bits, np.arange(90), queries, chances, 12, n_bits // 2)
    assert index.n_bits == n_bits
    assert len(index) == 90


@pytest.mark.parametrize("n_bits", [14, 30, 60, 128])
@pytest.mark.parametrize("n_centres", [3, 40])
def test_clustered_codes_in_many_blocks(n_bits, n_centres):
    """Bounds of blocks rule most blocks out; nothing that counts may go with them."""
    n = 5000
    bits = some_bits(n_bits, n, n_bits, n_centres, 0.06)
    ids = np.random.default_rng(5).permutation(n)
    queries = np.concatenate([bits[:3], some_bits(6, 2, n_bits)])
    chances = np.clip(np.where(bits[10:14], 0.9, 0.1) + 0.1 * some_chances(7, 4, n_bits) - 0.05, 0, 1)
    index = HammingIndex.build(packing.pack(bits), ids, n_bits=n_bits)
    assert index.stats().n_codes > 256
    for k in (1, 10, 700):
        assert_all_as_brute_force(index, bits, ids, queries, chances, k, n_bits // 5)
    some = ids % 7 == 3
    allowed = index.filter(set(ids[some].tolist()))
    assert_all_as_brute_force(index, bits[some], ids[some], queries, chances, 20, n_bits // 4, allowed=allowed)
    gone = ids % 3 == 1
    assert index.remove(ids[gone]) == gone.sum()
    assert_all_as_brute_force(index, bits[~gone], ids[~gone], queries, chances, 20, n_bits // 4)


@pytest.mark.parametrize("n_bits", [15, 90])
def test_results_depend_neither_on_threads_nor_on_the_order_of_items(n_bits):
    bits = some_bits(8, 1500, n_bits, 6)
    packed, queries, chances = packing.pack(bits), packing.pack(bits[:150]), some_chances(9, 150, n_bits)
    one = HammingIndex.build(packed, n_bits=n_bits)
    order = np.random.default_rng(10).permutation(1500)
    other = HammingIndex.build(packed[order[:700]], order[:700], n_bits=n_bits)
    other.add(packed[order[700:]], order[700:])
    piecemeal = HammingIndex.build(packed[order[:900]], order[:900], n_bits=n_bits)
    for part in np.array_split(order[900:], 9):
        piecemeal.add(packed[part], part)
    runs = [
        [
            *index.search(queries, 30, n_jobs=n_jobs),
            *index.within(queries, 3, n_jobs=n_jobs),
            *index.search_expected(chances, 30, n_jobs=n_jobs),
        ]
        for index in (one, other, piecemeal)
        for n_jobs in (1, 2, 3, None, -1)
    ]
    for run in runs[1:]:
        for array, wanted in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("n_bits", [13, 66])
def test_a_few_recent_items_beside_many(n_bits):
    bits, ids = some_bits(11, 1200, n_bits, 8), np.random.default_rng(12).permutation(1200)
    index = HammingIndex.build(packing.pack(bits[:1100]), ids[:1100], n_bits=n_bits)
    index.add(packing.pack(bits[1100:1150]), ids[1100:1150])
    index.add(packing.pack(bits[1150:]), ids[1150:])
    assert len(index.contents.parts) == 2
    queries, chances = some_bits(13, 3, n_bits), some_chances(14, 2, n_bits)
    for k in (1, 25, 1150, 2000):
        assert_all_as_brute_force(index, bits, ids, queries, chances, k, n_bits // 3)
    # Removed from both parts, and partly put back with another code.
    gone = np.arange(1050, 1170)
    assert index.remove(ids[gone]) == len(gone)
    bits[1060:1070] ^= 1
    index.add(packing.pack(bits[1060:1070]), ids[1060:1070])
    there = np.setdiff1d(np.arange(1200), gone[(gone < 1060) | (gone >= 1070)])
    assert len(index) == len(there)
    assert_all_as_brute_force(index, bits[there], ids[there], queries, chances, 60, n_bits // 3)
    mask = np.zeros(len(index), bool)
    mask[::3] = True
    allowed = np.isin(ids[there], index.ids[mask])
    assert_all_as_brute_force(
        index, bits[there][allowed], ids[there][allowed], queries, chances, 60, n_bits // 3, allowed=mask
    )


@pytest.mark.parametrize(("small", "share", "parts"), [(0, 10**9, 1), (20, 8, 1), (30, 8, 2), (5, 2, 2), (29, 100, 1)])
def test_when_recent_items_are_folded_in(monkeypatch, small, share, parts):
    monkeypatch.setattr(contents, "SMALL", small)
    monkeypatch.setattr(contents, "SHARE", share)
    bits = some_bits(15, 130, 10)
    index = HammingIndex.build(packing.pack(bits[:100]), n_bits=10)
    for row in range(100, 130):
        index.add(packing.pack(bits[row : row + 1]), [row])
        assert len(index) == row + 1
    whole = HammingIndex.build(packing.pack(bits), n_bits=10)
    queries = packing.pack(some_bits(16, 4, 10))
    for found, wanted in zip(index.rank(queries), whole.rank(queries), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert len(index.contents.parts) in (parts, 2)  # what came after the last folding is beside the rest


def test_expected_distances_are_whole_multiples_of_a_unit():
    """Sums that floats would order by their rounding are ties, and ties go by id."""
    bits = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]], np.uint8)
    # 0.1 + 0.2 is not 0.3 in floats; |1 − 2 P| are 0.1, 0.2, 0.3, 0.3 less a hair, a hair, 0
    hair = 2.0**-45
    chances = np.array([[0.45, 0.4, 0.35, 0.35 + hair / 2, 0.5 - hair / 2, 0.5]])
    index = HammingIndex.build(packing.pack(bits), [4, 3, 2, 1], n_bits=6)
    wanted = reference.expected_ranking(bits, [4, 3, 2, 1], chances[0])
    found = index.search_expected(chances, 4)
    assert_expected(found.ids[0], found.distances[0], wanted, 4)
    units = np.rint((found.distances[0] - found.distances[0, 0]) / rankings.UNIT)
    assert np.abs(np.diff(units[1:])).max() <= 1


def test_the_heap_has_room_for_what_is_pushed(monkeypatch):
    """Compiled code does not check the bounds of its arrays; the same code in Python does."""
    monkeypatch.setattr(scan, "admit", scan.admit.py_func)
    bits = some_bits(22, 200, 16)
    whole = HammingIndex.build(packing.pack(bits)).contents.whole()
    chosen, costs = np.empty(200, np.int32), np.empty(200, np.int64)
    ((arrays, _),) = search.pieces_of(contents.Contents((contents.Part(whole),)), None)
    for k in (1, 2, 5, 50):
        weights = np.random.default_rng(k).integers(0, 2**40, 16)
        mode = np.zeros(1, np.uint16)
        n = scan.nearest_expected.py_func(arrays, mode, weights, k, chosen, costs)
        wanted = sorted((bits * weights).sum(axis=1).tolist())[:k]
        sizes = np.diff(whole.starts.astype(int))[chosen[:n]]
        assert sorted(np.repeat(costs[:n], sizes).tolist())[:k] == wanted


def test_certain_probabilities_are_codes():
    bits = some_bits(17, 300, 33, 4)
    index = HammingIndex.build(packing.pack(bits), n_bits=33)
    near, expected = index.search(packing.pack(bits[:5]), 40), index.search_expected(bits[:5], 40)
    np.testing.assert_array_equal(near.ids, expected.ids)
    np.testing.assert_array_equal(near.distances, expected.distances)


@pytest.mark.parametrize("n_bits", [11, 67])
def test_probing_one_by_one(n_bits):
    """However far a caller goes, and wherever probing of single codes gives way to ranking."""
    bits = some_bits(18, 500, n_bits, 3)
    index = HammingIndex.build(packing.pack(bits), n_bits=n_bits)
    chances = np.where(bits[0], 0.95, 0.02)
    wanted = reference.expected_ranking(bits, range(500), chances)
    for stop in (0, 1, 2, 50, 500):
        probed = list(itertools.islice(index.iterate(chances), stop))
        assert_expected([number for number, _ in probed], [distance for _, distance in probed], wanted, stop)


@pytest.mark.parametrize("n_bits", [11, 67])
def test_probing_goes_on_with_the_items_of_its_beginning(n_bits):
    bits = some_bits(19, 300, n_bits)
    index = HammingIndex.build(packing.pack(bits), n_bits=n_bits)
    chances = np.where(bits[0], 0.9, 0.1)
    wanted = list(index.iterate(chances))
    probed = index.iterate(chances)
    index.remove([0, 7])
    assert list(probed) == wanted
    assert len(list(index.iterate(chances))) == 298
    with pytest.raises(ValueError, match="outside of 0 to 1"):
        index.iterate(np.full(n_bits, 2.0))


@pytest.mark.parametrize("change", [lambda i: i.add(np.zeros((1, 2), np.uint8), [99]), lambda i: i.remove([3])])
def test_a_stale_filter_is_refused(change):
    index = HammingIndex.build(packing.pack(some_bits(20, 10, 16)))
    allowed = index.filter({1, 2, 3})
    query = np.zeros((1, 2), np.uint8)
    assert sorted(index.search(query, allowed=allowed).ids[0].tolist()) == [1, 2, 3]
    change(index)
    for ask in (
        lambda: index.search(query, allowed=allowed),
        lambda: index.search_expected(np.zeros((1, 16)), allowed=allowed),
        lambda: index.within(query, allowed=allowed),
        lambda: next(index.iterate(np.zeros(16), allowed=allowed)),
        lambda: index.filter(allowed),
    ):
        with pytest.raises(ValueError, match="filter of another state"):
            ask()


RANGES = [(0, 10**4), (0, 10**6), (0, 10**8), (-5000, 5000), (-(2**62), 2**62), (-(2**63), 2**63 - 1)]
ENDS = [(-(2**63), -(2**63) + 5000), (2**63 - 5000, 2**63 - 1)]


@pytest.mark.parametrize(("low", "high"), [*RANGES, *ENDS])
@pytest.mark.parametrize("n", [0, 1, sorting.MANY - 1, sorting.MANY, 3000])
def test_ids_are_sorted_whatever_their_range(low, high, n):
    rng = np.random.default_rng(0)
    distinct = np.unique(rng.integers(low, high, 2 * n, endpoint=True))
    ids = rng.permutation(distinct)[:n]
    wanted = np.sort(ids)
    sorting.sort_ids(ids, len(ids))
    np.testing.assert_array_equal(ids, wanted)


ASK = """
import numpy as np
from gphash import HammingIndex
from gphash.index import search
from gphash.codes import packing
search.scanner.compiled = True  # however little there is to do
rng = np.random.default_rng(0)
bits = rng.integers(0, 2, (3000, 12))
index = HammingIndex.build(packing.pack(bits), rng.permutation(10**6)[:3000], n_bits=12)
asked = packing.pack(bits[:20])
near, ball, chances = index.search(asked, 200), index.within(asked, 3), index.search_expected(rng.random((20, 12)), 200)
ordered = all((np.diff(d) > 0)[np.diff(i) < 0].all() for d, i in zip(near.distances, near.ids))
ordered &= all((np.diff(d) > 0)[np.diff(i) < 0].all() for d, i in zip(chances.distances, chances.ids))
print(ordered, near.ids.sum(), near.distances.sum(), ball.ids.sum(), chances.ids.sum())
"""


@pytest.mark.slow
def test_compiled_code_that_another_process_has_cached_gives_the_same(tmp_path):
    told = [
        subprocess.run(
            [sys.executable, "-c", ASK],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert told[0].startswith("True")
    assert told[0] == told[1]
    assert list(tmp_path.rglob("*.nbc"))


def test_a_filter_is_for_one_index():
    index = HammingIndex.build(packing.pack(some_bits(20, 10, 16)))
    index.remove([9])
    allowed = index.filter({1, 2, 3})
    assert index.remove([77]) == 0
    query = np.zeros((1, 2), np.uint8)
    assert sorted(index.search(query, allowed=allowed).ids[0].tolist()) == [1, 2, 3]
    other = HammingIndex.build(packing.pack(some_bits(20, 10, 16)))
    with pytest.raises(ValueError, match="filter of another state"):
        other.search(query, allowed=allowed)
    with pytest.raises(ValueError, match="dtype bool"):
        other.search(query, allowed=np.array([0, 1] * 5))


def test_little_work_is_not_compiled(tmp_path):
    """A process that asks little loads neither numba nor scipy; one that asks much loads the compiled search."""
    ask = """
import sys
import numpy as np
from gphash import HammingIndex
from gphash.index import search
codes = np.random.default_rng(0).integers(0, 256, (1000, 2), np.uint8)
index = HammingIndex.build(codes)
index.search(codes[:3]), index.within(codes[:3]), index.search_expected(np.full((3, 16), 0.25))
assert not {"numba", "scipy"} & set(sys.modules), "little work"
search.PATIENCE = 10
index.search(codes[:3])
assert "numba" in sys.modules, "much work"
"""
    subprocess.run([sys.executable, "-c", ask], check=True, timeout=100)


def test_forged_buckets_do_not_lead_out_of_the_arrays():
    """The same code in Python checks its bounds: numbers that no honest file has are not used as places."""
    index = HammingIndex.build(packing.pack(some_bits(5, 40, 6)), n_bits=6)
    whole = index.contents.whole()
    ids, costs = np.empty((1, 5), np.int64), np.empty((1, 5), np.int64)
    query = np.zeros((1, 1), np.uint16)
    nothing = np.empty(0, bool), np.empty(0, np.int64)
    forged_codes = np.full_like(whole.codes, 0xFCFF)
    beyond = np.full_like(whole.starts, 10**6)
    beyond[0], wild = 0, np.arange(len(whole.starts), dtype=np.uint32)[::-1].copy()
    with contextlib.ExitStack() as stack:
        for module in (sorting, scan):
            for name, value in list(vars(module).items()):
                if hasattr(value, "py_func"):
                    stack.enter_context(mock.patch.object(module, name, value.py_func))
        stack.enter_context(mock.patch.object(scan, "popcount", lambda word: int(word).bit_count()))
        for codes, starts in ((forged_codes, whole.starts), (whole.codes, beyond), (whole.codes, wild)):
            arrays = (codes, starts, whole.ids, *nothing, ~whole.same * 0 + 0xFFFF, codes[: len(whole.same)])
            scan.search_many(arrays, query, 5, 6, ids, costs)
            scan.search_many_expected(arrays, query, np.full((1, 6), 7), 5, ids, costs)
            found = scan.balls(arrays, query, 6)
            scan.emit_balls(arrays, found, np.empty(40, np.int64), np.empty(40, np.int32))


def test_warming_up_compiles_what_searches_use():
    """Nothing is compiled by the first search after it, of an index with items or of one that gets its first later."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (50, 2), dtype=np.uint8)
    for index in (HammingIndex.build(codes), HammingIndex.build(codes[:0], n_bits=16)):
        with mock.patch.object(search.scanner, "compiled", False):
            index.warm()
            assert search.scanner.compiled
            assert not search.scanner.warming
            functions = (scan.search_many, scan.search_many_expected, scan.balls, scan.emit_balls)
            before = [len(function.signatures) for function in functions]
            if not len(index):
                index.add(codes[:9], np.arange(9))
            index.search(codes[:2], 3), index.within(codes[:2], 3), index.search_expected(rng.random((2, 16)), 3)
            index.search(codes[:2], 3, allowed=[1, 2])
            assert [len(function.signatures) for function in functions] == before


def test_nobody_waits_for_the_compiler_while_another_thread_warms_up(monkeypatch):
    monkeypatch.setattr(search.scanner, "compiled", False)
    monkeypatch.setattr(search, "PATIENCE", 0)
    index = HammingIndex.build(np.zeros((4, 1), np.uint8))
    pieces = search.pieces_of(index.contents, None)
    with search.scanner.getting_ready():
        assert not search.scanner.is_worth_it(pieces, 1)
    assert search.scanner.compiled
    assert search.scanner.is_worth_it(pieces, 1)
