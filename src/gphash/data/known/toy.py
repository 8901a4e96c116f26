"""Four classes in the plane, in the manner of figure 2 of the paper: the arms of a pinwheel.

A point of class k ∈ {0, 1, 2, 3} has the radius r, uniform in [0.4, 2], and the angle k π/2 + 0.9 r + ε with
ε ~ N(0, 0.15²). The arms wind around each other, so that each of two bits has to be a curve.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, array_checksum

N_PER_CLASS = 50
CLASSES = ("first arm", "second arm", "third arm", "fourth arm")


def load(
    data_dir: DataDir = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    n_per_class: int = N_PER_CLASS,
    seed: int = 0,
) -> Dataset:
    """Draw 200 points to train with, those of the figure, and as many others to test with; nothing is read.

    `n_per_class` are the points of each class, in either split, and `seed` decides which.
    """
    del data_dir, download, progress
    arrays: dict[str, NDArray[np.generic]] = {}
    splits = []
    for name, own in (("train", seed), ("test", [seed, 1])):
        points, y = pinwheel(n_per_class, own)
        X = points.astype(np.float32)
        arrays |= {f"{name}/X": X, f"{name}/y": y}
        splits.append(Split(X, y, None))
    digest, source = array_checksum(arrays), f"drawn from seed {seed}"
    return Dataset("toy", splits[0], splits[1], CLASSES, "coordinates in the plane", digest, source)


def pinwheel(
    n_per_class: int = N_PER_CLASS, seed: int | Sequence[int] = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points [4 n, 2] and classes [4 n]: four arms that wind around the origin."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(CLASSES), dtype=np.int64), n_per_class)
    radius = generator.uniform(0.4, 2.0, len(y))
    angle = y * np.pi / 2 + 0.9 * radius + generator.normal(0, 0.15, len(y))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


KNOWN = KnownData(load, "drawn from a seed")
