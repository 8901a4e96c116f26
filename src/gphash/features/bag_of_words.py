"""Bags of visual words: how often each word of a codebook occurs among the SIFT features of a picture.

A word is a centre z of k-means over SIFT features x (Lowe, 2004; OpenCV's, the extra `sift`), and a feature counts for
its nearest word, argmin ‖x − z‖² = argmax x·z − ‖z‖²/2. Retrieval compares the square roots of the shares,

    √(counts / Σ counts),

whose inner product is the Bhattacharyya coefficient of two pictures. Pictures are grey, reduced by area averaging to
640 pixels on the longer side and stretched to 0–255, so that neither size nor exposure decides how many features there
are. Every picture is worked on alone, and pictures are taken in their order: the number of threads changes nothing.
"""

from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.features import greys
from gphash.features.inducing import BLOCK, kmeans

DIMENSION = 128  # of a SIFT feature
LONGEST = 640  # pixels; longer pictures are reduced to it
VERSION = 2  # of what is computed: a cache must not serve another one's counts

_BLOCK_ROWS = 8192


class Codebook(NamedTuple):
    """The visual words.

    words
        Centres of SIFT features, float32 [n_words, 128].
    """

    words: NDArray[np.float32]


class _Sample:
    """A uniform sample of rows seen one block after another: the rows with the smallest of random numbers."""

    def __init__(self, size: int, generator: np.random.Generator) -> None:
        self.size = size
        self.generator = generator
        self.seen = 0
        self.rows = np.empty((0, DIMENSION), dtype=np.float32)
        self._ranks = np.empty(0)
        self._new: list[tuple[NDArray[np.float32], Floats]] = []

    def add(self, rows: NDArray[np.float32]) -> None:
        self._new.append((rows, self.generator.random(len(rows))))
        self.seen += len(rows)
        if sum(len(ranks) for _, ranks in self._new) > self.size:
            self.prune()

    def prune(self) -> None:
        rows = np.concatenate([self.rows, *(rows for rows, _ in self._new)])
        ranks = np.concatenate([self._ranks, *(ranks for _, ranks in self._new)])
        kept = np.sort(np.argsort(ranks, kind="stable")[: self.size])
        self.rows, self._ranks, self._new = rows[kept], ranks[kept], []


def fit(
    images: Iterable[ArrayLike],
    n_words: int = 500,
    *,
    random_state: int | np.random.Generator | None = None,
    features_per_word: int = 200,
    iterations: int = 20,
    n_jobs: int | None = -1,
) -> Codebook:
    """Learn a codebook.

    Parameters
    ----------
    images
        Pictures [H, W] or [H, W, channels] of any sizes, real type and range; a few at a time are held, so a generator
        may read them.
    n_words
        Number of words.
    random_state
        Seed or generator, for the sample of features and the first centres.
    features_per_word
        k-means sees a uniform sample of at most so many features for each word.
    iterations
        Lloyd's iterations of k-means.
    n_jobs
        Number of threads; −1 for all cores. The codebook does not depend on it.

    Returns
    -------
    codebook
        The words.
    """
    wanted: dict[str, Any] = {"n_words": n_words, "features_per_word": features_per_word, "iterations": iterations}
    for name, value in wanted.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
            raise ValueError(f"{name}={value!r}; give a whole number of at least 1.")
    generator = np.random.default_rng(random_state)
    sample = _Sample(n_words * features_per_word, generator)
    for features in greys.each(_features, images, n_jobs):
        sample.add(features)
    sample.prune()
    if sample.seen < n_words:
        raise ValueError(f"n_words={n_words}, but images have {sample.seen} features; give fewer words or more images.")
    with LocalExecutor(n_jobs) as executor:
        blocks = [sample.rows[rows] for rows in row_blocks(len(sample.rows), BLOCK)]
        words = kmeans(blocks, len(sample.rows), n_words, generator, executor, iterations)
    return Codebook(np.asarray(words, dtype=np.float32))


def describe(codebook: Codebook, images: Iterable[ArrayLike], *, n_jobs: int | None = -1) -> NDArray[np.float32]:
    """Count the words of pictures.

    Parameters
    ----------
    codebook
        What `fit` has learned.
    images
        Pictures as in `fit`.
    n_jobs
        Number of threads; −1 for all cores. The counts do not depend on it.

    Returns
    -------
    counts
        [n, n_words]; zeros for a picture without features.
    """
    words = codebook.words
    columns = np.ascontiguousarray(words.T)
    offset = np.einsum("ij,ij->i", words, words) / 2

    def count(number: int, image: ArrayLike) -> NDArray[np.float32]:
        nearest = (_features(number, image) @ columns - offset).argmax(axis=1)
        return np.bincount(nearest, minlength=len(words)).astype(np.float32)

    return np.stack(list(greys.each(count, images, n_jobs)))


def weigh(counts: ArrayLike) -> NDArray[np.float32]:
    """Square roots of the shares of the words, [n, n_words]; a row of zeros stays one."""
    given = np.asarray(counts)
    if given.ndim != 2 or given.dtype.kind not in "buif":
        raise ValueError(f"counts has shape {given.shape} and dtype {given.dtype}; wanted are numbers [n, n_words]")
    weighed = np.empty(given.shape, dtype=np.float32)
    for rows in row_blocks(len(given), _BLOCK_ROWS):
        shares = given[rows].astype(np.float64)
        if not np.all((shares >= 0) & (shares < np.inf)):
            raise ValueError("counts holds NaN, infinity or negative numbers; wanted are numbers of at least 0")
        total = shares.sum(axis=1, keepdims=True)
        shares /= np.where(total > 0, total, 1)
        np.sqrt(shares, out=weighed[rows], casting="same_kind")
    return weighed


def _features(number: int, image: ArrayLike) -> NDArray[np.float32]:
    """SIFT features of one picture, [k, 128]."""
    checked = greys.check_image(image, 1, f"images[{number}]")
    grey = greys.stretch(greys.reduce(checked[None], LONGEST, 1), number)[0]
    _, features = _opencv().SIFT_create().detectAndCompute(np.rint(grey).astype(np.uint8), None)
    return np.empty((0, DIMENSION), dtype=np.float32) if features is None else np.asarray(features, dtype=np.float32)


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("Bags of words need OpenCV for SIFT: pip install 'gphash[sift]'.") from error
    return cv2
