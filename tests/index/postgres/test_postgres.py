"""A store in a real PostgreSQL finds what a `HammingIndex` finds, whoever else is writing."""

import itertools
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gphash
from gphash import HammingIndex, Where
from gphash.codes import packing
from gphash.container import FormatError
from gphash.index.backends import open_index
from gphash.index.rankings import HAMMING, Ranking
from gphash.index.storage import LockedError

pytest.importorskip("psycopg", reason="psycopg is not installed")

from gphash.index.postgres import queries as asking
from gphash.index.postgres import relations
from gphash.index.postgres.database import WRITING, StoreError, UnknownStoreError
from gphash.index.postgres.postgres_index import PostgresIndex

WIDTHS = [1, 8, 16, 17, 32, 63, 64, 65, 128]
DOCS = Path(__file__).parents[3] / "docs" / "stores.md"


def clustered(n_bits, n=300, seed=0):
    """Codes that pile up, ids in no order, some negative and some far; queries, and probabilities with ties."""
    rng = np.random.default_rng([seed, n_bits])
    centres = rng.integers(0, 2, (6, n_bits))
    bits = centres[rng.integers(0, 6, n)] ^ (rng.random((n, n_bits)) < 0.05)
    ids = rng.permutation(5 * n)[:n] * 3 - 500
    ids[:2] = 2**63 - 1, -(2**63)
    queries = packing.pack(np.concatenate([bits[:2], rng.integers(0, 2, (2, n_bits))]))
    chances = rng.choice([0, 0.125, 0.5, 0.9, 1], (2, n_bits))
    chances[1] = np.clip(np.where(bits[3], 0.95, 0.05) + 0.1 * rng.random(n_bits) - 0.05, 0, 1)
    return packing.pack(bits), ids, queries, chances


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def assert_alike(store, index, queries, chances, ks, radii, **filtered):
    """Every way to search gives the same; the index has the items that may be found."""
    for k in ks:
        assert_same(store.search(queries, k, **filtered), index.search(queries, k))
        assert_same(store.search(queries[:1], k, **filtered), index.search(queries[:1], k))
        assert_same(store.search_expected(chances, k, **filtered), index.search_expected(chances, k))
    for radius in radii:
        assert_same(store.within(queries, radius, **filtered), index.within(queries, radius))
    assert_same(store.rank(queries, **filtered), index.rank(queries))
    assert list(store.iterate(chances[0], **filtered)) == list(index.iterate(chances[0]))


@pytest.fixture
def looking_up(monkeypatch):
    """Small stores are searched as large ones are: codes are looked up, and read only if that fails."""
    everything = asking.steps
    monkeypatch.setattr(asking, "CLUSTERED", 0)
    monkeypatch.setattr(asking, "WORTH", 0.05)
    monkeypatch.setattr(asking, "steps", lambda n_bits, known, k: everything(n_bits, known, 0))
    monkeypatch.setattr(asking, "LEAST", 20)
    monkeypatch.setattr(asking, "BATCH", 4)
    monkeypatch.setattr(asking, "PAGE", 37)


def believe(store, n_codes, n_items=None):
    """Let the store search as if so many codes were there, and items, as many unless told."""
    store._sizes, store._looked = asking.Sizes(n_codes, n_codes if n_items is None else n_items), time.monotonic()


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_it_finds_what_an_index_finds(conninfo, name, n_bits, looking_up):
    packed, ids, queries, chances = clustered(n_bits)
    index = HammingIndex.build(packed[:200], ids[:200], n_bits=n_bits, model="abc")
    with PostgresIndex.build(conninfo, name, packed[:200], ids[:200], n_bits=n_bits, model="abc") as store:
        for one in (store, index):
            one.add(packed[200:], ids[200:], model="abc")
            assert one.remove([*ids[5:25].tolist(), 10**9, *ids[5:25].tolist()]) == 20
        for known in ((0, 0), (1, 1), (400, 400)):  # all codes are read; all items; codes are looked up
            believe(store, *known)
            assert_alike(store, index, queries, chances, (0, 1, 10, 1000), (0, 2, n_bits // 3, n_bits + 1))
            assert_same(store.search(queries[:0], 7), index.search(queries[:0], 7))
        assert_same(store.items(), index.items())
        assert_same([store.ids, store.codes_of(ids[30:33])], [index.ids, index.codes_of(ids[30:33])])
        assert_same(store.to_index().items(), index.items())
        assert store.stats()[:4] == index.stats()[:4]
        assert store.stats().bytes > 0
        assert (len(store), store.n_bits, store.model) == (len(index), n_bits, "abc")
        store.verify()
        with pytest.raises(KeyError, match=str(ids[5])):
            store.codes_of([ids[30], ids[5]])
        labels = index.ids % 3
        for allowed in (
            index.ids[::2],
            labels == 1,
            Where(labels, 2),
            set(ids[40:50].tolist()),
            index.filter([ids[60]]),
        ):
            wanted = index.search(queries, 9, allowed=allowed)
            assert_same(store.search(queries, 9, allowed=allowed), wanted)
        store.drop()


operations = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), st.lists(st.integers(-9, 30), unique=True, max_size=6)), max_size=6
)


