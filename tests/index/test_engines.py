"""The recipes of docs/engines.md: engines that an index is handed over to find what the index finds."""

import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gphash.codes import packing
from gphash.index import engines
from gphash.index.hamming_index import HammingIndex

LENGTHS = [16, 32, 33, 64, 100]
PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def run(containing, **given):
    """Run the recipe that contains a text, and return all names that it knows."""
    (recipe,) = [block for block in BLOCKS if containing in block]
    exec(recipe, given)
    return given


def handed_over(index):
    """The names that all recipes start from."""
    return run("index.items()", index=index)


def ways(engine):
    """Mark, kind, distance and form of codes of every way that the page has for an engine, and the longest code."""
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| {engine}") and "wanted" in line]
    assert lines
    return [(re.findall(r"`([^`]+)`", line), 64 if "up to 64 bits" in line else 10**6) for line in lines]


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


def check_sql(index, queries, way, execute, fill):
    """Hand over, ask both queries, and compare with the index."""
    mark, kind, distance, form = way
    known = handed_over(index)
    sql = run("CREATE TABLE", mark=mark, kind=kind.replace("n_bits", str(index.n_bits)), distance=distance)
    execute(sql["create"])
    fill(sql["insert"], list(zip(known["ids"].tolist(), eval(form, known), strict=True)))
    execute(sql["index_codes"])
    codes = eval(form, known | {"packed": queries})
    check_answers(index, queries, codes, sql, execute)


def check_answers(index, queries, codes, sql, execute):
    for radius in (0, 2, index.n_bits // 3):
        ball = index.within(queries, radius)
        for number, code in enumerate(codes):
            here = slice(ball.offsets[number], ball.offsets[number + 1])
            wanted = list(zip(ball.ids[here].tolist(), ball.distances[here].tolist(), strict=True))
            assert execute(sql["within"], (code, radius)) == wanted
    for k in (1, 10, 300, 5000):
        found = index.search(queries, k)
        for number, code in enumerate(codes):
            wanted = list(zip(found.ids[number].tolist(), found.distances[number].tolist(), strict=True))
            assert execute(sql["nearest"], (code, k)) == wanted


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
    digits = [[int(digit) for digit in text] for text in engines.as_text(packed, n_bits)]
    np.testing.assert_array_equal(packing.pack(np.array(digits, np.uint8).reshape(len(packed), n_bits)), packed)
    if len(packed):
        ids = np.arange(len(packed))
        np.testing.assert_array_equal(run("rows = [{", packed=packed, ids=ids, np=np)["again"], packed)
        documents = run("documents = [{", packed=packed)["documents"]
        assert [bytes.fromhex(one["code"]) for one in documents] == [row.tobytes() for row in packed]


def test_the_first_bit_comes_first():
    packed = packing.pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]]))
    assert engines.as_bigint(packed, 10).tolist() == [513]
    assert engines.as_text(packed, 10) == ["1000000001"]
    assert run("rows = [{", packed=packed, ids=np.array([7]), np=np)["rows"] == [{"id": 7, "code": b"\x80\x40"}]
    assert run("documents = [{", packed=packed)["documents"] == [{"code": "8040"}]
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
    ],
)
def test_what_is_no_code_is_refused(call, fault):
    with pytest.raises(ValueError, match=fault):
        call()


# FAISS


def test_faiss_finds_the_same(case):
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    index, queries = case
    handed = run("import faiss", queries=queries, **handed_over(index))["handed"]
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


# SQL


def test_sqlite_finds_the_same(case):
    index, queries = case
    ((mark, kind, distance, form), _), *others = ways("SQLite")
    assert not others
    connection = sqlite3.connect(":memory:")
    sql = run("CREATE TABLE", mark=mark, kind=kind, distance=distance)
    run("create_function", connection=connection, queries=queries, **(handed_over(index) | sql))
    codes = eval(form, {"packed": queries})
    check_answers(index, queries, codes, sql, lambda text, values: connection.execute(text, values).fetchall())
    connection.close()


def test_sqlite_finds_the_same_without_a_function(case):
    index, queries = case
    if index.n_bits > 64:
        pytest.skip("up to 64 bits")
    connection = sqlite3.connect(":memory:")
    way = "?", "INTEGER", run("0x1111111111111111")["distance"], "engines.as_bigint(packed, n_bits).tolist()"
    check_sql(
        index, queries, way, lambda text, values=(): connection.execute(text, values).fetchall(), connection.executemany
    )
    connection.close()


@given(a=st.integers(-(2**63), 2**63 - 1), b=st.integers(-(2**63), 2**63 - 1))
def test_sqlite_counts_bits_of_any_two_numbers(a, b):
    connection = sqlite3.connect(":memory:")
    text = f"SELECT {run('0x1111111111111111')['distance']} FROM (SELECT ? AS code, ? AS wanted)"
    ((found,),) = connection.execute(text, (a, b)).fetchall()
    connection.close()
    assert type(found) is int
    assert found == ((a ^ b) % 2**64).bit_count()


def test_duckdb_finds_the_same(case):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    index, queries = case
    for way, most in ways("DuckDB"):
        if index.n_bits > most:
            continue
        connection = duckdb.connect(":memory:")
        connection.execute("SET threads = 1")

        def fill(text, rows, connection=connection, kind=way[1]):
            connection.executemany(text, rows[:100])  # row by row takes a millisecond each; the rest as the page has it
            columns = [list(column) for column in zip(*rows[100:], strict=True)]
            connection.execute(f"INSERT INTO items SELECT unnest(?), unnest(?)::{kind}", columns)

        def execute(text, values=(), connection=connection):
            return connection.execute(text, values).fetchall()

        check_sql(index, queries, way, execute, fill)
        connection.close()


def check_postgresql(case, connection, engine):
    index, queries = case

    def execute(text, values=()):
        cursor = connection.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def fill(text, rows):
        with connection.cursor() as cursor:
            cursor.executemany(text, rows[:100])
            with cursor.copy("COPY items (id, code) FROM STDIN") as copy:
                for row in rows[100:]:
                    copy.write_row(row)

    for way, most in ways(engine):
        if index.n_bits <= most:
            try:
                check_sql(index, queries, way, execute, fill)
            finally:
                connection.execute("DROP TABLE IF EXISTS items")


def test_postgresql_finds_the_same(case, connection):
    check_postgresql(case, connection, "PostgreSQL")


def test_pgvector_finds_the_same(case, connection):
    there = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall()
    if not there:
        pytest.skip("the extension pgvector is not installed")
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    check_postgresql(case, connection, "pgvector")
