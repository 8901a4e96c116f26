"""`gphash store` against a real PostgreSQL, as a person uses it."""

import json
import os
import subprocess

import numpy as np
import pytest
from gphash.index.parts import PartedIndex

from gphash import HammingIndex, load
from gphash.data import sources
from tests.cli.running import COMMAND, ENVIRONMENT, gphash, inside, started

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")


@pytest.fixture
def store(made, conninfo, monkeypatch):
    """Run `gphash store` within this process, in the folder of the model and the index."""
    monkeypatch.chdir(made)
    monkeypatch.setenv("GPHASH_DATABASE", conninfo)

    def run(*arguments, code=0):
        found = inside("store", *arguments)
        assert found.exit_code == code, found.output
        if code == 1:
            assert len(found.stderr.splitlines()) == 1
            assert found.stdout == ""
        return found

    return run


@pytest.fixture
def loaded(store):
    """The digits in a store that is gone afterwards."""
    store("load", "digits.index", "--name", "numbers", "-q")
    yield "numbers"
    if inside("store", "info", "--name", "numbers").exit_code == 0:
        store("drop", "--name", "numbers", "--yes")


def answer(store, *arguments):
    found = store(*arguments, "--json", "--quiet")
    assert found.stderr == ""
    return json.loads(found.stdout)


def test_from_loading_to_dropping(store, made, conninfo, connection):
    where = {"cwd": made, "env": {**ENVIRONMENT, "GPHASH_DATABASE": conninfo}}
    said = started("store", "load", "digits.index", **where).stdout
    assert said.startswith("loaded 1,797 items, ")
    assert "distinct codes of 8 bits, into the store 'digits' in " in said
    assert said.rstrip().endswith("items a second")
    told = answer(store, "info", "--name", "digits")
    index = HammingIndex.open(made / "digits.index")
    assert (told["items"], told["codes"], told["bits"]) == (1797, index.stats().n_codes, 8)
    assert told["model"] == load(made / "digits-8.gph").fingerprint_
    assert connection.execute("SELECT count(*) FROM digits_items").fetchone() == (1797,)
    asked = ("search", "digits-8.gph", "digits:test", "--name", "digits", "-k", 7)
    found = answer(store, *asked)["results"]
    codes = load(made / "digits-8.gph").encode(sources.read("digits:test").X)
    wanted = index.search(codes, 7)
    ids = [[one["id"] for one in result["neighbours"]] for result in found]
    distances = [[one["distance"] for one in result["neighbours"]] for result in found]
    assert ids == wanted.ids.tolist()
    assert distances == wanted.distances.tolist()
    assert store("verify", "--name", "digits").stdout == "the store 'digits' is whole: 1,797 items\n"
    drop = ("store", "drop", "--name", "digits")
    kept = started(*drop, input="n\n", code=1, **where)
    assert kept.stderr.endswith("? [y/N]\ngphash: nothing was dropped.\n")
    assert "give --yes" in started(*drop, stdin=subprocess.DEVNULL, code=2, **where).stderr
    gone = started(*drop, input="y\n", **where)
    assert gone.stdout == "dropped the store 'digits' and its 1,797 items\n"
    assert connection.execute("SELECT to_regclass('digits_items')").fetchone() == (None,)


def test_the_database_by_an_option_or_by_variables_of_libpq(made, conninfo, loaded):
    parts = dict(part.split("=", 1) for part in conninfo.split())
    plain = {key: value for key, value in ENVIRONMENT.items() if key != "GPHASH_DATABASE"}
    url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"
    variables = {"PGHOST": parts["host"], "PGDATABASE": parts["dbname"], "PGUSER": parts["user"]}
    for options, environment in ((["--database", url], plain), ([], plain | variables)):
        command = [*COMMAND, "store", "info", "--name", loaded, *options]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
        assert found.returncode == 0, found.stderr
        assert "items           1,797\n" in found.stdout


def test_help_says_where_the_connection_string_comes_from(store):
    for command in ("load", "search", "info", "verify", "drop"):
        said = " ".join(store(command, "--help").stdout.split())
        assert "Others can see a command line" in said
        assert "GPHASH_DATABASE" in said
        assert f"gphash store {command}" in said.split("Examples:")[1]
    assert "PGHOST" in store("--help").stdout
    assert os.environ["GPHASH_DATABASE"] not in store("info", "--help").stdout


def test_what_is_found_is_what_the_index_finds(store, made, loaded):
    index, hasher = HammingIndex.open(made / "digits.index"), load(made / "digits-8.gph")
    X = sources.read("digits:test").X[:9]
    np.save(made / "nine.npy", X)
    asked = ("search", "digits-8.gph", "nine.npy", "--name", loaded)

    def pairs(*options):
        results = answer(store, *asked, *options)["results"]
        return [[(one["id"], one["distance"]) for one in result["neighbours"]] for result in results]

    def wanted(found):
        return [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in zip(*found, strict=True)]

    codes, chances = hasher.encode(X), hasher.bit_probabilities(X)
    assert pairs("-k", 2000) == wanted(index.search(codes, 2000))
    near = index.search(codes, 300)
    assert pairs("-k", 300, "--radius", 1) == [[pair for pair in found if pair[1] <= 1] for found in wanted(near)]
    assert pairs("-k", 5, "--ranking", "expected") == wanted(index.search_expected(chances, 5))
    balls = index.within(codes, 0)
    for number, found in enumerate(pairs("-k", 5, "--ranking", "expected", "--radius", 0)):
        ids = balls.ids[balls.offsets[number] : balls.offsets[number + 1]]
        alone = index.search_expected(chances[number : number + 1], 5, allowed=ids)
        assert [found] == wanted(alone)


