"""Every index keeps one contract: the same answers, the same order, the same words for what is refused.

An index in memory, one that is mapped from a file, one of several parts that are read when they are needed, as the
folder of a collection has it, and tables of PostgreSQL, searched as few items are and as many are, against oracles that
compare every item.
"""

import contextlib
import itertools
import re
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gphash import HammingIndex, Where
from gphash.codes import packing
from gphash.index import buckets as bucketing
from gphash.index import contents, storage
from gphash.index.contents import Contents, Extent, Part
from gphash.index.rankings import Ranking
from tests import reference
from tests.index.comparing import assert_all_as_brute_force, assert_expected, assert_ranking, some_bits, some_chances

FAR = 2**62
WIDTHS = [1, 7, 16, 17, 40, 64, 65, 130]  # of every kind of word, with and without spare bits
MODEL = "ab" * 32
NUMBERS = itertools.count()


class Reversed(Ranking):
    """Furthest first, from outside."""

    descending = True

    def scores(self, query, packed, n_bits):
        return np.bitwise_count(packed ^ query).sum(axis=1).astype(float)


# The makers: each gives an index of packed codes with ids.


@contextlib.contextmanager
def in_memory(packed, ids, n_bits):
    yield HammingIndex.build(packed, ids, n_bits=n_bits, model=MODEL)


@contextlib.contextmanager
def mapped(packed, ids, n_bits):
    with tempfile.TemporaryDirectory() as folder:
        HammingIndex.build(packed, ids, n_bits=n_bits, model=MODEL).save(Path(folder) / "one.index")
        yield HammingIndex.open(Path(folder) / "one.index")


@contextlib.contextmanager
def in_parts(packed, ids, n_bits):
    """Three parts; only their extents are known until they are read."""
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, rows in enumerate(np.array_split(np.arange(len(ids)), 3)):
            path = Path(folder) / f"{number}.index"
            made = bucketing.group(bucketing.to_words(packed[rows], n_bits), np.asarray(ids, np.int64)[rows])
            storage.write_index(path, made, n_bits, MODEL)
            extent = Extent(len(rows), *Part(made).ends)
            parts.append(Part(lambda path=path: storage.read_index(path).buckets, file=path.name, extent=extent))
        yield HammingIndex(Contents(tuple(parts), 3), n_bits, MODEL)


class InPostgres:
    """In a real server; `many` items are looked up by parts of their codes, few are read."""

    def __init__(self, conninfo, many):
        self.conninfo, self.many = conninfo, many

    @contextlib.contextmanager
    def __call__(self, packed, ids, n_bits):
        from gphash.index.postgres import queries
        from gphash.index.postgres.postgres_index import PostgresIndex

        few = {"CLUSTERED": 0, "WORTH": 0.05, "LEAST": 20, "BATCH": 4, "PAGE": 37}
        steps, name = queries.steps, f'Of "{next(NUMBERS)}" 5%s {{}}; --'
        with PostgresIndex.build(self.conninfo, name, packed, ids, n_bits=n_bits, model=MODEL) as index:
            with contextlib.ExitStack() as stack:
                stack.callback(index.drop)
                if self.many:
                    stack.enter_context(mock.patch.multiple(queries, **few))
                    stack.enter_context(mock.patch.object(queries, "steps", lambda n, known, k: steps(n, known, 0)))
                    index._sizes, index._looked = queries.Sizes(5000, 5000), time.monotonic() + 1e6
                yield index


MAKERS = {"memory": in_memory, "mapped": mapped, "parts": in_parts}
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgres", "postgres, many")]


@pytest.fixture(params=[*MAKERS, *SLOW])
def kind(request):
    return request.param


@pytest.fixture
def make(kind, request):
    if kind in MAKERS:
        return MAKERS[kind]
    return InPostgres(request.getfixturevalue("conninfo"), kind.endswith("many"))


