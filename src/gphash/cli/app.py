"""The application that commands enter, the options they share, and what becomes of errors: the one user of Typer.

Whatever takes long to import is imported within commands, so that help and completion answer at once.
"""

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from gphash import methods
from gphash.cli import outputs, shown, wording
from gphash.cli.interrupts import Interrupts
from gphash.datasets import registry
from gphash.version import __version__

P = ParamSpec("P")

Argument = typer.Argument
Option = typer.Option
Exit = typer.Exit
BadParameter = typer.BadParameter

app = typer.Typer(
    name="gphash",
    help="Short binary codes that keep your notion of similarity.",
    epilog="gphash demo shows it all; gphash COMMAND --help has examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

DATA = (
    "What to read rows from: a known data set and split (digits:train, cifar10:test, mnist …), a folder of pictures, "
    "a picture, or a file .npy, .npz, .csv or .parquet; to fit, encode and index also a folder of .npy or .parquet "
    "blocks, or a Zarr array."
)


def complete_method(incomplete: str) -> Iterator[str]:
    """Methods whose names begin so."""
    return (name for name in methods.METHODS if name.startswith(incomplete))


def complete_data(incomplete: str) -> Iterator[str]:
    """Known data sets, their splits once the name is there, and files that begin so."""
    name, colon, _ = incomplete.partition(":")
    splits = [f"{name}:{split}" for split in ("train", "test")] if colon and name in registry.DATA_SETS else []
    yield from (word for word in (*registry.DATA_SETS, *splits) if word.startswith(incomplete))
    yield from (path + (os.sep if os.path.isdir(path) else "") for path in sorted(glob(f"{incomplete}*")))


def _not_zero(threads: int) -> int:
    if threads == 0:
        raise typer.BadParameter("--threads is 0; give at least 1, or -1 for all cores.")
    return threads


Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA, autocompletion=complete_data, show_default=False)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model, as gphash fit writes it.", show_default=False)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")]
Threads = Annotated[
    int, typer.Option(min=-1, callback=_not_zero, help="Threads; -1 takes all cores. Never changes a result.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more about what is done.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of the data; else the one that GPHASH_DATA names, else the user's cache.")
]
Pictures = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where the pictures are; needed to see those that are not below the folder of the index.",
        show_default=False,
    ),
]

NOTHING = "interrupted; nothing was written."
AGAIN = "interrupted; run the same command again to go on where it stopped."

# Files that the command may write, with the numbers that the system gave to what is there; files are replaced whole.
_expected: dict[Path, int | None] = {}


