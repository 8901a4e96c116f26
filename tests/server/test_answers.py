"""Answers that every request is owed: whatever its method, its numbers, the disk, and the end of the service."""

import errno
import json
import logging
import sys
import threading
import warnings

import pytest

from gphash.collection.collection import Collection
from gphash.collection.items import Items
from gphash.files import LockedError
from gphash.server import logs
from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings
from tests.server.conftest import error_of
from tests.server.test_limits import ask

QUIET = {"hosts": ("localhost",), "log_requests": False}


@pytest.fixture(scope="module")
def app(built):
    return create_app(built / "digits.gphash", ServiceSettings(**QUIET))


@pytest.fixture
def writable(index):
    app = create_app(index, ServiceSettings(writable=True, **QUIET))
    yield app
    app.state.service.shelf.collection.close()


@pytest.mark.parametrize(
    ("method", "path", "given"),
    [
        ("GET", "/healthz", {}),
        ("GET", "/", {}),
        ("GET", "/items/7", {}),
        ("POST", "/search", {"json": {"key": 7}}),
        ("POST", "/search", {"json": {"key": -7}}),
        ("POST", "/search", {"content": b"x" * 1_000_000, "headers": {"Content-Type": "application/json"}}),
        ("GET", "/nowhere", {}),
        ("PUT", "/search", {}),
    ],
)
def test_whoever_is_answered_at_the_end_is_told_not_to_ask_again(app, method, path, given, monkeypatch):
    before = ask(app, method, path, **given)
    monkeypatch.setattr(app.state.service, "state", "stopping")
    answer = ask(app, method, path, **given)
    assert answer.status_code == before.status_code
    assert answer.headers.get_list("connection") == ["close"]
    assert before.status_code == 413 or "connection" not in before.headers


KNOWN = ["/", "/static/page.js", "/healthz", "/metrics", "/openapi.json"]
KNOWN += ["/docs", "/collection", "/collection/buckets", "/items/7", "/pictures/7"]


@pytest.mark.parametrize("path", [*KNOWN, "/items/99999", "/items/x", "/nowhere"])
def test_head_is_answered_as_get_is_without_the_body(app, path):
    whole, head = ask(app, "GET", path), ask(app, "HEAD", path)
    assert head.status_code == whole.status_code
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert path == "/metrics" or head.headers["content-length"] == whole.headers["content-length"]
    assert head.content == b""
    assert 'method="HEAD"' in ask(app, "GET", "/metrics").text


def test_head_where_there_is_no_get(app):
    assert ask(app, "HEAD", "/search").status_code == 405
    assert ask(app, "POST", "/healthz").headers["allow"] == "GET, HEAD"


def test_a_picture_that_is_too_large_keeps_the_connection(built):
    """All of it has come: there is nothing to wait for, and nothing that could be taken for another request."""
    app = create_app(built / "digits.gphash", ServiceSettings(max_picture_pixels=50, **QUIET))
    answer = ask(app, "POST", "/search", files={"picture": b"P5 8 8 255\n" + bytes(64)})
    assert error_of(answer, 413)[0] == "picture_too_large"
    assert "connection" not in answer.headers


NO_NUMBERS = ["1_0", " 1", "1 ", "+1", "1.0", "1e0", "01", "-0", "٣", "１", "0x1", "", "--1", "1\u2009", "9" * 5000]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_numbers_are_plain_digits_everywhere(writable, text):
    for path in ("items/{}", "pictures/{}", "collection/buckets?n={}", "collection/buckets?samples={}"):
        if text or "?" in path:
            asked = "/" + path.format("".join(f"%{octet:02x}" for octet in text.encode()))
            argument = path.partition("?")[2].partition("=")[0] or "key"
            assert error_of(ask(writable, "GET", asked), 422) == ("invalid_argument", argument), asked
    if text:
        picture = {"files": {"picture": b"P5 8 8 255\n" + bytes(64)}}
        for path, name in (("/search", "k"), ("/search", "radius"), ("/items", "key")):
            answer = ask(writable, "POST", path, data={name: text}, **picture)
            assert error_of(answer, 422) == ("invalid_argument", name)
        assert error_of(ask(writable, "POST", "/search", json={"key": 7, "k": text}), 422) == ("invalid_argument", "k")


