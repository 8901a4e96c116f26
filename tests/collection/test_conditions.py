"""`where` is one condition: it keeps the items for which it holds in Python, and can do nothing else."""

import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.collection import conditions, sqlite
from gphash.collection.collection import Collection
from tests.collection import sources

X = sources.of_digits().X
N = 60
SAID = {
    "key": [f"sku-{row}" for row in range(N)],
    "label": [None if row % 5 == 0 else f"class {row % 3}" for row in range(N)],
    "title": [f"It's Ärger {row % 7}" for row in range(N)],
    "price": [None if row % 4 == 0 else row / 8 for row in range(N)],
    "stock": [row % 6 - 2 for row in range(N)],
    "order by": [f"a{row % 2}" for row in range(N)],
    "Größe": [row % 3 for row in range(N)],
}
ROWS = [{name: cells[row] for name, cells in SAID.items()} for row in range(N)]
KINDS = dict.fromkeys((*SAID, "text"), "text") | {"price": "real", "stock": "integer", "Größe": "integer"}
COLUMNS = {name: f'"{name}"' for name in (*SAID, "text")}


@pytest.fixture(scope="module")
def shop(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    with Collection.create(folder / "shop.gphash", model, X[:N], SAID) as made:
        yield made


def kept(collection, where, *params):
    return {hit.key for hit in collection.search(X[0], N, where=where, params=params)}


@pytest.mark.parametrize(
    ("where", "params", "holds"),
    [
        ("price < ?", [3], lambda row: row["price"] is not None and row["price"] < 3),
        ("PRICE >= 1.5e0", [], lambda row: row["price"] is not None and row["price"] >= 1.5),
        ("price is null", [], lambda row: row["price"] is None),
        ("not (price is not null or stock = -1)", [], lambda row: row["price"] is None and row["stock"] != -1),
        ("label = ?", ["class 1"], lambda row: row["label"] == "class 1"),
        (
            "label in (?, 'class 2') and stock > 0",
            ["class 1"],
            lambda row: row["label"] in ("class 1", "class 2") and row["stock"] > 0,
        ),
        ("title = 'It''s Ärger 3'", [], lambda row: row["title"] == "It's Ärger 3"),
        ("title like ?", ["%ger 3"], lambda row: row["title"].endswith("ger 3")),
        ("title like 'it%'", [], lambda row: False),
        (
            "lower(label) = 'class 0' and abs(stock) = 2",
            [],
            lambda row: row["label"] == "class 0" and abs(row["stock"]) == 2,
        ),
        ("stock between ? and ?", [0, 1], lambda row: row["stock"] in (0, 1)),
        ("key = ? or key = 'sku-7'", ["sku-3"], lambda row: row["key"] in ("sku-3", "sku-7")),
        ('"order by" = ?', ["a1"], lambda row: row["order by"] == "a1"),
        ("größe = 2", [], lambda row: row["Größe"] == 2),
        ("coalesce(price, 0) + stock * 2 - 1 > ?", [4.5], lambda row: (row["price"] or 0) + row["stock"] * 2 - 1 > 4.5),
        (
            "title || label = ?",
            ["It's Ärger 1class 1"],
            lambda row: f"{row['title']}{row['label']}" == "It's Ärger 1class 1",
        ),
        ("text is null", [], lambda row: True),
        ("stock - -1 = 0", [], lambda row: row["stock"] == -1),
        ("price <> price", [], lambda row: False),
        ("? = ?", [True, 1], lambda row: True),
    ],
)
def test_what_is_kept(shop, where, params, holds):
    assert kept(shop, where, *params) == {row["key"] for row in ROWS if holds(row)}


numbers = st.integers(-3, 8)
SIGNS = ["<", "<=", "=", "<>", ">", ">="]
LEAVES = st.one_of(
    st.tuples(st.sampled_from(["stock", "Größe", "price"]), st.sampled_from(SIGNS), numbers),
    st.tuples(st.just("label"), st.sampled_from(["=", "<>"]), st.sampled_from(["class 0", "class 1", "x' or '1'='1"])),
    st.tuples(st.sampled_from(["price", "label"]), st.just("is null"), st.none()),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=12,
)


def asked(tree):
    """A tree as a condition, with its values."""
    if tree[0] == "not":
        text, values = asked(tree[1])
        return f"not ({text})", values
    if tree[0] in ("and", "or"):
        (one, first), (other, second) = asked(tree[1]), asked(tree[2])
        return f"({one}) {tree[0]} ({other})", [*first, *second]
    name, sign, value = tree
    return (f"{name} {sign}", []) if sign == "is null" else (f"{name} {sign} ?", [value])


COMPARED = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def truth(tree, row):
    """Whether it holds, by the rules of SQL: None is unknown."""
    if tree[0] == "not":
        inner = truth(tree[1], row)
        return None if inner is None else not inner
    if tree[0] in ("and", "or"):
        both = truth(tree[1], row), truth(tree[2], row)
        decided = tree[0] == "or"
        return decided if decided in both else None if None in both else not decided
    name, sign, value = tree
    if sign == "is null":
        return row[name] is None
    return None if row[name] is None else COMPARED[sign](row[name], value)


@given(tree=TREES)
def test_any_tree_of_comparisons_holds_where_it_does_in_python(shop, tree):
    where, values = asked(tree)
    assert kept(shop, where, *values) == {row["key"] for row in ROWS if truth(tree, row)}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "give a condition"),
        ("   ", "give a condition"),
        (3, "give a condition"),
        ("price < 3\0", "give a condition"),
        ("a" * 10_001, "give a condition"),
        ("cost < 3", "'cost', which is no column; the columns are key, label, tags, title, text, link, picture, price"),
        ("code = 3", "which is no column"),
        ("number = 3", "which is no column"),
        ("mark > 0", "which is no column"),
        ("price < 3; drop table items", "has '; drop tab'"),
        ("price < 3 -- more", "'more', which is no column"),
        ("price < 3 /* more */", "give one whole condition"),
        ("1) union select (1", "give one whole condition"),
        ("key in (select key from items)", "'select', which is no column"),
        ("load_extension('x') = 1", "'load_extension', which is no column"),
        ("random() > 0", "'random', which is no column"),
        ("count(*) > 0", "'count', which is no column"),
        ("sqlite_version() > 0", "which is no column"),
        ("(price < 3", "ends too early; give one whole condition"),
        ("price < 3)", "give one whole condition"),
        ("(" * 51 + "1" + ")" * 51, "too many"),
        ("price < 0x10", "give one condition"),
        ("price < 1.2.3", "give one condition"),
        ("title = 'open", "give one condition"),
        ("price <", "ends too early; give one whole condition"),
        ("price is not", "ends too early; give one whole condition"),
        ("price == 3", "has '=='; write = for equal"),
        ("price = = 3", "has '=='; write = for equal"),
        ("= 3", "has '= 3' where something else must be"),
        ("true", "has 'true'; write 1 for true"),
        ("stock = FALSE", "has 'FALSE'; write 0 for false"),
        ("(price = 1) is null", "is null is for columns and values"),
        ("(price = 1) is not null", "is null is for columns and values"),
        ("price price", "give one whole condition"),
        ("price = 3, stock = 2", "give one whole condition"),
        ("price in 3", "give one whole condition"),
        ("abs(price, 2) = 1", "it takes one value"),
        ("pragma_table_info = 1", "which is no column"),
        ("title like x'00'", "which is no column"),
        ("price = :one", "give one condition"),
        ("price = $1", "give one condition"),
        ("price = @one", "give one condition"),
        ("`price` = 1", "give one condition"),
        ("[price] = 1", "give one condition"),
        ("price = 1 limit 1", "give one whole condition"),
        ("price collate nocase = 1", "give one whole condition"),
        ("not " * 1500 + "price", "where="),
    ],
)
def test_what_is_no_condition_is_refused(shop, where, message):
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            shop.search(X[0], where=where)


