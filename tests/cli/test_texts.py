"""Texts from the command line: fit, index, add, search and evaluate with an encoder."""

import contextlib
import shutil

import pytest

from gphash.cli import training
from gphash.data.descriptors import networks
from tests import onnx_models as small
from tests.cli.running import gphash, inside, told

pytest.importorskip("pyarrow", reason="needs the extra parquet")

ANIMALS, MONEY = ("cat", "dog", "bird"), ("bank", "loan", "coin")
COLUMNS = ("--text-column", "body", "--label-column", "kind")
QUICK = ("--bits", 8, "--set", "n_inducing=18", "--set", "n_starts=1", "--set", "length_scale=1.0")


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for known in ("_loaded", "_places"):
        monkeypatch.setattr(networks, known, {})


@pytest.fixture
def folder(tmp_path):
    small.text_model(tmp_path / "encoder")
    lines = [f"the {one} sees a {other},{kind},{place}" for kind, words in (("a", ANIMALS), ("m", MONEY))
             for place, one in enumerate(words) for other in words]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["body,kind,price", *lines]) + "\n")
    gphash("fit", "t.csv", *COLUMNS, "--descriptor", "encoder", *QUICK, "-o", "t.gph", "-q", cwd=tmp_path)
    gphash("index", "t.gph", "t.csv", *COLUMNS, "-q", cwd=tmp_path)
    return tmp_path


def test_from_a_table_to_a_neighbour(folder):
    found = told("search", "t.gphash", "--text", "a coin is the loan", "-k", 3, cwd=folder)["results"][0]
    assert found["query"]["name"] == "a coin is the loan"
    assert {tuple(one["labels"]) for one in found["neighbours"]} == {("m",)}
    assert told("info", "t.gphash", cwd=folder)["descriptor"]["name"] == "text-encoder"
    report = told("evaluate", "t.gph", "t.csv", *COLUMNS, cwd=folder)
    assert report["protocol"]["queries"] == 18
    (folder / "more.txt").write_text("a bird\nthe bank\n")
    assert told("add", "t.gphash", "more.txt", cwd=folder)["added"] == 2
    assert told("encode", "t.gph", "more.txt", cwd=folder)["rows"] == 2
    assert told("data", "more.txt", "--descriptor", "encoder", cwd=folder)["features"] == small.WIDTH


def test_options_of_an_encoder(folder):
    given = ("--encoder-option", "pooling=cls", "--encoder-option", "tokens=9", "--encoder-option", "normalised=false")
    found = told("data", "t.csv", *COLUMNS, "--descriptor", "encoder", *given, cwd=folder)["descriptor"]
    assert (found["pooling"], found["tokens"], found["normalised"]) == ("cls", 9, False)
    small.picture_model(folder / "net.onnx")
    given = ("size=8", "mean=0,0.5,0", "deviation=1,1,1")
    options = [word for one in given for word in ("--encoder-option", one)]
    found = told("data", "digits:test", "--descriptor", "net.onnx", *options, cwd=folder)["descriptor"]
    assert (found["shape"], found["mean"]) == ([8, 8], [0, 0.5, 0])


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("search", "t.gphash"), "give either QUERY or --text"),
        (("search", "t.gphash", "key:1", "--text", "a"), "give either QUERY or --text"),
        (("search", "t.gphash", "--text", "a", "--show", "x.png"), "--show draws pictures"),
        (("search", "t.gphash", "--text", " "), "give a text that is not empty"),
        (("search", "t.gphash", "--text", "a", "--descriptor", "other"), "--descriptor 'other' is another one than"),
        (("index", "t.gph", "t.csv", "--descriptor", "other", "-o", "x.gphash"), "is another one than"),
        (("evaluate", "t.gph", "t.csv", *COLUMNS, "--descriptor", "other"), "is another one than"),
        (
            ("fit", "t.csv", *COLUMNS, "--descriptor", "encoder", "--encoder-option", "size=9"),
            "an encoder of texts has",
        ),
        (("fit", "t.csv", *COLUMNS, "--descriptor", "gist"), "has no pictures to describe"),
        (("fit", "t.csv", *COLUMNS, "--descriptor", "gone.onnx"), "--descriptor 'gone.onnx': there is no such file"),
        (("fit", "t.csv", *COLUMNS, "--descriptor", "gone"), "or the path of an ONNX model"),
        (("search", "t.gphash", "--text", "a", "--descriptor", "gone"), "--descriptor 'gone': there is no such file"),
        (("fit", "t.csv", "--encoder-option", "tokens=9"), "is a setting of encoders"),
        (("fit", "more.txt"), "give an encoder of texts"),
    ],
)
def test_what_cannot_be(folder, command, complaint):
    small.text_model(folder / "other", seed=1)
    (folder / "more.txt").write_text("a bird\n")

    with contextlib.chdir(folder):
        found = inside(*command, columns=500)
    assert found.exit_code in (1, 2)
    assert complaint in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_an_encoder_that_was_moved(folder):
    shutil.move(folder / "encoder", folder / "moved")
    networks._loaded.clear()
    networks._places.clear()
    found = gphash("search", "t.gphash", "--text", "a coin", cwd=folder, code=1)
    assert "give its place: --descriptor PATH" in " ".join(found.stderr.split())
    gphash("search", "t.gphash", "--text", "a coin", "--descriptor", "moved", cwd=folder)


def test_duplicates_with_an_encoder_that_was_moved(folder):
    shutil.move(folder / "encoder", folder / "moved")
    (folder / "more.txt").write_text("a bird\nthe bank\na bird\n")
    asked = "dedupe", "more.txt", "--model", "t.gph", "--radius", 0, "--min-cosine", 1
    networks._loaded.clear()
    networks._places.clear()
    found = gphash(*asked, cwd=folder, code=2)
    assert "give its place: --descriptor PATH" in " ".join(found.stderr.split())
    assert told(*asked, "--descriptor", "moved", cwd=folder)["found"] == [{"cluster": 0, "size": 2, "keys": [0, 2]}]
    found = gphash("dedupe", "t.gphash", "--radius", 0, "--descriptor", "moved", cwd=folder, code=2)
    assert "--descriptor is about rows to read; give --model, too" in " ".join(found.stderr.split())


def test_a_promise_that_no_query_keeps_is_told(capsys):
    training._tell_trust({"similarity": {"promises": {"precision_0.9": None, "answered_0.9": 0.0, "recall_0.9": 0.5}}})
    assert capsys.readouterr().out.splitlines()[-1].split() == ["0.9", "–", "0.000", "0.500"]
