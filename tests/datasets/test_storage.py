"""Downloads against a real server on this machine; no other address is ever reached."""

import concurrent.futures
import contextlib
import http.server
import io
import os
import re
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from gphash.datasets import progress, storage, transfer
from gphash.datasets.dataset import DataError

from .official import md5

CONTENT = bytes(range(256)) * 4096
CHECKSUM = f"md5:{md5(CONTENT)}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the bytes of `files` with ranges; a path's first folder says how it misbehaves."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        manner, _, name = self.path.strip("/").partition("/")
        content, wanted = self.server.files[name], self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        self.close_connection = True
        if manner == "busy" and len(self.server.requests) < 3:
            return self.answer(503)
        if manner == "gone":
            return self.answer(404)
        if manner == "elsewhere":
            return self.answer(302, {"Location": self.server.elsewhere})
        if manner == "another":
            content = content[::-1]
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and manner != "norange" else 0
        if start and start >= len(content):
            return self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
        headers = {"Content-Length": str(len(content) - start)}
        if start:
            first = start + 1 if manner == "shifted" else start
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        if manner == "endless":
            del headers["Content-Length"]
        # The connection breaks after a third of the file, every time.
        end = start + len(content) // 3 if manner == "cut" else len(content)
        self.answer(206 if start else 200, headers, content[start:end])

    def answer(self, code, headers=None, content=b""):
        self.send_response(code)
        for name, value in {"Connection": "close", **(headers or {})}.items():
            self.send_header(name, value)
        if not content and "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", "0")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # whoever has seen enough hangs up
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(storage, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.requests, running.elsewhere = {"data.bin": CONTENT}, [], ""
        running.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch(server, folder, *manners, size_limit=1 << 21, checksum=CHECKSUM, **options):
    urls = [f"{server.address}/{manner}/data.bin" for manner in manners]
    return storage.fetch("Test", urls, folder / "data.bin", size_limit=size_limit, checksum=checksum, **options)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_of_several_at_once_one_downloads(server, tmp_path):
    started, go_on = threading.Event(), threading.Event()

    def wait(*_):
        started.set()
        assert go_on.wait(30)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        first = pool.submit(fetch, server, tmp_path, "plain", progress=wait)
        assert started.wait(30)
        others = [pool.submit(fetch, server, tmp_path, "plain") for _ in range(3)]
        time.sleep(0.2)
        assert not any(other.done() for other in others)
        go_on.set()
        assert {job.result(30) for job in (first, *others)} == {tmp_path / "data.bin"}
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_whoever_waited_in_vain_tries_as_well(server, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(fetch, server, tmp_path, "gone") for _ in range(4)]
        assert all(isinstance(job.exception(30), storage.DataMissingError) for job in jobs)
    assert len(server.requests) == 4
    assert names(tmp_path) == []


def test_a_file_comes_whole_and_progress_is_told(server, tmp_path):
    calls = []
    path = fetch(server, tmp_path / "new" / "folder", "plain", progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["data.bin"]
    assert calls[0] == (0, len(CONTENT))
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert calls == sorted(calls)


def test_a_part_is_resumed_where_it_ends(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    calls = []
    assert fetch(server, tmp_path, "plain", progress=lambda *call: calls.append(call)).read_bytes() == CONTENT
    assert server.requests == [("/plain/data.bin", "bytes=1000-")]
    assert calls[0] == (1000, len(CONTENT))
    assert names(tmp_path) == ["data.bin"]


def test_a_server_that_knows_no_ranges_sends_everything_again(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    assert fetch(server, tmp_path, "norange").read_bytes() == CONTENT


def test_a_finished_part_needs_no_more_than_its_checksum(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path, "plain").read_bytes() == CONTENT
    assert len(server.requests) == 1


@pytest.mark.parametrize("length", [1000, 2 * len(CONTENT)])
def test_a_part_of_something_else_is_begun_anew(server, tmp_path, length):
    (tmp_path / "data.bin.part").write_bytes(b"x" * length)
    assert fetch(server, tmp_path, "plain").read_bytes() == CONTENT
    assert server.requests[-1] == ("/plain/data.bin", None)


def test_a_connection_that_breaks_is_taken_up_again(server, tmp_path):
    assert fetch(server, tmp_path, "cut").read_bytes() == CONTENT
    third = len(CONTENT) // 3
    assert [wanted for _, wanted in server.requests] == [None, *(f"bytes={n * third}-" for n in (1, 2, 3))]


def test_a_broken_download_leaves_its_part_and_no_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "TRIES", 2)
    with pytest.raises(storage.DataMissingError, match=r"broke after \d+ of \d+ bytes"):
        fetch(server, tmp_path, "cut")
    assert names(tmp_path) == ["data.bin.part"]
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[: len(CONTENT) // 3 * 2]


def test_long_stretches_between_breaks_do_not_count_as_failures(server, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "TRIES", 1)
    monkeypatch.setattr(storage, "STEADY_BYTES", 1000)
    assert fetch(server, tmp_path, "cut").read_bytes() == CONTENT
    assert len(server.requests) == 4


def test_a_busy_server_is_asked_again(server, tmp_path):
    assert fetch(server, tmp_path, "busy").read_bytes() == CONTENT
    assert len(server.requests) == 3


def test_the_next_address_is_tried(server, tmp_path):
    assert fetch(server, tmp_path, "gone", "another", "plain").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/gone/data.bin", "/another/data.bin", "/plain/data.bin"]


def test_a_wrong_checksum_is_an_error_and_nothing_stays(server, tmp_path):
    with pytest.raises(
        DataError, match=rf"Test: data.bin .*holds something else: the md5 is \w+, wanted is {'0' * 32}"
    ):
        fetch(server, tmp_path, "plain", checksum="md5:" + "0" * 32)
    assert names(tmp_path) == []
    assert len(server.requests) == 1


def test_wrong_content_and_an_unreachable_address_say_what_to_do_by_hand(server, tmp_path):
    with pytest.raises(DataError, match="holds something else") as caught:
        fetch(server, tmp_path, "gone", "another")
    for words in ("404", f"By hand: download {server.address}/gone/data.bin", str(tmp_path), storage.VARIABLE):
        assert words in str(caught.value)


@pytest.mark.parametrize(("manner", "words"), [("plain", "holds 1048576 bytes"), ("endless", "more than 99999 bytes")])
def test_more_than_the_limit_is_refused(server, tmp_path, manner, words):
    with pytest.raises(DataError, match=words):
        fetch(server, tmp_path, manner, size_limit=99_999)
    assert names(tmp_path) == []


def test_a_wrong_range_is_not_appended(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(storage.DataMissingError, match="bytes from 1000"):
        fetch(server, tmp_path, "shifted")
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:1000]


def test_redirections_within_this_machine_are_followed(server, tmp_path):
    server.elsewhere = f"{server.address}/plain/data.bin"
    assert fetch(server, tmp_path, "elsewhere").read_bytes() == CONTENT


@pytest.mark.parametrize("target", ["http://data.example/data.bin", "ftp://data.example/data.bin"])
def test_no_redirection_leads_away_from_https(server, tmp_path, target):
    server.elsewhere = target
    with pytest.raises(storage.DataMissingError, match="only addresses that begin with https"):
        fetch(server, tmp_path, "elsewhere")


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1/a", "http://localhost/a", "https://localhost/a", "https://127.1.2.3/a", "https://[::1]/a"],
)
def test_no_redirection_leads_from_elsewhere_to_this_machine(target):
    handler = transfer._SafeRedirects()
    request = urllib.request.Request("https://data.example/a")
    with pytest.raises(transfer.UnreachableError, match="to this machine is not followed"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", {}, target)
    assert handler.redirect_request(request, io.BytesIO(), 302, "Found", {}, "https://other.example/a") is not None


@pytest.mark.parametrize("url", ["http://data.example/a", "file:///etc/hostname", "ftp://127.0.0.1/a"])
def test_only_https_is_opened(tmp_path, url):
    with pytest.raises(storage.DataMissingError, match="only addresses that begin with https"):
        storage.fetch("Test", [url], tmp_path / "a", size_limit=10, checksum=CHECKSUM)
    assert names(tmp_path) == []


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    url = f"http://127.0.0.1:{closed_port()}/data.bin"
    with pytest.raises(storage.DataMissingError) as caught:
        storage.fetch("Test", [url], tmp_path / "data.bin", size_limit=10, checksum=CHECKSUM)
    message = str(caught.value)
    for words in ("Test: 1 file is missing", "data.bin", str(tmp_path), "Connection refused", f"download {url}"):
        assert words in message
    assert storage.VARIABLE in message
    assert isinstance(caught.value, FileNotFoundError)
    assert names(tmp_path) == []


def test_a_server_that_falls_silent_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(transfer, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(storage, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(storage, "TRIES", 2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.bin"
        with pytest.raises(storage.DataMissingError, match="timed out"):
            storage.fetch("Test", [url], tmp_path / "data.bin", size_limit=10, checksum=CHECKSUM)


def test_obtain_names_everything_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    url = f"http://127.0.0.1:{closed_port()}/"
    files = [storage.RemoteFile(name, (url + name,), CHECKSUM, 10) for name in ("a", "b", "c")]
    (tmp_path / "b").write_bytes(b"is there, and not touched")
    for download, words in ((True, "Connection refused"), (False, "2 files are missing")):
        with pytest.raises(storage.DataMissingError, match=words) as caught:
            storage.obtain("Test", files, tmp_path, download=download)
        assert caught.value.files == ("a", "c")
        assert caught.value.folder == tmp_path
        assert f"download {url}a, {url}c" in str(caught.value)


def test_obtain_downloads_what_is_missing_only(server, tmp_path):
    files = [storage.RemoteFile(name, (f"{server.address}/plain/data.bin",), CHECKSUM, 1 << 21) for name in ("a", "b")]
    (tmp_path / "a").write_bytes(b"mine")
    storage.obtain("Test", files, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"mine"
    assert (tmp_path / "b").read_bytes() == CONTENT
    storage.obtain("Test", files, tmp_path)
    assert len(server.requests) == 1


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(storage.DataMissingError, match="cannot be written"):
        fetch(server, tmp_path / "file", "plain")
    assert server.requests == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(server, tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(storage.DataMissingError, match="cannot be written"):
        fetch(server, tmp_path, "plain")


def test_where_data_lie(monkeypatch, tmp_path):
    monkeypatch.setenv(storage.VARIABLE, str(tmp_path / "variable"))
    assert storage.data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert storage.data_dir() == tmp_path / "variable"
    monkeypatch.setenv(storage.VARIABLE, "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for platform, variable, value, wanted in [
        ("linux", "XDG_CACHE_HOME", "", tmp_path / ".cache"),
        ("linux", "XDG_CACHE_HOME", str(tmp_path / "x"), tmp_path / "x"),
        ("linux", "XDG_CACHE_HOME", "relative", tmp_path / ".cache"),
        ("darwin", "XDG_CACHE_HOME", "", tmp_path / "Library" / "Caches"),
        ("win32", "LOCALAPPDATA", str(tmp_path / "local"), tmp_path / "local"),
        ("win32", "LOCALAPPDATA", "", tmp_path / "AppData" / "Local"),
    ]:
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv(variable, value)
        assert storage.data_dir() == wanted / "gphash"
    assert not (tmp_path / ".cache").exists()  # asking makes nothing


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_moves_on_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN", 0.0)
    stream = Terminal()
    draw = progress.bar(stream, "MNIST")
    for done in (0, 500_000, 1_000_000):
        draw(done, 1_000_000)
    draw(2_000_000, None)
    lines = stream.getvalue().split("\r")
    assert lines[2] == "MNIST [###############...............]  50%  0.5 of 1.0 MB"
    assert lines[3].endswith("100%  1.0 of 1.0 MB\n")
    assert lines[4] == "MNIST 2.0 MB"


def test_the_bar_writes_one_line_to_a_log():
    stream = io.StringIO()
    draw = progress.bar(stream, unit="files")
    for done in range(1, 2001):
        draw(done, 2000)
    assert stream.getvalue() == "[##############################] 100%  2,000 of 2,000 files\n"
