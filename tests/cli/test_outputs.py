"""What commands write: never over what they read or over what is something else, and after Ctrl-C it is said."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from gphash.collection.collection import Collection
from tests.cli.running import inside


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    np.save("rows.npy", generator.normal(size=(20, 5)))
    np.savez("labelled.npz", X=generator.normal(size=(20, 5)), y=np.arange(20) % 2)
    Image.fromarray(generator.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save("photo.png")
    shutil.copy("photo.png", "photo.svg")
    for name in ("thesis.txt", "thesis.npy", "thesis.json"):
        (tmp_path / name).write_text("months of work")
    (tmp_path / "other.json").write_text("{}")
    assert inside("fit", "labelled.npz", "-m", "lsh", "--bits", 4, "-o", "m.gph").exit_code == 0
    assert inside("index", "m.gph", "labelled.npz", "-o", "i.gphash").exit_code == 0
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("encode m.gph rows.npy -o rows.npy", "is a file that this command reads"),
        ("encode m.gph labelled.npz -p -o labelled.npz", "is a file that this command reads"),
        ("evaluate m.gph labelled.npz -o m.gph", "is a file that this command reads"),
        ("evaluate m.gph rows.npy --stored labelled.npz -o labelled.npz", "is a file that this command reads"),
        ("fit labelled.npz -m lsh -o labelled.npz", "is a file that this command reads"),
        ("fit labelled.npz -o run --checkpoint run", "is a file that this command reads"),
        ("index m.gph labelled.npz -o m.gph", "--output 'm.gph' is a file; give the name of a folder."),
        ("search i.gphash photo.png --show photo.png", "is a file that this command reads"),
        ("fit labelled.npz -m lsh -o photo.png", "already exists and is no model"),
        ("fit labelled.npz -m lsh -o i.gphash", "is a folder; give the name of a file"),
        ("fit labelled.npz -m lsh -o i.gphash/items.sqlite", "already exists and is no model"),
        ("encode m.gph labelled.npz -o rows.npy", "already exists and is no array of codes"),
        ("encode m.gph labelled.npz -o thesis.npy", "already exists and is no array of codes"),
        ("encode m.gph rows.npy -p -o labelled.npz", "already exists and is no array of codes"),
        ("evaluate m.gph labelled.npz -o thesis.json", "already exists and is no report"),
        ("evaluate m.gph labelled.npz -o other.json", "already exists and is no report"),
        ("evaluate m.gph labelled.npz -o rows.npy", "already exists and is no report"),
        ("index m.gph labelled.npz -o thesis.txt", "--output 'thesis.txt' is a file; give the name of a folder."),
        ("index m.gph labelled.npz -o .", "--output '.' has other files, such as"),
        ("index m.gph labelled.npz -o i.gphash", "give another name, or pass --replace to replace it."),
        ("search i.gphash key:3 --show photo.png", "already exists and is no drawing"),
        ("search i.gphash key:3 --show photo.svg", "--show 'photo.svg' already exists and is no drawing"),
    ],
)
def test_nothing_else_is_overwritten(here, arguments, message):
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    found = inside(*arguments.split())
    assert found.exit_code == 2, found.output
    assert message in " ".join(found.stderr.split())
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_a_link_to_an_input_is_the_input(here):
    (here / "link.npy").symlink_to("rows.npy")
    os.link("rows.npy", "twin.npy")
    for name in ("link.npy", "twin.npy"):
        assert "this command reads" in inside("encode", "m.gph", "rows.npy", "-o", name).stderr


def test_the_same_command_may_be_run_again(here):
    (here / "empty.gph").touch()
    for _ in range(2):
        for arguments in (
            "fit labelled.npz -m lsh --bits 4 -o m.gph",
            "fit labelled.npz -m lsh --bits 4 -o empty.gph",
            "encode m.gph rows.npy -o codes.npy",
            "evaluate m.gph labelled.npz",
            "index m.gph labelled.npz -o i.gphash --replace",
        ):
            found = inside(*arguments.split())
            assert found.exit_code == 0, found.output


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_sheet_may_be_drawn_again(made, tmp_path, suffix):
    for _ in range(2):
        found = inside("search", made / "digits.gphash", "key:3", "-k", 2, "--show", tmp_path / f"sheet.{suffix}")
        assert found.exit_code == 0, found.output


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_nothing_and_says_so(here, monkeypatch):
    before = sorted(here.rglob("*"))
    monkeypatch.setattr("gphash.collection.building._fill", interrupt)
    for arguments in (["-o", "new.gphash"], ["-o", "i.gphash", "--replace"]):
        found = inside("index", "m.gph", "labelled.npz", *arguments)
        assert found.exit_code == 130
        assert found.stderr == "gphash: interrupted; nothing was written.\n"
        assert sorted(here.rglob("*")) == before
    assert inside("search", "i.gphash", "key:3").exit_code == 0


def test_a_collection_that_is_in_place_is_said_to_be(here, monkeypatch):
    monkeypatch.setattr(Collection, "open", interrupt)
    for arguments in (["-o", "new.gphash"], ["-o", "i.gphash", "--replace"]):
        found = inside("index", "m.gph", "labelled.npz", *arguments)
        assert found.stderr == f"gphash: interrupted; this was written: {arguments[1]}.\n"


def test_what_a_report_was_written_to_is_said(here, monkeypatch):
    monkeypatch.setattr("gphash.evaluation.plots.codes", interrupt)
    found = inside("evaluate", "m.gph", "labelled.npz", "--plots", "figures")
    assert found.exit_code == 130
    assert sorted(os.listdir("figures")) == ["precision-recall.png", "precision-recall.svg"]
    written = found.stderr.removeprefix("gphash: interrupted; this was written: ").rstrip(".\n").split(", ")
    assert written == ["m-report.json", "figures/precision-recall.svg", "figures/precision-recall.png"]


@pytest.mark.slow
def test_what_the_demo_has_written_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("gphash.cli.options.read", interrupt)
        assert inside("demo").stderr == "gphash: interrupted; nothing was written.\n"
    assert os.listdir() == []
    monkeypatch.setattr("gphash.evaluation.protocol.judge", interrupt)
    found = inside("demo", "-q")
    assert found.stderr == "gphash: interrupted; this was written: gphash-demo/digits.gph.\n"
    (tmp_path / "gphash-demo" / "report.json").write_text("mine")
    assert "is no report" in inside("demo", "-q").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("data rows.npy", "gphash: there is not enough memory; give fewer rows."),
        ("fit rows.npy", "gphash: there is not enough memory; give fewer rows, or a smaller n_inducing by --set."),
    ],
)
def test_advice_on_memory_is_of_use(here, monkeypatch, arguments, message):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("gphash.data.sources.read", full)
    assert inside(*arguments.split()).stderr.strip() == message


def test_advice_on_memory_where_there_is_none(here, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Collection, "open", full)
    assert inside("search", "i.gphash", "key:3").stderr == "gphash: there is not enough memory.\n"


def test_precision_counts_what_can_be_judged(here):
    with np.load("labelled.npz") as rows:
        np.save("bare.npy", rows["X"][[3, 3]])
    assert inside("add", "i.gphash", "bare.npy").exit_code == 0
    answer = json.loads(inside("search", "i.gphash", "key:3", "-k", 21, "--json").stdout)["results"][0]
    judged = [one["relevant"] for one in answer["neighbours"] if one["relevant"] is not None]
    assert (len(judged), len(answer["neighbours"])) == (19, 21)
    said = inside("search", "i.gphash", "key:3", "-k", 21).stdout
    assert f"precision {sum(judged) / 19:.2f}: {sum(judged)} of 19; 2 without a label" in said
