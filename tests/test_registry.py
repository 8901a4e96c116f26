"""Names of things: ours, those registered by hand, and those of other packages."""

import re
from importlib.metadata import EntryPoint

import pytest

from gphash.registry import Registry


@pytest.fixture
def shapes():
    return Registry("shape", {"round": "math:sin", "square": "math:cos"})


def test_ours_are_imported_when_looked_up(shapes):
    import math

    assert shapes["round"] is math.sin
    assert list(shapes) == ["round", "square"]
    assert len(shapes) == 2


def test_one_more(shapes):
    assert shapes.register("flat", len) is len
    assert shapes.find("flat") is len
    assert shapes.register("flat", len) is len
    with pytest.raises(ValueError, match="shape 'flat' is registered already"):
        shapes.register("flat", max)
    with pytest.raises(ValueError, match="'round' is registered already"):
        shapes.register("round", max)


@pytest.mark.parametrize("name", ["oval", None, 3])
def test_an_unknown_name(shapes, name):
    with pytest.raises(ValueError, match=re.escape(f"form={name!r}; give one of 'round', 'square'")):
        shapes.find(name, "form")


def test_those_of_other_packages(shapes, monkeypatch):
    point = EntryPoint("long", "builtins:len", "gphash.shape")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "gphash.shape" else [])
    assert shapes.find("long") is len
