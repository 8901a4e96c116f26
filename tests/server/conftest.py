"""A small collection of digits, and the service around it: in a thread, or as a process that may be killed."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.data import sources
from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings
from tests.digits import QUICK

N_BITS = 16
START = "import json, sys; from gphash.server import service, settings; "
START += "service.run(sys.argv[1], settings.ServiceSettings(**json.loads(sys.argv[2])))"


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with a model, and a collection of all digits."""
    folder = tmp_path_factory.mktemp("built")
    source = sources.read("digits")
    hasher = GPHasher(**{**QUICK, "n_bits": N_BITS}).fit(source.X[:500], source.y[:500])
    hasher.save(folder / "digits.gph")
    Collection.create(folder / "digits.gphash", folder / "digits.gph", source).close()
    return folder


@pytest.fixture
def index(built, tmp_path):
    """The collection in a folder of the test's own."""
    shutil.copytree(built, tmp_path / "own")
    return tmp_path / "own" / "digits.gphash"


@contextlib.contextmanager
def serving(path, **settings):
    """A client of the service in a thread, on a free port."""
    app = create_app(path, ServiceSettings(**{"watch_seconds": 0, **settings}))
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            client.port, client.app = port, app
            until(lambda: client.get("/readyz").status_code == 200)
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def client(built):
    with serving(built / "digits.gphash") as found:
        yield found


class Process:
    """The service as a process; `first` is what it does before it starts."""

    def __init__(self, path, folder, first="", **settings):
        self.log = Path(folder) / f"log-{time.monotonic_ns()}"
        with open(self.log, "wb") as log:
            command = [sys.executable, "-c", f"{first}\n{START}", str(path), json.dumps({"port": 0, **settings})]
            self.process = subprocess.Popen(command, stderr=log)

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def events(self, name):
        return [line for line in self.lines() if line.get("event") == name]

    @contextlib.contextmanager
    def connect(self, **options):
        """A client, once the service is ready."""
        until(lambda: self.events("listening") or self.process.poll() is not None)
        port = self.events("listening")[0]["port"]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, **options) as client:
            client.port = port
            until(lambda: client.get("/readyz").status_code == 200)
            yield client

    def signal(self, number):
        os.kill(self.process.pid, number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()


def pipelined(port, path, times=300):
    """A client that asks and asks and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * times)
    return connection


def until(true, seconds=110):
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def error_of(answer, status):
    """Of an answer that says no in the way all do: its code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "argument"}
    assert error["message"]
    return error["code"], error["argument"]