def examples(kind, n):
    """So many examples; each takes a server far longer."""
    return settings(max_examples=n if kind in MAKERS else n // 6)


@st.composite
def problems(draw):
    n_bits = draw(st.sampled_from(WIDTHS))
    code = st.lists(st.integers(0, 1), min_size=n_bits, max_size=n_bits)
    # Few distinct codes, so that there are buckets and ties.
    pool = draw(st.lists(code, min_size=1, max_size=8))
    # Every pair of a kind of word and a kind of id is compiled by itself, which takes seconds: not all of them.
    any_id = st.integers(-5, 40) if 16 < n_bits <= 64 else st.integers(-FAR - 3, FAR + 3) | st.integers(-5, 40)
    ids = draw(st.lists(any_id, unique=True, max_size=30))
    picks = draw(st.lists(st.integers(0, len(pool) - 1), min_size=len(ids), max_size=len(ids)))
    bits = np.array([pool[pick] for pick in picks], np.uint8).reshape(-1, n_bits)
    queries = np.array([pool[0], draw(code)], np.uint8)
    chance = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1)
    chances = draw(st.lists(st.lists(chance, min_size=n_bits, max_size=n_bits), min_size=2, max_size=2))
    return n_bits, bits, np.array(ids, np.int64), queries, np.array(chances)


def test_any_small_index(make, kind):
    @examples(kind, 48)
    @given(problem=problems(), k=st.integers(0, 40), radius=st.integers(0, 140), data=st.data())
    def check(problem, k, radius, data):
        n_bits, bits, ids, queries, chances = problem
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), bool)
        with make(packing.pack(bits), ids, n_bits) as index:
            assert_all_as_brute_force(index, bits, ids, queries, chances, k, radius)
            kept = np.argsort(ids)[mask]
            strangers = {-7, 1000}
            for allowed in [
                mask,
                set(ids[kept].tolist()) | strangers,
                np.array([*ids[kept], *strangers, *ids[kept]], np.int64),
                Where(np.where(mask, "yes", "no"), "yes"),
            ]:
                assert_all_as_brute_force(index, bits[kept], ids[kept], queries, chances, k, radius, allowed=allowed)

    check()


class Changing(RuleBasedStateMachine):
    """An index and a dict of bits, changed in the same ways; `make` is set by the test."""

    make = None

    @initialize(n_bits=st.sampled_from([3, 20, 70]), n=st.integers(0, 60), seed=st.integers(0, 2**16))
    def begin(self, n_bits, n, seed):
        bits = some_bits(seed, n, n_bits, 4)
        self.n_bits, self.known = n_bits, dict(enumerate(bits))
        self.made = contextlib.ExitStack()
        self.index = self.made.enter_context(type(self).make(packing.pack(bits), np.arange(n), n_bits))

    @rule(ids=st.sets(st.integers(-20, 80), max_size=8), seed=st.integers(0, 2**16))
    def add(self, ids, seed):
        fresh = [number for number in ids if number not in self.known]
        bits = some_bits(seed, len(ids), self.n_bits, 4)
        if len(fresh) < len(ids):
            with pytest.raises(ValueError, match="in the index already"):
                self.index.add(packing.pack(bits), list(ids))
        self.index.add(packing.pack(bits[: len(fresh)]), fresh, model=MODEL)
        self.known.update(zip(fresh, bits[: len(fresh)], strict=True))

    @rule(ids=st.sets(st.integers(-20, 80), max_size=20))
    def remove(self, ids):
        there = ids & self.known.keys()
        assert self.index.remove([*ids, *ids]) == len(there)
        for number in there:
            del self.known[number]

    @rule(seed=st.integers(0, 2**16), k=st.integers(0, 80), radius=st.integers(0, 75), share=st.sampled_from([1, 2, 5]))
    def search(self, seed, k, radius, share):
        ids = sorted(self.known)[::share]
        allowed = {"allowed": np.isin(sorted(self.known), ids)} if share > 1 else {}
        bits = np.array([self.known[number] for number in ids], np.uint8).reshape(-1, self.n_bits)
        queries, chances = some_bits(seed, 2, self.n_bits, 4), some_chances(seed, 2, self.n_bits)
        assert_all_as_brute_force(self.index, bits, ids, queries, chances, k, radius, **allowed)

    @invariant()
    def has_the_same_items(self):
        if hasattr(self, "known"):
            assert_items(self.index, self.known)

    def teardown(self):
        if hasattr(self, "made"):
            self.made.close()


