"""What goes wrong with a real server: locks, lost connections, newer versions, stores that were replaced."""

import os
import time
import warnings

import numpy as np
import pytest

from gphash import HammingIndex
from gphash.container import FormatError
from gphash.index.storage import LockedError

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from gphash.index.postgres import database, postgres_index, queries
from gphash.index.postgres.database import StoreError
from gphash.index.postgres.postgres_index import PostgresIndex

CODES = np.arange(40, dtype=np.uint8)[:, None]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def tables(connection, name):
    """Which tables of a store are there."""
    found = (connection.execute("SELECT to_regclass(%s)", (quoted(f"{name}_{part}"),)) for part in ("items", "codes"))
    return [row.fetchone()[0] for row in found]


@pytest.mark.parametrize("moment", [0, 3, 7])
def test_a_connection_killed_in_the_middle_of_a_load_leaves_nothing(conninfo, connection, name, monkeypatch, moment):
    monkeypatch.setattr(database, "ROWS", 8)
    told = []

    def progress(done, total):
        told.append((done, total))
        if len(told) == moment + 1:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gphash'"
            )

    with pytest.raises(ConnectionError, match="the connection to PostgreSQL was lost: "):
        PostgresIndex.build(conninfo, name, CODES, progress=progress)
    assert tables(connection, name) == [None, None]
    assert all(done <= total for done, total in told)
    with PostgresIndex.build(conninfo, name, CODES) as store:
        assert len(store) == 40
        store.drop()


def test_a_caller_who_stops_a_load_leaves_nothing(conninfo, connection, name):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PostgresIndex.build(conninfo, name, CODES, progress=stop)
    assert tables(connection, name) == [None, None]


def test_of_two_loads_of_one_name_one_is_refused(conninfo, name):
    refused = []

    def progress(done, total):
        if not refused:
            with pytest.raises(LockedError) as caught:
                PostgresIndex.build(conninfo, name, CODES[:5], lock_timeout=0.2)
            refused.append(caught.value)

    with PostgresIndex.build(conninfo, name, CODES, progress=progress) as store:
        assert len(refused) == 1
        assert len(store) == 40
        store.drop()


