"""Files that commands write: what they are called, what they may replace, and which were written before Ctrl-C."""

import os
import tokenize
import zipfile
from pathlib import Path
from typing import Any

from typer import BadParameter

from gphash import files
from gphash.data.known import data_sets

# What the command may write, and the numbers that the system gave to files that are there; files are replaced whole.
expected: dict[Path, tuple[Path, int | None]] = {}


def expect(path: Path, last: Path | None = None) -> None:
    """Have it said after Ctrl-C if this was written: a file, or a folder in which a file is written last."""
    file = last or path
    expected[path] = file, file.stat().st_ino if file.exists() else None


def interrupted() -> str:
    """What is said after Ctrl-C."""
    written = [str(path) for path, (file, before) in expected.items() if file.exists() and file.stat().st_ino != before]
    return f"interrupted; this was written: {', '.join(written)}." if written else "interrupted; nothing was written."


def stem(data: str) -> str:
    """What files made from DATA are called unless told otherwise: digits for digits:train, cats for a/cats.npz."""
    name = data.partition(":")[0]
    return name if name in data_sets.DATA_SETS else Path(data).resolve().stem or "data"


def folder(path: Path, option: str = "--output") -> Path:
    """A folder to write files in, refused now rather than when the work is done."""
    label = f"{option} {str(path)!r}"
    if path.exists() and not path.is_dir():
        raise BadParameter(f"{label} is a file; give the name of a folder.")
    _check_place(path, label)
    return path


def collection(path: Path, replace: bool, option: str = "--output") -> Path:
    """The folder of a new collection, refused now rather than when the work is done."""
    from gphash.collection import building, manifest

    try:
        building.check_target(folder(path, option), replace)
    except FileExistsError as error:
        raise BadParameter(f"{option} {error}") from error
    expect(path, path / manifest.NAME)
    return path


def file(path: Path, kind: str, *inputs: str | Path | None, option: str = "--output") -> Path:
    """A file to write, refused now rather than when the work is done.

    One that is there is replaced only if it is of the same kind ("model", "report", "codes", "graph", "duplicates" or
    "drawing"), or empty, and if it is none of the command's inputs.
    """
    label = f"{option} {str(path)!r}"
    if path.is_dir():
        raise BadParameter(f"{label} is a folder; give the name of a file.")
    _check_place(path, label)
    read = [Path(one) for one in inputs if one is not None]
    if any(path.resolve() == one.resolve() or (path.exists() and one.exists() and path.samefile(one)) for one in read):
        raise BadParameter(f"{label} is a file that this command reads; give another name.")
    from gphash import container
    from gphash.evaluation import report

    try:
        match kind:
            case "codes":
                files.check_replaceable(path, "array of codes", lambda there: codes_in(there) is not None)
            case "graph":
                from gphash.functions import exporting

                exporting.check_replaceable(path)
            case "drawing":
                files.check_replaceable(path, "drawing of gphash", _is_drawing)
            case "duplicates":
                files.check_replaceable(path, "list of duplicates", _is_duplicates)
            case "report":
                report.check_replaceable(path)
            case _:
                container.check_replaceable(path, kind)
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


def _is_duplicates(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(20).startswith((b'{"cluster": ', b'{"first": ', b"cluster,key", b"first,second,"))


def _is_drawing(path: Path) -> bool:
    return b"matplotlib" in path.read_bytes().lower()


def codes_in(path: Path) -> Any:
    """An array of codes, not read yet, or an archive of codes and probabilities; None if the file is neither."""
    import numpy as np

    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OverflowError, EOFError, tokenize.TokenError, zipfile.BadZipFile):
        return None
    if isinstance(found, np.ndarray):
        return found if found.ndim == 2 and found.dtype == np.uint8 else None
    return found if set(found) == {"codes", "probabilities"} else None
