"""Places in work are for requests that have come: who sends slowly, or nothing, keeps nobody else out."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from gphash.server import places
from gphash.server.service import create_app
from gphash.server.settings import Settings
from tests.server.conftest import Process

JSON = (b"content-type", b"application/json")
FORM = (b"content-type", b"multipart/form-data; boundary=edge")
SEARCH = json.dumps({"id": 7, "k": 2}).encode()


class Sender:
    """A client of the application itself, who sends what he is told to and no more, and may never read."""

    def __init__(self, app, *parts, address="10.0.0.1", kind=JSON, path="/search", deaf=False):
        self.status, self.headers = None, {}
        self._reads = asyncio.Event()
        if not deaf:
            self._reads.set()
        self._parts = asyncio.Queue()
        for number, part in enumerate(parts):
            self.send(part, more=number + 1 < len(parts))
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "client": (address, 1)}
        scope |= {"headers": [(b"host", b"localhost"), kind], "http_version": "1.1", "scheme": "http"}
        self.task = asyncio.create_task(app(scope, self._parts.get, self._take))

    def send(self, part, more):
        self._parts.put_nowait({"type": "http.request", "body": part, "more_body": more})

    async def _take(self, message):
        await self._reads.wait()
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])


async def waiting(app, n, **how):
    """Clients who send a byte, and wait."""
    found = []
    for _ in range(n):
        one = Sender(app, **how)
        one.send(b"{", more=True)
        found.append(one)
    await asyncio.sleep(0.05)
    return found


async def ended(*senders):
    for one in senders:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in senders), return_exceptions=True)


@pytest.fixture
def app(built):
    return create_app(
        built / "digits.index",
        Settings(hosts=("localhost",), log_requests=False, max_in_work=2, max_unread=8, upload_queue=1),
    )


def metrics_of(app):
    return app.state.service.metrics


@pytest.mark.parametrize("kind", [JSON, FORM], ids=["json", "forms"])
def test_a_search_is_answered_while_bodies_do_not_come(app, kind):
    async def story():
        slow = await waiting(app, 30, kind=kind)
        assert metrics_of(app).in_work == 0
        quick = Sender(app, SEARCH)
        await quick.task
        given_up = [one for one in slow if one.status is not None]
        assert quick.status == 200
        assert len(given_up) == 30 + 1 - 4  # half of the places are those of one address
        assert {one.status for one in given_up} == {503}
        assert {one.headers[b"connection"] for one in given_up} == {b"close"}
        await ended(*slow)
        assert (metrics_of(app).in_work, metrics_of(app).arriving) == (0, 0)

    asyncio.run(story())


def test_a_picture_is_taken_while_forms_do_not_come(app):
    form = b'--edge\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\nP5 8 8 255\n'
    form += bytes(64) + b"\r\n--edge--\r\n"

    async def story():
        slow = await waiting(app, 30, kind=FORM)
        quick = Sender(app, form, kind=FORM)
        await quick.task
        assert quick.status == 200
        await ended(*slow)

    asyncio.run(story())


def test_other_addresses_lose_nothing(app):
    async def story():
        honest = await waiting(app, 2, address="10.0.0.2")
        crowd = await waiting(app, 30)
        other = await waiting(app, 30, address="10.0.0.3")
        for one in honest:
            assert one.status is None
            one.send(b'"id": 7}', more=False)
            await one.task
            assert one.status == 200
        await ended(*crowd, *other)

    asyncio.run(story())


def test_the_slowest_is_given_up(app):
    async def story():
        (upload,) = await waiting(app, 1)
        upload.send(b" " * 200_000, more=True)
        await asyncio.sleep(0.05)
        crowd = await waiting(app, 30)
        assert upload.status is None
        upload.send(b'"id": 7}', more=False)
        await upload.task
        assert upload.status == 200
        await ended(*crowd)

    asyncio.run(story())


def test_whoever_never_reads_keeps_no_place_and_is_left(built):
    chosen = Settings(hosts=("localhost",), log_requests=False, max_in_work=1, send_seconds=0.3)
    app = create_app(built / "digits.index", chosen)

    async def story():
        deaf = Sender(app, SEARCH, deaf=True)
        await asyncio.sleep(0.1)
        quick = Sender(app, SEARCH)
        await quick.task
        assert quick.status == 200
        assert not deaf.task.done()
        await deaf.task
        assert b'status="499"' in metrics_of(app).text()

    asyncio.run(story())


def test_memory_for_bodies_has_an_end(built, monkeypatch):
    monkeypatch.setattr(places, "LARGEST_BODIES", 2)
    chosen = Settings(hosts=("localhost",), log_requests=False, max_body_bytes=100_000)
    app = create_app(built / "digits.index", chosen)

    async def story():
        uploads = await waiting(app, 4)
        for one in uploads:
            one.send(b" " * 90_000, more=True)
            await asyncio.sleep(0.02)
        assert sorted(one.status or 0 for one in uploads) == [0, 0, 503, 503]
        await ended(*uploads)
        quick = Sender(app, SEARCH)
        await quick.task
        assert quick.status == 200

    asyncio.run(story())


def test_a_body_that_is_too_large_is_dropped_only_as_long_as_there_is_room(app):
    """A client that was told so, and goes on sending, is one of those on their way."""

    async def story():
        large = [Sender(app) for _ in range(20)]
        for one in large:
            one.send(b" " * 1_000_000, more=True)
        await asyncio.sleep(0.1)
        assert {one.status for one in large} == {413}
        assert sum(not one.task.done() for one in large) == 4
        await ended(*large)

    asyncio.run(story())


def overload():
    path = Path(__file__).parents[2] / "benchmarks" / "overload.py"
    spec = importlib.util.spec_from_file_location("overload", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(512, 0, 0, 0), (0, 260, 0, 0), (0, 0, 67, 0), (512, 260, 67, 0)])
def test_everybody_else_is_answered(built, tmp_path, counts):
    with Process(built / "digits.index", tmp_path, log_requests=False) as process, process.connect() as client:
        found = asyncio.run(overload().attacked(client.port, counts, 3.0, "127.0.0.1"))
    assert {status for results in found.values() for status, _ in results} == {200}
