"""The description of the service, and whether the service keeps to it whatever it is sent."""

import shutil

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from gphash.server.service import create_app
from gphash.server.settings import ServiceSettings
from tests.server.conftest import serving


@pytest.fixture(scope="module")
def api(built, tmp_path_factory):
    schemathesis = pytest.importorskip("schemathesis", reason="answers are checked by schemathesis")
    folder = tmp_path_factory.mktemp("described") / "own"
    shutil.copytree(built, folder)
    with serving(folder / "digits.gphash", writable=True, log_requests=False) as client:
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{client.port}/openapi.json")


KEPT = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
ROUTES = [
    ("/collection", "GET"),
    ("/collection/buckets", "GET"),
    ("/collection/random", "GET"),
    ("/items/{key}", "GET"),
    ("/pictures/{key}", "GET"),
    ("/items/{key}", "DELETE"),
    ("/items", "POST"),
    ("/search", "POST"),
    ("/encode", "POST"),
    ("/metrics", "GET"),
    ("/healthz", "GET"),
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"], ids=["as described", "otherwise"])
@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_answers_are_as_described(api, path, method, mode):
    from schemathesis import GenerationMode, checks

    operation, kept = api[path][method], [getattr(checks, name) for name in KEPT]
    if mode == "NEGATIVE" and not (operation.body or operation.path_parameters or operation.query):
        return  # nothing can be wrong with it

    @given(case=operation.as_strategy(generation_mode=GenerationMode[mode]))
    @settings(
        max_examples=15,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def keeps(case):
        case.call_and_validate(checks=kept)

    keeps()


@pytest.mark.parametrize(
    ("tokens", "reading", "writing"),
    [
        ({}, [], []),
        ({"read_token": "r"}, [{"token": []}], [{"token": []}]),
        ({"write_token": "w"}, [], [{"token": []}]),
        ({"read_token": "r", "write_token": "w"}, [{"token": []}], [{"token": []}]),
    ],
)
def test_tokens_are_described(built, tokens, reading, writing):
    described = create_app(built / "digits.gphash", ServiceSettings(**tokens)).openapi()
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    routes = described["paths"]
    for operation in (routes["/search"]["post"], routes["/items/{key}"]["get"], routes["/metrics"]["get"]):
        assert operation["security"] == reading
    assert routes["/items"]["post"]["security"] == routes["/items/{key}"]["delete"]["security"] == writing
    assert routes["/healthz"]["get"]["security"] == []


def test_every_answer_is_described(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/healthz",
        "/readyz",
        "/metrics",
        "/collection",
        "/collection/buckets",
        "/items",
        "/collection/random",
        "/items/{key}",
        "/pictures/{key}",
        "/search",
        "/encode",
    }
    search = described["paths"]["/search"]["post"]
    assert set(search["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    wanted = {"200", "400", "401", "403", "404", "408", "413", "415", "422", "429", "500", "503"}
    assert set(search["responses"]) == wanted
