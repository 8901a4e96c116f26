"""Reports: what was measured, on what and how, as a JSON file. Plots read these files and never compute."""

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gphash import files
from gphash.version import __version__

FORMAT = 1
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def make(
    protocol: dict[str, Any], data: dict[str, Any], method: dict[str, Any], results: dict[str, Any]
) -> dict[str, Any]:
    """Put a report together, and say what it was made with."""
    made_with = {
        "format": FORMAT,
        "gphash": __version__,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
    report: dict[str, Any] = plain(
        {**made_with, "protocol": protocol, "data": data, "method": method, "results": results}
    )
    return report


def write(path: str | os.PathLike[str], report: dict[str, Any]) -> None:
    """Write a report, whole or not at all; only a report is replaced."""
    check_replaceable(path)
    files.write_text(path, json.dumps(plain(report), indent=1, allow_nan=False) + "\n")


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuse to write over anything but a report, or an empty file."""

    def is_one(there: Path) -> bool:
        try:
            return "results" in read(there)
        except ValueError:
            return False

    files.check_replaceable(path, "report", is_one)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a report."""
    shown = repr(os.fspath(path))
    with open(path, encoding="utf-8") as file:
        try:
            report = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{shown} is not a report: {error}") from error
    if not isinstance(report, dict) or not isinstance(report.get("format"), int):
        raise ValueError(f"{shown} is not a report of gphash.")
    if report["format"] > FORMAT:
        raise ValueError(f"{shown} has format {report['format']}, newer than {FORMAT}: a newer gphash reads it.")
    return report


def plain(value: Any) -> Any:
    """The same in JSON's own types: arrays become lists, numpy's numbers Python's, NaN and infinity None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