def test_rows_are_shown_as_tables(store, made, loaded):
    np.save(made / "one.npy", sources.read("digits:test").X[:1])
    said = store("search", "digits-8.gph", "one.npy", "--name", loaded, "-k", 3).stdout.splitlines()
    assert said[0].split() == ["rank", "id", "distance", "bits"]
    assert said[1].split()[0] == "one.npy"
    assert [line.split()[0] for line in said[2:5]] == ["1", "2", "3"]
    expected = store("search", "digits-8.gph", "one.npy", "--name", loaded, "-k", 1, "--ranking", "expected").stdout
    assert "." in expected.splitlines()[2].split()[2]


def test_conditions_on_a_table_of_the_users(store, made, loaded, connection):
    np.save(made / "one.npy", sources.read("digits:test").X[:1])
    connection.execute('CREATE SCHEMA IF NOT EXISTS "my shop"')
    connection.execute('CREATE TABLE "my shop".goods (number bigint, price int, name text)')
    connection.execute("INSERT INTO \"my shop\".goods SELECT n, n % 10, 'b%' FROM generate_series(0, 1796) AS n")
    asked = ("search", "digits-8.gph", "one.npy", "--name", loaded, "--table", "my shop.goods", "--key", "number")
    where = ("--where", "price < %s AND name = %s AND name LIKE 'b%%'", "--param", "3")
    (result,) = answer(store, *asked, *where, "--param", "b%", "-k", 50)["results"]
    found = [one["id"] for one in result["neighbours"]]
    assert len(found) == 50
    assert all(number % 10 < 3 for number in found)
    assert answer(store, *asked, *where, "--param", "'; DROP SCHEMA x; --")["results"][0]["neighbours"] == []
    assert "nothing was found" in store(*asked, *where, "--param", "c").stdout
    assert "1 values" in store(*asked, *where, code=1).stderr
    assert 'column "prize" does not exist' in store(*asked, "--where", "prize < 3", code=1).stderr
    assert "belong together" in store(*asked, code=2).stderr
    bare = ("search", "digits-8.gph", "one.npy", "--name", loaded)
    assert "--param without --where" in store(*bare, "--param", "1", code=2).stderr
    connection.execute('DROP SCHEMA "my shop" CASCADE')


def test_a_schema_of_ones_own(store, connection):
    connection.execute('CREATE SCHEMA "codes of"')
    store("load", "digits.index", "--schema", "codes of")
    assert connection.execute('SELECT count(*) FROM "codes of".digits_items').fetchone() == (1797,)
    assert "there is no store 'digits'" in store("info", "--name", "digits", code=1).stderr
    answer(store, "drop", "--name", "digits", "--schema", "codes of", "--yes")
    connection.execute('DROP SCHEMA "codes of"')


@pytest.fixture(scope="module")
def blocks(made):
    """Digits in a folder of blocks, and an index of them in another."""
    folder = made / "blocks"
    folder.mkdir()
    X = sources.read("digits").X
    for number, start in enumerate(range(0, len(X), 600)):
        np.save(folder / f"block-{number}.npy", X[start : start + 600])
    gphash("index", "digits-8.gph", "blocks", "-o", "many.files", "-q", cwd=made)
    return folder


def test_an_index_in_a_folder_becomes_a_store_of_that_name(store, made, blocks):
    assert answer(store, "load", "many.files")["name"] == "many.files"
    np.save(made / "nine.npy", sources.read("digits:test").X[:9])
    asked = ("search", "digits-8.gph", "nine.npy", "--name", "many.files", "-k", 7)
    found = [[one["id"] for one in result["neighbours"]] for result in answer(store, *asked)["results"]]
    index = PartedIndex.open(made / "many.files")
    codes = load(made / "digits-8.gph").encode(np.load(made / "nine.npy"))
    assert found == index.search(codes, 7).ids.tolist()
    assert answer(store, "drop", "--name", "many.files", "--yes")["items"] == 1797
    assert "'blocks' has no manifest.json; give a folder that" in store("load", "blocks", code=1).stderr


def test_blocks_are_no_queries(store, blocks, loaded):
    said = store("search", "digits-8.gph", "blocks", "--name", loaded, code=2).stderr
    assert "is a folder of blocks; give a file of rows" in said


