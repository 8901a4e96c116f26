"""All commands, in the order in which the help lists them; the one place that knows every module of the package."""

import io  # noqa: I001
import sys

# Importing a module enters its commands, and help lists them in this order.
from gphash.cli import training, searching, serving, looking, comparing, demo, storing
from gphash.cli.app import app

COMMANDS = (training, searching, serving, looking, comparing, demo, storing)


def main() -> None:
    """Run the command line; exit codes are 0, 1 (failed), 2 (usage) or 130 (interrupted)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    app(prog_name="gphash")
