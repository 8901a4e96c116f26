"""Errors of the library in the words of the command line: an argument of Python's is an option here.

The library names arguments as Python writes them, ``n_bits=0`` or ``writable=True``. Whoever typed ``--bits 0`` is told
of that instead.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

# How commands call what the library calls otherwise; the first that a command has.
PARAMETERS = {
    "n_bits": ("bits",),
    "random_state": ("seed",),
    "n_jobs": ("threads",),
    "executor": ("cluster",),
    "path": ("output", "index"),
    "allowed": ("label",),
    "conninfo": ("database",),
    "params": ("param",),
    "read_token": ("read_token_file",),
    "write_token": ("write_token_file",),
    "hosts": ("allowed_host",),
    "max_body_bytes": ("max_body",),
    "max_picture_pixels": ("max_pixels",),
    "max_in_work": ("max_requests",),
}

_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
# An argument with its value; a text of the user's, which stays as it is; a name that only a program would use.
_SAID = re.compile(
    rf"(?<![\w.-])([A-Za-z]\w*)=({_QUOTED}|[^\s;,)]+)|{_QUOTED}|(?<![\w.-])([a-z]+(?:_[a-z]+)+)(?![\w=(.])"
)


def options_of(command: Callable[..., Any]) -> dict[str, str]:
    """For every parameter of a command, how it is written on the command line."""
    hints = get_type_hints(command, include_extras=True)
    found = {}
    for name in inspect.signature(command).parameters:
        about = next(iter(getattr(hints[name], "__metadata__", ())), None)
        # Typer takes the first spelling for a default, until it makes the command.
        spelt = [getattr(about, "default", None), *(getattr(about, "param_decls", None) or ())]
        spelt = [one for one in spelt if isinstance(one, str) and one.startswith("-")]
        is_argument = type(about).__name__ == "ArgumentInfo"
        found[name] = name.upper() if is_argument else (spelt or [f"--{name.replace('_', '-')}"])[0]
    return found


def in_options(text: str, options: Mapping[str, str]) -> str:
    """A message of the library to whoever gave these options."""

    def told(match: re.Match[str]) -> str:
        argument, value, alone = match.groups()
        option = _option(argument or alone or "", options)
        if option is None:
            return match.group()
        if alone or value.rstrip(".:") == "True":
            return option + value.removeprefix("True") if value else option
        if value.rstrip(".:") in ("False", "None"):
            return f"no {option}"
        return f"{option} {value}"

    return _SAID.sub(told, text)


def _option(argument: str, options: Mapping[str, str]) -> str | None:
    for name in PARAMETERS.get(argument, (argument,)):
        if name in options:
            return options[name]
    return None