def test_the_functions_are_those_of_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "collections.md").read_text()
    named = re.search(r"the functions (.*?)\.", text, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", named)) == set(conditions.FUNCTIONS)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([], r"params=\[\] for where='price < \?', which has 1 \?"),
        ([1, 2], r"params=\[1, 2\] for where='price < \?', which has 1 \?"),
        ("1", "give a list"),
        ({"price": 1}, "give a list"),
        (3, "give a list"),
        ([b"1"], "give texts, numbers"),
        ([[1]], "give texts, numbers"),
        ([float("nan")], "give texts, numbers"),
        ([float("inf")], "give texts, numbers"),
        (["a\0b"], "give texts, numbers"),
        (["\ud800"], "give texts, numbers"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(shop, params, message):
    with pytest.raises(ValueError, match=message):
        shop.search(X[0], where="price < ?", params=params)


def test_values_without_a_condition_are_refused(shop):
    with pytest.raises(ValueError, match=r"params=.*, but where=None"):
        shop.search(X[0], params=[3])


def test_a_number_is_not_compared_with_a_text(shop, model, tmp_path):
    with Collection.create(tmp_path / "titles.gphash", model, X[:3], {"title": ["1", "1.0", "2"]}) as collection:
        assert [hit.key for hit in collection.search(X[0], where="title = ?", params=["1.0"])] == [1]
        with pytest.raises(ValueError, match="needs a text"):
            collection.search(X[0], where="title = ?", params=[1.0])


@given(text=st.text(st.sampled_from(list("pricek ?'\"()=<>!-*/|,;.0e1\n")) | st.characters(), max_size=30))
def test_a_text_is_refused_or_is_one_condition(text):
    """Whatever passes can be nothing but a condition for SQLite, which is asked what it does."""
    try:
        condition = conditions.read(text, [1] * text.count("?"), COLUMNS, dict.fromkeys(COLUMNS, "real"))
    except ValueError:
        return
    actions = set()
    connection = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    connection.execute(f"CREATE TABLE items (number, {columns})")
    connection.set_authorizer(lambda action, *_: actions.add(action) or sqlite3.SQLITE_OK)
    try:
        connection.execute(f"SELECT number FROM items WHERE ({condition.sqlite})", condition.values)
    except (sqlite3.Error, UnicodeError):
        pass
    finally:
        connection.close()
    assert actions <= set(sqlite.READING)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM items",
        "ATTACH ':memory:' AS other",
        "PRAGMA query_only = OFF",
        "CREATE TABLE more (a)",
        "SELECT load_extension('x')",
        "VACUUM",
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_even_a_statement_could_do_nothing_but_read(copy, statement, writable):
    with Collection.open(copy, writable=writable) as collection:
        connection = collection._store.items._connection
        with sqlite.only_reading(connection, writable), pytest.raises(sqlite3.Error):
            connection.execute(statement)
        if not writable and statement.startswith(("DELETE", "ATTACH", "CREATE")):
            with pytest.raises(sqlite3.Error):
                connection.execute(statement)
        assert len(collection) == collection._store.items.count() == 300
        if writable:
            collection.remove([3])
    assert np.isin([3], Collection.open(copy).index.ids).tolist() == [not writable]
