"""What the documents say is true: their examples run, and the names, links, commands and options in them exist."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gphash
from gphash.hashers.methods import HOMES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "gphash"
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING"))]
PAGES += [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("reference/*.md"))]
EXAMPLES = [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]
# They train models of a size that is worth looking at.
SLOW = {f"{name}.md" for name in ("collections", "comparing", "extending", "method", "probabilities", "reranking")}
SLOW |= {"supervision.md", "training.md"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.name in SLOW else []) for page in EXAMPLES],
    ids=lambda page: page.name,
)
def test_the_examples_do_what_they_say(page, tmp_path):
    # In a process and a folder of their own: they register names and save files.
    command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(page)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_front_page_is_short():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def exists(name: str) -> bool:
    """Whether a dotted name below gphash is a module, or something that a module defines; nothing is imported."""
    parts = name.split(".")
    if parts[0] == "hashers" and any(home.endswith(f":{parts[-1]}") for home in HOMES.values()):
        return True  # imported when it is named
    for length in range(len(parts), 0, -1):
        place = SOURCE.joinpath(*parts[:length])
        if place.is_dir():
            return length == len(parts) or (length == len(parts) - 1 and _defines(place / "__init__.py", parts[-1:]))
        if (file := place.with_suffix(".py")).is_file():
            return _defines(file, parts[length:])
    return parts[0] in {*dir(gphash), *gphash._HOMES}


def _defines(file: Path, names: list[str]) -> bool:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        node = next((node for node in body if name in _names(node)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {target.id for target in targets if isinstance(target, ast.Name)}
    return {getattr(node, "name", "")}


@pages
def test_the_names_of_the_package_exist(page):
    text = re.sub(r"```toml.*?```", "", text_of(page), flags=re.DOTALL)
    named = re.findall(r"\bgphash\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text)
    if page.name == "ARCHITECTURE.md":  # where names go without the package's
        parts = "|".join(sorted({path.stem for path in SOURCE.iterdir() if path.stem.isidentifier()}))
        code = "\n".join(re.findall(r"`([^`]+)`", text)) + "\n".join(re.findall(r"^    .*$", text, flags=re.MULTILINE))
        named += re.findall(rf"(?<![\w./])((?:{parts})(?:\.[A-Za-z_]\w*)+)", code)
        assert len(named) > 20
    assert [name for name in named if not exists(name)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_the_links_lead_somewhere(page):
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text_of(page)):
        path, _, anchor = (target[0] or target[1]).partition("#")
        if "://" in path:
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(text_of(file))):
            lost.append(target)
    assert lost == []


def test_the_code_names_pages_and_places_that_exist():
    lost = []
    for file in SOURCE.rglob("*.py"):
        for name, anchor in re.findall(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?", text_of(file)):
            page = DOCS / name
            if not page.exists() or (anchor and anchor not in anchors(text_of(page))):
                lost.append(f"{file.name}: docs/{name}#{anchor}")
    assert lost == []


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pages
def test_the_scripts_and_targets_exist(page):
    text = text_of(page)
    scripts = re.findall(r"\bpython ((?:benchmarks|examples)/\w+\.py)", text)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    rules = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)(?=`| +#)", text)) <= rules


@pages
def test_the_commands_know_their_options(page):
    import typer

    from gphash.cli.main import app

    group = typer.main.get_command(app)
    lines = re.findall(r"^ {4,}(gphash .*)$|`(gphash [^`]*)`", text_of(page).replace("\\\n", ""), flags=re.MULTILINE)
    for line in (first or second for first, second in lines):
        _, *words = shlex.split(line, comments=True)
        command = group
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert command is not group or not words or words[0].startswith("-") or words[0] == "COMMAND", line
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        unknown = [word for word in words if word.startswith("-") and word not in known]
        assert unknown == [], line
