"""A pipeline of scikit-learn behind the service: rows go in as they are, and every step of it is applied."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gphash
from gphash import Collection, GPHasher
from tests import digits
from tests.server.conftest import serving


@pytest.fixture(params=[("posterior", 0), ("posterior", 4), ("sampled", 0), ("sampled", 4)], ids=str)
def fitted(tmp_path, request):
    """A pipeline, and a collection that was made with its file."""
    codes, n_free_bits = request.param
    hasher = GPHasher(**{**digits.QUICK, "n_bits": 16, "codes": codes, "n_free_bits": n_free_bits})
    pipeline = make_pipeline(StandardScaler(), PCA(20), hasher).fit(digits.X[:500], digits.y[:500])
    gphash.save(pipeline, tmp_path / "pipeline.gph")
    path, items = tmp_path / "digits.gphash", {"label": digits.y[:500]}
    Collection.create(path, tmp_path / "pipeline.gph", digits.X[:500], items=items).close()
    return pipeline, path


def test_a_row_is_searched_for_through_all_steps(fitted):
    pipeline, path = fitted
    rows = digits.X[1000:1005]
    chances = pipeline[-1].bit_probabilities(pipeline[:-1].transform(rows))
    with Collection.open(path) as collection, serving(path) as client:
        assert client.get("/collection").json()["n_features"] == 64
        for row, expected, chance in zip(rows, collection.search(rows, k=5), chances, strict=True):
            found = client.post("/search", json={"features": row.tolist(), "k": 5}).json()
            assert [hit["key"] for hit in found["hits"]] == [hit.key for hit in expected]
            np.testing.assert_allclose(found["query"]["probabilities"], chance, atol=1e-4)
        short = client.post("/search", json={"features": rows[0, :20].tolist()})
        assert short.status_code == 422
        assert "64" in short.text