def assert_items(index, known):
    """What an index says of its items, and of its buckets."""
    packed, ids = index.items()
    assert index.ids.tolist() == ids.tolist() == sorted(known)
    codes = {number: tuple(bits.tolist()) for number, bits in known.items()}
    assert list(map(tuple, packing.unpack(packed, index.n_bits).tolist())) == [codes[number] for number in ids.tolist()]
    buckets = {}
    for number in sorted(known):
        buckets.setdefault(codes[number], []).append(number)
    fullest = sorted(buckets.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    sizes = [len(numbers) for numbers in buckets.values()]
    assert len(index) == len(known)
    assert index.stats()[:3] == (len(known), len(buckets), max(sizes, default=0))
    assert index.stats().mean_bucket == (len(known) / len(buckets) if buckets else 0.0)
    for n in (0, 2, 1000):
        found = index.fullest(n)
        assert [(tuple(packing.unpack(code[None], index.n_bits)[0].tolist()), ids.tolist()) for code, ids in found] == (
            fullest[:n]
        )


def test_any_sequence_of_changes(make, kind, monkeypatch):
    monkeypatch.setattr(contents, "SMALL", 8)
    machine = type("Changing", (Changing,), {"make": staticmethod(make)})
    steps = 20 if kind in MAKERS else 8
    run_state_machine_as_test(machine, settings=settings(examples(kind, 30), stateful_step_count=steps))


@pytest.mark.parametrize("n_bits", [1, 8, 16, 17, 32, 63, 64, 65, 128, 1024])
def test_clustered_codes_of_every_width(make, n_bits):
    rng = np.random.default_rng(n_bits)
    bits = some_bits(n_bits, 300, n_bits, 6, 0.05)
    ids = rng.permutation(1500)[:300] * 3 - 500
    ids[:2] = 2**63 - 1, -(2**63)
    queries = np.concatenate([bits[:2], some_bits(1, 2, n_bits)])
    chances = some_chances(n_bits, 2, n_bits)
    chances[1] = np.clip(np.where(bits[3], 0.95, 0.05) + 0.1 * rng.random(n_bits) - 0.05, 0, 1)
    with make(packing.pack(bits[:200]), ids[:200], n_bits) as index:
        index.add(packing.pack(bits[200:]), ids[200:])
        assert index.remove(ids[5:25]) == 20
        bits, ids = np.delete(bits, slice(5, 25), 0), np.delete(ids, slice(5, 25))
        for k, radius in ((1, 0), (10, 2), (1000, n_bits // 3)):
            assert_all_as_brute_force(index, bits, ids, queries, chances, k, radius)
        assert_items(index, dict(zip(ids.tolist(), bits, strict=True)))
        everything = index.rank(packing.pack(queries))
        furthest = index.search(packing.pack(queries), 9, ranking=Reversed())
        for row, query in enumerate(queries):
            wanted = reference.hamming_ranking(bits, ids, query)
            assert_ranking(everything, row, wanted, len(ids))
            assert furthest.ids[row].tolist() == [number for _, number in sorted((-d, n) for d, n in wanted)[:9]]
        assert furthest.distances.dtype == np.float64
        probed = list(itertools.islice(index.iterate(chances[1]), 70))
        wanted = reference.expected_ranking(bits, ids, chances[1])
        assert_expected([number for number, _ in probed], [distance for _, distance in probed], wanted, 70)
        np.testing.assert_array_equal(index.codes_of(ids[[7, 3]]), packing.pack(bits[[7, 3]]))
        index.warm()
        assert (index.n_bits, index.model) == (n_bits, MODEL)


@pytest.mark.parametrize("n_bits", [12, 100])
def test_nothing(make, n_bits):
    """No items, no queries, no neighbours asked for."""
    queries = packing.pack(some_bits(0, 3, n_bits))
    with make(queries[:0], [], n_bits) as index:
        assert index.search(queries).ids.shape == index.rank(queries).ids.shape == (3, 0)
        assert index.search_expected(np.full((3, n_bits), 0.5)).distances.shape == (3, 0)
        assert index.within(queries, n_bits).offsets.tolist() == [0, 0, 0, 0]
        assert list(index.iterate(np.full(n_bits, 0.5))) == list(index.iterate(np.zeros(n_bits), allowed=set())) == []
        assert index.remove([1, 2]) == 0
        assert_items(index, {})
        index.warm()
        index.add(queries, [5, -5, 4])
        assert index.search(queries[:0], 2).ids.shape == index.search_expected(np.empty((0, n_bits)), 2).ids.shape
        assert index.search(queries[:0], 2).ids.shape == (0, 2)
        assert index.search(queries, 0).ids.shape == (3, 0)
        assert index.within(queries[:0]).offsets.tolist() == [0]
        assert index.search(queries[:1], 10**9).distances[0, 0] == 0
        assert index.remove([5, -5, 4]) == 3
        assert index.search(queries).ids.shape == (3, 0)


PACKED = packing.pack(some_bits(0, 5, 12))
WRONG = {
    "narrow queries": lambda index: index.search(PACKED[:, :1]),
    "queries of another type": lambda index: index.search(PACKED.astype(int)),
    "queries with spare bits": lambda index: index.search(PACKED | 1),
    "k": lambda index: index.search(PACKED, -1),
    "k that is no whole number": lambda index: index.search(PACKED, 1.5),
    "ranking": lambda index: index.search(PACKED, ranking="nearest"),
    "codes for probabilities": lambda index: index.search(PACKED, ranking="expected"),
    "another model": lambda index: index.search(PACKED, model="other"),
    "radius": lambda index: index.within(PACKED, -1),
    "a ball by another model": lambda index: index.within(PACKED, model="other"),
    "narrow probabilities": lambda index: index.search_expected(np.full((1, 11), 0.5)),
    "NaN": lambda index: index.search_expected(np.full((1, 12), np.nan)),
    "several at a time": lambda index: index.iterate(np.full((1, 12), 0.5)),
    "chances beyond 1": lambda index: index.iterate(np.full(12, 2)),
    "an id twice": lambda index: index.add(PACKED[:3], [7, 8, 8]),
    "too few ids": lambda index: index.add(PACKED[:3], [7, 8]),
    "an id that is too large": lambda index: index.add(PACKED[:3], [7, 8, 2**63]),
    "an id that is known": lambda index: index.add(PACKED[:3], [7, 1, 0]),
    "codes of another model": lambda index: index.add(PACKED[:3], [7, 8, 9], model="other"),
    "ids that are no numbers": lambda index: index.remove([0.5]),
    "ids that are texts": lambda index: index.codes_of(["a"]),
    "an unknown id": lambda index: index.codes_of([1, 99]),
    "a short mask": lambda index: index.search(PACKED, allowed=np.ones(2, bool)),
    "a mask of numbers": lambda index: index.search(PACKED, allowed=[0, 1, 1, 0, 1]),
    "allowed fractions": lambda index: index.search(PACKED, allowed=[1.5]),
    "too few labels": lambda index: index.within(PACKED, allowed=Where([1], 1)),
    "buckets": lambda index: index.fullest(-1),
}


def test_what_is_refused_is_refused_in_the_same_words(make):
    plain = HammingIndex.build(PACKED, n_bits=12, model=MODEL)
    with make(PACKED, np.arange(5), 12) as index:
        for name, ask in WRONG.items():
            with pytest.raises((ValueError, TypeError, KeyError)) as wanted:
                ask(plain)
            with pytest.raises(type(wanted.value), match=re.escape(str(wanted.value))):
                ask(index)
            assert len(index) == 5, name
        assert index.search(PACKED[:1], 1, model=MODEL).ids.tolist() == [[0]]


def test_filters_take_any_set_of_ids(make):
    packed = packing.pack(some_bits(21, 10, 16))
    query = np.zeros((1, 2), np.uint8)
    with make(packed, np.arange(10), 16) as index:
        for allowed in ([4, 2], (2, 4), {2, 4}, frozenset({2, 4}), {2: 0, 4: 0}.keys(), range(2, 5, 2), iter([2, 4])):
            assert sorted(index.search(query, allowed=allowed).ids[0].tolist()) == [2, 4]
        for allowed in ([], set(), range(0), np.zeros(10, bool), Where(["a"] * 10, "b"), np.array([2**63], np.uint64)):
            assert index.search(query, allowed=allowed).ids.shape == (1, 0)
            assert index.within(query, 16, allowed=allowed).ids.shape == (0,)
