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


def test_names_of_other_packages_are_known_everywhere(shapes, monkeypatch):
    points = [EntryPoint("long", "builtins:len", "gphash.shape"), EntryPoint("lost", "nowhere:x", "gphash.shape")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "gphash.shape" else [])
    assert shapes.name_of(len) == "long"
    assert "long" in Registry("shape", {})
    with pytest.warns(UserWarning, match="the shape 'lost' of another package cannot be used"):
        assert list(shapes.everything()) == ["round", "square", "long"]


def test_supervision_of_another_package_is_not_taken_for_labels(monkeypatch):
    import numpy as np

    from gphash.supervision import targets

    class Ranks(list):
        """What only the other package understands."""

    kind = targets.KINDS["labels"]._replace(
        owns=lambda y: isinstance(y, Ranks),
        check=lambda y, n, balance: targets.KINDS["labels"].check([0, 0, 1], n, balance),
    )
    monkeypatch.setattr("tests.test_registry.RANKS", kind, raising=False)
    fresh = Registry(
        "supervision", {name: f"gphash.supervision.targets:{name.upper()}" for name in ("labels", "tags", "pairs")}
    )
    monkeypatch.setattr(targets, "KINDS", fresh)
    point = EntryPoint("ranks", "tests.test_registry:RANKS", "gphash.supervision")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    found = targets.supervision(Ranks("abc"), 3, True, "GPHasher")
    assert found.kind == "ranks"
    np.testing.assert_array_equal(found.masks[0], found.masks[1])
