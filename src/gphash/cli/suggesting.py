"""The command that says how many bits to take: suggest."""

from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from gphash.cli import app, options, outputs, shown, training
from gphash.cli.options import Data, DataDir, Describe, EncoderOption, Seed, Set, Threads
from gphash.data.headers import UNSAID, Roles

LENGTHS = "8,16,32,64,128,256"
PLOT = "Draw the curve in this file, .svg or .png; needs matplotlib."
NOTHING = "–"


@app.command(
    "gphash suggest digits",
    "gphash suggest texts.npz --plot bits.svg",
    "gphash suggest photos/ --bits 16,32,48",
)
@options.with_columns
def suggest(
    data: Data,
    lengths: Annotated[str, Option("--bits", help="Lengths of codes, separated by commas.")] = LENGTHS,
    plot: Annotated[Path | None, Option(help=PLOT)] = None,
    option: Set = None,
    descriptor: Describe = None,
    encoder_options: EncoderOption = None,
    random_state: Seed = 0,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Say how many bits to take.

    A fifth of the rows, at most 4,000, is held out; one training on the others gives codes of all lengths. A table has
    how well held-out rows are found, bytes, and the time to encode a row and to search for it, beside sign bits (one a
    feature) and floats. The shortest length within .01 of the best mAP by P(similar) is recommended. Nothing is written
    but the picture; gphash fit --bits auto takes what is recommended.
    """
    from gphash import files
    from gphash.evaluation import canvas
    from gphash.hashers.gp import GPHasher
    from gphash.paper import lengths as measuring

    numbers = sorted(options.number(word) for word in options.words("bits", lengths))
    given = options.settings(option)
    with app.usage():
        hasher = training.make_hasher("gph", given, n_bits=numbers[-1], random_state=random_state, n_jobs=n_jobs)
    if plot is not None:
        if plot.suffix not in (".svg", ".png"):
            raise BadParameter(f"--plot {str(plot)!r}; give a name that ends in .svg or .png.")
        canvas.matplotlib_()
        outputs.file(plot, "drawing", data, option="--plot")
    source = options.read(data, data_dir, n_jobs, descriptor, roles, encoder_options)
    if source.y is None:
        raise ValueError(f"{source.name!r} has neither labels nor tags to judge by; give DATA that has.")
    assert isinstance(hasher, GPHasher)
    with shown.Meter("fitting gph") as meter:
        meter.show(0, None, "", f"{meter.label} to a part of {len(source.X):,} rows")
        watch = lambda sweep: meter.sweep(sweep, hasher.max_sweeps, False)  # noqa: E731
        found = measuring.suggest(hasher, source.X, source.y, numbers, random_state, watch)
    if plot is not None:
        with files.replacing(plot) as file:
            drawn = measuring.draw(found.curve, found.n_bits, source.name)
            drawn.savefig(file, format=plot.suffix[1:], dpi=canvas.DOTS_PER_INCH)
    _tell(found, plot)


def _tell(found: Any, plot: Path | None) -> None:
    told = found._asdict() | {"curve": [one._asdict() for one in found.curve], "plot": plot}
    if not shown.answer(told, ""):
        return
    shown.say(
        f"{found.held_out:,} rows held out; searches among {found.searched:,} rows; {shown.duration(found.seconds)}"
    )
    columns = ("", "bits", "bytes", "mAP by distance", "by P(similar)", "µs to encode", "to search")
    rows = []
    for one in found.curve:
        by = [f"{one.n_bits:,}", f"{one.n_bytes:,}", _figure(one.hamming, 3)]
        best = (
            f"{one.best:.3f} (cosine)"
            if one.name == "floats"
            else _figure(one.best if one.name == "codes" else None, 3)
        )
        texts = [one.name, *by, best, _figure(one.encoding, 1), _figure(one.searching, 1)]
        taken = one.name == "codes" and one.n_bits == found.n_bits
        rows.append([shown.strong(text) if taken else text for text in texts])
    shown.table(columns, rows)
    shown.say(f"recommended: {found.n_bits} bits", "bold")
    shown.say(found.reason)
    if plot is not None:
        shown.say(f"wrote {plot}")


def _figure(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