def command(
    *examples: str,
    interrupted: Callable[[Mapping[str, Any]], str | None] = lambda given: None,
    within: typer.Typer = app,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Enter a command whose errors are one line that says what to do, unless --debug is given.

    Parameters
    ----------
    examples
        Command lines that end its help.
    interrupted
        From the command's arguments to what is said after Ctrl-C; if that is None, what was written is.
    within
        The application itself, or a group of commands.
    """

    def enter(function: Callable[P, None]) -> Callable[P, None]:
        def worded(text: str) -> str:
            return wording.in_options(" ".join(text.split()), wording.options_of(function))

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            _expected.clear()
            with warnings.catch_warnings(), shown.log(bool(kwargs.get("quiet"))), Interrupts() as interrupts:
                if not kwargs.get("debug"):
                    warnings.showwarning = _remark_unless(bool(kwargs.get("quiet")), worded)
                try:
                    function(*args, **kwargs)
                except (typer.Exit, typer.BadParameter):
                    raise
                except (KeyboardInterrupt, Exception) as error:
                    if isinstance(error, KeyboardInterrupt) or interrupts.lost:
                        interrupts.settle()
                        shown.complain(f"gphash: {interrupted(kwargs) or _stopped()}")
                        raise typer.Exit(130) from None
                    if kwargs.get("debug") or isinstance(error, BrokenPipeError):
                        raise
                    shown.complain(f"gphash: {_told(error, kwargs, worded)}")
                    raise typer.Exit(1) from error

        # The first character keeps lines as they are.
        return within.command(epilog="\n  ".join(["\b\nExamples:", *examples]))(guarded)

    return enter


def _remark_unless(quiet: bool, worded: Callable[[str], str]) -> Callable[..., None]:
    """How Python's warnings are shown: a line each, or not at all."""

    def remark(message: Warning | str, *_: object, **__: object) -> None:
        if not quiet:
            shown.remark(f"gphash: {worded(str(message))}")

    return remark


def _told(error: Exception, given: Mapping[str, Any], worded: Callable[[str], str]) -> str:
    """An error of a command with such arguments, in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)!r}: {error.strerror[:1].lower()}{error.strerror[1:]}."
    if isinstance(error, MemoryError):
        advice = "; give fewer rows" if "data" in given else ""
        return f"there is not enough memory{advice}{', or a smaller n_inducing by --set' if 'option' in given else ''}."
    expected = isinstance(error, ValueError | OSError | ImportError)
    if expected or type(error).__module__.partition(".")[0] == "gphash":
        return worded(str(error))
    name = type(error).__name__
    return f"{name}: {worded(str(error))} (not foreseen: run it with --debug, and report what that shows)"


def _show_version(wanted: bool) -> None:
    if wanted:
        shown.say(f"gphash {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def words(name: str, text: str) -> list[str]:
    """Words that commas separate, each once."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise typer.BadParameter(f"--{name} is empty; give words separated by commas.")
    return list(dict.fromkeys(found))


def number(name: str, word: str) -> int:
    """A whole number of at least 1."""
    if not word.isdecimal() or int(word) < 1:
        raise typer.BadParameter(f"--{name}: {word!r} is no whole number of at least 1.")
    return int(word)


def settings(given: list[str] | None) -> dict[str, Any]:
    """Parameters from NAME=VALUE, each value a number or a truth if it looks like one."""
    return dict(map(_setting, given or []))


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier() and value):
        raise typer.BadParameter(f"--set {text!r}; give NAME=VALUE.")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)


def destination(path: Path, kind: str, *inputs: str | Path | None, option: str = "--output") -> Path:
    """A file to write, refused now rather than when the work is done.

    Parameters
    ----------
    path
        The file. One that is there is replaced only if it is of the same kind, or empty.
    kind
        One of `outputs.CHECKS`.
    inputs
        What the command reads, and must not write over.
    option
        How the user has named the file.
    """
    label = f"{option} {str(path)!r}"
    if path.is_dir():
        raise typer.BadParameter(f"{label} is a folder; give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{label} lies in a folder that does not exist; make it first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"{label} lies in a folder that cannot be written; name another one.")
    for one in inputs:
        if one is not None and _is_same(path, Path(one)):
            raise typer.BadParameter(f"{label} is a file that this command reads; give another name.")
    if path.exists():
        if not path.is_file():
            raise typer.BadParameter(f"{label} is no plain file; give another name.")
        try:
            outputs.CHECKS[kind](path)
        except FileExistsError as error:
            raise typer.BadParameter(f"{option} {error}") from error
    expect(path)
    return path


def _is_same(one: Path, other: Path) -> bool:
    both = one.exists() and other.exists()
    return os.path.samefile(one, other) if both else os.path.realpath(one) == os.path.realpath(other)


def expect(path: Path) -> None:
    """Have it said after Ctrl-C if this file was written."""
    _expected[path] = _number(path)


def _stopped() -> str:
    written = [str(path) for path, before in _expected.items() if _number(path) not in (None, before)]
    return f"interrupted; this was written: {', '.join(written)}." if written else NOTHING


def _number(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def stem(data: str) -> str:
    """What files made from DATA are called unless told otherwise: digits for digits:train, cats for a/cats.npz."""
    name = data.partition(":")[0] if data.partition(":")[0] in registry.DATA_SETS else Path(data).resolve().stem
    return name or "data"
