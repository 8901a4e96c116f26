"""A program of somebody who uses gphash and checks it with mypy --strict; it is only checked."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gphash import Collection, GPHasher, HammingIndex, load
from gphash.version import __version__


def learn(X: NDArray[np.float64], y: NDArray[np.int64], folder: Path) -> NDArray[np.uint8]:
    """Codes of the rows, from a model that went through a file."""
    hasher = GPHasher(n_bits=8, n_inducing=20, random_state=0).fit(X, y)
    fingerprint: str = hasher.save(folder / "model.gph")
    assert fingerprint
    codes: NDArray[np.uint8] = load(folder / "model.gph").encode(X)
    return codes


def search(X: NDArray[np.float64], y: NDArray[np.int64], folder: Path) -> list[tuple[int | str, float | None]]:
    """Keys of what is nearest to the first row, and the chance that it is similar."""
    codes = learn(X, y, folder)
    nearest = HammingIndex.build(codes, n_bits=8).search(codes[:1], k=1)
    assert int(nearest.distances[0, 0]) == 0
    with Collection.create(folder / "rows.gphash", folder / "model.gph", X) as collection:
        return [(hit.key, hit.probability) for hit in collection.search(X[0], k=3)]


assert __version__.count(".") == 2
