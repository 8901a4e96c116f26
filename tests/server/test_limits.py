"""Who may come in, and how much of anything is taken."""

import asyncio
import contextlib
import io
import json
import shutil
import socket
import struct
import threading
import time
import zlib

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gphash.collection.collection import Collection
from gphash.server import answers, questions, service
from gphash.server.failures import Refusal
from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings, check
from tests.server.conftest import error_of, pipelined, serving, until


def raw(port, *parts, pause=0.0, seconds=20):
    """Send bytes as they are, and read until the other side closes or one answer is complete."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        answer = b""
        while b"\r\n\r\n" not in answer and (more := connection.recv(1 << 16)):
            answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(1 << 16)
    return int(head.split()[1]), json.loads(body[:length])


def head(*lines, path="/search", method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def small(built):
    """A service that takes short bodies, quickly sent."""
    with serving(built / "digits.gphash", max_body_bytes=10_000, body_seconds=0.5) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(built, tmp_path_factory):
    """A service that asks for tokens."""
    folder = tmp_path_factory.mktemp("guarded") / "own"
    shutil.copytree(built, folder)
    with serving(folder / "digits.gphash", writable=True, read_token="may-read", write_token="may-write") as client:
        yield client


class TestBodies:
    def test_a_long_one_is_refused_by_its_length(self, small):
        answer = small.post("/search", json={"features": [0.5] * 5000})
        assert error_of(answer, 413) == ("body_too_large", None)
        assert answer.headers["connection"] == "close"
        assert small.post("/search", json={"key": 1}).status_code == 200

    def test_a_long_one_is_refused_while_it_streams(self, small):
        def pieces():
            for _ in range(100):
                yield b"1," * 500

        answer = small.post("/search", content=pieces(), headers={"Content-Type": "application/json"})
        assert error_of(answer, 413) == ("body_too_large", None)

    def test_one_of_a_gigabyte_is_refused_before_it_comes(self, small):
        # It is answered although the rest never comes.
        status, _ = raw(small.port, head(JSON, "Content-Length: 1000000000"), b"[" * 1000)
        assert status == 413

    def test_whoever_goes_on_sending_is_cut_off(self, small):
        sent = 0
        with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
            connection.sendall(head(JSON, "Content-Length: 1000000000"))
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while sent < 200_000_000:
                    sent += connection.send(bytes(1 << 16))
        assert sent < 50_000_000

    @pytest.mark.parametrize("length", ["9" * 30, "12x"])
    def test_lengths_that_are_none(self, small, length):
        with socket.create_connection(("127.0.0.1", small.port), timeout=10) as connection:
            connection.sendall(head(JSON, f"Content-Length: {length}"))
            assert connection.recv(100).split()[1] in (b"400", b"413")

    def test_a_slow_one_is_given_up(self, small):
        status, answer = raw(small.port, head(JSON, "Content-Length: 100"), b'{"key":', pause=0.1)
        assert (status, answer["error"]["code"]) == (408, "timeout")
        status, answer = raw(small.port, head(JSON, "Transfer-Encoding: chunked"), b"1\r\n{\r\n", pause=0.1)
        assert status == 408

    def test_a_client_that_goes_away_is_no_error(self, small, capfd):
        with socket.create_connection(("127.0.0.1", small.port)) as connection:
            connection.sendall(head(JSON, "Content-Length: 100") + b"{")
        assert small.post("/search", json={"key": 1}).status_code == 200
        until(lambda: 'status="499"' in small.get("/metrics").text)

    def test_rubbish_instead_of_http(self, small):
        with socket.create_connection(("127.0.0.1", small.port)) as connection:
            connection.sendall(b"\x16\x03\x01\x00\xa5 hello\r\n\r\n")
            assert b"400" in connection.recv(1000)
        assert small.get("/healthz").status_code == 200


def bomb(side):
    """A picture of a few bytes that says it has side × side pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head_ = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head_ + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize("side", [9000, 12_000, 60_000])
@pytest.mark.parametrize("route", ["/search", "/encode", "/items"])
def test_a_bomb_of_pixels_is_not_unpacked(index, side, route):
    with serving(index, writable=True) as client:
        answer = client.post(route, files={"picture": bomb(side)})
        assert error_of(answer, 413) == ("picture_too_large", "picture")


def test_a_picture_beyond_what_the_settings_allow(built):
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (40, 30)).save(file, "PNG")
    with serving(built / "digits.gphash", max_picture_pixels=1000) as client:
        answer = client.post("/search", files={"picture": file.getvalue()})
        assert error_of(answer, 413) == ("picture_too_large", "picture")
        assert "1000" in answer.json()["error"]["message"]


