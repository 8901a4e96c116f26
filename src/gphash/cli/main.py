"""All commands: importing a module enters its own, and help lists them in this order."""

import io  # noqa: I001
import sys

from gphash.cli import training, suggesting, exporting, collecting, searching, deduping, serving, storing  # noqa: F401
from gphash.cli import looking, comparing  # noqa: F401
from gphash.cli.app import app


def main() -> None:
    """Run the command line; exit codes are 0, 1 (failed), 2 (usage) or 130 (interrupted)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    app(prog_name="gphash")
