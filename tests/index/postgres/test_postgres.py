"""Tables of PostgreSQL: writers beside each other, all or nothing, and what is refused; answers are the contract's."""

import itertools
import re
import sys
import threading
import time

import numpy as np
import pytest

import gphash
from gphash.container import FormatError
from gphash.index.backends import open_index

pytest.importorskip("psycopg", reason="psycopg is not installed")

from gphash.index.postgres import queries as asking
from gphash.index.postgres import relations
from gphash.index.postgres.database import WRITING, UnknownStoreError
from gphash.index.postgres.postgres_index import PostgresIndex

CODES = np.random.default_rng(0).integers(0, 256, (300, 2), dtype=np.uint8)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def assert_counted(connection, name):
    """Every code is counted as often as items have it."""
    items, codes = quoted(f"{name}_items"), quoted(f"{name}_codes")
    wrong = connection.execute(
        f"SELECT count(*) FROM (SELECT code, count(*) AS n FROM {items} GROUP BY code) AS counted "
        f"FULL JOIN {codes} AS noted USING (code) WHERE counted.n IS DISTINCT FROM noted.n"
    ).fetchone()
    assert wrong == (0,)


def test_writers_at_the_same_time_count_right(conninfo, connection, name):
    """Many writers with the same few codes and ids in any order; nobody waits for ever, and nothing is miscounted."""
    store = PostgresIndex.build(conninfo, name, np.empty((0, 1), np.uint8), n_bits=8, lock_timeout=30)
    codes = np.arange(16, dtype=np.uint8)[:, None]
    lost, searched, refused = [], [], []

    def write(number):
        rng = np.random.default_rng(number)
        try:
            for _ in range(12):
                own = rng.permutation(np.arange(200 * number, 200 * number + 200))[:20]
                store.add(codes[rng.integers(0, 16, 20)], own)
                shared = rng.permutation(np.arange(5000, 5010))[:4]  # everybody wants these
                try:
                    store.add(codes[rng.integers(0, 16, 4)], shared)
                except ValueError as error:
                    refused.append(str(error))
                store.remove(rng.permutation([*own[:12].tolist(), *range(5000, 5010)])[:15])
                searched.append(store.search(codes[:2], 5).ids.shape)
                store.remove(own)
        except BaseException as error:
            lost.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert len(searched) == 60
    assert all("in the index already" in text for text in refused)
    assert_counted(connection, name)
    assert len(store) == len(store.ids)
    store.drop()


def test_a_search_of_many_queries_sees_one_moment(conninfo, name):
    """One writer keeps moving an item from code to code: every query of a call finds it once, at one place."""
    store = PostgresIndex.build(conninfo, name, np.array([[0]], np.uint8), [7])
    stop = threading.Event()

    def move():
        for value in itertools.cycle([255, 0]):
            if stop.is_set():
                return
            with store.view(WRITING) as view:
                asking.remove(view, *asking.some(view, np.array([7]), relations.LOCK_ITEMS))
                asking.load(view, np.array([[value]], np.uint8), np.array([7]))
                asking.count(view, np.array([[value]], np.uint8))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for _ in range(30):
            found = store.search(np.zeros((6, 1), np.uint8), 3)
            assert found.ids.shape == (6, 1)
            assert len(set(found.distances.ravel().tolist())) == 1
    finally:
        stop.set()
        thread.join()
    store.drop()


