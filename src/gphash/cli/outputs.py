"""What kind of file is there already, where a command is about to write one."""

import tokenize
import zipfile
from collections.abc import Callable
from pathlib import Path

CODES = {"codes.npy", "probabilities.npy"}  # of an archive


def is_model(path: Path) -> bool:
    """Whether it is a model."""
    return _is_container(path, "model")


def is_index(path: Path) -> bool:
    """Whether it is an index."""
    return _is_container(path, "index")


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


def is_report(path: Path) -> bool:
    """Whether it is a report of an evaluation."""
    from gphash.evaluation import report

    try:
        return "results" in report.read(path)
    except ValueError:
        return False


def is_drawing(path: Path) -> bool:
    """Whether it was drawn, and is no photograph."""
    return b"matplotlib" in path.read_bytes().lower()


# By what is said of them.
KINDS: dict[str, Callable[[Path], bool]] = {
    "model": is_model,
    "index": is_index,
    "array of codes": are_codes,
    "report": is_report,
    "drawing of gphash": is_drawing,
}


def _is_container(path: Path, kind: str) -> bool:
    from gphash import persistence

    try:
        return persistence.describe(path).kind == kind
    except persistence.FormatError:
        return False