def test_plain_digits_are_numbers(app):
    assert ask(app, "GET", "/items/10").json()["key"] == 10
    assert error_of(ask(app, "GET", "/items/-10"), 404)[0] == "unknown_item"
    answer = ask(app, "POST", "/search", data={"k": "3"}, files={"picture": b"P5 8 8 255\n" + bytes(64)})
    assert len(answer.json()["hits"]) == 3


@pytest.mark.parametrize(
    ("number", "status"), [("ENOSPC", 507), ("EDQUOT", 507), ("EFBIG", 507), ("EIO", 500), ("EROFS", 500)]
)
def test_a_full_disk_is_said_to_be_one(writable, number, status, monkeypatch, capfd):
    def full(*_):
        raise OSError(getattr(errno, number), "secret path")

    item = {"features": [0.0] * 64}
    with monkeypatch.context() as patch:
        patch.setattr(Items, "add", full)
        patch.setattr(Items, "remove", full)
        answers = [ask(writable, "POST", "/items", json=item), ask(writable, "DELETE", "/items/7")]
    code = {507: "insufficient_storage", 500: "internal"}[status]
    assert [error_of(answer, status)[0] for answer in answers] == [code] * 2
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["errno"] for line in lines if line.get("event") == "error"] == [number] * 2
    assert "secret" not in json.dumps(lines)
    assert ask(writable, "GET", "/items/7").status_code == 200
    assert ask(writable, "GET", "/collection").json()["n_items"] == 1797
    assert ask(writable, "POST", "/items", json=item).status_code == 201


def test_a_database_file_that_cannot_grow_changes_nothing(writable):
    ask_sqlite = writable.state.service.shelf.collection._store.items._connection.execute
    (n_pages,) = ask_sqlite("PRAGMA page_count").fetchone()
    ask_sqlite(f"PRAGMA max_page_count = {n_pages}")
    picture = {"picture": b"P5 200 200 255\n" + bytes(40_000)}
    assert error_of(ask(writable, "POST", "/items", files=picture), 507)[0] == "insufficient_storage"
    assert ask(writable, "GET", "/collection").json()["n_items"] == 1797
    ask_sqlite("PRAGMA max_page_count = 1000000")
    assert ask(writable, "POST", "/items", files=picture).status_code == 201
    assert ask(writable, "GET", "/collection").json()["n_items"] == 1798


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LockedError("secret"), "locked"),
        (TimeoutError("secret"), "locked"),
        (ConnectionError("secret"), "no_database"),
    ],
)
def test_whoever_must_wait_is_told_to_come_again(app, error, code, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(Collection, "item", fail)
    answer = ask(app, "GET", "/items/7")
    assert error_of(answer, 503)[0] == code
    assert answer.headers["retry-after"] == "1"
    assert "secret" not in answer.text


def test_a_log_that_cannot_be_written_costs_no_answer(built, monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(errno.ENOSPC, "no space")

    app = create_app(built / "digits.gphash", ServiceSettings(hosts=("localhost",)))
    monkeypatch.setattr(sys, "stderr", Full())
    assert ask(app, "GET", "/items/7").status_code == 200


@pytest.mark.filterwarnings("default")
def test_everything_is_said_in_json(capfd):
    def fall():
        raise RuntimeError("secret payload")

    with logs.alone():
        logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: secret payload")
        try:
            fall()
        except RuntimeError as error:
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
        warnings.warn("the journal could not be folded", RuntimeWarning, stacklevel=1)
        thread = threading.Thread(target=fall)
        thread.start()
        thread.join()
    written = capfd.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["event"] for line in lines] == ["server", "server", "warning", "thread"]
    assert "secret" not in written
    assert [line.get("error") for line in lines] == [None, "RuntimeError", None, "RuntimeError"]
