"""Ctrl-C, for real: nothing half-written is left, and what can go on goes on."""

import ctypes
import subprocess
import sys
import time

import pytest

from gphash import load
from gphash.cli import app
from tests.cli.running import interrupt_at, told

LONG = ("digits", "--bits", 48, "--set", "n_inducing=800", "--set", "n_starts=1")


@pytest.mark.slow
def test_without_a_checkpoint_nothing_is_left(tmp_path):
    code, said = interrupt_at("sweep 1:", "fit", *LONG, cwd=tmp_path)
    assert code == 130
    assert said.splitlines()[-1] == "gphash: interrupted; nothing was written."
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_with_a_checkpoint_the_run_goes_on_and_ends_the_same(tmp_path):
    code, said = interrupt_at("sweep 1:", "fit", *LONG, "--checkpoint", "run", cwd=tmp_path)
    assert code == 130
    assert "run the same command again to go on" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert told("info", "run", cwd=tmp_path)["kind"] == "checkpoint"
    resumed = told("fit", *LONG, "--checkpoint", "run", cwd=tmp_path)
    whole = told("fit", *LONG, "-o", "whole.gph", cwd=tmp_path)
    assert resumed["fingerprint"] == whole["fingerprint"] == load(tmp_path / "digits-48.gph").fingerprint_


@pytest.mark.slow
def test_while_it_reads_nothing_is_left_either(tmp_path):
    code, said = interrupt_at("fitting", "fit", *LONG, cwd=tmp_path)
    assert code == 130
    assert said.splitlines()[-1] == "gphash: interrupted; nothing was written."
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_within_a_callback_from_c_is_not_lost():
    @ctypes.CFUNCTYPE(None)
    def callback() -> None:
        raise KeyboardInterrupt

    before = sys.unraisablehook
    with app.resent() as lost:
        callback()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
        assert lost
    assert sys.unraisablehook is before


@pytest.mark.slow
def test_an_error_after_a_lost_interrupt_counts_as_one():
    script = """
import ctypes
from gphash.cli import app

@app.command("")
def broken() -> None:
    @ctypes.CFUNCTYPE(None)
    def callback():
        raise KeyboardInterrupt
    callback()
    raise RuntimeError("no compiled object yet")

app.app(["broken"])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 130
    assert found.stderr.strip() == "gphash: interrupted; nothing was written."
