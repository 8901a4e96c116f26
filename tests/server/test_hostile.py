"""Requests that nobody means well with: each is refused in words, none is a fault of ours, and logs are JSON."""

import json
import socket

import pytest

from gphash.server import logs
from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings
from tests.server.conftest import error_of
from tests.server.test_limits import ask, head

ROW = json.dumps([0] * 64).encode()
NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1e3", b"1.0", b"true", b'"1"', b"9" * 5000, b"-0", b"[1]"]
NUMBERS += [b"9223372036854775808", b"-9223372036854775809", b"99999999999999999999"]
TEXTS = [b'""', b'"\\u0000"', b'"\\ud800"', b'"\xff"', b'["0"]', b'"' + b"a" * 300 + b'"', b'" "', b'"\\u202e"', b"{}"]
BODIES = [
    *(b"", b"{}", b"[]", b"null", b"1", b'"x"', b"{", b'{"key":1', b"\x00", b"\xff\xfe", b'\xef\xbb\xbf{"key":1}'),
    *(b'{"%b":%b}' % (name, number) for name in (b"key", b"k", b"radius") for number in NUMBERS),
    *(b'{"key":1,"label":%b}' % text for text in TEXTS),
    *(b'{"features":%b,"label":%b}' % (ROW, text) for text in TEXTS),
    *(b'{"features":%b,"tags":[%b]}' % (ROW, text) for text in TEXTS),
    *(b'{"features":[%b]}' % b",".join([number] * 64) for number in NUMBERS),
    *(b'{"features":%b}' % bad for bad in (b"[]", b"[[]]", b"[null]", b"{}", b"[[[[0]]]]", b"[%b,0]" % ROW)),
    b'{"features":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 200_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    *(b'{"key":1,"key":99999}', b'{"key":null,"features":null}', b'{"\\ud800":1}', b'{"":1}', b'{"__proto__":1}'),
]


@pytest.fixture
def app(index):
    app = create_app(index, ServiceSettings(writable=True, hosts=("localhost",), log_requests=False))
    yield app
    app.state.service.shelf.collection.close()


def check(answer, asked):
    """Whatever is asked, an answer is a success or says no in the way all do."""
    assert answer.status_code < 500, (asked, answer.text)
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        assert set(answer.json()["error"]) == {"code", "message", "argument"}, asked
        assert len(answer.content) < 1000


def test_bodies_of_json(app):
    kind = {"Content-Type": "application/json"}
    for body in BODIES:
        for path in ("/search", "/encode", "/items"):
            check(ask(app, "POST", path, content=body, headers=kind), (path, body[:100]))


def part(disposition, content=b"P5 8 8 255\n" + bytes(64)):
    return b"--x\r\n" + disposition + b"\r\n\r\n" + content + b"\r\n"


def field(name, value):
    return part(b'Content-Disposition: form-data; name="' + name + b'"', value)


PICTURE = part(b'Content-Disposition: form-data; name="picture"; filename="a"')
FORMS = [
    *(b"--x\r\n", b"--x--", b"--x--\r\n", b"\r\n" * 1000, b"--y--\r\n", PICTURE, PICTURE + PICTURE),
    *(PICTURE + field(b"k", value) for value in (b"\xff", b"", b"NaN", b"9" * 5000, b"1\x002", b"-1")),
    *(PICTURE + field(name, b"1") for name in (b"\xff", b"", b"picture", b"k\x00", b"a" * 5000)),
    *(PICTURE + field(b"label", value) for value in (b"\x00", b"\xed\xa0\x80", b"nosuch", b"a" * 5000)),
    *(PICTURE + field(b"tags", value) for value in (b";;;", b"a;" * 6000, b"\xff;\x00")),
    PICTURE + field(b"k", b"1") + field(b"k", b"2"),
    b"".join(field(b"f%d" % number, b"1") for number in range(50)),
    part(b"Content-Disposition: form-data"),
    part(b"X: y"),
    part(b"A" * 70_000 + b": b"),
    part(b"\r\n".join(b"A%d: b" % number for number in range(500))),
    part(b"Content-Disposition: form-data; name*=utf-8''%ff; filename=\"a\""),
    part(b'Content-Disposition: form-data; name="picture"; filename="../../a\x00b"'),
    part(b'Content-Disposition: form-data; name="picture"; filename="a"\r\nContent-Type: image/png; charset=none'),
]
KINDS = [b"", b"text/plain", b"a" * 5000, b"application/json, text/plain", b"application/x-www-form-urlencoded"]
KINDS += [
    b"multipart/form-data" + more for more in (b"", b"; boundary=", b"; boundary=\xff", b"; boundary=" + b"x" * 500)
]
KINDS += [b"multipart/form-data; boundary=x; charset=" + name for name in (b"none", b"utf-7", b"utf-16")]