def test_progress_counts_items_then_codes(conninfo, name, monkeypatch):
    monkeypatch.setattr(database, "ROWS", 32)
    told = []
    index = HammingIndex.build(CODES // 2)
    PostgresIndex.from_index(conninfo, name, index, progress=lambda *both: told.append(both)).drop()
    assert told == [(32, 40), (40, 40), (20, 20)]


def test_whatever_is_locked_is_not_waited_for_for_ever(conninfo, name):
    store = PostgresIndex.build(conninfo, name, CODES, lock_timeout=0.2)
    asked = {
        "items": [lambda: store.add(CODES[:1], [99]), lambda: store.remove([0]), lambda: store.search(CODES[:1])],
        "codes": [lambda: store.search_expected(np.full((1, 8), 0.5)), store.stats, store.verify, store.drop],
        "meta": [lambda: PostgresIndex.open(conninfo, name, lock_timeout=0.2)],
    }
    for part, all_of_them in asked.items():
        with psycopg.connect(conninfo) as other:
            other.execute(f"LOCK TABLE {quoted(f'{name}_{part}')}")
            for ask in all_of_them:
                with pytest.raises(LockedError, match=r"more than lock_timeout=0\.2 seconds"):
                    ask()
    assert len(store) == 40
    store.drop()


def test_the_shortest_wait_is_not_taken_for_none(conninfo, name):
    with PostgresIndex.build(conninfo, name, CODES, lock_timeout=1e-5) as store:
        with psycopg.connect(conninfo) as other:
            other.execute(f"LOCK TABLE {quoted(name + '_items')}")
            with pytest.raises(LockedError):
                store.items()
        store.drop()


def test_conditions_are_read_whatever_the_encoding_of_the_client(conninfo, connection, name):
    connection.execute("CREATE TABLE dishes (id bigint, name text)")
    connection.execute("INSERT INTO dishes VALUES (3, 'purée'), (4, 'soup')")
    with PostgresIndex.build(f"{conninfo} client_encoding=LATIN1", name, CODES, table="dishes") as store:
        assert store.search(CODES[:1], where="name = 'purée'").ids.tolist() == [[3]]
        assert store.search(CODES[:1], where="name = %s", params=["purée"]).ids.tolist() == [[3]]
        store.drop()
    connection.execute("DROP TABLE dishes")


def test_what_is_committed_does_not_look_as_if_it_had_failed(conninfo, name, monkeypatch):
    """Somebody holds what VACUUM needs, and nothing that adding does."""
    monkeypatch.setattr(postgres_index, "MANY", 1)
    store = PostgresIndex.build(conninfo, name, CODES, lock_timeout=0.2)
    with psycopg.connect(conninfo) as other:
        other.execute(f"LOCK TABLE {quoted(name + '_items')} IN SHARE UPDATE EXCLUSIVE MODE")
        store.add(CODES[:3], [100, 101, 102])
        with pytest.raises(LockedError):
            store.tidy()
    assert len(store) == 43
    store.drop()


def test_a_newer_version_is_told_whatever_else_it_has_changed(conninfo, connection, name):
    store = PostgresIndex.build(conninfo, name, CODES)
    meta = quoted(name + "_meta")
    connection.execute(f"UPDATE {meta} SET version = 99")
    connection.execute(f"ALTER TABLE {meta} RENAME COLUMN model TO maker")
    with pytest.raises(FormatError, match="has tables of version 99; this gphash knows 2, update it"):
        PostgresIndex.open(conninfo, name)
    for change in (lambda: store.add(CODES[:1], [99]), lambda: store.remove([1])):
        with pytest.raises(FormatError, match="of version 99"):
            change()
    assert len(store) == 40
    store.drop()


def test_a_store_that_was_replaced_is_not_mistaken_for_the_old_one(conninfo, name):
    old = PostgresIndex.build(conninfo, name, CODES, model="one")
    old.search(CODES[:1])
    PostgresIndex.open(conninfo, name).drop()
    new = PostgresIndex.build(conninfo, name, CODES, model="two")
    for change in (lambda: old.add(CODES[:1], [99], model="one"), lambda: old.remove([1])):
        with pytest.raises(StoreError, match="has been replaced since it was opened; open it again"):
            change()
    old._looked = time.monotonic() - 2 * postgres_index.FRESH
    with pytest.raises(StoreError, match="has been replaced"):
        old.search(CODES[:1], model="one")
    assert len(new) == 40
    old.close()
    new.drop()


def test_conditions_do_not_see_columns_of_the_store(conninfo, connection, name):
    connection.execute("CREATE TABLE goods (number bigint PRIMARY KEY, price int)")
    connection.execute("INSERT INTO goods SELECT n, n FROM generate_series(0, 39) AS n")
    with PostgresIndex.build(conninfo, name, CODES, table="goods", key="number") as store:
        for believed in (0, 10**6):
            for where in ("cost < 3", "n > 0", "code > 3", "id > 3"):
                store._sizes, store._looked = queries.Sizes(believed, believed), time.monotonic()
                for ask in (store.search, store.within):
                    with pytest.raises(ValueError, match="does not exist"):
                        ask(CODES[:1], 5, where=where)
        # No queries, no values: the per cent sign is one all the same.
        assert store.search(CODES[:0], 50, where="price %% 2 = 0").ids.shape == (0, 20)
        assert store.search(CODES[:1], 50, where="price %% 2 = 0").ids.shape == (1, 20)
        with pytest.raises(ValueError, match=r"^allowed is a mask"):
            store.search(CODES[:1], allowed=np.ones(3, bool), where="price > 1")
        store.drop()
    connection.execute("DROP TABLE goods")


def test_statements_that_are_kept_ready_are_not_more_and_more(conninfo, connection, name):
    from gphash.index.postgres.relations import STATEMENTS, _composed

    connection.execute("CREATE TABLE few (id bigint)")
    with PostgresIndex.build(conninfo, name, CODES[:1], table="few") as store:
        for number in range(10):
            store.search(CODES[:1], 1, where=f"id > {number}")
        assert _composed.cache_info().maxsize == STATEMENTS
        store.drop()
    connection.execute("DROP TABLE few")


def test_no_role_may_do_what_the_database_does_not_allow(conninfo, connection, name):
    connection.execute("CREATE ROLE reader LOGIN")
    with PostgresIndex.build(conninfo, name, CODES) as store:
        for part in ("items", "codes", "meta"):
            connection.execute(f"GRANT SELECT ON {quoted(f'{name}_{part}')} TO reader")
        with PostgresIndex.open(f"{conninfo} user=reader", name) as other:
            assert other.search(CODES[:1], 3).ids.shape == (1, 3)
            for change in (lambda: other.add(CODES[:1], [99]), lambda: other.remove([1]), other.drop):
                with pytest.raises(PermissionError, match="the database does not allow this: "):
                    change()
        store.drop()
    connection.execute("DROP ROLE reader")


def test_a_forked_process_has_connections_of_its_own(conninfo, name):
    with PostgresIndex.build(conninfo, name, CODES) as store:
        wanted = store.search(CODES[:2], 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                same = np.array_equal(store.search(CODES[:2], 3).ids, wanted.ids)
                store.close()
                os._exit(0 if same else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(store.search(CODES[:2], 3).ids, wanted.ids)
        store.drop()