def waiting_backend(connection, patience=10.0):
    """The process of a store's connection that waits for a lock."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'gphash' AND wait_event_type = 'Lock'"
        ).fetchall()
        if rows:
            return rows[0][0]
        time.sleep(0.02)
    raise AssertionError("nobody waits")


def test_a_lost_connection_leaves_nothing_behind(conninfo, connection, name):
    import psycopg

    packed, ids, queries = np.tile(CODES[:50], (6, 1)), np.arange(300), CODES[:4]
    store = PostgresIndex.build(conninfo, name, packed[:100], ids[:100], n_bits=16)
    before = store.items()
    told = []

    def add():
        try:
            store.add(packed[100:], ids[100:])
        except ConnectionError as error:
            told.append(str(error))

    with psycopg.connect(conninfo) as other:  # holds all codes: the rows have been sent by the time it matters
        other.execute(f"SELECT 1 FROM {quoted(name + '_codes')} FOR UPDATE")
        thread = threading.Thread(target=add)
        thread.start()
        connection.execute("SELECT pg_terminate_backend(%s)", (waiting_backend(connection),))
        thread.join()
    assert len(told) == 1
    assert told[0].startswith("the connection to PostgreSQL was lost: ")
    np.testing.assert_equal(store.items(), before)
    assert_counted(connection, name)
    store.add(packed[100:], ids[100:])  # on another connection
    assert len(store) == 300
    # A connection that was lost while nobody used it
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gphash'")
    wait_until_alone(connection)
    assert store.search(queries, 3).ids.shape == (4, 3)
    store.drop()


def wait_until_alone(connection, patience=10.0):
    """The server ends connections a moment after it was told to."""
    end = time.monotonic() + patience
    asked = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gphash'"
    while connection.execute(asked).fetchall() and time.monotonic() < end:
        time.sleep(0.02)


def test_a_load_that_fails_leaves_no_tables(conninfo, connection, name, monkeypatch):
    monkeypatch.setattr(relations, "indexes", lambda how: ["CREATE INDEX ON {items} (nothing)"])
    with pytest.raises(ValueError, match=r"PostgreSQL refuses this: .*nothing"):
        PostgresIndex.build(conninfo, name, np.zeros((5, 2), np.uint8))
    assert connection.execute("SELECT to_regclass(%s)", (quoted(f"{name}_items"),)).fetchone() == (None,)


def test_a_name_that_is_taken(conninfo, name):
    with PostgresIndex.build(conninfo, name, CODES[:3]) as store:
        with pytest.raises(ValueError, match="a collection, or a table, of that name already"):
            PostgresIndex.build(conninfo, name, CODES)
        assert len(store) == 3
        store.drop()


def test_wrong_connections(conninfo):
    with pytest.raises(ConnectionError, match="PostgreSQL cannot be reached: ") as caught:
        PostgresIndex.open("host=/nowhere dbname=x password=secret", "a")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConnectionError, match=r'database "nowhere" does not exist'):
        PostgresIndex.open(f"{conninfo} dbname=nowhere", "a")
    with pytest.raises(ValueError, match="conninfo is no connection string") as caught:
        PostgresIndex.open("secret", "a")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="conninfo is of type int"):
        PostgresIndex.open(5, "a")


def test_what_is_not_there(conninfo, name):
    with pytest.raises(UnknownStoreError, match=f"there is no collection {re.escape(repr(name))} in the database"):
        PostgresIndex.open(conninfo, name)
    with pytest.raises(UnknownStoreError, match='schema "nowhere" does not exist'):
        PostgresIndex.build(conninfo, name, CODES, schema="nowhere")
    store = PostgresIndex.build(conninfo, name, CODES)
    PostgresIndex.open(conninfo, name).drop()
    for ask in (lambda: store.search(CODES[:1]), lambda: store.add(CODES[:1], [999])):
        with pytest.raises(UnknownStoreError, match="there is no collection"):
            ask()
    store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lock_timeout": 0}, "lock_timeout=0"), ({"lock_timeout": "1"}, "lock_timeout='1'"), ({"schema": ""}, "schema=")],
)
def test_wrong_options(conninfo, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        PostgresIndex.build(conninfo, "refused", CODES, **options)


@pytest.mark.parametrize("name", ["", "a" * 53, "a\0b", 5])
def test_wrong_names(conninfo, name):
    with pytest.raises(ValueError, match="name="):
        PostgresIndex.open(conninfo, name)


def test_versions(conninfo, name, monkeypatch):
    with PostgresIndex.build(conninfo, name, CODES) as store:
        assert store.meta.version == relations.VERSION
        for known, instead in ((relations.VERSION + 1, "copy it again"), (relations.VERSION - 1, "update it")):
            monkeypatch.setattr(relations, "VERSION", known)
            with pytest.raises(FormatError, match=f"this gphash knows {known}, .*{instead}"):
                PostgresIndex.open(conninfo, name)
        store.drop()


def test_an_address_opens_it(conninfo):
    PostgresIndex.build(conninfo, "addressed", CODES).close()
    host = conninfo.split()[0].removeprefix("host=").replace("/", "%2F")
    with open_index(f"postgresql://gphash@{host}/postgres#addressed") as store:
        assert len(store) == 300
        store.drop()


def test_the_package_offers_it():
    assert gphash.PostgresIndex is PostgresIndex


def test_without_psycopg_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "gphash.index.postgres.database")
    with pytest.raises(ImportError, match="pip install 'psycopg"):
        import gphash.index.postgres.database  # noqa: F401
