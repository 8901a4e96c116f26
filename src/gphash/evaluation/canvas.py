"""The style of the house, and figures in it: the one module that knows matplotlib.

Figures are made without pyplot, so that no window, backend or global state is touched; `save` writes them as SVG and
PNG, the same bytes for the same figure. Colours are those of Okabe and Ito, told apart with any colour vision, and
lines differ in markers and dashes as well.
"""

import functools
import importlib.util
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gphash import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

P = ParamSpec("P")
R = TypeVar("R")

# Okabe and Ito's eight without yellow, which is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
WRONG = "#D55E00"
QUIET = "#808080"
DOTS_PER_INCH = 200
STYLE = (
    {"font.family": "DejaVu Sans", "font.size": 8, "figure.facecolor": "white", "savefig.facecolor": "white"}
    | {"axes.titlesize": 8, "axes.titlelocation": "left", "axes.titlecolor": "#404040", "axes.axisbelow": True}
    | {"axes.edgecolor": QUIET, "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6}
    | {"axes.grid": False, "grid.color": "#E0E0E0", "grid.linewidth": 0.5, "xtick.color": QUIET, "ytick.color": QUIET}
    | {"xtick.labelcolor": "black", "ytick.labelcolor": "black", "legend.frameon": False, "legend.handlelength": 3.0}
    | {"lines.linewidth": 1.3, "lines.markersize": 4.5, "lines.markeredgewidth": 0.0}
    | {"svg.hashsalt": "gphash", "svg.fonttype": "path"}
)


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def matplotlib_() -> Any:
    """The library, or one sentence that says how to get it."""
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return matplotlib


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style of the house, whatever the user's own settings are, and leave those alone."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib_().rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


@styled
def save(figure: "Figure", path_without_suffix: str | os.PathLike[str]) -> list[Path]:
    """Write a figure as SVG and PNG, each whole or not at all; returns their paths."""
    stem = Path(path_without_suffix)
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    # Without dates and versions, equal figures are equal files.
    for suffix, metadata in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
        content = io.BytesIO()
        figure.savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
        written.append(stem.with_name(stem.name + suffix))
        with files.replacing(written[-1]) as file:
            file.write(content.getvalue())
    return written


def figure(width: float, height: float, layout: str | None = "constrained") -> "Figure":
    """An empty figure of a size in inches."""
    figure: Figure = matplotlib_().figure.Figure(figsize=(width, height), layout=layout)
    return figure


def settled(figure: "Figure") -> "Figure":
    """Lay out once and for all: each further round would move things by a hair, and files would differ."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def line(number: int) -> dict[str, Any]:
    """Look of a line: colours first, then other dashes; markers come round at another pace."""
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": dashes, "marker": MARKERS[number % len(MARKERS)]}
