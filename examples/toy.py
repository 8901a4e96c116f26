"""Figure 2 of the paper: two bits for four classes in the plane.

200 points on the four arms of a pinwheel, 30 of them drawn as inducing points. The arms wind around each other, so each
of the two bits has to be a curve.

    python examples/toy.py [--output figures/toy]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from gphash import hashing, training
from gphash.coding import similarity
from gphash.datasets.toy import pinwheel
from gphash.execution.local import LocalExecutor
from gphash.training import Settings

SHAPES = ["o", "s", "^", "D"]
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"]  # Okabe and Ito: told apart with any colour vision
RING = "#D00000"
INK = "#1A1A1A"
# Orange to purple without the darkest ends, on which black marks would drown.
MAP = LinearSegmentedColormap.from_list("bits", plt.get_cmap("PuOr")(np.linspace(0.13, 0.87, 256)))
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.edgecolor": "#808080",
    "axes.linewidth": 0.6,
    "mathtext.fontset": "cm",
    "svg.hashsalt": "gphash",
}


def train(X, y, seed=0):
    """Two bits, 30 random rows as inducing points; the plane is only centred, as distances in it matter.

    `GPHasher` keeps only the hash function; `training.train` tells the sampled codes of the training rows as well.
    """
    settings = Settings(n_bits=2, n_inducing=30, inducing="random", unit_length=False, seed=seed)
    with LocalExecutor() as executor:
        return training.train(X, similarity.from_labels(y), settings, executor)


def words(trained, y):
    """The most frequent code of every class, and the share of rows that have the code of their class."""
    codes = (trained.codes > 0) @ [2, 1]
    common = np.array([np.bincount(codes[y == label], minlength=4).argmax() for label in np.unique(y)])
    return [f"{code:02b}" for code in common], float(np.mean(codes == common[y]))


def draw(trained, X, y):
    """Data, inducing points, and the two bits' probabilities with the sampled codes of the training rows."""
    reach = 1.12 * np.abs(X).max()
    axis = np.linspace(-reach, reach, 240)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    function = trained.function
    surfaces = hashing.probabilities(function, grid).T.reshape(2, len(axis), len(axis))
    inducing = function.Z + function.scaling.mean

    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 4, figsize=(10.4, 2.85), sharex=True, sharey=True, layout="constrained")
        for panel in panels[:2]:
            for label, (shape, colour) in enumerate(zip(SHAPES, COLOURS, strict=True)):
                panel.scatter(*X[y == label].T, s=17, marker=shape, color=colour, linewidths=0)
        panels[1].scatter(*inducing.T, s=62, facecolors="none", edgecolors=RING, linewidths=1.1)

        for bit, (panel, surface) in enumerate(zip(panels[2:], surfaces, strict=True)):
            image = panel.imshow(
                surface, cmap=MAP, vmin=0, vmax=1, origin="lower", extent=(-reach, reach) * 2, interpolation="bilinear"
            )
            panel.contour(axis, axis, surface, levels=[0.5], colors=INK, linewidths=0.9, linestyles="--")
            for label, shape in enumerate(SHAPES):
                for sign, face, edge in ((1, INK, "white"), (-1, "white", INK)):
                    rows = (y == label) & (trained.codes[:, bit] == sign)
                    panel.scatter(*X[rows].T, s=17, marker=shape, facecolors=face, edgecolors=edge, linewidths=0.6)

        titles = [
            r"Four classes, $\mathcal{X}$",
            r"Inducing points, $\bar{\mathcal{X}}$",
            r"First bit, $p(y_{*1} \mid \mathcal{D}, \mathbf{x}_{*})$",
            r"Second bit, $p(y_{*2} \mid \mathcal{D}, \mathbf{x}_{*})$",
        ]
        for panel, title in zip(panels, titles, strict=True):
            panel.set_title(title, pad=6)
            panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        bar = figure.colorbar(image, ax=panels[2:], shrink=0.92, pad=0.02, aspect=22, ticks=[0, 0.25, 0.5, 0.75, 1])
        bar.set_label("probability of +1")
        bar.ax.axhline(0.5, color=INK, linewidth=0.9, linestyle="--")
        bar.outline.set_linewidth(0.6)
        notes = [
            f"{len(X)} points",
            f"{len(inducing)} of them, drawn at random",
            *2 * ["sampled codes, filled: +1    empty: −1"],
        ]
        for panel, note in zip(panels, notes, strict=True):
            panel.set_xlabel(note)
    return figure


def save(figure, stem):
    """Write the figure as SVG and PNG; returns the two paths."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + suffix) for suffix in (".svg", ".png")]
    with plt.rc_context(STYLE):
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=140)
    plt.close(figure)
    return paths


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Draw figure 2 of the paper: two bits for four classes in the plane.")
    parser.add_argument("--output", default="figures/toy", help="where to write, without .svg and .png (figures/toy)")
    parser.add_argument("--seed", type=int, default=0, help="of data and training (0)")
    options = parser.parse_args(arguments)

    X, y = pinwheel(seed=options.seed)
    trained = train(X, y, options.seed)
    codes, share = words(trained, y)
    print(f"codes of the four classes: {', '.join(codes)}; {share:.1%} of {len(X)} points have the code of their class")
    if len(set(codes)) < 4:
        print("two classes share a code: try another --seed")
    for path in save(draw(trained, X, y), options.output):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
