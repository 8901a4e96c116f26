"""Files that commands write: what they are called, what they may replace, and which were written before Ctrl-C."""

import os
import tokenize
import zipfile
from pathlib import Path

from typer import BadParameter

from gphash import files
from gphash.data.known import data_sets

CODES = {"codes.npy", "probabilities.npy"}  # of an archive

# Files that the command may write, with the numbers that the system gave to what is there; files are replaced whole.
expected: dict[Path, int | None] = {}


def expect(path: Path) -> None:
    """Have it said after Ctrl-C if this file was written."""
    expected[path] = path.stat().st_ino if path.exists() else None


def interrupted() -> str:
    """What is said after Ctrl-C."""
    written = [str(path) for path, before in expected.items() if path.exists() and path.stat().st_ino != before]
    return f"interrupted; this was written: {', '.join(written)}." if written else "interrupted; nothing was written."


def stem(data: str) -> str:
    """What files made from DATA are called unless told otherwise: digits for digits:train, cats for a/cats.npz."""
    name = data.partition(":")[0]
    return name if name in data_sets.DATA_SETS else Path(data).resolve().stem or "data"


def folder(path: Path) -> Path:
    """A folder to write files in, refused now rather than when the work is done."""
    if path.exists() and not path.is_dir():
        raise BadParameter(f"--output {str(path)!r} is a file; give the name of a folder.")
    _check_place(path, f"--output {str(path)!r}")
    return path


def file(path: Path, kind: str, *inputs: str | Path | None, option: str = "--output") -> Path:
    """A file to write, refused now rather than when the work is done.

    One that is there is replaced only if it is of the same kind ("model", "index", "report", "codes" or "drawing"), or
    empty, and if it is none of the command's inputs.
    """
    label = f"{option} {str(path)!r}"
    if path.is_dir():
        raise BadParameter(f"{label} is a folder; give the name of a file.")
    _check_place(path, label)
    read = [Path(one) for one in inputs if one is not None]
    if any(path.resolve() == one.resolve() or (path.exists() and one.exists() and path.samefile(one)) for one in read):
        raise BadParameter(f"{label} is a file that this command reads; give another name.")
    try:
        _check_replaceable(path, kind)
    except FileExistsError as error:
        raise BadParameter(f"{option} {error}") from error
    expect(path)
    return path


def _check_place(path: Path, label: str) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise BadParameter(f"{label} is in a folder that does not exist; make it first.")
    if not os.access(parent, os.W_OK):
        raise BadParameter(f"{label} is in a folder that cannot be written to; give another one.")


def _check_replaceable(path: Path, kind: str) -> None:
    from gphash import container
    from gphash.evaluation import report

    if kind == "codes":
        files.check_replaceable(path, "array of codes", are_codes)
    elif kind == "drawing":
        files.check_replaceable(path, "drawing of gphash", lambda there: b"matplotlib" in there.read_bytes().lower())
    elif kind == "report":
        report.check_replaceable(path)
    else:
        container.check_replaceable(path, kind)


def are_codes(path: Path) -> bool:
    """Whether a file is an array of codes, or an archive of codes and probabilities."""
    import numpy as np

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist()) == CODES
        with open(path, "rb") as array:
            if np.lib.format.read_magic(array) != (1, 0):
                return False
            shape, _, dtype = np.lib.format.read_array_header_1_0(array)
            return len(shape) == 2 and dtype == np.uint8
    except (ValueError, tokenize.TokenError, zipfile.BadZipFile):
        return False