def test_forms_and_kinds_of_bodies(app, capfd):
    with logs.alone():
        for body in FORMS:
            for path in ("/search", "/encode", "/items"):
                kind = [(b"content-type", b"multipart/form-data; boundary=x")]
                check(ask(app, "POST", path, content=body + b"--x--\r\n", headers=kind), (path, body[:100]))
        for kind in KINDS:
            for body in (b'{"key":1}', PICTURE + b"--x--\r\n", b""):
                check(ask(app, "POST", "/search", content=body, headers=[(b"content-type", kind)]), kind[:100])
    # Other packages have something to say about such forms.
    lines = capfd.readouterr().err.splitlines()
    assert lines
    assert all(json.loads(line)["event"] == "server" for line in lines)


PATHS = ["/items/%00", "/items/1%00", "/items/%ff", "/items/%F0%9F%98%80", "/items/..%2f..%2fetc", "/items/1;x=1"]
PATHS += [
    "/static/..%2f..%2fapp.py",
    "/static/%2e%2e",
    "/static/",
    "//",
    "//healthz",
    "/pictures/1//2",
    "/pictures/",
    "/items/.",
    "/items/%2e%2e",
    "/%",
    "/docs",
]
PATHS += ["/collection/buckets?n", "/collection/buckets?n=%FF", "/collection/buckets?" + "a=1&" * 3000]
PATHS += ["/items/" + "1" * 3000, "/" + "a" * 60_000, "/items/%E2%80%AE1", "/items/1%0d%0aX:%20y"]
HEADERS = [
    {"Range": "bytes=0-1"},
    {"Range": "bytes=" + ",".join(["0-1"] * 5000)},
    {"If-None-Match": "," * 50_000},
    {"If-Modified-Since": "nonsense"},
    *({"Host": host} for host in ("", "localhost:", "localhost:9999999", "[::1", "localhost@evil", b"\xff", b"x:\xb2")),
    {"Authorization": b"\xff"},
    {"Origin": b"\xff"},
    {"Content-Length": "1_0"},
    {"Content-Length": "-1"},
    {"Content-Length": b"\xd9\xa3"},
    {"Transfer-Encoding": "gzip"},
]


def test_paths_and_headers(app):
    for path in PATHS:
        for method in ("GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND"):
            check(ask(app, method, path), (method, path[:100]))
    for headers in HEADERS:
        for path in ("/", "/static/page.js", "/items/1", "/pictures/1", "/metrics"):
            check(ask(app, "GET", path, headers=headers), (headers, path))


def test_a_body_with_two_lengths_is_refused(app):
    headers = {"Content-Type": "application/json", "Content-Length": "8", "Transfer-Encoding": "chunked"}
    answer = ask(app, "POST", "/search", content=b'{"key":1}', headers=headers)
    assert error_of(answer, 400)[0] == "two_lengths"
    assert answer.headers["connection"] == "close"


def talk(port, message):
    """All that comes back until the connection is closed."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(message)
        while more := connection.recv(1 << 16):
            found += more
    return found


BODY = b'{"key":1}'
NEXT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: 4", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding: chunked", "Content-Length: 8"], b"8\r\n" + BODY + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding: gzip, chunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding: xchunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding : chunked"], b"0\r\n\r\n"),
        (["Content-Length: 8", "Content-Length: 9"], BODY),
        (["Content-Length: +8"], BODY),
        (["Content-Length: 0x8"], BODY),
        (["Host: other", "Content-Length: 8"], BODY),
    ],
)
def test_lengths_that_two_could_read_differently(client, lines, body):
    """What follows is somebody else's request where a proxy is before the service, and must not be answered."""
    found = talk(client.port, head("Content-Type: application/json", *lines) + body + NEXT)
    assert found.startswith(b"HTTP/1.1 400")
    assert found.count(b"HTTP/1.1") == 1
    assert b"alive" not in found
