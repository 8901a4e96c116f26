"""Reports as files: whole or not at all, and nothing else is taken for one."""

import json
import os

import numpy as np
import pytest

import gphash
from gphash.evaluation import report


def a_report(**results):
    return report.make({"name": "leave one out"}, {"name": "toy"}, {"name": "Method"}, results)


def test_a_report_says_what_made_it():
    made = a_report(map=0.5)
    assert made["format"] == report.FORMAT
    assert made["gphash"] == gphash.__version__
    assert made["versions"]["numpy"] == np.__version__
    assert {"python", "machine", "protocol", "data", "method", "results"} <= made.keys()


def test_numpy_becomes_plain():
    found = report.plain(
        {
            1: np.float32(0.5),
            "array": np.arange(4, dtype=np.uint8).reshape(2, 2),
            "gaps": np.array([0.5, np.nan, -np.inf]),
            "flag": np.bool_(True),
            "tuple": (np.int64(3), "word", None),
        }
    )
    assert found == {
        "1": 0.5,
        "array": [[0, 1], [2, 3]],
        "gaps": [0.5, None, None],
        "flag": True,
        "tuple": [3, "word", None],
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "report.json"
    made = a_report(map=0.1 + 0.2, curve=np.linspace(0, 1, 7), words="naïve · Σ")
    report.write(path, made)
    assert report.read(path) == made
    assert os.listdir(tmp_path) == ["report.json"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    report.write(path, a_report(map=0.25))

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        report.write(path, a_report(map=0.75))
    assert report.read(path)["results"]["map"] == 0.25
    assert os.listdir(tmp_path) == ["report.json"]


def test_what_json_cannot_hold_is_refused_without_a_file(tmp_path):
    with pytest.raises(TypeError):
        report.write(tmp_path / "report.json", a_report(thing=object()))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "results"',
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"{}",
        b'{"format": "x"}',
        b'{"format": null}',
        b"[" * 10**5,
    ],
    ids=["empty", "cut short", "no text", "a list", "no format", "odd format", "null format", "deep"],
)
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.json' is not a report"):
        report.read(path)


def test_a_newer_format_asks_for_a_newer_library(tmp_path):
    path = tmp_path / "new.json"
    path.write_text(json.dumps({**a_report(), "format": report.FORMAT + 1}))
    with pytest.raises(ValueError, match=r"new\.json' has format 2, newer than 1: a newer gphash reads it"):
        report.read(path)


def test_a_missing_file_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        report.read(tmp_path / "none.json")