@settings(max_examples=3)
@given(steps=operations, k=st.integers(0, 40), radius=st.integers(0, 130), seed=st.integers(0, 99), data=st.data())
@pytest.mark.parametrize("n_bits", WIDTHS)
def test_any_sequence_of_changes(conninfo, n_bits, steps, k, radius, seed, data):
    packed, _, queries, chances = clustered(n_bits, 40, seed)
    index = HammingIndex.build(packed[:9], n_bits=n_bits)
    with PostgresIndex.from_index(conninfo, "changing", index) as store:
        try:
            believe(store, *data.draw(st.sampled_from([(0, 0), (9, 9), (5000, 5000)])))
            for kind, ids in steps:
                told = []
                for one in (store, index):
                    try:
                        told.append(one.remove(ids) if kind == "remove" else one.add(packed[: len(ids)], ids))
                    except ValueError as error:
                        told.append(str(error))
                assert told[0] == told[1]
            assert_alike(store, index, queries, chances, [k], [radius])
            store.verify()
        finally:
            store.drop()


# Conditions on other tables


@pytest.fixture
def shop(conninfo, connection, name, request):
    """A store, the same index, and a table of goods in a schema of its own; some items have no row there."""
    packed, ids, queries, chances = clustered(16, 400)
    connection.execute('CREATE SCHEMA "my shop"')
    connection.execute('CREATE TABLE "my shop"."item" ("the id" bigint PRIMARY KEY, price int, code text, note text)')
    goods = [(int(number), place % 50, f"c{place % 7}", "{50%}") for place, number in enumerate(ids[:350])]
    connection.cursor().executemany('INSERT INTO "my shop"."item" VALUES (%s, %s, %s, %s)', goods)
    with PostgresIndex.build(
        conninfo, name, packed, ids, n_bits=16, schema="my shop", table=("my shop", "item"), key="the id"
    ) as store:
        yield store, packed, ids, queries, chances
    connection.execute('DROP SCHEMA "my shop" CASCADE')


@pytest.mark.parametrize("known", [0, 5000])
@pytest.mark.parametrize(
    ("where", "params", "keep"),
    [
        ("price < %s", [10], lambda price, kind: price < 10),
        ("item.price = %s AND (item.code = %s)", (3, "c3"), lambda price, kind: price == 3 and kind == 3),
        ("code = ANY(%s) AND note LIKE '{%%' AND note = '{50%%}'", [["c1", "c2"]], lambda price, kind: kind in (1, 2)),
        ("price < 0 OR code = 'nothing'", [], lambda price, kind: False),
    ],
)
def test_conditions_on_a_table(shop, where, params, keep, known):
    store, packed, ids, queries, chances = shop
    believe(store, known)
    kept = [place for place in range(350) if keep(place % 50, place % 7)]
    index = HammingIndex.build(packed[kept], ids[kept], n_bits=16)
    assert_alike(store, index, queries, chances, (1, 5, 100), (0, 3), where=where, params=params)
    some = ids[kept][::2].tolist()
    found = store.search(queries, 5, allowed=[*some, 77], where=where, params=params)
    assert_same(found, index.search(queries, 5, allowed=some))
    assert store.search(queries[:0], 10**6, where=where, params=params).ids.shape == (0, len(kept))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "price < %s"}, "where has 1 %s and params has 0 values"),
        ({"where": "price < 1", "params": [1]}, "where has 0 %s and params has 1 values"),
        ({"where": "price < %d", "params": [1]}, "has '%d'"),
        ({"where": "note LIKE '5%'"}, "write %s for a value, and %% for a per cent sign"),
        ({"where": "price < %s", "params": "1"}, "params='1'; give a list"),
        ({"where": "price < %(a)s", "params": {"a": 1}}, "give a list"),
        ({"where": "  "}, "give a SQL condition"),
        ({"where": 3}, "where=3"),
        ({"params": [3]}, "without where"),
        ({"where": "prize < 3"}, 'column "prize" does not exist'),
        ({"where": "price <"}, "is refused: syntax error"),
        ({"where": "price < %s", "params": ["x"]}, "invalid input syntax"),
    ],
)
def test_wrong_conditions(shop, arguments, message):
    store, _, _, queries, _ = shop
    with pytest.raises(ValueError, match=re.escape(message)):
        store.search(queries, **arguments)
    assert store.search(queries, 3).ids.shape == (4, 3)


