"""Engines that an index is handed over to find what the index finds."""

import sqlite3
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gphash.codes import packing
from gphash.index import engines
from gphash.index.hamming_index import HammingIndex

LENGTHS = [16, 32, 33, 64, 100]


def clustered(n_bits, n=1200, seed=0):
    """Codes that pile up: few centres, some with flipped bits, and the two extremes; ids in no order, some negative."""
    generator = np.random.default_rng([seed, n_bits])
    centres = generator.integers(0, 2, (12, n_bits))
    bits = centres[generator.integers(0, 12, n)] ^ (generator.random((n, n_bits)) < 0.04)
    bits[:3], bits[3:6] = 0, 1
    ids = generator.permutation(5 * n)[:n] * 3 - 1000
    ids[0], ids[1] = 2**40, -(2**40)
    queries = np.concatenate([bits[:8:3], centres[:3], generator.integers(0, 2, (2, n_bits))])
    return packing.pack(bits), ids, packing.pack(queries)


@pytest.fixture(scope="module", params=LENGTHS, ids=lambda n_bits: f"{n_bits}-bits")
def case(request):
    """An index that things were added to and removed from, and queries."""
    packed, ids, queries = clustered(request.param)
    index = HammingIndex.build(packed[:1000], ids[:1000], n_bits=request.param)
    index.add(packed[1000:], ids[1000:])
    index.remove(ids[20:60])
    return index, queries


def distances(index, queries):
    """All (distance, id) of every query, in order, computed from bits alone."""
    packed, ids = index.items()
    bits, asked = packing.unpack(packed, index.n_bits), packing.unpack(queries, index.n_bits)
    return [sorted(zip((bits != row).sum(axis=1).tolist(), ids.tolist(), strict=True)) for row in asked]


