"""Comparisons as a person runs them, on the digits."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gphash.version import __version__
from tests.cli.running import inside


def gphash(*arguments, cwd, **how):
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "gphash", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=110, **how)


def test_version_and_help(tmp_path):
    assert gphash("--version", cwd=tmp_path).stdout == f"gphash {__version__}\n"
    shown = gphash("--help", cwd=tmp_path).stdout
    assert "compare" in shown
    assert "reproduce" in shown
    shown = gphash("compare", "--help", cwd=tmp_path).stdout
    assert "hadamard-ridge" in shown
    assert "gphash compare digits" in shown


def test_a_comparison_ends_in_a_table_and_is_not_run_again(tmp_path):
    arguments = ("compare", "digits", "--methods", "lsh,itq", "--bits", "4,8", "--seeds", 2, "--rows", 300)
    first = gphash(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "mAP by Hamming distance" in first.stdout
    assert "[1/8] digits lsh 4 bits, 300 rows, seed 0" in first.stderr
    assert (tmp_path / "results-digits" / "table.md").exists()
    again = gphash(*arguments, cwd=tmp_path)
    assert again.returncode == 0
    assert again.stderr == ""
    assert again.stdout == first.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("compare", "imagenet"), 1, "unknown data 'imagenet'; give one of toy, digits, mnist, cifar10"),
        (("compare", "digits", "--methods", "svm"), 1, "unknown method 'svm'; give one of gph, hadamard-ridge"),
        (("compare", "digits", "--bits", "8,x"), 2, "'x' is no whole number"),
        (("compare", "digits", "--set", "n_inducing"), 2, "give NAME=VALUE"),
        (("compare",), 2, "Missing argument"),
        (("reproduce", "table9"), 1, "unknown experiment 'table9'; give one of table1, bands, figure-map"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_say_what_to_do(tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    found = inside(*arguments)
    assert found.exit_code == code
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert os.listdir(tmp_path) == []


def test_debug_shows_where_an_error_comes_from(tmp_path):
    assert "Traceback" in gphash("compare", "imagenet", "--debug", cwd=tmp_path).stderr


def test_a_method_that_cannot_learn_from_the_data_fails_alone(tmp_path):
    found = gphash("compare", "digits", "--methods", "pcah", "--bits", "65", "--seeds", 1, cwd=tmp_path)
    assert found.returncode == 1
    assert "left out, 1 cell(s): n_bits=65, but X has 64 feature(s)" in found.stderr


def test_ctrl_c_stops_and_the_same_command_goes_on(tmp_path):
    arguments = ["compare", "digits", "--methods", "lsh,gph", "--bits", "8,16", "--seeds", "3"]
    command = [sys.executable, "-m", "gphash", *arguments, "--set", "n_inducing=200"]
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
