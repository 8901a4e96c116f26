"""A collection in PostgreSQL gives what the folder gives that it was copied from, whoever else is writing."""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash import GPHasher
from gphash.collection import copying
from gphash.collection.collection import Collection
from gphash.collection.records import Query, UnknownItemError
from gphash.collection.rows import KnownKeyError
from gphash.container import FormatError
from gphash.files import LockedError
from tests import digits
from tests.collection import sources

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from gphash.collection import postgres_store, stores
from gphash.index.postgres import queries
from gphash.index.postgres.database import StoreError, UnknownStoreError

N = 240
ODD = 'my "odd" {col} 50%s'
TEXTS = ["a", "B", "ab", "a%b", "a_b", "a\\b", "ä", "Ä", "", "3", "it's", None]
RNG = np.random.default_rng(0)


def said():
    """Of every kind of column, with gaps."""
    rng = np.random.default_rng(1)
    return {
        "key": [f"sku-{number}" for number in range(N)],
        "tags": [["even" if row % 2 == 0 else "odd", f"t{row % 7}"] if row % 5 else None for row in range(N)],
        "title": [TEXTS[place] for place in rng.integers(0, len(TEXTS), N)],
        "price": [
            None if row % 11 == 0 else round(float(value), 2) for row, value in enumerate(rng.random(N) * 20 - 5)
        ],
        "stock": [None if row % 13 == 0 else int(value) for row, value in enumerate(rng.integers(-4, 9, N))],
        ODD: [TEXTS[place] for place in rng.integers(0, len(TEXTS), N)],
    }


@pytest.fixture(scope="module")
def rows():
    return sources.of_digits().X[:N]


