"""Every route, what it answers and what it refuses."""

import io
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from gphash.collection.collection import Collection
from gphash.collection.records import UnknownItemError
from gphash.index.hamming_index import HammingIndex
from gphash.server import app
from gphash.server.questions import SearchJson
from tests.collection import sources as small
from tests.server.conftest import N_BITS, error_of, serving

DIGITS = load_digits()
HERE = HammingIndex.build(np.zeros((1, 1), np.uint8))


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def collection(built):
    with Collection.open(built / "digits.gphash") as found:
        yield found


def test_the_collection_says_what_there_is(client, collection):
    found = client.get("/collection").json()
    stats = collection.index.stats()
    assert found == {
        "name": collection.name,
        "n_items": 1797,
        "similarity": True,
        "n_codes": stats.n_codes,
        "n_bits": N_BITS,
        "method": "gph",
        "probabilities": True,
        "pictures": True,
        "upload": True,
        "text": False,
        "labels": True,
        "classes": [str(digit) for digit in range(10)],
        "writable": False,
        "keys": "integer",
        "columns": {"key": "integer"} | dict.fromkeys(("label", "tags", "title", "text", "link", "picture"), "text"),
        "n_features": 64,
        "largest_bucket": stats.largest_bucket,
        "model": collection.model.fingerprint,
        "vectors": None,
        "limits": {"k": 1000, "rerank": 10_000, "body_bytes": 16_000_000, "picture_pixels": 25_000_000},
    }


def test_buckets(client, collection):
    found = client.get("/collection/buckets", params={"n": 3, "samples": 2}).json()
    for told, bucket in zip(found["buckets"], collection.buckets(3, 2), strict=True):
        samples = [{"key": key, "title": None, "has_picture": True} for key in bucket.keys]
        assert told == {"bits": bucket.bits, "size": bucket.size, "samples": samples, "labels": bucket.labels}
    assert found["n_items"] == 1797
    assert len(client.get("/collection/buckets").json()["buckets"]) == 12


