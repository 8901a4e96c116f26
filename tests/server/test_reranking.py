"""Re-ranking over HTTP: what the collection says, within a limit."""

import numpy as np
import pytest

from gphash.collection.collection import Collection
from gphash.data import sources
from tests.server.conftest import serving


@pytest.fixture(scope="module")
def kept(built, tmp_path_factory):
    """A collection that keeps vectors."""
    path = tmp_path_factory.mktemp("kept") / "digits.gphash"
    with Collection.create(path, built / "digits.gph", sources.read("digits"), vectors="int8") as collection:
        yield collection


@pytest.fixture(scope="module")
def client(kept):
    with serving(kept._store.path, max_rerank=500) as found:
        yield found


@pytest.mark.parametrize("ranking", ["hamming", "similarity"])
def test_a_search_is_reranked(client, kept, ranking):
    row = sources.read("digits").X[3]
    for asked, query in (({"key": 3}, kept.query(key=3)), ({"features": row.tolist()}, kept.query(features=row))):
        found = client.post("/search", json={**asked, "k": 7, "rerank": 300, "ranking": ranking, "ties": True}).json()
        wanted = kept.search(query, 7, rerank=300, ranking=ranking)
        assert [hit["key"] for hit in found["hits"]] == [hit.key for hit in wanted]
        np.testing.assert_allclose([hit["score"] for hit in found["hits"]], [hit.score for hit in wanted], atol=1e-4)
        assert found["ties"] >= 1


def test_the_collection_tells_of_its_vectors(client):
    told = client.get("/collection").json()
    assert told["vectors"] == {"form": "int8", "metric": "cosine"}
    assert told["limits"]["rerank"] == 500
    taken = client.get("/openapi.json").json()["paths"]["/search"]["post"]["requestBody"]["content"]
    assert taken["application/json"]["schema"]["properties"]["rerank"]["anyOf"][0]["maximum"] == 500


@pytest.mark.parametrize("wrong", [0, 501, 5, "9", 2.5])
def test_too_many_or_too_few_candidates_are_refused(client, wrong):
    found = client.post("/search", json={"key": 3, "rerank": wrong})
    assert found.status_code == 422
    assert found.json()["error"]["argument"] == "rerank"


def test_a_collection_without_vectors_says_so(built):
    with serving(built / "digits.gphash") as client:
        assert client.get("/collection").json()["vectors"] is None
        found = client.post("/search", json={"key": 3, "rerank": 400})
        assert found.status_code == 422
        assert found.json()["error"]["argument"] == "rerank"
        assert "made without vectors" in found.json()["error"]["message"]
