"""The application that commands enter, and what becomes of their errors.

Whatever takes long to import is imported within commands, so that help and completion answer at once.
"""

import contextlib
import functools
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from threading import Timer, main_thread
from typing import Annotated, Any, ParamSpec, TypeAlias

import typer

from gphash.cli import outputs, shown
from gphash.files import DataError
from gphash.version import __version__

P = ParamSpec("P")
Stopped: TypeAlias = Callable[[Mapping[str, Any]], str | None]

app = typer.Typer(
    name="gphash",
    help="Short binary codes that keep your notion of similarity.",
    epilog="gphash demo shows it all; gphash COMMAND --help has examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

# Options of every command. They do not reach its function: `shown` knows what they say.
COMMON = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no remarks.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")],
}

PAUSE = 0.05  # seconds before a lost interrupt is sent again; by then the callback has most likely returned
AGAIN = "interrupted; run the same command again to go on where it stopped."

_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
# An argument with its value; a text of the user's, which stays as it is; a name that only a program would use.
_SAID = re.compile(
    rf"(?<![\w.-])([A-Za-z]\w*)=({_QUOTED}|[^\s;,)]+)|{_QUOTED}|(?<![\w.-])([a-z]+(?:_[a-z]+)+)(?![\w=(.])"
)


def command(
    *examples: str, interrupted: Stopped = lambda given: None, within: typer.Typer = app, has_json: bool = True
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Enter a command, into the application or a group; the examples end its help.

    `interrupted` makes of its arguments what is said after Ctrl-C; if that is None, the files written are named.
    """

    def enter(function: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            as_json, quiet, debug = (bool(kwargs.pop(name, False)) for name in COMMON)
            outputs.expected.clear()
            with shown.in_manner(quiet, as_json), _reporting(function, kwargs, interrupted, debug):
                function(*args, **kwargs)

        own = inspect.signature(function)
        common = {name: kind for name, kind in COMMON.items() if has_json or name != "as_json"}
        more = [Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=common[name]) for name in common]
        guarded.__annotations__ = {**function.__annotations__, **common}
        guarded.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
        # The first character keeps lines as they are.
        return within.command(epilog="\n  ".join(["\b\nExamples:", *examples]))(guarded)

    return enter


@contextlib.contextmanager
def _reporting(
    function: Callable[..., None], given: Mapping[str, Any], stopped: Stopped, debug: bool
) -> Iterator[None]:
    """Errors of a command are one line that says what to do, unless --debug is given."""

    def worded(text: object) -> str:
        return in_options(" ".join(str(text).split()), options_of(function))

    with warnings.catch_warnings(), resent() as lost:
        if not debug:
            warnings.showwarning = lambda message, *_, **__: shown.remark(worded(message))
        try:
            yield
        except typer.Exit:
            raise
        except typer.BadParameter as error:
            if debug and error.__cause__ is not None:
                raise error.__cause__ from None
            error.message = worded(error.message)
            raise
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, KeyboardInterrupt) or lost:
                for timer in lost:
                    timer.cancel()
                shown.complain(stopped(given) or outputs.interrupted())
                raise typer.Exit(130) from None
            if debug or isinstance(error, BrokenPipeError):
                raise
            shown.complain(_told(error, given, worded))
            raise typer.Exit(1) from error


@contextlib.contextmanager
def resent() -> Iterator[list[Timer]]:
    """Send interrupts again that Python would lose; gives a list of those, so far.

    An interrupt that arrives within a callback from C, as LLVM makes them while numba compiles, cannot be raised there:
    Python prints it and goes on, and any error since may be its doing. Whoever deals with that cancels what is to be
    sent again.
    """
    before = sys.unraisablehook
    # The main thread may be asleep.
    kill: Any = getattr(signal, "pthread_kill", lambda _, number: signal.raise_signal(number))
    lost: list[Timer] = []

    def hear(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        lost.append(Timer(PAUSE, kill, [main_thread().ident, signal.SIGINT]))
        lost[-1].daemon = True
        lost[-1].start()

    sys.unraisablehook = hear
    try:
        yield lost
    finally:
        sys.unraisablehook = before
        for timer in lost:
            timer.cancel()


def options_of(command: Callable[..., Any]) -> dict[str, str]:
    """For every parameter of a command, how it is written on the command line."""
    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    parameters: Any = typer.main.get_command(alone).params
    return {one.name: one.metavar if one.param_type_name == "argument" else one.opts[0] for one in parameters}


def in_options(text: str, options: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line.

    The library names arguments as Python writes them, ``n_bits=0``; whoever typed ``--bits 0`` is told of that instead.
    For this, a command's function calls its parameters what the library calls them.
    """

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


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Take refused values for mistakes in the command line, with exit code 2; a damaged file is none."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, FileExistsError) as error:
        raise typer.BadParameter(str(error)) from error


def _told(error: Exception, given: Mapping[str, Any], worded: Callable[[object], str]) -> str:
    """An error of a command with such arguments, in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)!r}: {error.strerror[:1].lower()}{error.strerror[1:]}."
    if isinstance(error, MemoryError):
        advice = "; give fewer rows" if "data" in given else ""
        return f"there is not enough memory{advice}{', or a smaller n_inducing by --set' if 'option' in given else ''}."
    if isinstance(error, ImportError) and "pip install" in str(error):
        return f"{worded(error).rstrip('.')} (docs/install.md#extras)."
    if isinstance(error, ValueError | OSError | ImportError) or type(error).__module__.startswith("gphash."):
        return worded(error)
    return f"{type(error).__name__}: {worded(error)} (unexpected; run it again with --debug, and report the output)"


def _show_version(asked: bool) -> None:
    if asked:
        shown.say(f"gphash {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
