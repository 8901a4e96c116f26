"""What is there already, where a command is about to write a file."""

import tokenize
import zipfile
from collections.abc import Callable
from pathlib import Path

from gphash import files

CODES = {"codes.npy", "probabilities.npy"}  # of an archive


def _container(kind: str) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        from gphash import persistence

        persistence.check_replaceable(path, kind)

    return check


def _report(path: Path) -> None:
    from gphash.evaluation import report

    report.check_replaceable(path)


def _codes(path: Path) -> None:
    files.check_replaceable(path, "array of codes", are_codes)


def _drawing(path: Path) -> None:
    files.check_replaceable(path, "drawing of gphash", is_drawing)


def are_codes(path: Path) -> bool:
    """Whether it is an array of codes, or an archive of codes and probabilities."""
    import numpy as np

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist()) == CODES
        with open(path, "rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                return False
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            return len(shape) == 2 and dtype == np.uint8
    except (ValueError, tokenize.TokenError, zipfile.BadZipFile):
        return False


def is_drawing(path: Path) -> bool:
    """Whether it was drawn, and is no photograph."""
    return b"matplotlib" in path.read_bytes().lower()


CHECKS: dict[str, Callable[[Path], None]] = {
    "model": _container("model"),
    "index": _container("index"),
    "report": _report,
    "codes": _codes,
    "drawing": _drawing,
}
"""What refuses a file that is something else, by what a command writes."""