def test_values_never_become_statements(shop):
    store, _, _, queries, _ = shop
    found = store.search(queries, 3, where="note = %s", params=["'); DROP TABLE item; --"])
    assert found.ids.shape == (4, 0)
    assert len(store) == 400


def test_a_condition_needs_a_table(conninfo, name, connection):
    query = np.zeros((1, 1), np.uint8)
    with PostgresIndex.create(conninfo, name, n_bits=8) as store:
        with pytest.raises(ValueError, match="opened without table"):
            store.search(query, where="true")
        with (
            PostgresIndex.open(conninfo, name, table="nowhere") as lost,
            pytest.raises(StoreError, match='"nowhere" does not exist'),
        ):
            lost.search(query, where="true")
        store.drop()


# Writers beside each other


def test_writers_at_the_same_time_count_right(conninfo, name):
    """Many writers with the same few codes and ids in any order; nobody waits for ever, and nothing is miscounted."""
    store = PostgresIndex.create(conninfo, name, n_bits=8, lock_timeout=30)
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
    store.verify()
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
            with store._view(WRITING) as view:
                asking.remove(view, *asking.some(view, np.array([7]), relations.LOCK_ITEMS))
                asking.add(view, np.array([[value]], np.uint8), np.array([7]))

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
    store.verify()
    store.drop()


# All or nothing


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

    packed, ids, queries, _ = clustered(16)
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
    assert_same(store.items(), before)
    store.verify()
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
    with pytest.raises(ValueError, match="nothing"):
        PostgresIndex.build(conninfo, name, np.zeros((5, 2), np.uint8))
    assert connection.execute("SELECT to_regclass(%s)", (quoted(f"{name}_items"),)).fetchone() == (None,)


def test_ids_in_the_store_already(conninfo, name):
    packed = np.arange(20, dtype=np.uint8)[:, None]
    with PostgresIndex.build(conninfo, name, packed) as store:
        before = store.items()
        with pytest.raises(ValueError, match=r"ids has 19, which is in the index already \(2 such\)"):
            store.add(packed[:3], [50, 19, 3])
        assert_same(store.items(), before)
        with pytest.raises(ValueError, match="is a store, or a table of one, already"):
            PostgresIndex.build(conninfo, name, packed)
        assert len(store) == 20
        store.drop()


def test_a_locked_table(conninfo, name):
    import psycopg

    with PostgresIndex.build(conninfo, name, np.zeros((3, 2), np.uint8), lock_timeout=0.2) as store:
        with psycopg.connect(conninfo) as other:
            other.execute(f"LOCK TABLE {quoted(name + '_items')}")
            for ask in (lambda: store.add(np.zeros((1, 2), np.uint8), [9]), lambda: store.remove([0]), store.items):
                with pytest.raises(LockedError, match=r"more than lock_timeout=0\.2 seconds"):
                    ask()
        assert len(store) == 3
        store.drop()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


# What is refused


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


def test_a_store_that_is_not_there(conninfo, name):
    with pytest.raises(UnknownStoreError, match=f"there is no store {re.escape(repr(name))}"):
        PostgresIndex.open(conninfo, name)
    store = PostgresIndex.create(conninfo, name, n_bits=8)
    other = PostgresIndex.open(conninfo, name)
    other.drop()
    with pytest.raises(UnknownStoreError, match="there is no store"):
        store.search(np.zeros((1, 1), np.uint8))
    with pytest.raises(UnknownStoreError, match="there is no store"):
        store.add(np.zeros((1, 1), np.uint8), [1])
    store.close()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lock_timeout": 0}, ValueError, "lock_timeout=0"),
        ({"lock_timeout": "1"}, ValueError, "lock_timeout='1'"),
        ({"engine": "faiss"}, TypeError, "'engine' is no option"),
        ({"schema": ""}, ValueError, "schema=''"),
        ({"table": 5}, ValueError, "table=5"),
        ({"table": ("a", "b" * 64)}, ValueError, "table="),
        ({"table": "a", "key": "\0"}, ValueError, "key="),
        ({"tables": "a"}, TypeError, "'tables' is no option"),
        ({"schema": "nowhere"}, ValueError, 'schema "nowhere" does not exist'),
    ],
)
def test_wrong_options(conninfo, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        PostgresIndex.create(conninfo, "refused", n_bits=8, **options)


@pytest.mark.parametrize("name", ["", "a" * 58, "a\0b", 5])
def test_wrong_names(conninfo, name):
    with pytest.raises(ValueError, match="name="):
        PostgresIndex.open(conninfo, name)


def test_wrong_arguments(conninfo, name):
    for n_bits in (0, 1025, 1.5, "8", True):
        with pytest.raises(ValueError, match="n_bits="):
            PostgresIndex.create(conninfo, name, n_bits=n_bits)
    packed = packing.pack(np.zeros((3, 12), int))
    index = HammingIndex.build(packed, n_bits=12, model="abcdef")
    with PostgresIndex.from_index(conninfo, name, index) as store:
        asked = [
            lambda one: one.search(packed[:, :1]),
            lambda one: one.search(packed.astype(int)),
            lambda one: one.search(packed | 1),
            lambda one: one.search(packed, -1),
            lambda one: one.search(packed, 1.5),
            lambda one: one.search(packed, model="other"),
            lambda one: one.within(packed, -1),
            lambda one: one.within(packed, model="other"),
            lambda one: one.search_expected(np.full((1, 11), 0.5)),
            lambda one: one.search_expected(np.full((1, 12), np.nan)),
            lambda one: one.search_expected(np.full((1, 12), 0.5), model="other"),
            lambda one: one.iterate(np.full((1, 12), 0.5)),
            lambda one: one.iterate(np.full(12, 2)),
            lambda one: one.add(packed, [7, 8, 8]),
            lambda one: one.add(packed, [7, 8]),
            lambda one: one.add(packed, [7, 8, 2**63]),
            lambda one: one.add(packed, [7, 8, 9], model="other"),
            lambda one: one.remove([0.5]),
            lambda one: one.codes_of(["a"]),
            lambda one: one.search(packed, allowed=np.ones(2, bool)),
            lambda one: one.search(packed, allowed=[1.5]),
            lambda one: one.search(packed, allowed=[0, 1, 1]),
            lambda one: one.search(packed, allowed=Where([1], 1)),
        ]
        for ask in asked:
            with pytest.raises((ValueError, TypeError)) as theirs:
                ask(index)
            with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value))):
                ask(store)
        assert len(store) == 3
        assert store.search(packed, 1, model="abcdef").ids.tolist() == [[0]] * 3
        store.drop()


