"""Errors: one line that says what to do, exit code 1, or 2 for what the command line itself refuses."""

import numpy as np
import pytest

from tests.cli.running import inside


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "plain.npy", np.random.default_rng(0).normal(size=(20, 5)))
    np.savez(tmp_path / "labelled.npz", X=np.random.default_rng(0).normal(size=(20, 5)), y=np.arange(20) % 2)
    (tmp_path / "text.txt").write_text("no array")
    (tmp_path / "odd.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("fit imagenet", 2, "unknown data 'imagenet'; give one of toy, digits"),
        ("fit digits -m svm", 2, "svm'; give one of"),
        ("fit plain.npy", 1, "has neither labels nor tags nor pairs, and gph learns from labels"),
        ("fit plain.npy", 1, "that can learn from it: itq, pcah, spectral, klsh, lsh"),
        ("fit digits --set n_inducing", 2, "give NAME=VALUE"),
        ("fit digits --set colour=red", 2, "--set 'colour': gph has balance_pairs"),
        ("fit imagenet --set n_inducing=many", 2, "n_inducing='many'; give a whole number"),
        ("fit imagenet -m ksh --set n_labelled=0", 2, "n_labelled=0; give a whole number"),
        ("fit imagenet --set n_inducing=1_0", 2, "n_inducing='1_0'; give a whole number"),
        ("fit digits --bits 1000000", 2, "--bits 1000000; give a whole number from 1 to 1024"),
        ("fit digits --bits 1_0", 2, "'1_0' is not a whole number of at least 1"),
        ("fit digits --seed 4294967296", 2, "is not a whole number from 0 to 4294967295"),
        ("fit digits --set n_bits=4", 2, "give --bits instead"),
        ("fit digits --set callback=4", 2, "--set 'callback': gph has"),
        ("fit digits --bits 0", 2, "Invalid value for '--bits'"),
        ("fit digits --bits many", 2, "Invalid value for '--bits'"),
        ("fit digits -m lsh --checkpoint run", 2, "--checkpoint 'run': lsh trains without it"),
        ("fit digits -o nowhere/m.gph", 2, "is in a folder that does not exist"),
        ("fit digits -o .", 2, "is a folder; give the name of a file"),
        ("fit digits --threads 0", 2, "give at least 1, or -1 for all cores"),
        ("fit", 2, "Missing argument"),
        ("encode none.gph digits", 1, "'none.gph': no such file or directory."),
        ("encode text.txt digits", 1, "'text.txt'"),
        ("encode none.gph digits -o codes.csv", 2, "codes alone are a file .npy"),
        ("encode none.gph digits -p -o codes.npy", 2, "codes with probabilities are a file .npz"),
        ("evaluate none.gph digits", 1, "'none.gph': no such file"),
        ("evaluate none.gph digits --radius -1", 2, "Invalid value for '--radius'"),
        ("index none.gph digits", 1, "'none.gph': no such file"),
        ("index none.gph digits -o text.txt", 2, "--output 'text.txt' is a file; give the name of a folder."),
        ("index none.gph digits -o nowhere/i.gphash", 2, "is in a folder that does not exist"),
        ("index none.gph digits -o .", 2, "has other files, such as"),
        ("index none.gph digits --cluster x", 1, "'none.gph': no such file"),
        ("add none.gphash digits", 1, "none.gphash' is not there; give the folder of a collection."),
        ("add none.gphash", 2, "Missing argument 'DATA'"),
        ("remove none.gphash 7", 1, "none.gphash' is not there"),
        ("remove none.gphash", 2, "Missing argument 'KEY"),
        ("compact text.txt", 1, "text.txt' is a file; give the folder of a collection."),
        ("compact .", 1, "has no collection.json; give the folder of a collection"),
        ("search none.gphash key:1", 1, "none.gphash' is not there"),
        ("search none.gphash key:1 -k 0", 2, "Invalid value for '-k'"),
        ("search mysql://me:secret@shop key:1", 1, "'mysql'; give one of 'folder', 'postgresql'"),
        ("search none.gphash key:1 --show sheet.bmp", 2, "ends in .png, .svg, .pdf"),
        ("search none.gphash plain.npy --show sheet.png", 2, "rows of features have no picture"),
        ("search none.gphash key:1 --ranking best", 2, "Invalid value for '--ranking'"),
        ("serve none.gphash", 1, "there is no collection 'none.gphash'; gphash index makes a collection."),
        ("serve text.txt", 1, "'text.txt' is a file; gphash index makes a collection."),
        ("serve none.gphash --read-token-file none", 1, "'none': no such file"),
        ("serve none.gphash --token secret", 2, "No such option"),
        ("info none", 1, "'none': no such file or directory."),
        ("info text.txt", 1, "'text.txt' is not a file of gphash."),
        ("info odd.json", 1, "'odd.json' is not a file of gphash."),
        ("info .", 1, "'.' is a folder; gphash data . describes"),
        ("data imagenet", 2, "unknown data 'imagenet'"),
        ("data digits:half", 2, "half"),
        ("demo -o text.txt", 2, "'text.txt' is a file; give the name of a folder."),
        ("nonsense", 2, "No such command"),
    ],
)
def test_errors_say_what_to_do_and_write_nothing(here, arguments, code, message):
    before = sorted(path.name for path in here.iterdir())
    found = inside(*arguments.split())
    assert found.exit_code == code, found.output
    assert message in " ".join(found.stderr.split())
    assert found.stdout == ""
    if code == 1:
        assert len(found.stderr.splitlines()) == 1
    assert sorted(path.name for path in here.iterdir()) == before


