"""The service around a collection of texts: search by text, add by text, and an encoder that is not there."""

import shutil

import numpy as np
import pytest

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.data import pictures, sources
from gphash.data.descriptors import encoders, networks, picture_encoder, text_encoder
from tests import onnx_models as small
from tests.server.conftest import serving

TEXTS = [f"the {one} sees a {one}" for one in ("cat", "dog", "bird", "bank", "loan", "coin")]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for known in ("_loaded", "_places"):
        monkeypatch.setattr(networks, known, {})
    encoder = small.text_model(tmp_path / "encoder")
    X = encoders.open_encoder(encoder).describe_all(TEXTS)
    hasher = GPHasher(n_bits=8, n_inducing=6, n_starts=1, length_scale=1.0, random_state=0)
    hasher.fit(X, np.repeat([0, 1], 3))
    items = {"label": ["animals"] * 3 + ["money"] * 3}
    Collection.create(tmp_path / "t.gphash", hasher, TEXTS, items, encoder=encoder).close()
    return tmp_path / "t.gphash"


def asked(client, **question):
    return client.post("/search", json=question)


def test_search_and_add_by_text(place):
    with serving(place, writable=True) as client:
        about = client.get("/collection").json()
        assert (about["text"], about["upload"]) == (True, False)
        found = asked(client, text="a dog sees the cat", k=2).json()
        assert [hit["labels"] for hit in found["hits"]] == [["animals"]] * 2
        assert len(found["query"]["probabilities"]) == 8
        added = client.post("/items", json={"text": "a coin is a loan", "label": "money"})
        assert added.status_code == 201
        assert added.json()["values"]["text"] == "a coin is a loan"
        bits = asked(client, text="a coin is a loan").json()["query"]["bits"]
        assert added.json()["bits"] == bits


@pytest.mark.parametrize(
    ("question", "code", "argument"),
    [
        ({"text": " "}, "invalid_argument", "text"),
        ({"text": ""}, "invalid_argument", "text"),
        ({"text": "a\0b"}, "invalid_argument", "text"),
        ({"text": 7}, "invalid_argument", "text"),
        ({"text": "x" * 20_001}, "invalid_argument", "text"),
        ({"text": "a", "key": 1}, "invalid_argument", None),
    ],
)
def test_questions_that_cannot_be(place, question, code, argument):
    with serving(place) as client:
        refused = asked(client, **question)
        assert refused.status_code == 422
        error = refused.json()["error"]
        assert (error["code"], error["argument"]) == (code, argument)
        picture = client.post("/search", files={"picture": ("a.png", b"x")})
        assert picture.json()["error"]["code"] == "no_descriptor"


def test_without_the_encoder(place, tmp_path):
    shutil.move(tmp_path / "encoder", tmp_path / "moved")
    networks._loaded.clear()
    networks._places.clear()
    with serving(place, writable=True) as client:
        assert client.get("/collection").json()["text"] is False
        assert asked(client, text="a dog").json()["error"]["code"] == "no_encoder"
        assert client.post("/items", json={"text": "a dog"}).json()["error"]["code"] == "no_encoder"
        assert asked(client, key=1).status_code == 200
    with serving(place, encoder=tmp_path / "moved") as client:
        assert client.get("/collection").json()["text"] is True
        assert asked(client, text="a dog").status_code == 200


def test_a_file_that_was_replaced(place, tmp_path):
    other = small.text_model(tmp_path / "other", seed=1)
    shutil.copy(other / "onnx" / "model.onnx", tmp_path / "encoder" / "onnx" / "model.onnx")
    networks._loaded.clear()
    with serving(place) as client:
        assert asked(client, text="a dog").json()["error"]["code"] == "no_encoder"
        assert asked(client, key=1).status_code == 200


class Failing:
    def run(self, outputs, feed):
        raise RuntimeError("indices out of bounds in /home/me/secret")


def test_an_encoder_that_fails_does_not_say_where_it_lies(place, tmp_path, capfd, monkeypatch):
    with serving(place, writable=True) as client:
        with pytest.MonkeyPatch.context() as failing:
            for one in networks._loaded.values():
                if isinstance(one, networks.Network):
                    failing.setattr(one, "_session", Failing())
            for refused in (asked(client, text="a dog"), client.post("/items", json={"text": "a dog"})):
                assert refused.status_code == 422
                assert refused.json()["error"]["message"] == "the encoder cannot encode this text."
                assert refused.json()["error"]["argument"] == "text"
            by_key = asked(client, key=1)
            assert str(tmp_path) not in by_key.text
            assert "secret" not in by_key.text
        monkeypatch.setattr(text_encoder, "_pooled", lambda *given: np.full(small.WIDTH, np.nan))
        refused = asked(client, text="a dog")
        assert refused.json()["error"]["message"] == "the encoder cannot encode this text."
    assert "not encoded" in capfd.readouterr().err  # the log says why


def test_a_picture_that_cannot_be_encoded(tmp_path, monkeypatch):
    path = small.picture_model(tmp_path / "net.onnx")
    small.write_json(tmp_path / "preprocessor_config.json", {"image_mean": [0] * 3, "image_std": [1] * 3, "size": 8})
    source = sources.read("digits:test", descriptor=str(path))
    hasher = GPHasher(n_bits=8, n_inducing=20, n_starts=1, length_scale=1.0, random_state=0).fit(source.X, source.y)
    Collection.create(tmp_path / "p.gphash", hasher, source).close()
    with serving(tmp_path / "p.gphash") as client:
        monkeypatch.setattr(picture_encoder, "_run", lambda *given: np.full(small.WIDTH, np.nan))
        picture = pictures.to_png(source.images[0], 8)
        refused = client.post("/search", files={"picture": ("a.png", picture)})
        assert refused.status_code == 422
        assert refused.json()["error"]["message"] == "the encoder cannot encode this picture."


def test_a_collection_of_features_takes_no_text(client):
    refused = asked(client, text="a dog")
    assert refused.json()["error"]["code"] == "no_descriptor"
    assert client.get("/collection").json()["text"] is False
