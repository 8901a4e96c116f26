"""Places in work are for requests that have come; bodies on their way have places of their own."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from gphash.server import edge
from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings
from tests.server.conftest import Process

JSON = (b"content-type", b"application/json")
FORM = (b"content-type", b"multipart/form-data; boundary=edge")
SEARCH = json.dumps({"key": 7, "k": 2}).encode()


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
        built / "digits.gphash",
        ServiceSettings(hosts=("localhost",), log_requests=False, max_in_work=2, max_unread=8, upload_queue=1),
    )


def metrics_of(app):
    return app.state.service.metrics


@pytest.mark.parametrize("kind", [JSON, FORM], ids=["json", "forms"])
def test_the_newest_of_too_many_bodies_is_refused_at_once(app, kind):
    async def story():
        slow = await waiting(app, 8, kind=kind)
        assert (metrics_of(app).in_work, metrics_of(app).arriving) == (0, 8)
        newest = Sender(app, SEARCH)
        await newest.task
        assert newest.status == 503
        assert (newest.headers[b"connection"], newest.headers[b"retry-after"]) == (b"close", b"1")
        assert b'gphash_busy_total{reason="bodies"} 1.0' in metrics_of(app).text()
        assert {one.status for one in slow} == {None}
        await ended(slow.pop())
        quick = Sender(app, SEARCH)
        await quick.task
        assert quick.status == 200
        await ended(*slow)
        assert (metrics_of(app).in_work, metrics_of(app).arriving, metrics_of(app).body_bytes) == (0, 0, 0)

    asyncio.run(story())


def test_bodies_that_do_not_come_take_no_place_in_work(app):
    form = b'--edge\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\nP5 8 8 255\n'
    form += bytes(64) + b"\r\n--edge--\r\n"

    async def story():
        slow = await waiting(app, 7, kind=FORM)  # more than requests that may be in work, or pictures that may wait
        quick = Sender(app, form, kind=FORM)
        await quick.task
        assert quick.status == 200
        slow[0].send(b'"key": 7}', more=False)
        await slow[0].task
        assert slow[0].status == 400
        await ended(*slow)

    asyncio.run(story())


def test_whoever_never_reads_keeps_no_place_and_is_left(built):
    chosen = ServiceSettings(hosts=("localhost",), log_requests=False, max_in_work=1, send_seconds=0.3)
    app = create_app(built / "digits.gphash", chosen)

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
    monkeypatch.setattr(edge, "LARGEST_BODIES", 2)
    chosen = ServiceSettings(hosts=("localhost",), log_requests=False, max_body_bytes=100_000)
    app = create_app(built / "digits.gphash", chosen)

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


def test_a_body_that_is_too_large_is_dropped_for_a_moment(app, monkeypatch):
    monkeypatch.setattr(edge, "DRAIN_SECONDS", 0.2)

    async def story():
        large = [Sender(app, b" " * 1_000_000, b"") for _ in range(20)]
        for one in large:
            one.send(b" ", more=True)
        await asyncio.sleep(0.1)
        assert {one.status for one in large} <= {413, 503}
        await asyncio.wait_for(asyncio.gather(*(one.task for one in large)), 5)
        assert (metrics_of(app).arriving, metrics_of(app).body_bytes) == (0, 0)

    asyncio.run(story())


def overload():
    path = Path(__file__).parents[2] / "benchmarks" / "overload.py"
    spec = importlib.util.spec_from_file_location("overload", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(512, 0, 0, 0), (0, 100, 0, 0), (0, 0, 67, 0), (512, 50, 67, 0)])
def test_everybody_else_is_answered(built, tmp_path, counts):
    roomy = {"log_requests": False, "max_connections": 4096}  # idle ones are closed by a proxy, not by the service
    with Process(built / "digits.gphash", tmp_path, **roomy) as process, process.connect() as client:
        found = asyncio.run(overload().attacked(client.port, counts, 3.0, "127.0.0.1"))
    assert {status for results in found.values() for status, _ in results} == {200}