def test_a_wrong_table_or_key_is_named(store, made, loaded, connection):
    np.save(made / "one.npy", sources.read("digits:test").X[:1])
    connection.execute("CREATE TABLE goods (id bigint, name text)")
    asked = ("search", "digits-8.gph", "one.npy", "--name", loaded, "--where", "name = 'a'", "--table")
    for table in ("nope", "public.nope", "nowhere.goods"):
        said = store(*asked, table, code=1).stderr
        assert f"no table '{table}'" in said
        assert f'relation "{table}" does not exist' in said
    for table in ("goods", "public.goods"):
        said = store(*asked, table, "--key", "number", code=1).stderr
        assert f"--table '{table}' with --key 'number', is refused: column goods.number does not exist" in said
    said = store(*asked, "goods", "--key", "name", code=1).stderr
    assert "--key 'name', is refused: operator does not exist: text = bigint" in said
    connection.execute("DROP TABLE goods")


def test_nobody_has_said_where_the_database_is(store, tmp_path, monkeypatch):
    monkeypatch.delenv("GPHASH_DATABASE")
    monkeypatch.setenv("PGHOST", str(tmp_path))
    for command in (("load", "digits.index"), ("info", "--name", "x")):
        said = store(*command, "-q", code=1).stderr
        assert said.startswith("gphash: PostgreSQL cannot be reached: ")
        assert said.endswith("Say where it is by --database, or by GPHASH_DATABASE.\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("load none.index --name numbers", 1, "'none.index'"),
        ("load digits-8.gph --name numbers", 1, "digits-8.gph"),
        ("load digits.index --name numbers", 1, "--name 'numbers' is a store, or a table of one, already"),
        ("load digits.index --name numbers", 1, "drop it (gphash store drop --name numbers), or give another name."),
        ("load digits.index --name other --schema nowhere", 1, 'schema "nowhere" does not exist'),
        ("load digits.index --name other --database secret", 1, "the connection string of the database cannot"),
        ("info --name other", 1, "there is no store 'other'"),
        ("info", 2, "Missing option '--name'"),
        ("drop --name other --yes", 1, "there is no store 'other'"),
        ("search none.gph digits --name numbers", 1, "'none.gph': no such file or directory."),
        ("search digits-8.gph nowhere --name numbers", 2, "unknown data 'nowhere'"),
        ("search digits-8.gph wide.npy --name numbers", 1, "has 5 features a row"),
        ("search digits-8.gph digits --name numbers -k 0", 2, "Invalid value for '-k'"),
        ("search small.gph wide.npy --name numbers", 1, "codes of the model"),
        ("search small.gph wide.npy --name numbers --ranking expected", 1, "gives no probabilities"),
        ("info --name numbers --lock-timeout 0", 2, "Invalid value for '--lock-timeout'"),
    ],
)
def test_errors_say_what_to_do(store, made, loaded, arguments, code, message):
    np.save(made / "wide.npy", np.random.default_rng(0).normal(size=(20, 5)))
    if "small.gph" in arguments:
        assert inside("fit", "wide.npy", "-m", "lsh", "--bits", 8, "-o", "small.gph").exit_code == 0
    found = store(*arguments.split(), code=code)
    assert message in " ".join(found.stderr.split())
    assert "secret" not in found.stderr


@pytest.mark.parametrize(
    "database",
    [
        "host=/nowhere password=secret",
        "postgresql://me:secret@127.0.0.1:1/shop",
        "postgresql://me:secret@[/shop",
        "host=localhost password=secret nonsense",
    ],
)
def test_a_wrong_connection_string_is_one_line_without_the_password(store, database):
    found = store("info", "--name", "numbers", "--database", database, code=1)
    assert "secret" not in found.stderr
    assert found.stderr.startswith("gphash: ")


def test_a_schema_of_a_newer_version(store, loaded, connection):
    connection.execute("UPDATE numbers_meta SET version = 99")
    for command in ("info", "verify"):
        said = store(command, "--name", loaded, code=1).stderr
        assert "has tables of version 99; this gphash knows 2, update it" in said
    assert "of version 99" in store("drop", "--name", loaded, "--yes", code=1).stderr
    connection.execute("UPDATE numbers_meta SET version = 2")


def test_a_table_that_somebody_else_has_locked(store, loaded, conninfo):
    with psycopg.connect(conninfo) as other:
        other.execute("LOCK TABLE numbers_codes")
        for command in (["verify"], ["info"], ["drop", "--yes"]):
            said = store(*command, "--name", loaded, "--lock-timeout", 0.2, code=1).stderr
            assert "somebody else held a lock for more than --lock-timeout 0.2 seconds" in said
    store("verify", "--name", loaded)


def test_wrong_counts_are_told(store, loaded, connection):
    connection.execute("DELETE FROM numbers_items WHERE id = 3")
    assert "wrong count for 1 codes" in store("verify", "--name", loaded, code=1).stderr


def test_a_connection_lost_in_the_middle_of_a_load_leaves_nothing(store, connection, monkeypatch):
    from gphash.cli import shown

    def end(self, done, total):
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gphash'")

    monkeypatch.setattr(shown.Meter, "__call__", end)
    assert "the connection to PostgreSQL was lost" in store("load", "digits.index", code=1).stderr
    assert (
        connection.execute("SELECT to_regclass('digits_items'), to_regclass('digits_meta')").fetchone() == (None,) * 2
    )
