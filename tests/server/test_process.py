"""The service as a process: it starts or says why not, reloads, stops, and forgets nothing."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
import uvicorn

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.container import FormatError
from gphash.data import sources
from gphash.server import service
from gphash.server.settings import ServiceSettings
from gphash.server.shelf import Shelf
from tests.collection import sources as small
from tests.digits import QUICK
from tests.server.conftest import N_BITS, Process, error_of, serving, until


def rebuild(built, path, n_rows):
    """Put another collection, of the first rows, where one is."""
    source = sources.read("digits")
    part = source._replace(X=source.X[:n_rows], y=source.y[:n_rows], images=source.images[:n_rows])
    Collection.create(path, path.with_name("digits.gph"), part, replace=True).close()


def other_model(folder):
    source = sources.read("digits")
    hasher = GPHasher(**{**QUICK, "n_bits": N_BITS, "random_state": 1}).fit(source.X[:300], source.y[:300])
    hasher.save(folder / "other.gph")
    return folder / "other.gph"


@pytest.mark.slow
def test_everything_acknowledged_is_there_after_a_kill(index, tmp_path):
    rows = np.random.default_rng(0).random((8, 64)).round(3).tolist()
    added = []
    with Process(index, tmp_path, writable=True) as process, process.connect() as client:
        for number, row in enumerate(rows):
            answer = client.post("/items", json={"features": row, "label": f"new {number}"})
            assert answer.status_code == 201
            added.append(answer.json())
        assert client.delete("/items/3").status_code == 204
        process.signal(signal.SIGKILL)
        process.process.wait()
    with Process(index, tmp_path, writable=True) as process, process.connect() as client:
        assert [client.get(f"/items/{item['key']}").json() for item in added] == added
        assert client.get("/items/3").status_code == 404
        assert client.get("/collection").json()["n_items"] == 1797 + 8 - 1


@pytest.mark.slow
def test_sighup_and_replaced_files_are_taken_in_while_requests_run(built, index, tmp_path):
    failures, asked, stop = [], 0, threading.Event()
    with Process(index, tmp_path, watch_seconds=0.2) as process, process.connect() as client:

        def ask():
            nonlocal asked
            while not stop.is_set():
                answer = client.post("/search", json={"key": asked % 500, "k": 3})
                asked += 1
                if answer.status_code != 200:
                    failures.append(answer.text)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            assert client.get("/collection").json()["n_items"] == 1797
            process.signal(signal.SIGHUP)
            until(lambda: any(e["reason"] == "SIGHUP" and e["result"] == "done" for e in process.events("reload")))
            rebuild(built, index, 900)
            until(lambda: client.get("/collection").json()["n_items"] == 900)
            before = client.get("/collection").json()
            (index / "damaged").write_bytes(b"damaged")
            (index / "damaged").replace(index / "collection.json")
            until(lambda: process.events("reload")[-1]["result"] == "failed")
            assert client.get("/collection").json() == before
            metrics = client.get("/metrics").text
        finally:
            stop.set()
            asking.join()
        assert failures == []
        assert asked > 10
        assert 'gphash_reloads_total{result="failed"}' in metrics
        assert 'gphash_reloads_total{result="done"}' in metrics


@pytest.mark.slow
def test_a_writer_is_not_reloaded(index, tmp_path):
    with Process(index, tmp_path, writable=True) as process, process.connect() as client:
        process.signal(signal.SIGHUP)
        until(lambda: process.events("reload"))
        assert client.post("/items", json={"features": [0.0] * 64}).status_code == 201


@pytest.mark.slow
def test_a_stop_lets_requests_finish(index, tmp_path):
    body = json.dumps({"key": 1}).encode()
    with Process(index, tmp_path) as process, process.connect() as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
            lines = ["POST /search HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            connection.sendall("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body[:4])
            time.sleep(0.2)
            process.signal(signal.SIGTERM)
            time.sleep(0.5)
            assert process.process.poll() is None
            connection.sendall(body[4:])
            answer = connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"connection: close" in answer.lower().partition(b"\r\n\r\n")[0]
        assert process.process.wait(20) == 0
        assert [event["unfinished"] for event in process.events("stopped")] == [0]


SLOW = """
import time
from concurrent.futures import Future
from gphash.server import answers
answers.summary = lambda *_: time.sleep(60)
"""


@pytest.mark.slow
def test_a_stop_does_not_wait_for_threads_beyond_its_time(index, tmp_path):
    with Process(index, tmp_path, first=SLOW, shutdown_seconds=1) as process, process.connect() as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
            connection.sendall(b"GET /collection HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.3)
            process.signal(signal.SIGTERM)
            assert process.process.wait(10) == 0
        assert [event["unfinished"] for event in process.events("stopped")] == [1]


HANGUP = """
import os, signal
from gphash.server import app
init = app.Service.__init__
app.Service.__init__ = lambda *args: (os.kill(os.getpid(), signal.SIGHUP), init(*args))[1]
"""


@pytest.mark.slow
def test_a_hangup_while_it_loads_does_not_end_it(index, tmp_path):
    with Process(index, tmp_path, first=HANGUP) as process, process.connect() as client:
        assert client.get("/collection").status_code == 200
        process.signal(signal.SIGHUP)
        until(lambda: process.events("reload"))
        process.signal(signal.SIGTERM)
        assert process.process.wait(20) == 0


@pytest.mark.slow
def test_an_answer_that_is_read_slowly_is_read_to_its_end(index, tmp_path):
    quick = {"send_seconds": 2, "log_requests": False}
    with Process(index, tmp_path, **quick) as process, process.connect() as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=8) as connection:
            asked = b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(400 * (asked + b"\r\n") + asked + b"Connection: close\r\n\r\n")
            found, began = [], time.monotonic()
            while more := connection.recv(1 << 15):
                found.append(more)
                time.sleep(0.015)
        assert b"".join(found).count(b"HTTP/1.1 200") == 401
        assert time.monotonic() - began > 3


@pytest.mark.slow
def test_more_clients_than_allowed_are_refused(index, tmp_path):
    with Process(index, tmp_path, max_connections=3) as process, process.connect() as client:
        address = ("127.0.0.1", client.port)
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(socket.create_connection(address, timeout=8)) for _ in range(4)]
            others[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"503 Service Unavailable" in others[-1].recv(1000)
        until(lambda: client.get("/healthz").status_code == 200)


@contextlib.asynccontextmanager
async def watching(shelf, seconds=0.05):
    """Watch until the test is through."""
    task = asyncio.create_task(shelf.watch(seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        shelf.collection.close()


async def becomes(true, seconds=20):
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


def replace(index):
    """Put a copy of the collection in its place."""
    shutil.copytree(index, index.with_name("copy"))
    index.rename(index.with_name("old"))
    index.with_name("copy").rename(index)


def test_a_collection_that_cannot_be_opened_is_tried_again(index, monkeypatch):
    results = []
    shelf = Shelf(index, ServiceSettings(), results.append)
    opened = Collection.open
    faults = iter([OSError("not now"), OSError("not now")])

    def failing(*args, **given):
        if fault := next(faults, None):
            raise fault
        return opened(*args, **given)

    monkeypatch.setattr(Collection, "open", failing)

    async def story():
        async with watching(shelf):
            replace(index)
            await becomes(lambda: len(results) == 3)
            await asyncio.sleep(0.3)

    asyncio.run(story())
    assert results == ["failed", "failed", "done"]


def test_between_attempts_it_waits_longer_and_longer(index, monkeypatch):
    results = []
    shelf = Shelf(index, ServiceSettings(), lambda result: results.append((result, time.monotonic())))

    async def story():
        async with watching(shelf):
            (index / "collection.json").unlink()
            await becomes(lambda: len(results) == 5)

    asyncio.run(story())
    times = [moment for _, moment in results]
    assert times[4] - times[3] > 0.3
    assert {result for result, _ in results} == {"failed"}


def test_a_collection_behind_a_link_is_watched(built, index, tmp_path):
    results = []
    link = tmp_path / "link.gphash"
    link.symlink_to(built / "digits.gphash")
    shelf = Shelf(link, ServiceSettings(), results.append)

    async def story():
        async with watching(shelf):
            (tmp_path / "next").symlink_to(index)
            (tmp_path / "next").replace(link)
            await becomes(lambda: results == ["done"])

    asyncio.run(story())


def test_changes_of_others_are_seen_without_a_reload(index):
    results = []
    shelf = Shelf(index, ServiceSettings(), results.append)
    source = sources.read("digits")

    async def story():
        async with watching(shelf):
            with Collection.open(index, writable=True) as writer:
                (key,) = writer.add(source.X[:1])
                assert shelf.collection.item(key).key == key
                writer.remove([3])
                writer.compact()
                assert len(shelf.collection) == 1797
                await asyncio.sleep(0.3)

    asyncio.run(story())
    assert results == []


def test_another_model_that_is_put_there_is_refused_in_one_line(index, tmp_path):
    from gphash.server.service import run

    shutil.copy(other_model(tmp_path), index / "model.gph")
    with pytest.raises(FormatError, match="model") as caught:
        run(index, ServiceSettings(port=0))
    assert "\n" not in str(caught.value)


def test_a_port_that_is_taken_is_named(built):
    from gphash.server.service import run

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            run(built / "digits.gphash", ServiceSettings(port=port))


@pytest.mark.slow
def test_logs_hold_neither_payloads_nor_tokens(built, tmp_path):
    with Process(built / "digits.gphash", tmp_path, read_token="very-secret-token") as process:
        with process.connect(headers={"Authorization": "Bearer very-secret-token"}) as client:
            client.post("/search", json={"key": 77, "label": "payload-label"})
            client.post("/search", content=b'{"payload-broken', headers={"Content-Type": "application/json"})
            client.get("/collection?token=very-secret-token")
            client.get("/items/1", headers={"Authorization": "Bearer wrong-secret"})
            client.get("/line%0abreak")
            client.get("/nowhere")
            client.get("/healthz")  # when it answers, the lines of those before are written
        lines = process.lines()
        text = process.log.read_text()
    assert "secret" not in text
    assert "payload" not in text
    requests = [line for line in lines if "method" in line]
    assert all({"time", "method", "path", "status", "milliseconds", "client"} == set(line) for line in requests)
    assert {line["status"] for line in requests} >= {200, 400, 401, 404, 422}
    assert any(line["path"] == "/line\nbreak" for line in requests)


def test_ready_only_after_warming_up(built, monkeypatch):
    from gphash.server import app

    go = threading.Event()
    monkeypatch.setattr(app, "warm", lambda _: go.wait(20))
    import httpx

    application = app.create_app(built / "digits.gphash", ServiceSettings())
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}") as client:
        assert client.get("/healthz").status_code == 200
        assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (503, {"status": "loading"})
        go.set()
        until(lambda: client.get("/readyz").status_code == 200)
        application.state.service.state = "stopping"
        assert client.get("/readyz").status_code == 503
    server.should_exit = True
    thread.join()


def test_requests_in_flight_keep_their_collection(built, tmp_path, monkeypatch):
    shutil.copytree(built, tmp_path / "own")

    async def story():
        request = Future()
        shelf = Shelf(tmp_path / "own" / "digits.gphash", ServiceSettings(), lambda _: None, {request})
        old = shelf.collection
        assert await shelf.reload("test")
        assert shelf.collection is not old
        await asyncio.sleep(0.1)
        assert old.search(old.query(key=1), 2)
        assert old not in closed
        request.set_result(None)
        await becomes(lambda: old in closed)
        assert shelf.collection.search(shelf.collection.query(key=1), 2)
        shelf.collection.close()

    closed = noted_closes(monkeypatch)
    asyncio.run(story())


def test_a_collection_that_cannot_be_warmed_up_is_closed(index, monkeypatch):
    def failing(collection):
        tried.append(collection)
        raise OSError("no disk")

    async def story():
        shelf = Shelf(index, ServiceSettings(), results.append)
        assert not await shelf.reload("test")
        assert closed == tried != [shelf.collection]
        shelf.collection.close()

    tried, results, closed = [], [], noted_closes(monkeypatch)
    monkeypatch.setattr("gphash.server.shelf.warm", failing)
    asyncio.run(story())
    assert results == ["failed"]


def noted_closes(monkeypatch):
    """The collections that are closed from now on."""
    closed, close = [], Collection.close
    monkeypatch.setattr(Collection, "close", lambda self: (close(self), closed.append(self)))
    return closed


def test_two_writers_are_one_too_many(index):
    from gphash.server.service import create_app

    with serving(index, writable=True) as client:
        with pytest.raises(RuntimeError, match="one writer"):
            create_app(index, ServiceSettings(writable=True))
        assert error_of(client.delete("/items/99999"), 404)[0] == "unknown_item"


def test_pictures_that_are_not_shown_are_told_of_in_one_line(tmp_path, monkeypatch, capfd):
    small.hasher().save(tmp_path / "model.gph")
    (tmp_path / "indexes").mkdir()
    path = tmp_path / "indexes" / "bilder.gphash"
    Collection.create(path, tmp_path / "model.gph", small.folder_of_pictures(tmp_path / "bilder")).close()
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    for pictures in (None, tmp_path / "bilder"):
        service.run(path, ServiceSettings(port=0, pictures=pictures), lambda *_: None)
        said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        told = [line for line in said if "pictures" in line["event"]]
        assert len(told) == (pictures is None)
        assert pictures is not None or f"--pictures '{tmp_path / 'bilder'}'" in told[0]["advice"]


def test_an_answer_does_not_wait_for_its_headers_to_be_confirmed():
    listener = service._listen("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
