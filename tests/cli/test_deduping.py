"""gphash dedupe: what is said, written and refused."""

import csv
import json

import numpy as np
import pytest

from gphash.data import sources
from tests.cli.running import QUICK, gphash, inside, told


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, and a collection of digits in which some are there twice."""
    folder = tmp_path_factory.mktemp("dedupe")
    rows = sources.read("digits:test").X
    np.save(folder / "twice.npy", np.concatenate([rows[:100], rows[20:30], rows[20:21]]))
    told("fit", "digits:train", "--bits", 8, *QUICK, "-o", "m.gph", cwd=folder)
    told("index", "m.gph", "twice.npy", "--vectors", "int8", cwd=folder)
    return folder


def test_clusters_are_shown_and_written(made, monkeypatch):
    asked = "dedupe", "twice.gphash", "--radius", 0, "--min-cosine", 0.9999
    found = told(*asked, cwd=made)
    assert (found["items"], found["clusters"], found["duplicates"]) == (111, 10, 11)
    assert [one["keys"] for one in found["found"]] == [[20, 100, 110], *([row, row + 80] for row in range(21, 30))]
    said = gphash(*asked, cwd=made).stdout
    assert "   3  20, 100, 110" in said
    assert "10 clusters among 111 items; 11 items could go" in said
    for _ in range(2):  # what is there is replaced
        told(*asked, "-o", "a.jsonl", cwd=made)
        told(*asked, "-o", "a.csv", cwd=made)
    lines = [json.loads(line) for line in (made / "a.jsonl").read_text().splitlines()]
    assert lines == found["found"]
    with open(made / "a.csv", newline="") as file:
        table = list(csv.reader(file))
    assert table == [["cluster", "key"], *([str(one["cluster"]), str(key)] for one in lines for key in one["keys"])]


def test_pairs_of_rows_that_are_no_collection(made):
    asked = "dedupe", "twice.npy", "--model", "m.gph", "--radius", 1, "--min-cosine", 0.9999, "--pairs"
    found = told(*asked, cwd=made)
    assert found["pairs"] == 12
    first = found["found"][0]
    assert (first["first"], first["second"], first["distance"]) == (20, 100, 0)
    assert first["cosine"] == pytest.approx(1)
    assert 0 < first["probability"] <= 1
    told(*asked, "-o", "b.csv", cwd=made)
    with open(made / "b.csv", newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["first", "second", "distance", "probability", "cosine"]
    assert [row[:2] for row in table[1:]] == [[str(one["first"]), str(one["second"])] for one in found["found"]]
    assert "12 pairs among 111 items" in gphash(*asked, cwd=made).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ("twice.gphash", 2, "give --radius, or --min-probability, or both"),
        ("twice.gphash --radius 1 -o a.txt", 2, "give a name that ends in .jsonl or .csv"),
        ("twice.gphash --radius 1 -o theirs.csv", 2, "already exists and is no list of duplicates"),
        ("twice.gphash --radius 1 --min-cosine 3", 1, "--min-cosine 3.0; give a number from -1 to 1"),
        ("none.gphash --radius 1", 1, "none.gphash"),
    ],
)
def test_errors(made, monkeypatch, arguments, code, named):
    monkeypatch.chdir(made)
    (made / "theirs.csv").write_text("name,price\n")
    found = inside("dedupe", *arguments.split())
    assert found.exit_code == code
    assert named in " ".join(found.stderr.split())
    assert (made / "theirs.csv").read_text() == "name,price\n"
