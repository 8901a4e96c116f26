"""The command line as a person uses it: a process of its own; and within this process, for many short cases."""

import contextlib
import json
import os
import signal
import subprocess
import sys

from typer.testing import CliRunner

from gphash.cli.main import app

COMMAND = [sys.executable, "-m", "gphash"]
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
QUICK = ("--set", "n_inducing=100", "--set", "n_starts=1", "--set", "length_scale=0.9", "--set", "signal_scale=4.0")


def gphash(*arguments, cwd, code=0, **how):
    """Run a command and check how it ends; what it says is handed back."""
    command = [*COMMAND, *map(str, arguments)]
    found = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=110, **how)
    assert found.returncode == code, (found.returncode, found.stdout, found.stderr)
    assert "Traceback" not in found.stderr
    return found


def told(*arguments, cwd):
    """What a command says with --json, within this process: starting another for every question takes seconds."""
    with contextlib.chdir(cwd):
        found = inside(*arguments, "--json", "--quiet")
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    return json.loads(found.stdout)


def inside(*arguments):
    """Run a command within this process."""
    return CliRunner(env={"NO_COLOR": "1"}).invoke(app, [*map(str, arguments)], prog_name="gphash")


def interrupt_at(text, *arguments, cwd):
    """Send Ctrl-C when the command says something, and hand back its exit code and what it says from then on."""
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=cwd, env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:
            if text in line:
                run.send_signal(signal.SIGINT)
                break
        rest = run.stderr.read()
        return run.wait(60), rest
