"""What goes wrong with a real server: locks, lost connections, newer versions, stores that were replaced."""

import os
import time
import warnings

import numpy as np
import pytest

from gphash.container import FormatError
from gphash.files import LockedError

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from gphash.index.postgres import postgres_index
from gphash.index.postgres.database import StoreError
from gphash.index.postgres.postgres_index import PostgresIndex

CODES = np.arange(40, dtype=np.uint8)[:, None]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def test_whatever_is_locked_is_not_waited_for_for_ever(conninfo, name):
    store = PostgresIndex.build(conninfo, name, CODES, lock_timeout=0.2)
    asked = {
        "items": [lambda: store.add(CODES[:1], [99]), lambda: store.remove([0]), lambda: store.search(CODES[:1])],
        "codes": [lambda: store.search_expected(np.full((1, 8), 0.5)), store.stats, store.drop],
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
    with pytest.raises(FormatError, match="has tables of version 99; this gphash knows 3, update it"):
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