def check_sql(index, queries, dialect, execute, fill):
    """Hand over, ask both queries, and compare with the index."""
    sql = engines.to_sql(index, dialect, table="learned_codes")
    execute(sql.create)
    fill(sql.insert, list(sql.rows))
    execute(sql.index_codes)
    codes = engines.sql_codes(queries, index.n_bits, dialect)
    for radius in (0, 2, index.n_bits // 3):
        ball = index.within(queries, radius)
        for number, code in enumerate(codes):
            here = slice(ball.offsets[number], ball.offsets[number + 1])
            wanted = list(zip(ball.ids[here].tolist(), ball.distances[here].tolist(), strict=True))
            assert execute(sql.within, (code, radius)) == wanted
    for k in (1, 10, 300, 5000):
        found = index.search(queries, k)
        for number, code in enumerate(codes):
            wanted = list(zip(found.ids[number].tolist(), found.distances[number].tolist(), strict=True))
            assert execute(sql.nearest, (code, k)) == wanted


# What is handed over


def test_items_are_those_that_live_in_the_order_of_ids(case):
    index, _ = case
    packed, ids, _ = clustered(index.n_bits)
    kept = np.r_[0:20, 60 : len(ids)]
    order = kept[np.argsort(ids[kept])]
    found, numbers = index.items()
    assert found.dtype == np.uint8
    assert numbers.dtype == np.int64
    np.testing.assert_array_equal(numbers, ids[order])
    np.testing.assert_array_equal(found, packed[order])
    np.testing.assert_array_equal(numbers, index.ids)


@pytest.mark.parametrize("n_bits", LENGTHS)
def test_an_empty_index_hands_over_nothing(n_bits):
    index = HammingIndex.build(np.empty((0, -(-n_bits // 8)), np.uint8), n_bits=n_bits)
    packed, ids = index.items()
    assert packed.shape == (0, -(-n_bits // 8))
    assert ids.shape == (0,)
    assert list(engines.to_sql(index, "sqlite").rows) == []


def test_the_oracle_agrees_with_the_index(case):
    index, queries = case
    found = index.search(queries, 50)
    for number, pairs in enumerate(distances(index, queries)):
        assert list(zip(found.distances[number], found.ids[number], strict=True)) == pairs[:50]


# Forms of a code


@st.composite
def packed_codes(draw, most):
    n_bits = draw(st.integers(1, most))
    bits = draw(hnp.arrays(np.uint8, st.tuples(st.integers(0, 6), st.just(n_bits)), elements=st.integers(0, 1)))
    return packing.pack(bits), n_bits


@given(codes=packed_codes(64))
def test_bigint_is_the_code_as_a_binary_number(codes):
    packed, n_bits = codes
    numbers = engines.as_bigint(packed, n_bits)
    assert numbers.dtype == np.int64
    unsigned = [int(text, 2) for text in engines.as_text(packed, n_bits)]
    assert numbers.tolist() == [number - 2**64 if number >= 2**63 else number for number in unsigned]
    np.testing.assert_array_equal(engines.from_bigint(numbers, n_bits), packed)
    np.testing.assert_array_equal(engines.from_bigint(numbers.tolist(), n_bits), packed)


@given(codes=packed_codes(200))
def test_text_bytes_and_hex_come_back(codes):
    packed, n_bits = codes
    for there, back in [
        (engines.as_text, engines.from_text),
        (engines.as_bytes, engines.from_bytes),
        (engines.as_hex, engines.from_hex),
    ]:
        np.testing.assert_array_equal(back(there(packed, n_bits), n_bits), packed)


def test_the_first_bit_comes_first():
    packed = packing.pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]]))
    assert engines.as_bigint(packed, 10).tolist() == [513]
    assert engines.as_text(packed, 10) == ["1000000001"]
    assert engines.as_bytes(packed, 10) == [b"\x80\x40"]
    assert engines.as_hex(packed, 10) == ["8040"]
    assert engines.as_bigint(np.full((1, 8), 255, np.uint8), 64).tolist() == [-1]
    assert engines.as_bigint(np.array([[128, 0, 0, 0, 0, 0, 0, 0]], np.uint8), 64).tolist() == [-(2**63)]


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: engines.as_bigint(np.zeros((1, 9), np.uint8), 65), "n_bits=65"),
        (lambda: engines.from_bigint([1], 65), "n_bits=65"),
        (lambda: engines.from_bigint([0, 1024], 10), "10 bits hold"),
        (lambda: engines.from_bigint([-1], 63), "63 bits hold"),
        (lambda: engines.from_bigint([1.5], 10), "float64"),
        (lambda: engines.as_bigint(np.array([[1]], np.uint8), 7), "spare"),
        (lambda: engines.from_text(["01"], 3), "'01'"),
        (lambda: engines.from_text(["012"], 3), "'012'"),
        (lambda: engines.from_bytes([b"12"], 8), "2 bytes"),
        (lambda: engines.from_hex(["ff"], 7), "spare"),
        (lambda: engines.hamming(b"1", b"12"), "1 and 2 bytes"),
        (lambda: engines.sql_codes(np.zeros((1, 1), np.uint8), 8, "oracle"), "oracle"),
    ],
)
def test_what_is_no_code_is_refused(call, fault):
    with pytest.raises(ValueError, match=fault):
        call()


@pytest.mark.parametrize(
    "table", ["", "1st", "a b", 'a"b', "a;DROP TABLE b", "a.b", "a-b", "é", "items\n", "a" * 59, "%s"]
)
def test_a_table_has_a_plain_name(table):
    index = HammingIndex.build(np.zeros((1, 2), np.uint8))
    with pytest.raises(ValueError, match="plain name"):
        engines.to_sql(index, "sqlite", table=table)


def test_a_dialect_is_known():
    with pytest.raises(ValueError, match="mysql"):
        engines.to_sql(HammingIndex.build(np.zeros((1, 2), np.uint8)), "mysql")


# FAISS