class TestTokens:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/collection"),
            ("GET", "/collection/buckets"),
            ("GET", "/collection/random"),
            ("GET", "/items/1"),
            ("GET", "/pictures/1"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("POST", "/search"),
            ("POST", "/encode"),
            ("POST", "/items"),
            ("DELETE", "/items/1"),
            ("GET", "/nowhere"),
            ("POST", "/search/"),
        ],
    )
    @pytest.mark.parametrize(
        "header",
        [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic may-read"}, {"Authorization": "Bearer"}],
    )
    def test_nothing_without_one(self, guarded, method, path, header):
        answer = guarded.request(method, path, headers=header)
        assert error_of(answer, 401)[0] == "unauthorised"
        assert answer.headers["www-authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("path", ["/", "/static/page.js", "/healthz", "/readyz"])
    def test_what_needs_none(self, guarded, path):
        assert guarded.get(path).status_code == 200

    def test_one_reads_and_the_other_writes_and_reads(self, guarded):
        reader = {"Authorization": "Bearer may-read"}
        writer = {"Authorization": "bearer may-write"}
        item = {"features": [0.0] * 64}
        assert guarded.post("/search", json={"key": 1}, headers=reader).status_code == 200
        assert guarded.get("/metrics", headers=reader).status_code == 200
        assert error_of(guarded.post("/items", json=item, headers=reader), 403)[0] == "forbidden"
        assert error_of(guarded.delete("/items/1", headers=reader), 403)[0] == "forbidden"
        assert guarded.post("/items", json=item, headers=writer).status_code == 201
        assert guarded.post("/search", json={"key": 1}, headers=writer).status_code == 200

    def test_letters_beyond_ascii_are_just_wrong(self, guarded):
        answer = guarded.get("/collection", headers=[(b"Authorization", "Bearer geheim-ü".encode())])
        assert answer.status_code == 401


TOKENS = {"none": {}, "read": {"read_token": "r"}, "write": {"write_token": "w"}}
TOKENS["both"] = TOKENS["read"] | TOKENS["write"]
ASKED = [
    ("GET", "/collection", "read"),
    ("GET", "/items/1", "read"),
    ("GET", "/metrics", "read"),
    ("GET", "/openapi.json", "read"),
    ("GET", "/nowhere", "read"),
    ("POST", "/search", "read"),
    ("POST", "/encode", "read"),
    ("POST", "/search/", "write"),
    ("POST", "/encode/", "write"),
    ("POST", "/items", "write"),
    ("POST", "/items/", "write"),
    ("POST", "/", "write"),
    ("POST", "/static/page.js", "write"),
    ("PUT", "/search", "write"),
    ("DELETE", "/items/1", "write"),
    ("PATCH", "/items/1", "write"),
]


def ask(app, method, path, **given):
    """One request to an application without a server."""

    async def send():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **given)

    return asyncio.run(send())


@pytest.mark.parametrize("root", ["", "/gp"], ids=["alone", "mounted"])
@pytest.mark.parametrize("tokens", TOKENS)
def test_nobody_comes_in_without_the_token_that_is_wanted(built, tokens, root):
    """A request passes if it shows a token that may do it, or none where none is asked for."""
    app = create_app(
        built / "digits.gphash", ServiceSettings(hosts=("localhost",), log_requests=False, **TOKENS[tokens])
    )
    if root:
        app = Starlette(routes=[Mount(root, app=app)])
    for method, path, what in ASKED:
        # A service that is only read from, and by those with a token, has no other to ask for.
        wanted = "r" if "r" in TOKENS[tokens].values() and (what == "read" or tokens == "read") else None
        wanted = "w" if what == "write" and "w" in TOKENS[tokens].values() else wanted
        for given in (None, "r", "w", "x", ""):
            headers = {} if given is None else {"Authorization": f"Bearer {given}"}
            answer = ask(app, method, root + path, headers=headers)
            known = given in TOKENS[tokens].values()
            passes = wanted is None or given == wanted or (known and given == "w")
            refused = 403 if known else 401
            code = answer.json()["error"]["code"] if answer.status_code in (401, 403) else None
            assert (code not in ("unauthorised", "forbidden")) is passes, (method, path, given, answer.status_code)
            assert passes or answer.status_code == refused
    for path in ("/", "/static/page.js", "/healthz"):
        assert ask(app, "GET", root + path).status_code == 200


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("path", ["/search%0A", "/encode%0A", "/items%0A", "/sea%00rch", "/search%0D%0A", "/search%7F"])
def test_control_characters_lead_nowhere(built, tokens, path):
    app = create_app(
        built / "digits.gphash", ServiceSettings(hosts=("localhost",), log_requests=False, **TOKENS[tokens])
    )
    for method in ("GET", "POST", "DELETE"):
        answer = ask(app, method, path, json={"key": 1})
        assert error_of(answer, 400) == ("bad_path", None)


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://localhost.evil.example"}, False),
        ({"Origin": "http://localhost:1"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://localhost"}, True),
        ({"Origin": "https://localhost"}, True),  # a proxy with TLS is before it
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_pages_of_other_sites_are_answered_nothing(client, headers, may):
    for method, path in (
        ("POST", "/search"),
        ("GET", "/items/1"),
        ("GET", "/pictures/1"),
        ("GET", "/static/page.js"),
    ):
        answer = client.request(method, path, json={"key": 1}, headers={"Host": "localhost", **headers})
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.status_code == (200 if may else 403), (method, path)
        assert may or error_of(answer, 403)[0] == "cross_site"


def test_links_of_other_sites_lead_to_the_page_alone(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers={**link, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/pictures/1", headers=link).status_code == 403


def test_a_form_of_another_site_adds_nothing(index):
    with serving(index, writable=True) as client:
        answer = client.post("/items", files={"picture": bomb(8)}, headers={"Origin": "http://evil.example"})
        assert error_of(answer, 403)[0] == "cross_site"
        assert client.get("/collection").json()["n_items"] == 1797


class TestLargeJson:
    WRONG = b'{"features":[' + b'"",' * 600_000 + b"0]}"
    NAMES = b"{" + b",".join(b'"%x":0' % number for number in range(300_000)) + b"}"

    @pytest.mark.parametrize("body", [WRONG, NAMES, b'{"features":[' + b"0," * 1_000_000 + b"0]}"])
    @pytest.mark.parametrize("route", ["/search", "/items", "/encode"])
    def test_one_that_cannot_be_meant_is_refused_at_once(self, index, route, body):
        with serving(index, writable=True) as client:
            answer = client.post(route, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (413, 422)
            assert len(answer.content) < 1000

    @pytest.mark.parametrize("body", [WRONG, b'{"features":[' + b'[""],' * 300_000 + b"[]]}", NAMES])
    def test_one_fault_is_enough(self, body, monkeypatch):
        counts, validate = [], questions.EncodeJson.model_validate

        def counted(given):
            try:
                return validate(given)
            except questions.ValidationError as error:
                counts.append(error.error_count())
                raise

        monkeypatch.setattr(questions.EncodeJson, "model_validate", counted)
        with pytest.raises(Refusal) as caught:
            questions.from_json(questions.EncodeJson, body, 1_000_000, 1_000_000)
        assert caught.value.status == 422
        assert counts in ([], [1])  # of hundreds of thousands

    def test_more_rows_or_longer_ones_are_refused_before_any_is_read(self, monkeypatch):
        monkeypatch.setattr(questions.EncodeJson, "model_validate", None)
        for body in (b'{"features": [[1], [1], [1]]}', b'{"features": [[1, 2, 3]]}', b'{"features": [1, 2, 3]}'):
            with pytest.raises(Refusal, match="features"):
                questions.from_json(questions.EncodeJson, body, 2, 2)

    def test_a_row_has_room_however_it_is_written(self, client):
        rows = [[-0.12345678901234567e-100] * 64] * 1000
        assert client.post("/encode", content=json.dumps({"features": rows}, indent=2)).status_code == 415
        kind = {"Content-Type": "application/json"}
        answer = client.post("/encode", content=json.dumps({"features": rows}, indent=1), headers=kind)
        assert answer.status_code == 200

    def test_new_items_are_read_away_from_the_loop(self, index, monkeypatch):
        threads = []
        read = questions.from_json
        monkeypatch.setattr(
            questions, "from_json", lambda *args: threads.append(threading.current_thread().name) or read(*args)
        )
        with serving(index, writable=True) as client:
            assert client.post("/items", json={"features": [0.0] * 64}).status_code == 201
        assert [name.startswith("gphash-work") for name in threads] == [True]


class TestPlaces:
    def test_the_page_and_those_without_a_token_take_none(self, built):
        with serving(built / "digits.gphash", read_token="r", max_in_work=1) as client:
            allowed = {"Authorization": "Bearer r"}
            connections = [pipelined(client.port, path) for path in ("/static/page.js", "/static/page.js", "/items/1")]
            time.sleep(0.5)
            assert "gphash_in_work 1.0" in client.get("/metrics", headers=allowed).text  # this one
            assert client.post("/search", json={"key": 1}, headers=allowed).status_code == 200
            for connection in connections:
                connection.close()


def test_pages_of_other_sites_are_kept_out(client):
    site = {"Sec-Fetch-Site": "cross-site"}
    assert error_of(client.post("/search", json={"key": 1}, headers=site), 403)[0] == "cross_site"
    assert client.post("/search", json={"key": 1}, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert error_of(client.get("/collection", headers={"Host": "evil.example"}), 403)[0] == "unknown_host"
    assert client.get("/collection", headers={"Host": "localhost:1234"}).status_code == 200
    assert client.get("/healthz", headers={"Host": "10.0.0.7:8080"}).status_code == 200


def test_more_than_so_many_at_once_come_back_later(built, monkeypatch):
    going, go = threading.Semaphore(0), threading.Event()

    def slow(collection, settings):
        going.release()
        go.wait(20)
        return b"{}"

    monkeypatch.setattr(answers, "summary", slow)
    with serving(built / "digits.gphash", max_in_work=1) as client:
        first = threading.Thread(target=httpx.get, args=(f"http://127.0.0.1:{client.port}/collection",))
        first.start()
        going.acquire()
        answer = client.post("/search", json={"key": 1})
        assert error_of(answer, 503)[0] == "busy"
        assert answer.headers["retry-after"] == "1"
        assert client.get("/readyz").status_code == 200
        go.set()
        first.join()
        assert client.post("/search", json={"key": 1}).status_code == 200
        assert 'gphash_busy_total{reason="in_work"} 1.0' in client.get("/metrics").text


def test_pictures_wait_in_a_queue_that_has_an_end(built, monkeypatch):
    go = threading.Event()
    picture = b"P5 8 8 255\n" + bytes(64)

    describe = answers._features

    def slow(*given):
        go.wait(20)
        return describe(*given)

    monkeypatch.setattr(answers, "_features", slow)

    async def ask(port):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as asking:
            asked = [asyncio.create_task(asking.post("/search", files={"picture": picture})) for _ in range(6)]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            quick = (await asking.post("/search", json={"key": 1})).status_code
            while len(done) < 3:
                more, _ = await asyncio.wait(set(asked) - done, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            go.set()
            return quick, sorted(answer.status_code for answer in await asyncio.gather(*asked))

    with serving(built / "digits.gphash", upload_threads=2, upload_queue=1) as client:
        assert asyncio.run(ask(client.port)) == (200, [200, 200, 200, 429, 429, 429])


def test_a_fault_of_ours_says_nothing_of_the_request(built, monkeypatch, capfd):
    def broken(*_, **__):
        raise RuntimeError("secret payload")

    with serving(built / "digits.gphash") as client:
        monkeypatch.setattr(Collection, "search", broken)
        answer = client.post("/search", json={"key": 1})
        assert error_of(answer, 500)[0] == "internal"
        assert "secret" not in answer.text
    written = capfd.readouterr().err
    assert "secret" not in written
    assert "RuntimeError" in written
    assert "test_limits.py" in written


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"host": "0.0.0.0"}, "read_token"),
        ({"host": "::"}, "read_token"),
        ({"host": "example.org"}, "read_token"),
        ({"host": "0.0.0.0", "read_token": "a", "writable": True}, "write_token"),
        ({"host": "0.0.0.0", "write_token": "a", "writable": True}, "read_token"),
        ({"read_token": "a", "writable": True}, "write_token"),
        ({"read_token": ""}, "read_token"),
        ({"read_token": "two words"}, "read_token"),
        ({"port": 70_000}, "port"),
        ({"max_k": 0}, "max_k"),
        ({"max_rerank": 0}, "max_rerank"),
        ({"body_seconds": 0}, "body_seconds"),
        ({"send_seconds": 0}, "send_seconds"),
        ({"max_connections": 0}, "max_connections"),
        ({"upload_queue": -1}, "upload_queue"),
    ],
)
def test_settings_that_cannot_be_meant(settings, named):
    with pytest.raises(ValueError, match=named):
        check(ServiceSettings(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "::1"},
        {"host": "localhost", "writable": True},
        {"host": "0.0.0.0", "no_token": True, "writable": True},
        {"host": "0.0.0.0", "read_token": "a"},
        {"host": "0.0.0.0", "read_token": "a", "write_token": "b", "writable": True},
    ],
)
def test_settings_that_can(settings):
    check(ServiceSettings(**settings))


def test_missing_packages_are_named(monkeypatch, built):
    monkeypatch.setattr(service, "PACKAGES", ("json", "no_such_package"))
    with pytest.raises(ImportError, match="needs no-such-package: pip install no-such-package"):
        service.create_app(built / "digits.gphash")
