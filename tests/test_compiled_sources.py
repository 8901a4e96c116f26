"""The key of numba's cache changes with everything that compiled code is made of, and with nothing else."""

import importlib

import pytest

from tests import compiled_sources
from tests.compiled_sources import SOURCE, files, state

PACKAGE = {
    "compiled.py": "jit = None",
    "limits.py": "ROOM = 4",
    "loops.py": "from gphash.compiled import jit\n\n@jit\ndef add(a, b):\n    return a + b",
    "search.py": (
        "from gphash.compiled import jit\nfrom gphash.limits import ROOM\nfrom gphash.words import hello\n\n"
        "@jit\ndef scan(a):\n    return a[ROOM]\n\ndef say():\n    return hello()"
    ),
    "words.py": "def hello():\n    return 'hello'",
}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "gphash").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "gphash" / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", PACKAGE)
def test_a_change_counts_if_compiled_code_is_made_of_it(source, name):
    before = state(source)
    assert state(source) == before
    (source / "gphash" / name).write_text(PACKAGE[name] + "\n# changed")
    assert (state(source) == before) == (name == "words.py")


def test_a_file_that_is_moved_counts(source):
    before = state(source)
    (source / "gphash" / "loops.py").rename(source / "gphash" / "rounds.py")
    assert state(source) != before


def test_nothing_that_is_compiled_has_names_from_elsewhere():
    """What compiled functions refer to stands in a file that counts, or in another package."""
    known = {path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".") for path in files()}
    assert len(known) > 10
    compiled = [name for name in sorted(known) if compiled_sources.COMPILER in (_path(name).read_text())]
    functions = [one for name in compiled for one in vars(importlib.import_module(name)).values() if _is_compiled(one)]
    assert len(functions) > 30
    for function in functions:
        assert function.py_func.__module__ in known
        for name in function.py_func.__code__.co_names:
            value = function.py_func.__globals__.get(name)
            home = getattr(value, "__module__", None) or ""
            assert not home.startswith("gphash") or home in known, f"{function.py_func.__qualname__} uses {name}"


def _path(name):
    return SOURCE.joinpath(*name.split(".")).with_suffix(".py")


def _is_compiled(one):
    return hasattr(one, "py_func")
