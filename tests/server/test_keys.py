"""Items by texts, their columns, conditions on them, and ties."""

import json
from urllib.parse import quote

import pytest

from gphash.collection.collection import Collection
from tests.collection import sources as small
from tests.server.conftest import error_of, serving

KEYS = ["sku-0", "a/b", "a/../b", "random", "a b+c", "ä ö", "%2F", "x?y#z", "1", '"', "</script>", "a//b", "q=1&w=2"]
N_ROWS = 60


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Things without pictures, whose keys are texts."""
    folder = tmp_path_factory.mktemp("texts")
    small.hasher().save(folder / "model.gph")
    source = small.of_digits(N_ROWS)
    items = [
        {
            "key": KEYS[row] if row < len(KEYS) else f"sku-{row}",
            "label": source.classes[source.y[row]],
            "title": f"Thing {row}",
            "text": "It is useful.",
            "link": "javascript:alert(1)" if row == 1 else f"https://example.org/{row}",
            "price": float(row),
            "stock": row % 7,
            "a colour": ["red", "blue"][row % 2],
        }
        for row in range(N_ROWS)
    ]
    Collection.create(folder / "things.gphash", folder / "model.gph", source.X, items).close()
    return folder / "things.gphash"


@pytest.fixture(scope="module")
def things(path):
    with serving(path) as client:
        yield client


def test_what_there_is_is_said(things):
    said = things.get("/collection").json()
    assert said["keys"] == "text"
    assert said["columns"]["price"] == "real"
    assert said["columns"]["stock"] == "integer"
    assert said["columns"]["a colour"] == "text"
    assert said["columns"]["key"] == said["columns"]["title"] == "text"
    assert said["pictures"] is said["upload"] is False


@pytest.mark.parametrize("key", KEYS)
def test_any_text_is_a_key_in_a_path(things, key):
    found = things.get(f"/items/{quote(key, safe='')}")
    assert found.status_code == 200, found.text
    row = KEYS.index(key)
    assert found.json()["key"] == key
    values = found.json()["values"]
    assert (values["title"], values["price"], values["stock"]) == (f"Thing {row}", row, row % 7)
    assert error_of(things.get(f"/pictures/{quote(key, safe='')}"), 404) == ("no_picture", "key")
    query = things.post("/search", json={"key": key, "k": 3}).json()["query"]
    assert (query["key"], query["values"], query["has_picture"]) == (key, values, False)


def test_a_key_that_is_none(things):
    assert error_of(things.get("/items/nobody"), 404) == ("unknown_item", "key")
    assert error_of(things.get("/items/" + "x" * 5000), 404) == ("unknown_item", "key")
    assert error_of(things.post("/search", json={"key": 7}), 422) == ("invalid_argument", "key")
    assert error_of(things.post("/search", json={"key": ""}), 422) == ("invalid_argument", "key")
    assert error_of(things.post("/search", json={"key": "sku-0\0"}), 422) == ("invalid_argument", "key")
    assert things.get("/items/").status_code in (404, 405, 422)


def test_numbers_are_not_texts(client):
    assert error_of(client.post("/search", json={"key": "7"}), 422) == ("invalid_argument", "key")
    assert client.post("/search", json={"key": 7}).status_code == 200


@pytest.mark.parametrize(
    ("where", "params", "true"),
    [
        ("price < ? and stock = ?", [30, 2], lambda v: v["price"] < 30 and v["stock"] == 2),
        ("price between 10 and 20", [], lambda v: 10 <= v["price"] <= 20),
        ("\"a colour\" = 'red' and key like 'sku-%'", [], lambda v: v["a colour"] == "red"),
        ("lower(title) = ?", ["thing 17"], lambda v: v["title"] == "Thing 17"),
        ("price < 0", [], lambda v: False),
    ],
)
def test_a_condition_leaves_some(path, things, where, params, true):
    found = things.post("/search", json={"key": "sku-59", "k": 1000, "where": where, "params": params}).json()
    with Collection.open(path) as collection:
        hits = collection.search(collection.query(key="sku-59"), 1000, where=where, params=params)
    assert [hit["key"] for hit in found["hits"]] == [hit.key for hit in hits]
    assert all(true(hit["values"]) for hit in found["hits"])
    assert bool(hits) is (where != "price < 0")


HOSTILE = [
    "1; drop table items",
    "price < 1) or (1 = 1",
    "price < (select 1)",
    "price < 1 -- and",
    "price < 1 /* x */",
    "load_extension('x')",
    "randomblob(1000000000) = 1",
    "attach database 'x' as y",
    "pragma user_version",
    "nosuch = 1",
    "price <",
    "and",
    "(" * 60 + "1" + ")" * 60,
    "code = code",
    "number = 1",
    "x" * 9000,
    " ",
    "",
    "price < 1\0",
]


@pytest.mark.parametrize("where", HOSTILE)
def test_what_is_no_condition_is_refused(things, where):
    answer = things.post("/search", json={"key": "sku-0", "where": where})
    assert error_of(answer, 422) == ("invalid_argument", "where")
    assert len(answer.content) < 1000
    assert things.post("/search", json={"key": "sku-0"}).status_code == 200


def test_an_unknown_column_is_answered_with_the_known_ones(things):
    answer = things.post("/search", json={"key": "sku-0", "where": "weight > 1"})
    assert error_of(answer, 422) == ("invalid_argument", "where")
    assert "price, stock, a colour" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"where": "price < ?", "params": [[1]]}, "params"),
        ({"where": "price < ?", "params": {"a": 1}}, "params"),
        ({"where": "price < ?", "params": "1"}, "params"),
        ({"params": [1]}, "params"),
        ({"where": "price < ?", "params": ["a\0"]}, "params"),
        ({"where": "price < ?"}, "params"),
        ({"where": "price < ?", "params": [1, 2]}, "params"),
        ({"where": 7}, "where"),
        ({"where": "x" * 20_000}, "where"),
    ],
)
def test_values_of_a_condition_are_checked(things, given, argument):
    answer = things.post("/search", json={"key": "sku-0", **given})
    assert error_of(answer, 422) == ("invalid_argument", argument)


def test_ties_are_counted_beyond_k(path, things):
    with Collection.open(path) as collection:
        every = collection.search(collection.query(key="sku-0"), N_ROWS)
    for k in (1, 5, 20, N_ROWS):
        found = things.post("/search", json={"key": "sku-0", "k": k, "ties": True}).json()
        last = every[len(found["hits"]) - 1].probability
        assert found["ties"] == sum(hit.probability == last for hit in every)
    assert things.post("/search", json={"key": "sku-0"}).json()["ties"] is None
    nobody = things.post("/search", json={"key": "sku-0", "where": "price < 0", "ties": True}).json()
    assert (nobody["hits"], nobody["ties"]) == ([], 0)


def test_items_come_with_what_is_said_of_them(path, tmp_path):
    import shutil

    shutil.copytree(path, tmp_path / "own.gphash")
    row = small.of_digits(1).X[0].tolist()
    new = {"features": row, "key": "new/1", "label": "7", "title": "A thing", "text": "New.", "link": "https://a.b/c"}
    with serving(tmp_path / "own.gphash", writable=True) as client:
        added = client.post("/items", json={**new, "values": {"price": 5, "a colour": "green", "stock": None}})
        assert added.status_code == 201, added.text
        values = {"title": "A thing", "text": "New.", "link": "https://a.b/c", "price": 5.0, "a colour": "green"}
        assert (added.json()["key"], added.json()["values"]) == ("new/1", values)
        assert client.get("/items/new%2F1").json() == added.json()
        found = client.post("/search", json={"key": "sku-0", "where": "\"a colour\" = 'green'"}).json()["hits"]
        assert [hit["key"] for hit in found] == ["new/1"]
        assert error_of(client.post("/items", json=new), 409) == ("known_key", "key")
        for wrong, argument in (
            ({"key": None}, "key"),
            ({"key": 7}, "key"),
            ({"key": ""}, "key"),
            ({"values": {"weight": 1}}, "values"),
            ({"values": {"price": "much"}}, "values"),
            ({"values": {"title": "other"}}, "values"),
            ({"values": {"picture": "../secret.png"}}, "values"),
            ({"values": {"Picture": "../secret.png"}}, "values"),
            ({"values": {"code": "x"}}, "values"),
            ({"values": [1]}, "values"),
            ({"tags": ["a;b"], "label": None}, "tags"),
            ({"label": "\u202e\n"}, "label"),
            ({"title": "x" * 20_000}, "title"),
        ):
            answer = client.post("/items", json={**new, "key": "other", **wrong})
            assert error_of(answer, 422) == ("invalid_argument", argument), wrong
        assert client.get("/collection").json()["n_items"] == N_ROWS + 1
        assert client.delete("/items/new%2F1").status_code == 204
        assert error_of(client.delete("/items/new%2F1"), 404) == ("unknown_item", "key")


def test_a_form_says_the_same(index):
    picture = b"P5 8 8 255\n" + bytes(64)
    with serving(index, writable=True) as client:
        said = {"key": "5000", "tags": "dark; empty", "title": "Nothing", "text": "All black.", "values": "{}"}
        added = client.post("/items", files={"picture": picture}, data=said)
        assert added.status_code == 201, added.text
        expected = {"key": 5000, "labels": ["dark", "empty"], "has_picture": True}
        assert added.json() == added.json() | expected
        assert added.json()["values"] == {"title": "Nothing", "text": "All black."}
        asked = {"where": "title = ?", "params": json.dumps(["Nothing"]), "ties": "true"}
        found = client.post("/search", files={"picture": picture}, data=asked).json()
        assert [hit["key"] for hit in found["hits"]] == [5000]
        assert (found["ties"], found["query"]["key"]) == (1, None)
        for name in ("params", "values"):
            route = "/search" if name == "params" else "/items"
            answer = client.post(route, files={"picture": picture}, data={name: "[1"})
            assert error_of(answer, 422) == ("invalid_argument", name)