def test_a_method_that_cannot_learn_from_pairs_names_those_that_can(here):
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    np.savez("pairs.npz", X=np.eye(4, 5), pairs=pairs, similar=np.array([1, -1, 1]))
    found = inside("fit", "pairs.npz", "-m", "sdh")
    assert found.exit_code == 1
    assert "'pairs.npz' has pairs, and sdh learns from labels" in found.stderr
    assert "a --method that can learn from it: gph" in found.stderr


@pytest.fixture
def small(here):
    assert inside("fit", "labelled.npz", "-m", "lsh", "--bits", 4, "-o", "small.gph").exit_code == 0
    return here


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("encode small.gph digits", "'digits' has 64 features a row, and 'small.gph' was trained on 5"),
        ("encode small.gph plain.npy -p", "a model of lsh, which gives no probabilities"),
        ("evaluate small.gph plain.npy", "neither labels nor tags to judge by"),
        ("evaluate small.gph digits", "'small.gph' was trained on 5"),
        ("index small.gph digits", "'digits' has 64 features a row, and 'small.gph' was trained on 5"),
    ],
)
def test_rows_that_do_not_fit_the_model(small, arguments, message):
    found = inside(*arguments.split())
    assert found.exit_code == 1, found.output
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("key:99", 1, "there is no item 99."),
        ("key:seven", 2, "'seven' is no key; the keys of this collection are whole numbers."),
        ("id:7", 1, "'id:7' is not a file; give a picture, a file .npy, key:KEY, or random."),
        ("cat.jpg", 1, "'cat.jpg' is not a file; give a picture"),
        ("wide.npy", 1, "64"),
        ("flat.npy", 1, "numbers [n, d]"),
        ("broken.npy", 1, "whole .npy file of numbers"),
        ("text.txt", 1, "give features"),
    ],
)
def test_queries_that_cannot_be(small, query, code, message):
    assert inside("index", "small.gph", "labelled.npz").exit_code == 0
    np.save("wide.npy", np.zeros(64))
    np.save("flat.npy", np.array(["word"]))
    (small / "broken.npy").write_text("nothing")
    found = inside("search", "labelled.gphash", query)
    assert found.exit_code == code, found.output
    assert message in found.stderr


def test_expected_distance_needs_probabilities(small):
    assert inside("index", "small.gph", "labelled.npz").exit_code == 0
    found = inside("search", "labelled.gphash", "plain.npy", "--ranking", "expected")
    assert found.exit_code == 1
    assert "probabilit" in found.stderr


def test_an_unforeseen_error_asks_for_a_report(here, monkeypatch):
    monkeypatch.setattr("gphash.data.sources.read", lambda *_: {}["key"])
    found = inside("data", "digits")
    assert found.exit_code == 1
    assert found.stderr == "gphash: KeyError: 'key' (unexpected; run it again with --debug, and report the output)\n"
    assert isinstance(inside("data", "digits", "--debug").exception, KeyError)


def test_debug_shows_where_an_error_comes_from():
    assert isinstance(inside("data", "imagenet", "--debug").exception, ValueError)


@pytest.mark.filterwarnings("always")
def test_a_warning_is_a_line_unless_quiet(here):
    arguments = ("fit", "labelled.npz", "--bits", 2, "--set", "n_inducing=50", "-o", here / "w.gph")
    found = inside(*arguments)
    assert found.exit_code == 0, found.output
    assert "gphash: n_inducing=50 exceeds the 20 rows of X" in found.stderr
    assert "UserWarning" not in found.stderr
    assert inside(*arguments, "--quiet").stderr == ""