def test_faiss_finds_the_same(case):
    faiss = pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    index, queries = case
    handed = engines.to_faiss(index)
    assert isinstance(handed, faiss.IndexBinaryIDMap)
    assert handed.ntotal == len(index)
    for radius in (0, 2, index.n_bits // 3):
        offsets, costs, ids = handed.range_search(queries, radius + 1)  # below, not up to
        ball = index.within(queries, radius)
        np.testing.assert_array_equal(offsets.astype(np.int64), ball.offsets)
        for first, last in zip(ball.offsets[:-1], ball.offsets[1:], strict=True):
            order = np.lexsort((ids[first:last], costs[first:last]))
            np.testing.assert_array_equal(ids[first:last][order], ball.ids[first:last])
            np.testing.assert_array_equal(costs[first:last][order], ball.distances[first:last])
    for k in (1, 10, 300):
        found = index.search(queries, k)
        costs, _ = handed.search(queries, k)
        np.testing.assert_array_equal(costs, found.distances)
        for number in range(len(queries)):  # which of the last ones come is left open: ask for all of them
            _, near, ids = handed.range_search(queries[number : number + 1], int(costs[number, -1]) + 1)
            np.testing.assert_array_equal(ids[np.lexsort((ids, near))][:k], found.ids[number])


def test_without_faiss_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="pip install faiss-cpu"):
        engines.to_faiss(HammingIndex.build(np.zeros((1, 2), np.uint8)))


# SQL


def test_sqlite_finds_the_same(case):
    index, queries = case
    connection = sqlite3.connect(":memory:")
    if index.n_bits > 64:
        connection.create_function("hamming", 2, engines.hamming, deterministic=True)
    check_sql(
        index,
        queries,
        "sqlite",
        lambda text, values=(): connection.execute(text, values).fetchall(),
        connection.executemany,
    )
    connection.close()


@given(a=st.integers(-(2**63), 2**63 - 1), b=st.integers(-(2**63), 2**63 - 1))
def test_sqlite_counts_bits_of_any_two_numbers(a, b):
    connection = sqlite3.connect(":memory:")
    text = f"SELECT {engines._sqlite_distance()} FROM (SELECT ? AS code, ? AS wanted)"
    ((found,),) = connection.execute(text, (a, b)).fetchall()
    connection.close()
    assert type(found) is int
    assert found == ((a ^ b) % 2**64).bit_count()


@pytest.mark.parametrize("table", ["near", "codes", "item", "question", "code"])
def test_a_table_may_be_called_like_a_part_of_the_query(table):
    packed, ids, queries = clustered(16, n=50)
    index = HammingIndex.build(packed, ids)
    sql = engines.to_sql(index, "sqlite", table=table)
    connection = sqlite3.connect(":memory:")
    connection.execute(sql.create)
    connection.executemany(sql.insert, sql.rows)
    connection.execute(sql.index_codes)
    (code,) = engines.sql_codes(queries[:1], 16, "sqlite")
    found = connection.execute(sql.nearest, (code, 7)).fetchall()
    connection.close()
    assert [number for number, _ in found] == index.search(queries[:1], 7).ids[0].tolist()


def test_duckdb_finds_the_same(case):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    index, queries = case
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")

    def fill(text, rows):  # row by row takes a millisecond each; the rest as docs/engines.md has it
        connection.executemany(text, rows[:100])
        columns = [list(column) for column in zip(*rows[100:], strict=True)]
        connection.execute("INSERT INTO learned_codes SELECT unnest(?), unnest(?)", columns)

    check_sql(index, queries, "duckdb", lambda text, values=(): connection.execute(text, values).fetchall(), fill)
    connection.close()


def check_postgresql(case, connection, dialect):
    index, queries = case

    def execute(text, values=()):
        cursor = connection.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def fill(text, rows):
        with connection.cursor() as cursor:
            cursor.executemany(text, rows[:100])
            with cursor.copy("COPY learned_codes (id, code) FROM STDIN") as copy:
                for row in rows[100:]:
                    copy.write_row(row)

    try:
        check_sql(index, queries, dialect, execute, fill)
    finally:
        connection.execute("DROP TABLE IF EXISTS learned_codes")


def test_postgresql_finds_the_same(case, connection):
    check_postgresql(case, connection, "postgresql")


def test_pgvector_finds_the_same(case, connection):
    there = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall()
    if not there:
        pytest.skip("the extension pgvector is not installed")
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    check_postgresql(case, connection, "pgvector")
