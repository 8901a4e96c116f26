"""What the Containerfile says of the service; `python -m tests.containerfile` runs its steps."""

import inspect
import re

import pytest

from gphash.cli.serving import serve
from tests import containerfile

TEXT = (containerfile.SOURCE / "Containerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def stages():
    return containerfile.read(TEXT)


def test_lines_are_read_as_an_engine_reads_them():
    text = 'ARG A=1\n# FROM nothing\nFROM x:${A} AS y\nHEALTHCHECK --interval=3s \\\n  CMD ["a b", "c"]\nRUN a && /b/c'
    before, stage = containerfile.read(text)
    assert before == [("ARG", {}, "A=1")]
    assert [step.instruction for step in stage] == ["FROM", "HEALTHCHECK", "RUN"]
    assert containerfile.last(stage, "HEALTHCHECK") == ("HEALTHCHECK", {"interval": "3s"}, 'CMD ["a b", "c"]')


def test_paths_are_moved_and_addresses_are_not():
    text = '/opt/x/bin/pip install "$(echo /dist/*.whl)[a]" http://127.0.0.1/healthz --out=/dist a/b ./c'
    moved = containerfile.below("/r", text)
    assert moved == '/r/opt/x/bin/pip install "$(echo /r/dist/*.whl)[a]" http://127.0.0.1/healthz --out=/r/dist a/b ./c'


def test_it_takes_what_is_there(stages):
    _, build, final = stages
    copied = [word for step in build if step.instruction == "COPY" for word in step.words()[:-1]]
    assert copied
    assert [name for name in copied if not (containerfile.SOURCE / name).exists()] == []
    # Nothing but what the first stage has installed.
    assert [step.options for step in final if step.instruction == "COPY"] == [{"from": "build"}]


def test_the_service_has_no_rights_and_takes_no_address_for_granted(stages):
    final = stages[-1]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", containerfile.last(final, "USER").rest)
    assert containerfile.last(final, "ENTRYPOINT").words() == ["gphash", "serve"]
    assert containerfile.last(final, "CMD").words() == ["--help"]
    assert not re.search(r"TOKEN", TEXT)


def test_the_health_command_asks_the_port_that_the_service_listens_at(stages):
    final = stages[-1]
    port = containerfile.last(final, "EXPOSE").rest
    assert int(port) == inspect.signature(serve).parameters["port"].default
    assert f":{port}/healthz" in containerfile.last(final, "HEALTHCHECK").rest
