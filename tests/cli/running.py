"""The command line within this process, which takes no second to start, and as a process of its own."""

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


def started(*arguments, cwd, code=0, **how):
    """Run a command as a process and check how it ends; what it says is handed back."""
    command = [*COMMAND, *map(str, arguments)]
    how = {"env": ENVIRONMENT, **how}
    found = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110, **how)
    assert found.returncode == code, (found.returncode, found.stdout, found.stderr)
    assert "Traceback" not in found.stderr
    return found


def gphash(*arguments, cwd, code=0):
    """The same within this process."""
    with contextlib.chdir(cwd):
        found = inside(*arguments)
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.stderr
    return found


def told(*arguments, cwd):
    """What a command says with --json."""
    found = gphash(*arguments, "--json", "--quiet", cwd=cwd)
    assert found.stderr == ""
    return json.loads(found.stdout)


def inside(*arguments, columns=80):
    """Run a command within this process, however it ends."""
    environment = {"NO_COLOR": "1", "COLUMNS": str(columns)}
    return CliRunner(env=environment).invoke(app, [*map(str, arguments)], prog_name="gphash")


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