def test_an_item_and_its_picture(client, collection):
    found = client.get("/items/7").json()
    expected = collection.item(7)
    assert found == {**expected._asdict(), "labels": list(expected.labels)}
    image = client.get("/pictures/7")
    assert image.content == collection.picture(7).content
    assert image.headers["content-type"] == "image/png"
    assert image.headers["cache-control"] == "private, no-cache"
    again = client.get("/pictures/7", headers={"If-None-Match": image.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/collection/random").json()["key"] in range(1797)


def test_pictures_have_threads_of_their_own(built, monkeypatch):
    threads, picture = [], Collection.picture
    monkeypatch.setattr(
        Collection,
        "picture",
        lambda *given, **named: threads.append(threading.current_thread().name) or picture(*given, **named),
    )
    with serving(built / "digits.gphash") as client:
        first = client.get("/pictures/7")
        again = client.get("/pictures/7", headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304
    assert [name.startswith("gphash-pictures") for name in threads] == [True] * 2


def test_the_limit_of_pixels_is_also_that_of_pictures_shown(built, monkeypatch):
    asked = []
    picture = Collection.picture
    monkeypatch.setattr(
        Collection, "picture", lambda self, key, **given: asked.append(given) or picture(self, key, **given)
    )
    with serving(built / "digits.gphash", max_picture_pixels=1234) as client:
        assert client.get("/pictures/7").status_code == 200
    assert asked == [{"max_pixels": 1234}]


@pytest.mark.parametrize(
    ("writable", "descriptor", "index", "quick"),
    [
        (False, None, HERE, True),
        (True, None, HERE, False),
        (False, 1, HERE, False),
        (False, None, "a database", False),
    ],
)
def test_only_what_cannot_wait_is_done_where_it_arrives(writable, descriptor, index, quick, monkeypatch):
    class Asked:  # whatever else is asked of it, such as has_pictures, would be an AttributeError
        pass

    collection = Asked()
    collection.writable, collection.descriptor, collection.index = writable, descriptor, index
    collection.model = SimpleNamespace(reader_=None)
    monkeypatch.setattr(app.index_search.scanner, "compiled", True)
    assert app._is_quick(collection, SearchJson(key=1)) is quick
    for narrowed in ({"label": "a"}, {"where": "key > 1"}, {"ties": True}, {"rerank": 20}):
        assert not app._is_quick(collection, SearchJson(key=1, **narrowed))
    collection.model = SimpleNamespace(reader_="something")  # by P(similar) then
    assert app._is_quick(collection, SearchJson(key=1)) is quick
    monkeypatch.setattr(app, "MANY", -1)
    assert not app._is_quick(collection, SearchJson(key=1))
    monkeypatch.setattr(app.index_search.scanner, "compiled", False)
    assert not app._is_quick(collection, SearchJson(key=1))


@pytest.mark.parametrize("ranking", ["hamming", "expected", "similarity"])
@pytest.mark.parametrize("radius", [None, 1])
@pytest.mark.parametrize("label", [None, "3"])
def test_a_search_by_id_is_the_collections(client, collection, ranking, radius, label):
    asked = {"key": 11, "k": 7, "ranking": ranking, "radius": radius, "label": label}
    found = client.post("/search", json=asked).json()
    query = collection.query(key=11)
    expected = collection.search(query, 7, ranking=ranking, radius=radius, label=label)
    assert [near["key"] for near in found["hits"]] == [near.key for near in expected]
    np.testing.assert_allclose(
        [near["distance"] for near in found["hits"]], [near.distance for near in expected], atol=1e-4
    )
    for near, wanted in zip(found["hits"], expected, strict=True):
        assert near["probability"] == pytest.approx(wanted.probability, abs=1e-4)
        rounded = {"labels": list(wanted.labels), "distance": near["distance"], "probability": near["probability"]}
        assert near == {**wanted._asdict(), **rounded}
    marks = [near.relevant for near in expected]
    assert found["precision"] == (pytest.approx(np.mean(marks), abs=1e-4) if marks else None)
    assert found["query"]["key"] == 11
    assert found["query"]["labels"] == list(query.labels)
    np.testing.assert_allclose(found["query"]["probabilities"], query.probabilities, atol=1e-4)
    assert found["query"]["bits"] == collection.item(11).bits
    assert found["ranking"] == ranking
    assert set(found["milliseconds"]) == {"encode", "search"}


def test_features_and_a_picture_of_the_same_find_the_same(client, collection):
    pixels = np.rint(DIGITS.images[20] * 255 / 16).astype(np.uint8)
    by_picture = client.post("/search", files={"picture": png(pixels)}, data={"k": "5", "ranking": "expected"})
    assert by_picture.status_code == 200, by_picture.text
    row = collection.descriptor.describe(pixels).astype(float).tolist()
    by_features = client.post("/search", json={"features": row, "k": 5, "ranking": "expected"})
    found, expected = by_picture.json(), by_features.json()
    assert found["hits"] == expected["hits"]
    assert found["query"] == expected["query"]
    assert found["query"]["key"] is None
    assert found["precision"] is None


def test_encode(client, collection):
    rows = (DIGITS.data[:3] / 16).tolist()
    packed, chances = collection.encode(rows)
    found = client.post("/encode", json={"features": rows}).json()
    assert found["codes"] == [code.tobytes().hex() for code in packed]
    assert found["bits"] == ["".join(map(str, np.unpackbits(code)[:N_BITS])) for code in packed]
    np.testing.assert_allclose(found["probabilities"], chances, atol=1e-4)
    one = client.post("/encode", files={"picture": png(np.zeros((9, 9), np.uint8))}).json()
    assert len(one["codes"]) == 1


def test_the_page_and_its_files(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert client.get("/static/page.js").headers["content-type"].startswith("text/javascript")
    again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/..", "/static/%2fetc%2fpasswd", "/static/x.js"]
)
def test_no_path_climbs_out_of_the_page(client, path):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", client.port)  # sends the path as it is
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 404
    assert json.loads(answer.read())["error"]["code"] == "not_found"
    connection.close()


def test_health_and_metrics(client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    client.post("/search", json={"key": 1})
    client.get("/items/99999")
    client.request("BREW", "/search")
    text = client.get("/metrics").text
    assert 'gphash_requests_total{method="POST",route="/search",status="200"}' in text
    assert 'gphash_requests_total{method="GET",route="/items/{key}",status="404"}' in text
    assert 'method="other"' in text
    assert "BREW" not in text
    assert "gphash_items 1797.0" in text
    assert "gphash_search_seconds_count" in text
    assert 'gphash_request_seconds_bucket{le="0.01",route="/search"}' in text
    assert "gphash_in_work 1.0" in text  # this one


def test_items_are_counted_by_a_thread_and_the_last_number_stays(built, monkeypatch):
    threads, faults = [], []

    def count(collection):
        threads.append(threading.current_thread().name)
        if faults:
            raise ConnectionError("the database is down")
        return 1797

    with serving(built / "digits.gphash") as client:
        monkeypatch.setattr(Collection, "__len__", count)
        assert "gphash_items 1797.0" in client.get("/metrics").text
        faults.append(1)
        assert "gphash_items 1797.0" in client.get("/metrics").text
    assert [name.startswith("gphash-work") for name in threads] == [True] * 2


@pytest.mark.parametrize("fault", [UnknownItemError("gone"), ConnectionError("down")], ids=["removed", "no database"])
@pytest.mark.parametrize("form", [False, True], ids=["features", "picture"])
def test_what_was_added_is_told_even_if_it_cannot_be_read_again(index, monkeypatch, form, fault):
    def add(client, key):
        if form:
            said = {"key": str(key), "label": "3", "title": "T"}
            return client.post("/items", files={"picture": png(np.eye(8, dtype=np.uint8) * 200)}, data=said)
        row = (DIGITS.data[0] / 16).tolist()
        return client.post("/items", json={"key": key, "features": row, "tags": ["a", "b"], "title": "T"})

    def failing(self, key):
        raise fault

    with serving(index, writable=True) as client:
        first = add(client, 5000)
        assert first.status_code == 201, first.text
        monkeypatch.setattr(Collection, "item", failing)
        again = add(client, 5001)
        assert again.status_code == 201, again.text
        assert again.json() == first.json() | {"key": 5001}


@pytest.mark.parametrize(
    ("body", "status", "code", "argument"),
    [
        (b"", 400, "malformed_json", None),
        (b"{", 400, "malformed_json", None),
        (b'{"key": 1', 400, "malformed_json", None),
        (b"\xff\xfe", 400, "malformed_json", None),
        (b"[" * 100_000, 400, "malformed_json", None),
        (b"[]", 422, "invalid_argument", None),
        (b"{}", 422, "invalid_argument", None),
        (b'{"key": 1, "features": [1]}', 422, "invalid_argument", None),
        (b'{"key": 1, "k": 0}', 422, "invalid_argument", "k"),
        (b'{"key": 1, "k": 1000000000}', 422, "invalid_argument", "k"),
        (b'{"key": 1, "k": 1001}', 422, "invalid_argument", "k"),
        (b'{"key": 1, "k": "3"}', 422, "invalid_argument", "k"),
        (b'{"key": 1, "radius": -1}', 422, "invalid_argument", "radius"),
        (b'{"key": 1, "ranking": "best"}', 422, "invalid_argument", "ranking"),
        (b'{"key": 1, "label": "cat"}', 422, "unknown_label", "label"),
        (b'{"key": 1, "colour": 3}', 422, "invalid_argument", "colour"),
        (b'{"key": 1.5}', 422, "invalid_argument", "key"),
        (b'{"key": true}', 422, "invalid_argument", "key"),
        (b'{"key": 99999}', 404, "unknown_item", "key"),
        (b'{"key": -1}', 404, "unknown_item", "key"),
        (b'{"key": 18446744073709551617}', 422, "invalid_argument", "key"),
        (b'{"features": []}', 422, "invalid_argument", "features"),
        (b'{"features": [1, 2]}', 422, "invalid_argument", "features"),
        (b'{"features": [' + b"NaN," * 63 + b"1]}", 422, "invalid_argument", "features"),
        (b'{"features": [' + b"1e400," * 63 + b"1]}", 422, "invalid_argument", "features"),
        (b'{"features": [' + b'"1",' * 63 + b"1]}", 422, "invalid_argument", "features"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(client, body, status, code, argument):
    answer = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert error_of(answer, status) == (code, argument)


def test_a_wrong_width_names_both(client):
    message = client.post("/search", json={"features": [1.0, 2.0]}).json()["error"]["message"]
    assert "2 numbers" in message
    assert "64" in message
    assert error_of(client.post("/encode", json={"features": [[1.0] * 64, [1.0]]}), 422)[1] == "features"


def test_features_beyond_what_can_be_squared(client):
    assert error_of(client.post("/search", json={"features": [1e308] * 64}), 422) == ("invalid_argument", "features")
    assert client.post("/search", json={"features": [1e15] * 64}).status_code == 200


def test_only_so_many_rows_are_encoded(client):
    assert error_of(client.post("/encode", json={"features": [[0.0] * 64] * 1001}), 422)[1] == "features"
    assert len(client.post("/encode", json={"features": [[0.0] * 64] * 1000}).json()["codes"]) == 1000


@pytest.mark.parametrize(
    ("files", "data", "status", "code", "argument"),
    [
        ({"picture": b"no picture"}, {}, 422, "bad_picture", "picture"),
        ({"picture": b""}, {}, 422, "bad_picture", "picture"),
        ({"picture": png(np.arange(1600).reshape(40, 40).astype(np.uint8))[:80]}, {}, 422, "bad_picture", "picture"),
        ({"other": b"x"}, {}, 422, "invalid_argument", "other"),
        ({"picture": png(np.zeros((9, 9), np.uint8))}, {"k": "0"}, 422, "invalid_argument", "k"),
        ({"picture": png(np.zeros((9, 9), np.uint8))}, {"k": "1001"}, 422, "invalid_argument", "k"),
        ({"picture": png(np.zeros((9, 9), np.uint8))}, {"colour": "3"}, 422, "invalid_argument", "colour"),
    ],
)
def test_a_form_that_cannot_be_meant_is_refused(client, files, data, status, code, argument):
    answer = client.post("/search", files=files, data=data)
    assert error_of(answer, status) == (code, argument)


def test_forms_that_are_none(client):
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert error_of(client.post("/search", content=b"hello", headers=kind), 400)[0] == "malformed_form"
    without = {"Content-Type": "multipart/form-data"}
    assert error_of(client.post("/search", content=b"hello", headers=without), 400)[0] == "malformed_form"
    two = [("picture", b"a"), ("picture", b"b")]
    assert error_of(client.post("/search", files=two), 400)[0] == "malformed_form"
    absent = b'--x\r\nContent-Disposition: form-data; name="k"\r\n\r\n3\r\n--x--\r\n'
    assert error_of(client.post("/search", content=absent, headers=kind), 422) == ("invalid_argument", "picture")


def test_other_bodies_routes_and_methods(client):
    assert error_of(client.post("/search", content=b"key=1"), 415)[0] == "unsupported_media_type"
    assert error_of(client.get("/nowhere"), 404)[0] == "not_found"
    assert error_of(client.put("/search"), 405)[0] == "method_not_allowed"
    assert error_of(client.get("/items/99999"), 404) == ("unknown_item", "key")
    assert error_of(client.get("/pictures/99999"), 404) == ("unknown_item", "key")
    assert error_of(client.get("/items/seven"), 422) == ("invalid_argument", "key")
    assert error_of(client.get(f"/items/{2**70}"), 422) == ("invalid_argument", "key")
    assert error_of(client.get("/collection/buckets?n=0"), 422) == ("invalid_argument", "n")
    assert error_of(client.get("/collection/buckets?samples=many"), 422) == ("invalid_argument", "samples")


def test_a_service_that_is_read_changes_nothing(client):
    assert error_of(client.post("/items", json={"features": [0.0] * 64}), 403)[0] == "read_only"
    assert error_of(client.delete("/items/1"), 403)[0] == "read_only"
    assert client.get("/items/1").status_code == 200


def test_items_are_added_and_removed(index):
    with serving(index, writable=True) as client:
        added = client.post("/items", json={"features": (DIGITS.data[0] / 16).tolist(), "label": "new"})
        assert added.status_code == 201
        number = added.json()["key"]
        assert number == 1797
        assert added.json()["labels"] == ["new"]
        assert client.get(f"/items/{number}").json() == added.json()
        assert error_of(client.get(f"/pictures/{number}"), 404) == ("no_picture", "key")
        assert "new" in client.get("/collection").json()["classes"]
        found = client.post("/search", json={"key": number, "label": "0", "k": 3}).json()
        assert [near["labels"] for near in found["hits"]] == [["0"]] * 3
        same = client.post("/items", json={"features": [0.0] * 64, "key": number})
        assert error_of(same, 409) == ("known_key", "key")
        picture = png(np.rint(DIGITS.images[1] * 255 / 16).astype(np.uint8))
        other = client.post("/items", files={"picture": picture}, data={"label": "1", "key": "5000"})
        assert other.status_code == 201, other.text
        assert other.json() == {**other.json(), "key": 5000, "labels": ["1"], "has_picture": True}
        assert client.get("/pictures/5000").content == picture
        assert error_of(client.post("/items", files={"picture": b"none"}), 422) == ("bad_picture", "picture")
        assert error_of(client.post("/items", json={"features": [0.0]}), 422) == ("invalid_argument", "features")
        both = {"features": [0.0] * 64, "label": "a", "tags": ["b"]}
        assert error_of(client.post("/items", json=both), 422) == ("invalid_argument", "tags")
        assert client.delete("/items/5000").status_code == 204
        assert error_of(client.delete("/items/5000"), 404) == ("unknown_item", "key")
        assert error_of(client.get("/items/5000"), 404) == ("unknown_item", "key")
        assert client.get("/collection").json()["n_items"] == 1798


def test_a_collection_of_plain_features(tmp_path):
    small.hasher().save(tmp_path / "model.gph")
    X = small.of_digits(50).X
    Collection.create(tmp_path / "plain.gphash", tmp_path / "model.gph", X).close()
    with serving(tmp_path / "plain.gphash") as client:
        said = client.get("/collection").json()
        assert [said[name] for name in ("upload", "pictures", "labels")] == [False] * 3
        refused = client.post("/search", files={"picture": png(np.zeros((9, 9), np.uint8))})
        assert error_of(refused, 422) == ("no_descriptor", "picture")
        found = client.post("/search", json={"key": 3, "k": 4}).json()
        assert len(found["hits"]) == 4
        assert found["query"]["probabilities"] is None
        refused = client.post("/search", json={"key": 3, "ranking": "expected"})
        assert error_of(refused, 422) == ("invalid_argument", "ranking")
