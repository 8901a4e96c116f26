"""Errors of the library in the words of the command line: an argument of Python's is an option here.

The library names arguments as Python writes them, ``n_bits=0`` or ``writable=True``. Whoever typed ``--bits 0`` is told
of that instead. For this, a command's function calls its parameters what the library calls them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import typer

_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
# An argument with its value; a text of the user's, which stays as it is; a name that only a program would use.
_SAID = re.compile(
    rf"(?<![\w.-])([A-Za-z]\w*)=({_QUOTED}|[^\s;,)]+)|{_QUOTED}|(?<![\w.-])([a-z]+(?:_[a-z]+)+)(?![\w=(.])"
)


def options_of(command: Callable[..., Any]) -> dict[str, str]:
    """For every parameter of a command, how it is written on the command line."""
    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    parameters: Any = typer.main.get_command(alone).params
    return {one.name: one.metavar if one.param_type_name == "argument" else one.opts[0] for one in parameters}


def in_options(text: str, options: Mapping[str, str]) -> str:
    """A message of the library to whoever gave these options."""

    def told(match: re.Match[str]) -> str:
        argument, value, alone = match.groups()
        option = options.get(argument or alone)
        if option is None or alone:
            return option or match.group()
        plain = value.rstrip(".:")
        if plain == "True":
            return option + value.removeprefix("True")
        return f"no {option}" if plain in ("False", "None") else f"{option} {value}"

    return _SAID.sub(told, text)
