"""Errors that name what was typed: options, not arguments of Python's."""

import re
import shutil

import numpy as np
import pytest

import gphash
from gphash import HammingIndex
from gphash.cli import app
from gphash.collection.collection import Collection
from tests.cli.running import inside

PYTHON = re.compile(r"\w+=(True|False|None)|\w\((?!s\))|HammingIndex|[a-z]+_[a-z]+")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, an index of its own, one without items, and one to which an item was added."""
    folder = tmp_path_factory.mktemp("words")
    rows = np.random.default_rng(0).normal(size=(20, 5))
    np.savez(folder / "rows.npz", X=rows, y=np.arange(20) % 2)
    for seed in (0, 1):
        assert inside(
            "fit", folder / "rows.npz", "-m", "lsh", "-b", 8, "--seed", seed, "-o", folder / f"{seed}.gph", "-q"
        )
    assert inside("index", folder / "0.gph", folder / "rows.npz", "-o", folder / "own.index").exit_code == 0
    for path in list(folder.glob("own.index*")):
        shutil.copy(path, folder / path.name.replace("own", "more"))
    with Collection.open(folder / "more.index", writable=True) as collection:
        collection.add(features=rows[0])
    model = gphash.load(folder / "0.gph")
    HammingIndex.build(model.encode(rows), n_bits=8, model=model).save(folder / "plain.index")
    return folder


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("index 0.gph rows.npz -o more.index", "--discard-added"),
        ("search plain.index id:1", "--model"),
        ("search own.index id:1 --model 1.gph", "--model '1.gph'"),
        ("serve plain.index --port 0", "--model"),
        ("search none.index id:1", "none.index"),
        ("search . id:1", "is a folder"),
        ("store load none.index", "none.index"),
        ("fit rows.npz -b 4 --checkpoint . -o new.gph", "--checkpoint '.'"),
        ("serve own.index --host 0.0.0.0", "--read-token-file"),
        ("serve own.index --host 0.0.0.0", "--no-token"),
        ("serve own.index --host 0.0.0.0 --writable", "--write-token-file"),
    ],
)
def test_errors_name_options(folder, monkeypatch, arguments, named):
    if arguments.startswith("store"):
        pytest.importorskip("psycopg", reason="psycopg is not installed")
    monkeypatch.chdir(folder)
    found = inside(*arguments.split())
    assert found.exit_code == 1, found.output
    assert named in found.stderr
    assert not PYTHON.search(found.stderr), found.stderr


OPTIONS = {"n_bits": "--bits", "n_jobs": "--threads", "writable": "--writable", "where": "--where", "model": "MODEL"}
OPTIONS |= {"k": "-k", "read_token": "--read-token-file"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("n_bits=0; give at least 1.", "--bits 0; give at least 1."),
        ("open it with writable=True.", "open it with --writable."),
        ("(writable=True)", "(--writable)"),
        ("model=None, and there is no other.", "no MODEL, and there is no other."),
        ("where='n_bits=3 or writable=True' is refused", "--where 'n_bits=3 or writable=True' is refused"),
        ("'n_jobs=2.npz' is somebody else's file; k=0", "'n_jobs=2.npz' is somebody else's file; -k 0"),
        ('"it\'s n_bits=2" is a name', '"it\'s n_bits=2" is a name'),
        ("there is no read_token; give it", "there is no --read-token-file; give it"),
        ("n_inducing='many'; give a number.", "n_inducing='many'; give a number."),  # as --set takes it
        ("random_state=7", "random_state=7"),  # of which the command has none
        ("--set n_bits=4 is --bits 4", "--set --bits 4 is --bits 4"),
        ("a_file.n_bits=2 and my-n_bits=2", "a_file.n_bits=2 and my-n_bits=2"),
    ],
)
def test_arguments_become_options_and_texts_stay(said, told):
    assert app.in_options(said, OPTIONS) == told


def test_options_are_those_of_the_command():
    from gphash.cli import searching, training

    assert app.options_of(training.fit)["n_bits"] == "--bits"
    assert app.options_of(training.fit)["data_dir"] == "--data-dir"
    found = app.options_of(searching.search)
    assert [found[name] for name in ("path", "k", "model")] == ["INDEX", "-k", "--model"]
