"""Comparisons as a person runs them, on the digits."""

import os
import signal
import subprocess
import time
from functools import partial

import pytest

from gphash.version import __version__
from tests.cli.running import COMMAND, ENVIRONMENT, inside, started


@pytest.fixture
def gphash(tmp_path, monkeypatch):
    """Run a command in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    return partial(inside, columns=200)


def test_version_and_help(tmp_path):
    assert started("--version", cwd=tmp_path).stdout == f"gphash {__version__}\n"
    shown = inside("--help").stdout
    assert "compare" in shown
    assert "reproduce" in shown
    shown = started("compare", "--help", cwd=tmp_path, env={**ENVIRONMENT, "COLUMNS": "200"}).stdout
    assert "hadamard-ridge" in shown
    assert "gphash compare digits" in shown


def test_a_comparison_ends_in_a_table_and_is_not_run_again(gphash, tmp_path):
    arguments = ("compare", "digits", "--methods", "lsh,itq", "--bits", "4,8", "--seeds", 2, "--rows", 300)
    first = gphash(*arguments)
    assert first.exit_code == 0, first.stderr
    assert "mAP by Hamming distance" in first.stdout
    assert "[1/8] digits lsh 4 bits, 300 rows, seed 0" in first.stderr
    assert (tmp_path / "results-digits" / "table.md").exists()
    again = gphash(*arguments)
    assert again.exit_code == 0
    assert again.stderr == ""
    assert again.stdout == first.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("compare", "imagenet"), 2, "unknown data 'imagenet'; give one of toy, digits, mnist, cifar10"),
        (("compare", "digits", "--methods", "svm"), 2, "svm'; give one of"),
        (("compare", "digits", "--bits", "8,x"), 2, "'x' is not a whole number"),
        (("compare", "digits", "--set", "n_inducing"), 2, "give NAME=VALUE"),
        (("compare", "digits", "--protocol", "mine"), 2, "--protocol 'mine'; give one of 'held-out'"),
        (("compare",), 2, "Missing argument"),
        (("reproduce", "table9"), 2, "unknown experiment 'table9'; give one of table1, bands, figure-map"),
        (("reproduce", "lead", "--data", "cifar"), 2, "data 'cifar' is none of these experiments'"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_say_what_to_do(gphash, tmp_path, arguments, code, message):
    found = gphash(*arguments)
    assert found.exit_code == code
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_debug_shows_where_an_error_comes_from(tmp_path):
    command = [*COMMAND, "compare", "imagenet", "--debug"]
    assert "Traceback" in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr


def test_a_method_that_cannot_learn_from_the_data_fails_alone(gphash):
    found = gphash("compare", "digits", "--methods", "pcah", "--bits", "65", "--seeds", 1)
    assert found.exit_code == 1
    assert "left out, 1 cell(s): n_bits=65, but X has 64 feature(s)" in found.stderr


@pytest.mark.slow
def test_ctrl_c_stops_and_the_same_command_goes_on(tmp_path):
    arguments = ["compare", "digits", "--methods", "lsh,gph", "--bits", "8,16", "--seeds", "3"]
    command = [*COMMAND, *arguments, "--set", "n_inducing=200"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stderr:
            if "gph 8 bits" in line:
                time.sleep(0.3)
                run.send_signal(signal.SIGINT)
                break
        rest = run.stderr.read()
        assert run.wait(60) == 130
    assert "run the same command again to go on" in rest
    assert "Traceback" not in rest
    folder = tmp_path / "results-digits"
    assert not list(folder.rglob("*.tmp"))
    assert 3 <= len(list((folder / "cells").iterdir())) < 12
