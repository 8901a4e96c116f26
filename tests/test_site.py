"""The site: its first page works word for word, its reference leaves nothing out, and broken links are noticed."""

import ast
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
START = (DOCS / "start.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
PORT = 8080


def blocks(text):
    """The fenced blocks of a page with the section that they are in: (section, kind, content)."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        found += [(title, *block) for block in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)]
    return found


@pytest.fixture
def prompt(tmp_path):
    """A shell's place to be: an empty folder, and a path that begins with `python` and `gphash` of this environment."""
    programs, folder = tmp_path / "bin", tmp_path / "empty"
    programs.mkdir()
    folder.mkdir()
    for name, words in (("python", ""), ("gphash", " -m gphash")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return {"cwd": folder, "env": environment, "text": True}


def is_taken(port):
    with socket.socket() as door:
        return door.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.timeout(600)  # ten programs, one after the other
def test_the_start_page_works_word_for_word(prompt):
    pytest.importorskip("pyarrow")
    pytest.importorskip("uvicorn")
    if is_taken(PORT):
        pytest.skip(f"something else listens at {PORT}, which the page names")
    program, said, services = None, [], []
    try:
        for section, kind, content in blocks(START):
            if section == "1. Install":  # `make` has done it
                continue
            if kind == "python":
                program = content
                continue
            assert kind == "console", kind
            for line in content.splitlines():
                command = line.removeprefix("$ ")
                if (script := re.fullmatch(r"python (\w+\.py)", command)) and program:
                    assert f"`{script[1]}`" in START, "the page says what to save it as"
                    (prompt["cwd"] / script[1]).write_text(program)
                    program = None
                if command.startswith("gphash serve"):
                    services.append(subprocess.Popen(shlex.split(command), **prompt, stderr=subprocess.DEVNULL))
                    _wait(lambda: is_taken(PORT))
                    continue
                ended = subprocess.run(shlex.split(command), **prompt, capture_output=True)
                assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
                said.append((command, ended.stdout + ended.stderr))
    finally:
        for service in services:
            service.send_signal(signal.SIGTERM)
            assert service.wait(20) == 0
    assert program is None
    assert len(services) == 1
    outputs = dict(said)
    assert "1,000" in outputs["gphash data tickets.parquet"]
    assert "ticket-" in outputs["gphash search tickets.gphash key:ticket-7 -k 5"]
    assert "5 hits" in outputs["python search_tickets.py"]
    assert outputs["python ask.py"].count("ticket-") == 3


def _wait(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_start_page_installs_extras_that_exist():
    (install,) = [content for section, _, content in blocks(START) if section == "1. Install"]
    asked = set(re.search(r"\.\[([\w,]+)\]", install)[1].split(","))
    assert asked <= set(_extras())


def test_the_page_about_installing_lists_all_extras():
    listed = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert listed == set(_extras()) - {"demo", "dev", "test"}


def _extras():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def _listed():
    return set(re.findall(r"^(?:   |\.\. py:data:: )(gphash[\w.]+)$", REFERENCE, flags=re.MULTILINE))


def test_the_reference_has_every_name_of_the_front_door_and_every_method():
    import gphash
    from gphash.hashers.methods import HOMES

    front = {f"gphash.{name}" for name in {*gphash.__all__, *gphash._HOMES} - {"__version__"}}
    methods = {f"gphash.hashers.{home.rpartition(':')[2]}" for home in HOMES.values()} - {"gphash.hashers.GPHasher"}
    assert (front | methods) - _listed() == set()


def test_the_reference_has_every_name_that_the_documents_import():
    pages = [ROOT / "README.md", *DOCS.glob("*.md")]
    code = "\n".join(re.sub(r"^(>>> |\.\.\. )", "", page.read_text("utf-8"), flags=re.MULTILINE) for page in pages)
    code += "\n".join(path.read_text("utf-8") for path in (ROOT / "examples" / "gallery").glob("*.py"))
    wanted = set()
    for line in set(re.findall(r"^from gphash[\w.]* import [\w, ]+$", code, flags=re.MULTILINE)):
        (node,) = ast.parse(line).body
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        wanted |= {name for name in names if not _is_module(name)}
    assert len(wanted) > 15
    known = _listed() | {"gphash.hashers.GPHasher"}
    assert wanted - known == set()


def _is_module(name):
    place = ROOT.joinpath("src", *name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_every_script_of_the_gallery_is_told_of_and_drawn():
    scripts = sorted((ROOT / "examples" / "gallery").glob("*.py"))
    assert len(scripts) >= 10
    for script in scripts:
        text = script.read_text("utf-8")
        assert re.match(r'"""\n.+\n=+\n\n', text), script
        assert "plt.show()" in text or re.search(r"^figure = ", text, flags=re.MULTILINE), script


def test_links_that_lead_nowhere_are_noticed(tmp_path, monkeypatch):
    pytest.importorskip("sphinx", reason="the extra docs builds the site")
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    import whole

    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">b</a><a href="#here">a</a></p>')
    (tmp_path / "b.html").write_text(
        '<h1 id="there">b</h1><img src="picture.png"><script src="https://x.org/y.js"></script>'
    )
    assert whole.faults(tmp_path) == ["b.html: picture.png is not there", "b.html loads https://x.org/y.js"]
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "b.html").write_text('<h1 id="elsewhere">b</h1>')
    assert whole.faults(tmp_path) == ["a.html: b.html#there is no place on that page"]
