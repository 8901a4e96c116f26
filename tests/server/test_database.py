"""The service on a collection in PostgreSQL, and on a folder of many parts."""

import numpy as np
import pytest

from gphash.collection import copying
from gphash.collection.collection import Collection
from gphash.data import blocks
from tests.collection import sources as small
from tests.server.conftest import error_of, serving

N_ROWS = 60


@pytest.fixture
def folder(tmp_path):
    small.hasher().save(tmp_path / "model.gph")
    source = small.of_digits(N_ROWS)
    items = [{"key": f"a/{row}", "label": str(source.y[row]), "price": row / 2} for row in range(N_ROWS)]
    Collection.create(tmp_path / "things.gphash", tmp_path / "model.gph", source, items).close()
    return tmp_path / "things.gphash"


@pytest.fixture
def address(conninfo, folder):
    parts = dict(part.split("=", 1) for part in conninfo.split())
    name = f"served_{abs(hash(folder))}"
    url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&collection={name}"
    copying.to_database(folder, url)
    return url


def without_times(answer):
    assert answer.status_code == 200, answer.text
    found = answer.json()
    found.pop("milliseconds")
    return found


def test_a_database_answers_as_a_folder_does(folder, address):
    row = small.of_digits(1).X[0].tolist()
    with serving(folder) as here, serving(address) as there:
        for path in ("/items/a%2F7", "/collection/buckets?n=5&samples=3"):
            assert there.get(path).json() == here.get(path).json()
        said, expected = (client.get("/collection").json() for client in (there, here))
        assert said == expected
        assert there.get("/pictures/a%2F7").content == here.get("/pictures/a%2F7").content
        assert there.get("/collection/random").json()["key"].startswith("a/")
        for asked in (
            {"key": "a/7"},
            {"key": "a/7", "ranking": "expected"},
            {"features": row, "k": 60, "ties": True},
            {"key": "a/7", "label": "3"},
            {"key": "a/7", "where": "price < ? and label = '1'", "params": [20], "ties": True},
        ):
            assert without_times(there.post("/search", json=asked)) == without_times(here.post("/search", json=asked))
        for where in ("weight > 1", "price <", "1; drop table x", "price / 0 = 1 and lower(price) = 1"):
            answer = there.post("/search", json={"key": "a/7", "where": where})
            assert error_of(answer, 422) == ("invalid_argument", "where"), where
        assert error_of(there.get("/items/nobody"), 404) == ("unknown_item", "key")
        assert error_of(there.post("/items", json={"features": row, "key": "b"}), 403)[0] == "read_only"


def test_items_of_a_database_are_added_and_removed(address):
    row = small.of_digits(1).X[0].tolist()
    with serving(address, writable=True) as client, serving(address) as reader:
        new = {"features": row, "key": "new", "label": "7", "title": "New", "values": {"price": 1.5}}
        added = client.post("/items", json=new)
        assert added.status_code == 201, added.text
        assert added.json()["values"] == {"title": "New", "price": 1.5}
        assert reader.get("/items/new").json() == added.json()
        assert error_of(client.post("/items", json=new), 409) == ("known_key", "key")
        assert client.delete("/items/new").status_code == 204
        assert error_of(reader.get("/items/new"), 404) == ("unknown_item", "key")


def test_a_folder_of_many_parts_is_served(tmp_path):
    small.hasher().save(tmp_path / "model.gph")
    X = small.of_digits(N_ROWS).X
    (tmp_path / "rows").mkdir()
    for number in range(3):
        np.save(tmp_path / "rows" / f"part-{number}.npy", X[20 * number : 20 * number + 20])
    path = tmp_path / "parts.gphash"
    Collection.create(path, tmp_path / "model.gph", blocks.open_folder(tmp_path / "rows")).close()
    assert len(list((path / "parts").glob("*.index"))) == 3
    with serving(path, writable=True) as client:
        assert client.get("/collection").json()["n_items"] == N_ROWS
        found = client.post("/search", json={"features": X[45].tolist(), "k": N_ROWS}).json()["hits"]
        with Collection.open(path) as collection:
            assert [hit["key"] for hit in found] == [hit.key for hit in collection.search(X[45], N_ROWS)]
        assert client.post("/items", json={"features": X[45].tolist()}).json()["key"] == N_ROWS
        assert client.delete("/items/3").status_code == 204
        assert client.get("/collection").json()["n_items"] == N_ROWS
