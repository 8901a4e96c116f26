"""Figures of the paper's experiments: panels of several data sets or lengths under one legend, and the toy."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gphash.arrays import Floats, Indices
from gphash.data.blocks import ArrayTable
from gphash.data.known.toy import pinwheel
from gphash.evaluation import canvas, plots
from gphash.evaluation.canvas import COLOURS, QUIET, line, settled, styled
from gphash.execution.local import LocalExecutor
from gphash.hashers.methods import METHODS
from gphash.method import training
from gphash.method.training import Settings, Trained
from gphash.paper import table
from gphash.paper.table import Groups
from gphash.supervision import similarity

if TYPE_CHECKING:
    from gphash.evaluation.canvas import Figure

SHAPES = ("o", "s", "^", "D")


@styled
def map_panels(panels: Mapping[str, Groups]) -> "Figure":
    """Mean average precision against bits, a panel for every data set, a line for every method."""

    def add(panel: Any, own: Groups, start: float, **look: Any) -> Any:
        points = [
            (cell.n_bits, found.mean, found.spread or 0.0)
            for cell, reports in sorted(own.items(), key=lambda item: item[0].n_bits)
            if (found := table.figure(reports, *table.MAP))
        ]
        return plots.add_points(panel, points, **look) if points else None

    axes = _panels(panels, len(panels), 3.4, add)
    for panel, groups in zip(axes.flat, panels.values(), strict=True):
        plots.bits_axis(panel, sorted({cell.n_bits for cell in groups}))
    axes[0, 0].set_ylabel("mean average precision")
    return settled(axes[0, 0].figure)


@styled
def precision_recall_panels(groups: Groups) -> "Figure":
    """Precision against recall, a panel for every length of code, a line for every method."""

    def add(panel: Any, own: Groups, start: float, **look: Any) -> Any:
        curves = [one["results"]["hamming"]["curve"] for reports in own.values() for one in reports]
        return plots.add_curve(panel, curves, start, **look)

    panels: dict[str, Groups] = {}
    for cell in sorted(groups, key=lambda cell: cell.n_bits):
        panels.setdefault(f"{cell.n_bits} bits", {})[cell] = groups[cell]
    axes = _panels(panels, min(2, len(panels)), 2.7, add, sharex=True, sharey=True)
    axes[0, 0].set_xlim(0, 1.02)  # of all panels
    for panel in axes[-1]:
        panel.set_xlabel("recall")
    for panel in axes[:, 0]:
        panel.set_ylabel("precision")
    return settled(axes[0, 0].figure)


def _panels(panels: Mapping[str, Groups], columns: int, height: float, add: Callable[..., Any], **shared: Any) -> Any:
    """Axes [rows, columns] with a title each, to which `add` adds what a method has, under one legend."""
    rows = -(-len(panels) // columns)
    figure = canvas.figure(3.0 * columns + 1.4, height * rows)
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    seen: dict[str, Any] = {}
    for panel, (title, groups) in zip(axes.flat, panels.items(), strict=False):
        panel.set_title(title)
        panel.grid(True)
        for number, name in enumerate(METHODS):
            look = line(number) | {"linewidth": 2.2 if name == "gph" else 1.0}
            own = {cell: reports for cell, reports in groups.items() if cell.method == name}
            if own and (drawn := add(panel, own, number / len(METHODS), **look)):
                seen[name] = drawn
    for panel in axes.flat:
        panel.set_ylim(bottom=0)
    order = [name for name in METHODS if name in seen]
    figure.legend([seen[name] for name in order], order, loc="outside right upper")
    return axes


def train_toy(seed: int = 0) -> tuple[Floats, Indices, Trained]:
    """Two bits for 200 points on the four arms of a pinwheel; 30 random ones are inducing points.

    The plane is only centred, as distances in it matter.
    """
    X, y = pinwheel(seed=seed)
    settings = Settings(n_bits=2, codes="sampled", n_inducing=30, inducing="random", unit_length=False, seed=seed)
    with LocalExecutor() as executor:
        return X, y, training.train(ArrayTable(X), similarity.from_labels(y), settings, executor)


@styled
def toy(X: Floats, y: Indices, trained: Trained) -> "Figure":
    """Data, inducing points, and the two bits' probabilities with the sampled codes of the training rows."""
    reach = 1.12 * float(np.abs(X).max())
    axis = np.linspace(-reach, reach, 240)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    surfaces = trained.function.probabilities(grid).T.reshape(2, len(axis), len(axis))
    inducing = trained.chosen.Z + trained.function.scaling.mean
    codes = trained.codes()
    figure = canvas.figure(10.4, 2.85)
    panels = figure.subplots(1, 4, sharex=True, sharey=True)
    for panel in panels[:2]:
        for label, shape in enumerate(SHAPES):
            panel.scatter(*X[y == label].T, s=17, marker=shape, color=COLOURS[label], linewidths=0)
    panels[1].scatter(*inducing.T, s=62, facecolors="none", edgecolors="#D00000", linewidths=1.1)
    for bit, (panel, surface) in enumerate(zip(panels[2:], surfaces, strict=True)):
        # Wider than 0 to 1: on the darkest ends of the colours, black marks would drown.
        image = panel.imshow(surface, cmap="PuOr", vmin=-0.17, vmax=1.17, origin="lower", extent=(-reach, reach) * 2)
        panel.contour(axis, axis, surface, levels=[0.5], colors="#1A1A1A", linewidths=0.9, linestyles="--")
        for label, shape in enumerate(SHAPES):
            for sign, face, edge in ((1, "#1A1A1A", "white"), (-1, "white", "#1A1A1A")):
                rows = (y == label) & (codes[:, bit] == sign)
                panel.scatter(*X[rows].T, s=17, marker=shape, facecolors=face, edgecolors=edge, linewidths=0.6)
    bar = figure.colorbar(image, ax=panels[2:], shrink=0.92, pad=0.02, aspect=22, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.ax.set_ylim(0, 1)
    bar.set_label("probability of +1")
    titles = ("Four classes", "Inducing points", "First bit", "Second bit")
    sampled = "sampled codes, filled: +1    empty: −1"
    notes: Sequence[str] = (f"{len(X)} points", f"{len(inducing)} of them, drawn at random", sampled, sampled)
    for panel, title, note in zip(panels, titles, notes, strict=True):
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        panel.set_title(title)
        panel.set_xlabel(note, color=QUIET)
    return settled(figure)


def toy_words(trained: Trained, y: Indices) -> tuple[list[str], float]:
    """The most frequent code of every class, and the share of rows that have the code of their class."""
    codes = (trained.codes() > 0) @ [2, 1]
    common = np.array([np.bincount(codes[y == label], minlength=4).argmax() for label in np.unique(y)])
    return [f"{code:02b}" for code in common], float(np.mean(codes == common[y]))
