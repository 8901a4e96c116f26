"""Collections in a real PostgreSQL from the command line: store, fetch, drop, and what takes folders and addresses."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from gphash.collection.collection import Collection
from gphash.data import sources
from tests.cli.running import ENVIRONMENT, inside, started

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

MADE = ("collection", "pictures", "tags", "classes", "items", "codes", "meta")


@pytest.fixture(scope="module")
def url(conninfo):
    """The address of a collection, but for its name."""
    parts = dict(part.split("=", 1) for part in conninfo.split())
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&collection="


@pytest.fixture
def run(made, monkeypatch):
    """Run a command within this process, in the folder of the model and the collection."""
    monkeypatch.chdir(made)

    def run(*arguments, code=0):
        found = inside(*arguments)
        assert found.exit_code == code, found.output
        if code == 1:
            assert len(found.stderr.splitlines()) == 1
            assert found.stdout == ""
        return found

    return run


@pytest.fixture
def stored(run, url):
    """The digits in a collection that is gone afterwards."""
    run("store", "digits.gphash", f"{url}numbers", "-q")
    yield f"{url}numbers"
    if inside("info", f"{url}numbers").exit_code == 0:
        run("drop", f"{url}numbers", "--yes")


def answer(run, *arguments):
    found = run(*arguments, "--json", "--quiet")
    assert found.stderr == ""
    return json.loads(found.stdout)


def tables(connection, name):
    found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"{name}\\_%",))
    return {table.removeprefix(f"{name}_") for (table,) in found}


def test_from_storing_to_dropping(made, url, connection):
    where, address = {"cwd": made}, f"{url}digits"
    said = started("store", "digits.gphash", address, **where).stdout
    assert said == f"copied 1,797 items into {address}\n"
    assert tables(connection, "digits") == set(MADE)
    kept = started("drop", address, input="n\n", code=1, **where)
    assert kept.stderr.endswith(
        "drop the collection 'digits' and its 1,797 items? [y/N]\ngphash: nothing was dropped.\n"
    )
    assert "give --yes" in started("drop", address, stdin=subprocess.DEVNULL, code=2, **where).stderr
    gone = started("drop", address, input="y\n", **where)
    assert gone.stdout == f"dropped {address} and its 1,797 items\n"
    assert tables(connection, "digits") == set()


def test_info_is_that_of_the_folder(run, stored):
    there, here = answer(run, "info", stored), answer(run, "info", "digits.gphash")
    assert there.pop("collection") == stored
    assert {name: value for name, value in here.items() if name in there} == there
    assert set(here) - set(there) == {"collection", "bytes", "parts"}


QUERIES = [
    ("key:7", "-k", 5),
    ("key:7", "-k", 5, "--ranking", "expected"),
    ("nine.npy", "-k", 2000),
    ("nine.npy", "-k", 300, "--radius", 1),
    ("nine.npy", "-k", 5, "--ranking", "expected"),
    ("nine.npy", "-k", 5, "--ranking", "expected", "--radius", 0),
    ("nine.npy", "--label", 3),
    ("nine.npy", "--where", "label = ?", "--param", 3),
    ("nine.npy", "--where", "label = ? or key < ?", "--param", 3, "--param", 900),
    ("nine.npy", "--where", "key between 100 and ? and label in ('1', '2')", "--param", 200, "-k", 100),
    ("nine.npy", "--where", "title is null and not label = '5'", "--label", 4),
    ("nine.npy", "--where", "label = 'none'"),
    ("random", "--seed", 3, "-k", 4),
]


@pytest.mark.parametrize("words", QUERIES, ids=lambda words: " ".join(map(str, words)))
def test_what_is_found_is_what_the_folder_finds(run, made, stored, words):
    np.save(made / "nine.npy", sources.read("digits:test").X[:9])
    there, here = (answer(run, "search", place, *words) for place in (stored, "digits.gphash"))
    assert there == here


def test_people_read_the_same_table(run, stored):
    words = ("key:7", "-k", 3, "--label", 1)
    assert run("search", stored, *words).stdout == run("search", "digits.gphash", *words).stdout
    assert "nothing was found" in run("search", stored, "key:7", "--where", "label = 'none'").stdout


def test_pictures_are_shown(run, stored, tmp_path):
    run("search", stored, "key:7", "-k", 3, "--show", tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_items_are_added_and_removed(run, stored):
    assert answer(run, "add", stored, "digits:test")["keys"] == list(range(1797, 2297))
    assert answer(run, "remove", stored, 3, 1800) == {"collection": stored, "removed": 2, "items": 2295}
    assert "there is no item 3." in run("remove", stored, 4, 3, code=1).stderr
    assert "'x' is no key; the keys of this collection are whole numbers" in run("remove", stored, "x", code=2).stderr
    assert answer(run, "compact", stored)["items"] == answer(run, "info", stored)["items"] == 2295
    found = answer(run, "search", stored, "key:1797", "-k", 3000)["results"][0]["neighbours"]
    assert {one["key"] for one in found} == set(range(2297)) - {3, 1797, 1800}


def test_there_and_back(run, stored, tmp_path):
    run("add", stored, "digits:test", "-q")
    run("remove", stored, 5)
    back = tmp_path / "back.gphash"
    assert answer(run, "fetch", stored, back) == {"collection": str(back), "items": 2296}
    assert "or pass --replace to replace it." in " ".join(run("fetch", stored, back, code=2).stderr.split())
    run("remove", stored, 6)
    assert run("fetch", stored, back, "--replace").stdout == f"wrote {back}: 2,295 items\n"
    for words in (("key:7", "-k", 3000, "--ranking", "expected"), ("key:2000", "--where", "label <> '3'")):
        assert answer(run, "search", back, *words) == answer(run, "search", stored, *words)
    with Collection.open(back) as here, Collection.open(stored) as there:
        for key in (7, 2000):
            assert here.item(key) == there.item(key)
            assert here.picture(key) == there.picture(key)


def test_texts_as_keys_and_columns_of_ones_own(run, made, url, tmp_path):
    X = sources.read("digits").X[:100]
    items = [
        {"key": f"sku-{n}", "label": "ab"[n % 2], "text": f"{n:03d}", "title": f"50% of {n}", "price": n / 2}
        for n in range(100)
    ]
    Collection.create(tmp_path / "shop.gphash", made / "digits-8.gph", X, items=items).close()
    address = f"{url}shop"
    run("store", tmp_path / "shop.gphash", address)
    try:
        words = (
            "key:sku-7",
            "--where",
            "price < ? and title like '50% of 1%' and label = ?",
            "--param",
            8,
            "--param",
            "b",
        )
        there, here = (answer(run, "search", place, *words) for place in (address, tmp_path / "shop.gphash"))
        assert there == here
        found = there["results"][0]["neighbours"]
        assert {one["key"] for one in found} == {"sku-1", "sku-11", "sku-13", "sku-15"}
        assert all(one["values"]["price"] < 8 for one in found)
        exact = answer(run, "search", address, "key:sku-7", "--where", "text = ?", "--param", "012")
        assert [one["key"] for one in exact["results"][0]["neighbours"]] == ["sku-12"]
        line = run("search", address, "key:sku-7", "-k", 1).stdout.splitlines()[2]
        assert "50% of " in line
        assert answer(run, "info", address)["columns"][-1] == "price"
        assert answer(run, "remove", address, "sku-1", "sku-1")["items"] == 99
        assert "there is no item 'sku-1'." in run("search", address, "key:sku-1", code=1).stderr
        assert "has no keys; this collection has texts as keys" in run("add", address, "digits:test", code=1).stderr
    finally:
        run("drop", address, "--yes")


def test_a_schema_of_ones_own(run, url, connection):
    connection.execute('CREATE SCHEMA "codes of"')
    address = f"{url}digits&schema=codes%20of"
    run("store", "digits.gphash", address)
    assert connection.execute('SELECT count(*) FROM "codes of".digits_items').fetchone() == (1797,)
    assert "there is no collection 'digits' in the database" in run("info", f"{url}digits", code=1).stderr
    assert answer(run, "info", address)["items"] == 1797
    run("drop", address, "--yes")
    connection.execute('DROP SCHEMA "codes of"')


def test_the_server_by_variables_of_libpq(made, conninfo, stored):
    parts = dict(part.split("=", 1) for part in conninfo.split())
    variables = {"PGHOST": parts["host"], "PGDATABASE": parts["dbname"], "PGUSER": parts["user"]}
    found = started("info", "postgresql://?collection=numbers", cwd=made, env=ENVIRONMENT | variables)
    assert "items           1,797\n" in found.stdout
    del variables["PGDATABASE"]
    named = started(
        "info", f"postgresql:///{parts['dbname']}?collection=numbers", cwd=made, env=ENVIRONMENT | variables
    )
    assert named.stdout.splitlines()[1:] == found.stdout.splitlines()[1:]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("store none.gphash {}other", 1, "none.gphash' is not there; give the folder of a collection."),
        ("store digits-8.gph {}other", 1, "digits-8.gph' is a file; give the folder of a collection."),
        (
            "store digits.gphash {}numbers",
            1,
            "'numbers': the database has a collection, or a table, of that name",
        ),
        ("store digits.gphash {}other&schema=nowhere", 1, 'schema "nowhere" does not exist'),
        ("store digits.gphash other", 1, "the address names no collection; give postgresql://USER@HOST/DATABASE?coll"),
        ("info {}other", 1, "there is no collection 'other' in the database"),
        ("drop {}other --yes", 1, "there is no collection 'other' in the database"),
        ("fetch {}other new.gphash", 1, "there is no collection 'other' in the database"),
        ("fetch {}numbers digits-8.gph", 2, "COLLECTION 'digits-8.gph' is a file; give the name of a folder."),
        ("fetch {}numbers .", 2, "COLLECTION '.' has other files"),
        ("search {}numbers key:9999", 1, "there is no item 9999."),
        ("search {}numbers wide.npy", 1, "give one row of 64 numbers"),
        ("search {}numbers key:7 --where prize<3", 1, "the columns are key, label"),
        ("search {}numbers key:7 --where label<key", 1, "--where 'label<key' compares texts with numbers"),
        (
            "search {}numbers key:7 --where label<",
            1,
            "--where 'label<' ends too early; give one whole condition",
        ),
        ("add {}numbers wide.npy", 1, "has 5 features a row"),
    ],
)
def test_errors_say_what_to_do(run, made, url, stored, arguments, code, message):
    np.save(made / "wide.npy", np.random.default_rng(0).normal(size=(20, 5)))
    before = sorted(path.name for path in made.iterdir())
    found = run(*arguments.format(url).split(), code=code)
    assert message in " ".join(found.stderr.split())
    assert sorted(path.name for path in made.iterdir()) == before


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:secret@127.0.0.1:1/shop?collection=a",
        "postgresql://me:secret@127.0.0.1:1/shop",
        "postgresql://me:secret@[/shop?collection=a",
        "postgresql://me@127.0.0.1:1/shop?collection=a&password=secret",
        "postgresql://me:secret@127.0.0.1/shop?collection=a&nonsense=1",
    ],
)
@pytest.mark.parametrize("command", ["info", "store digits.gphash", "drop --yes"])
@pytest.mark.slow
def test_a_wrong_address_is_one_line_without_the_password(run, address, command):
    said = run(*command.split(), address, code=1).stderr
    assert "secret" not in said
    assert said.startswith("gphash: ")


def test_the_password_is_not_shown(run, stored):
    address = stored.replace("gphash@", "gphash:secret@")
    assert "secret" not in run("info", f"{stored}&password=secret").stdout
    for command in (("info", address), ("compact", address), ("drop", address, "--yes")):
        assert "gphash@" in (said := run(*command).stdout)
        assert "secret" not in said


def test_a_newer_format(run, stored, connection):
    connection.execute("UPDATE numbers_collection SET told = told || '{\"format\": 99}'")
    for command in (("info", stored), ("search", stored, "key:7"), ("drop", stored, "--yes")):
        assert "has format 99, newer than 1: use a newer gphash" in run(*command, code=1).stderr
    connection.execute("UPDATE numbers_collection SET told = told || '{\"format\": 1}'")


def test_a_connection_lost_in_the_middle_leaves_nothing(run, url, connection, monkeypatch):
    from gphash.cli import shown

    def end(self, done, total):
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gphash'")

    monkeypatch.setattr(shown.Meter, "__call__", end)
    assert "the connection to PostgreSQL was lost" in run("store", "digits.gphash", f"{url}lost", code=1).stderr
    assert tables(connection, "lost") == set()


def test_ctrl_c_leaves_nothing(run, url, connection, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gphash.collection.items.Items.all_pictures", stop)
        said = run("store", "digits.gphash", f"{url}stopped", code=130).stderr
    assert said == "gphash: interrupted; the collection is in the database as a whole, or not at all.\n"
    assert tables(connection, "stopped") == set()


def test_an_interrupted_fetch_leaves_what_was_there(run, stored, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    shutil.copytree("digits.gphash", tmp_path / "old.gphash")
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr("gphash.collection.building._fill", stop)
        for name, more in (("new.gphash", []), ("old.gphash", ["--replace"])):
            said = run("fetch", stored, tmp_path / name, *more, code=130).stderr
            assert said == "gphash: interrupted; nothing was written.\n"
    assert sorted(tmp_path.rglob("*")) == before