# Versions


def test_versions(conninfo, name, monkeypatch):
    with PostgresIndex.build(conninfo, name, np.zeros((3, 2), np.uint8)) as store:
        assert store.meta.version == relations.VERSION
        for known, instead in ((relations.VERSION + 1, "load it again"), (relations.VERSION - 1, "update it")):
            monkeypatch.setattr(relations, "VERSION", known)
            with pytest.raises(FormatError, match=f"this gphash knows {known}, .*{instead}"):
                PostgresIndex.open(conninfo, name)
        store.drop()


def test_wrong_counts_are_told(conninfo, connection, name):
    with PostgresIndex.build(conninfo, name, np.zeros((3, 2), np.uint8)) as store:
        connection.execute(f"DELETE FROM {quoted(name + '_items')} WHERE id = 1")
        with pytest.raises(FormatError, match="wrong count for 1 codes"):
            store.verify()
        store.drop()


# Other servers and tables


def documented(word):
    """The statements of docs/stores.md whose block begins with a remark that has the word."""
    blocks = re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if word in block.splitlines()[0]]
    return found


def test_partitioned_tables_as_documented(conninfo, connection, looking_up):
    packed, ids, queries, chances = clustered(32)
    index = HammingIndex.build(packed, ids)
    PostgresIndex.create(conninfo, "photos", n_bits=32).close()
    connection.execute(documented("partitioned"))
    with PostgresIndex.open(conninfo, "photos") as store:
        store.add(packed, ids)
        for one in (store, index):
            assert one.remove(ids[:40]) == 40
        store.tidy()
        for known in (0, 400, None):
            if known is not None:
                believe(store, known)
            else:
                store._looked = -1e9
            assert_alike(store, index, queries, chances, (1, 10, 500), (0, 2, 9))
        assert store._sizes == (index.stats().n_codes, len(index))
        assert store.stats()[:4] == index.stats()[:4]
        assert store.stats().bytes > 8 * 8192
        store.verify()
        with pytest.raises(ValueError, match="in the index already"):
            store.add(packed[50:51], ids[50:51])
        store.drop()


def test_an_address_opens_it_and_any_ranking_orders_it(conninfo):
    class Reversed(Ranking):
        descending = True

        def scores(self, query, packed, n_bits):
            return HAMMING.scores(query, packed, n_bits).astype(float)

    packed, ids, queries, _ = clustered(20)
    index = HammingIndex.build(packed, ids, n_bits=20)
    PostgresIndex.from_index(conninfo, "addressed", index).close()
    host = conninfo.split()[0].removeprefix("host=").replace("/", "%2F")
    with open_index(f"postgresql://gphash@{host}/postgres#addressed") as store:
        assert_same(store.search(queries, 5, ranking=Reversed()), index.search(queries, 5, ranking=Reversed()))
        store.drop()


def test_the_package_offers_it():
    assert gphash.PostgresIndex is PostgresIndex


def test_without_psycopg_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "gphash.index.postgres.database")
    with pytest.raises(ImportError, match="pip install 'psycopg"):
        import gphash.index.postgres.database  # noqa: F401