@pytest.fixture(scope="module")
def home(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("shop")
    Collection.create(folder / "shop.gphash", sources.hasher(), rows, said()).close()
    return folder / "shop.gphash"


@pytest.fixture(scope="module")
def place(conninfo):
    host = conninfo.split()[0].removeprefix("host=")
    return f"postgresql://gphash@/postgres?host={host}&collection="


@pytest.fixture(scope="module")
def both(home, place):
    """The same collection in a folder and in a database."""
    assert copying.to_database(home, f"{place}shop") == N
    with Collection.open(home) as folder, Collection.open(f"{place}shop") as there:
        yield folder, there
    postgres_store.PostgresStore.open(f"{place}shop", writable=True).drop()


@pytest.fixture
def own(home, place, request):
    """One of the test's own in the database, to be changed, and its address."""
    address = f"{place}own {request.node.name[:30]} 5%25"
    copying.to_database(home, address)
    with Collection.open(address, writable=True) as there:
        yield there, address
        there._store.drop()


# The same words, the same answers


numbers = st.sampled_from(["price", "stock", "-price", "abs(stock)", "length(title)", "stock + 1", "price * 2"])
numbers |= st.sampled_from(
    ["stock / 2", "stock / 0", "coalesce(price, stock)", "3", "2.5", "-1", "'3'", "null", "7 / 2"]
)
texts = st.sampled_from(
    ["title", "tags", "key", f'"{ODD.replace(chr(34), 2 * chr(34))}"', "lower(title)", "upper(title)"]
)
texts |= st.sampled_from(["title || 'b'", "'a'", "'ä'", "''", "'it''s'", "coalesce(title, 'none')", "null"])
signs = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
patterns = st.sampled_from(["'a%'", "'%b'", "'_'", "'a\\%'", "'%\\\\%'", "title", "'A%'", "'%'"])


def written(*parts):
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map(" ".join)


compared = (
    written(numbers, signs, numbers)
    | written(texts, signs, texts)
    | written(texts, st.sampled_from(["like", "not like"]), patterns)
    | written(numbers | texts, st.sampled_from(["is null", "is not null"]))
    | written(numbers, st.sampled_from(["between", "not between"]), numbers, "and", numbers)
    | written("title", st.sampled_from(["in", "not in"]), "(", texts, ",", texts, ")")
    | written("stock in (", numbers, ",", numbers, ")")
    | st.sampled_from(["stock", "price", "null"])
)
conditions = st.recursive(
    compared,
    lambda inner: (
        written("(", inner, ")") | written("not", inner) | written(inner, st.sampled_from(["and", "or"]), inner)
    ),
    max_leaves=5,
)


def test_any_condition_means_the_same(both):
    folder, there = both
    query = Query(np.frombuffer(folder._shown.row("sku-0").code, np.uint8), None)

    @settings(max_examples=250)
    @given(where=conditions)
    def check(where):
        wanted, told = asked(folder, query, where)
        assert (wanted, told) == asked(there, query, where)

    check()


def asked(collection, query, where):
    try:
        return collection.search(query, N, where=where), None
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("few", [0, 10**6])
def test_searches_are_those_of_the_folder(both, rows, monkeypatch, few):
    """Few items that pass are ranked here, and many by the server."""
    monkeypatch.setattr(queries, "FEW", few)
    folder, there = both
    for narrowed in (
        {},
        {"where": "price < ? and title like 'a%'", "params": [10]},
        {"where": "stock = ?", "params": [True]},
        {"label": "even"},
        {"label": "t3", "where": "price between 3 and 9"},
        {"radius": 1},
        {"ranking": "expected"},
        {"ranking": "expected", "label": "odd"},
        {"ranking": "expected", "radius": 2, "where": "not stock = 3"},
    ):
        assert there.search(rows[5:9], 7, **narrowed) == folder.search(rows[5:9], 7, **narrowed), narrowed
        assert there.search(rows[5], 500, **narrowed) == folder.search(rows[5], 500, **narrowed), narrowed
    assert there.buckets(5) == folder.buckets(5)
    assert there.classes == folder.classes
    assert there.columns == folder.columns
    assert there.random_key(3) == folder.random_key(3)
    keys = ["sku-7", "sku-3"]
    assert there.items(keys) == folder.items(keys)
    assert len(there) == len(folder) == N
    assert there.search(there.query(key="sku-3"), 5) == folder.search(folder.query(key="sku-3"), 5)


def test_there_and_back(both, place, tmp_path, rows):
    folder, _ = both
    assert copying.to_folder(f"{place}shop", tmp_path / "again.gphash") == N
    with Collection.open(tmp_path / "again.gphash", writable=True) as again:
        assert again.items(said()["key"]) == folder.items(said()["key"])
        assert again.search(rows[:4], 9) == folder.search(rows[:4], 9)
        assert (again.layout, again.classes, again.name) == (folder.layout, folder.classes, folder.name)
        again.remove(said()["key"])
    with pytest.raises(FileExistsError, match="replace=True"):
        copying.to_folder(f"{place}shop", tmp_path / "again.gphash")
    copying.to_database(tmp_path / "again.gphash", f"{place}empty")
    with Collection.open(f"{place}empty", writable=True) as empty:
        assert (len(empty), empty.layout.keys, empty.search(rows[:1], 3)) == (0, "text", [[]])
        empty._store.drop()


def test_numbers_and_pictures_are_kept(place, tmp_path, rows):
    with Collection.create(tmp_path / "a.gphash", sources.hasher(), rows[:5], writable=True) as made:
        made.remove([4])
    copying.to_database(tmp_path / "a.gphash", f"{place}numbered")
    with Collection.open(f"{place}numbered", writable=True) as there:
        assert there.add(rows[:2]) == [5, 6]
        assert there.add(rows[:1], [{"key": 20}]) == [20]
        assert there.add(rows[:1]) == [21]
        there.remove([21])
        copying.to_folder(f"{place}numbered", tmp_path / "b.gphash")
        with Collection.open(tmp_path / "b.gphash", writable=True) as again:
            assert again.add(rows[:1]) == there.add(rows[:1]) == [22]
        there._store.drop()


# Changes


def test_changes_are_all_or_nothing(own, rows):
    there, address = own
    with Collection.open(address) as reader:
        assert there.add(rows[:2], {"key": ["x", "y"], "tags": [["new"], None], "price": [1, 2]}) == ["x", "y"]
        assert reader.item("x").labels == ("new",)
        assert "new" in reader.classes
        for keys in (["z", "x"], ["sku-0", "z"]):
            with pytest.raises(KnownKeyError):
                there.add(rows[:2], {"key": keys})
        with pytest.raises(UnknownItemError):
            there.item("z")
        there.remove(["x", "sku-3"])
        assert len(reader) == N
        with pytest.raises(UnknownItemError):
            reader.item("x")
        # The same key with other values: nobody remembers the old ones.
        there.add(rows[50:51], {"key": ["x"], "title": ["another"]})
        assert reader.search(rows[50], 1, where="key = 'x'")[0].values["title"] == "another"
        with pytest.raises(ValueError, match="was opened read-only"):
            reader.add(rows[:1], {"key": ["w"]})


def test_writers_at_the_same_time(own, rows, connection):
    there, address = own
    failed, won = [], []

    def write(writer):
        rng = np.random.default_rng(writer)
        try:
            with Collection.open(address, writable=True) as mine:
                for turn in range(6):
                    keys = [f"{writer}-{turn}-{number}" for number in range(4)]
                    mine.add(rows[:4], {"key": keys, "tags": [[f"c{turn}", f"c{writer}"]] * 4})
                    shared = [f"shared {number}" for number in rng.permutation(3)]
                    try:
                        mine.add(rows[:3], {"key": shared})
                        won.append(writer)
                        mine.remove(shared)
                    except (KnownKeyError, UnknownItemError):
                        pass
                    mine.remove(keys[:2])
                    assert len(mine.search(rows[:2], 3)) == 2
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert won
    assert len(there) == N + 4 * 6 * 2
    stats = there.index.stats()
    packed, ids = there.index.items()
    assert (stats.n_items, stats.n_codes) == (len(ids), len(np.unique(packed, axis=0)))


def test_a_killed_copy_leaves_nothing(home, place, connection):
    program = """
        import sys, time
        from gphash.collection import copying
        def tell(done, total):
            print("sent", flush=True)
            time.sleep(60)
        copying.to_database(sys.argv[1], sys.argv[2], tell)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(home), f"{place}killed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGKILL)
    find = "SELECT count(*) FROM pg_class WHERE relname LIKE 'killed%'"
    end = time.monotonic() + 10
    while connection.execute(find).fetchone() != (0,) and time.monotonic() < end:
        time.sleep(0.05)
    assert connection.execute(find).fetchone() == (0,)
    assert copying.to_database(home, f"{place}killed") == N
    with pytest.raises(ValueError, match="of that name already"):
        copying.to_database(home, f"{place}killed")
    postgres_store.PostgresStore.open(f"{place}killed", writable=True).drop()
    assert connection.execute(find).fetchone() == (0,)


# Errors in one sentence


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("postgresql://me:secret@127.0.0.1:1/shop?collection=a", ConnectionError, "PostgreSQL cannot be reached"),
        ("postgresql://me:secret@[/shop?collection=a", ValueError, "address of the collection cannot be read"),
        ("postgresql://me:secret@℀.com/shop?collection=a", ValueError, "address of the collection cannot be read"),
        ("postgresql://me:secret@localhost/shop", ValueError, "names no collection"),
        ("postgresql://me:secret@localhost/shop?collection=a&colour=secret", ValueError, "no connection string"),
    ],
)
def test_wrong_addresses_never_show_a_password(address, error, message):
    with pytest.raises(error, match=message) as caught:
        Collection.open(address)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_goes_wrong_is_told(own, place, connection, rows):
    there, address = own
    with pytest.raises(UnknownStoreError, match="there is no collection 'nothing' in the database"):
        Collection.open(f"{place}nothing")
    name = stores.address(address)[1]
    with psycopg.connect(connection.info.dsn) as other:
        other.execute(f'LOCK TABLE "{name}_items"')
        there.index._server._lock_timeout = 0.2
        there.index._server.close()
        for ask in (lambda: there.search(rows[0]), lambda: there.add(rows[:1], {"key": ["n"]}), there._store.drop):
            with pytest.raises(LockedError, match="somebody else held a lock"):
                ask()
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gphash'")
    assert len(there) == N  # on another connection
    connection.execute(f"""UPDATE "{name}_collection" SET told = told || '{{"format": 2}}'""")
    with pytest.raises(FormatError, match="has format 2, newer than 1: use a newer gphash"):
        Collection.open(address)
    connection.execute(f"""UPDATE "{name}_collection" SET told = told || '{{"format": 1, "keys": "odd"}}'""")
    with pytest.raises(FormatError, match="the field 'keys' is 'odd'"):
        Collection.open(address)


def test_one_that_was_replaced_is_not_written_to(home, place, rows):
    address = f"{place}replaced"
    copying.to_database(home, address)
    with Collection.open(address, writable=True) as old:
        postgres_store.PostgresStore.open(address, writable=True).drop()
        copying.to_database(home, address)
        for change in (lambda: old.add(rows[:1], {"key": ["n"]}), lambda: old.remove(["sku-1"])):
            with pytest.raises(StoreError, match="has been replaced since it was opened"):
                change()
    postgres_store.PostgresStore.open(address, writable=True).drop()


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_vectors_are_copied_changed_and_fetched(place, tmp_path, rows, metric):
    path, address = tmp_path / "kept.gphash", f"{place}kept_{metric}"
    Collection.create(path, sources.hasher(), rows, said(), vectors="float16", metric=metric).close()
    with Collection.open(path, writable=True) as folder:  # vectors that no part has yet
        folder.remove(["sku-3", "sku-4"])
        folder.add(sources.of_digits().X[N : N + 5], {"key": [f"late-{row}" for row in range(5)]})
    copying.to_database(path, address)
    more = sources.of_digits().X[N + 5 : N + 15]
    with Collection.open(path, writable=True) as folder, Collection.open(address, writable=True) as there:
        assert there.vectors == folder.vectors == ("float16", metric)
        for one in (folder, there):
            one.remove(["sku-7", "late-2"])
            one.add(more, {"key": [f"new-{row}" for row in range(10)]})
        for query in (more[0], more[:3], folder.query(key="sku-8"), folder.query(key="new-4")):
            assert there.search(query, 9, rerank=100) == folder.search(query, 9, rerank=100)
        np.testing.assert_array_equal(there.query(key="new-4").features, folder.query(key="new-4").features)
        copying.to_folder(address, tmp_path / "back.gphash")
        with Collection.open(tmp_path / "back.gphash") as back:
            assert back.search(more[:4], 9, rerank=100, where="price < 9") == folder.search(
                more[:4], 9, rerank=100, where="price < 9"
            )
        with there._store.index.view() as view:
            view.rows("UPDATE {vectors} SET content = set_byte(content, 20, 255 - get_byte(content, 20))")
        with pytest.raises(FormatError, match="is damaged: the vector of"):
            there.search(more[0], rerank=100)
    postgres_store.PostgresStore.open(address, writable=True).drop()
    with pytest.raises(UnknownStoreError):
        Collection.open(address)


@pytest.mark.parametrize("kind", ["labels", "tags", "pairs"])
def test_hits_are_as_probable_as_in_the_folder(tmp_path, place, rows, kind):
    """P(similar) of labels, tags and pairs: the same keys and the same numbers, whatever the query is."""
    taught = {"labels": digits.y, "tags": digits.tags, "pairs": digits.pairs(400, 6000)}[kind]
    model = GPHasher(**digits.QUICK).fit(digits.X[:400], taught if kind == "pairs" else taught[:400])
    Collection.create(tmp_path / f"{kind}.gphash", model, digits.X[400:700]).close()
    copying.to_database(tmp_path / f"{kind}.gphash", f"{place}{kind}")
    with Collection.open(tmp_path / f"{kind}.gphash") as folder, Collection.open(f"{place}{kind}") as there:
        for cut in ({}, {"min_probability": 0.4}, {"radius": 2}):
            asked = [row for row in digits.X[700:710]]
            for query in (*asked, folder.query(key=17)._replace(classes=None, probabilities=None)):
                near, far = (one.search(query, 40, ranking="similarity", **cut) for one in (folder, there))
                assert [(hit.key, hit.probability) for hit in far] == [(hit.key, hit.probability) for hit in near]
        chances = [hit.probability for hit in there.search(digits.X[700], 300)]
        assert chances == sorted(chances, reverse=True)
        expected = model.similarity_probability(digits.X[700:701], model.encode(digits.X[400:700]))
        np.testing.assert_allclose(chances, np.sort(expected[0])[::-1], atol=1e-6)
