"""Downloads against a real server on this machine; no other address is ever reached."""

import builtins
import contextlib
import gzip
import http.server
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from gphash.data import downloads
from gphash.data.downloads import DataMissingError, RemoteFile
from gphash.files import DataError
from tests.data.known.official import md5

CONTENT = bytes(range(256)) * 4096
CHECKSUM = f"md5:{md5(CONTENT)}"

pooch = pytest.importorskip("pooch", reason="needs the extra datasets")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the bytes of `files`; a path's first folder says how it misbehaves."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        manner, _, name = self.path.strip("/").partition("/")
        content = self.server.files[name]
        self.server.requests.append(self.path)
        self.close_connection = True
        if manner == "busy" and len(self.server.requests) < 3:
            return self.answer(503)
        if manner == "gone":
            return self.answer(404)
        if manner == "elsewhere":
            return self.answer(302, {"Location": f"{self.server.address}/plain/{name}"})
        if manner == "another":
            content = content[::-1]
        headers = {} if manner == "endless" else {"Content-Length": str(len(content))}
        # The connection breaks after a third of the file, the first time or every time.
        breaks = manner == "cut" or (manner == "cut-once" and len(self.server.requests) == 1)
        self.answer(200, headers, content[: len(content) // 3] if breaks else content)

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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(pooch.core.time, "sleep", lambda _: None)


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.requests = {"data.bin": CONTENT}, []
        running.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def obtain(server, folder, *manners, size_limit=1 << 21, checksum=CHECKSUM, **options):
    urls = tuple(f"{server.address}/{manner}/data.bin" for manner in manners)
    downloads.obtain("Test", [RemoteFile("data.bin", urls, checksum, size_limit)], folder, **options)
    return folder / "data.bin"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_and_progress_is_told(server, tmp_path):
    calls = []
    path = obtain(server, tmp_path / "new" / "folder", "plain", progress=lambda *call: calls.append(call))
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["data.bin"]
    assert calls[0] == (0, len(CONTENT))
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert calls == sorted(calls)


@pytest.mark.parametrize("manner", ["busy", "cut-once", "elsewhere", "endless"])
def test_a_server_that_needs_patience(server, tmp_path, manner):
    assert obtain(server, tmp_path, manner).read_bytes() == CONTENT


def test_a_broken_download_leaves_no_file(server, tmp_path):
    with pytest.raises(DataMissingError, match=r"The download failed: .*/cut/data\.bin"):
        obtain(server, tmp_path, "cut")
    assert names(tmp_path) == []


def test_the_next_address_is_tried(server, tmp_path):
    assert obtain(server, tmp_path, "gone", "another", "plain").read_bytes() == CONTENT
    assert list(dict.fromkeys(server.requests)) == ["/gone/data.bin", "/another/data.bin", "/plain/data.bin"]


def test_a_wrong_checksum_is_an_error_that_says_what_to_do_by_hand(server, tmp_path):
    with pytest.raises(DataMissingError, match="does not match the known hash") as caught:
        obtain(server, tmp_path, "gone", "another")
    for words in ("404", f"By hand: download {server.address}/gone/data.bin", str(tmp_path), downloads.VARIABLE):
        assert words in str(caught.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("manner", ["plain", "endless"])
def test_more_than_the_limit_is_refused(server, tmp_path, manner):
    with pytest.raises(DataMissingError, match="more than 99999 bytes"):
        obtain(server, tmp_path, manner, size_limit=99_999)
    assert names(tmp_path) == []


def test_no_network(tmp_path):
    url = f"http://127.0.0.1:{closed_port()}/data.bin"
    with pytest.raises(DataMissingError) as caught:
        downloads.obtain("Test", [RemoteFile("data.bin", (url,), CHECKSUM, 10)], tmp_path / "mistyped")
    for words in ("Test: 1 file is missing", "data.bin", str(tmp_path), "Connection refused", f"download {url}"):
        assert words in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert names(tmp_path) == []


def test_a_server_that_falls_silent_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.bin"
        with pytest.raises(DataMissingError, match="timed out"):
            downloads.obtain("Test", [RemoteFile("data.bin", (url,), CHECKSUM, 10)], tmp_path)


def test_everything_that_is_missing_is_named(tmp_path):
    url = f"http://127.0.0.1:{closed_port()}/"
    files = [RemoteFile(name, (url + name,), CHECKSUM, 10) for name in ("a", "b", "c")]
    (tmp_path / "b").write_bytes(b"is there, and not touched")
    for download, words in ((True, "Connection refused"), (False, "2 files are missing")):
        with pytest.raises(DataMissingError, match=words) as caught:
            downloads.obtain("Test", files, tmp_path, download=download)
        assert caught.value.files == ("a", "c")
        assert caught.value.folder == tmp_path
        assert f"download {url}a, {url}c" in str(caught.value)


def test_what_is_there_is_not_downloaded(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"mine")
    assert obtain(server, tmp_path, "plain").read_bytes() == b"mine"
    assert server.requests == []


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataMissingError, match="The download failed"):
        obtain(server, tmp_path / "file", "plain")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(server, tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(DataMissingError, match="The download failed"):
        obtain(server, tmp_path, "plain")


def test_without_pooch(server, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "pooch":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "pooch")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="needs pooch: pip install pooch"):
        obtain(server, tmp_path, "plain")


@pytest.mark.parametrize("name", ["a.gz", "a"])
def test_content_is_bounded_and_verified(tmp_path, name):
    path = tmp_path / name
    whole = gzip.compress(CONTENT) if path.suffix else CONTENT
    path.write_bytes(whole)
    assert downloads.content(path, len(CONTENT), CHECKSUM) == CONTENT
    with pytest.raises(DataError, match=rf"{name}' holds more than {len(CONTENT) - 1} bytes"):
        downloads.content(path, len(CONTENT) - 1, CHECKSUM)
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"text", whole[:-6] + b"\1" + whole[-5:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{name}' is (truncated, altered|damaged)"):
            downloads.content(path, len(CONTENT), CHECKSUM)


def test_where_data_lie(monkeypatch, tmp_path):
    monkeypatch.setenv(downloads.VARIABLE, str(tmp_path / "variable"))
    assert downloads.data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert downloads.data_dir() == tmp_path / "variable"
    monkeypatch.setenv(downloads.VARIABLE, "")
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
        assert downloads.data_dir() == wanted / "gphash"
    assert not (tmp_path / ".cache").exists()  # asking makes nothing
