"""Errors that name what was typed: options, not arguments of Python's."""

import re

import numpy as np
import pytest

from gphash.cli import app
from tests.cli.running import inside

PYTHON = re.compile(r"\w+=(True|False|None)|\w\((?!s\))|[a-z]+_[a-z]+")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and a collection of its rows."""
    folder = tmp_path_factory.mktemp("words")
    rows = np.random.default_rng(0).normal(size=(20, 5))
    np.savez(folder / "rows.npz", X=rows, y=np.arange(20) % 2)
    assert inside("fit", folder / "rows.npz", "-m", "lsh", "-b", 8, "-o", folder / "0.gph", "-q").exit_code == 0
    assert inside("index", folder / "0.gph", folder / "rows.npz", "-o", folder / "own.gphash").exit_code == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("search none.gphash key:1", "none.gphash"),
        ("search . key:1", "give the folder of a collection"),
        ("search own.gphash key:1 --where prize<3", "the columns are key, label"),
        (
            "search own.gphash key:1 --where label=?",
            "--param [] for --where 'label=?', which has 1 ?",
        ),
        ("search own.gphash key:1 --param 3", "--param ['3'], but no --where; give the condition"),
        ("search own.gphash key:1 --label 7", "--label '7' is no label of the collection; give one of '0', '1'."),
        ("search own.gphash key:1 --ranking expected", "--ranking 'expected', but the query has no probabilities"),
        ("search own.gphash key:1 --rerank 40", "--rerank 40, but the collection was made without vectors"),
        ("search own.gphash key:1 --pictures none", "--pictures 'none' is no folder"),
        ("remove own.gphash 99", "there is no item 99"),
        ("store none.gphash postgresql://me@localhost/shop?collection=a", "none.gphash"),
        ("store own.gphash postgresql://me@localhost/shop", "the address names no collection"),
        ("fetch shop new.gphash", "the address names no collection"),
        ("fit rows.npz -b 4 --checkpoint . -o new.gph", "--checkpoint '.'"),
        ("serve own.gphash --host 0.0.0.0", "--read-token-file"),
        ("serve own.gphash --host 0.0.0.0", "--no-token"),
        ("serve own.gphash --host 0.0.0.0 --writable", "--write-token-file"),
    ],
)
def test_errors_name_options(folder, monkeypatch, arguments, named):
    if arguments.startswith(("store", "fetch")):
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
    assert [found[name] for name in ("path", "k", "params")] == ["COLLECTION", "-k", "--param"]
