"""Bags of visual words: how often each word of a codebook occurs among the SIFT features of a picture.

A word is a centre z of k-means over SIFT features x (Lowe, 2004; OpenCV's, the extra `sift`), and a feature counts for
its nearest word, argmin ‖x − z‖² = argmax x·z − ‖z‖²/2. Retrieval compares the square roots of the shares,

    √(counts / Σ counts),

whose inner product is the Bhattacharyya coefficient of two pictures. Pictures are grey, reduced by area averaging to
640 pixels on the longer side and stretched to 0–255, so that neither size nor exposure decides how many features there
are. Every picture is worked on alone, and pictures are taken in their order: the number of threads changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.data.descriptors import greys
from gphash.data.descriptors.descriptor import Descriptor, each
from gphash.execution.local import LocalExecutor, row_blocks

DIMENSION = 128  # of a SIFT feature
LONGEST = 640  # pixels; longer pictures are reduced to it

_BLOCK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class BagOfWords(Descriptor):
    """Square roots of the shares of visual words; a picture without features is a row of zeros.

    words
        Centres of SIFT features, float32 [n_words, 128].
    """

    version = 3
    longest = LONGEST
    learns = True
    words: NDArray[np.float32]

    def __post_init__(self) -> None:
        words: Any = self.words
        sound = isinstance(words, np.ndarray) and words.dtype == np.float32 and words.ndim == 2 and len(words)
        if not sound or words.shape[1] != DIMENSION or not (np.abs(words) < 1e6).all():
            raise ValueError(f"words must be finite float32 [n_words, {DIMENSION}], n_words not 0.")

    @classmethod
    def fit(
        cls,
        images: Iterable[ArrayLike],
        n_jobs: int | None = -1,
        *,
        n_words: int = 500,
        seed: int | np.random.Generator | None = 0,
        features_per_word: int = 200,
        iterations: int = 20,
    ) -> Self:
        """Learn a codebook; it does not depend on the number of threads.

        Parameters
        ----------
        images
            Pictures [H, W] or [H, W, channels] of any sizes, real type and range; a few at a time are held.
        n_jobs
            Number of threads; −1 for all cores.
        n_words
            Number of words.
        seed
            Seed or generator, for the sample of features and the first centres.
        features_per_word
            k-means sees a uniform sample of at most so many features for each word.
        iterations
            Lloyd's iterations of k-means.
        """
        from gphash.execution.clustering import BLOCK, kmeans

        counts: dict[str, Any] = {"n_words": n_words, "features_per_word": features_per_word, "iterations": iterations}
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
                raise ValueError(f"{name}={value!r}; give a whole number of at least 1.")
        generator = np.random.default_rng(seed)
        sample = _sample(each(_features, images, n_jobs), n_words * features_per_word, generator)
        if len(sample) < n_words:
            raise ValueError(
                f"n_words={n_words}, but the images have {len(sample)} features; give fewer words or more images."
            )
        with LocalExecutor(n_jobs) as executor:
            blocks = [sample[rows] for rows in row_blocks(len(sample), BLOCK)]
            words = kmeans(blocks, len(sample), n_words, generator, executor, iterations)
        return cls(np.asarray(words, dtype=np.float32))

    @property
    def n_features(self) -> int:
        """Number of words."""
        return len(self.words)

    def count(self, images: Iterable[ArrayLike], n_jobs: int | None = -1) -> NDArray[np.float32]:
        """Count the words of pictures as in `fit`, [n, n_words]; the counts do not depend on the threads."""
        columns = np.ascontiguousarray(self.words.T)
        offset = np.einsum("ij,ij->i", self.words, self.words) / 2

        def one(number: int, image: ArrayLike) -> NDArray[np.float32]:
            nearest = (_features(number, image) @ columns - offset).argmax(axis=1)
            return np.bincount(nearest, minlength=len(self.words)).astype(np.float32)

        return np.stack(list(each(one, images, n_jobs)))

    def describe(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The bag of one picture."""
        return np.asarray(self.describe_all([pixels], 1)[0])

    def describe_all(self, images: Iterable[NDArray[np.uint8]], n_jobs: int | None = -1) -> NDArray[np.float32]:
        """The bags of many."""
        return weigh(self.count(images, n_jobs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BagOfWords) and np.array_equal(self.words, other.words)

    def __hash__(self) -> int:
        return hash(self.words.tobytes())

    def __str__(self) -> str:
        return f"bags of {len(self.words)} SIFT words"


def _sample(blocks: Iterable[NDArray[np.float32]], size: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """A uniform sample of the rows of all blocks, in their order: those with the smallest of random numbers."""
    rows = [np.empty((0, DIMENSION), dtype=np.float32)]
    ranks: list[Floats] = [np.empty(0)]

    def pruned() -> tuple[list[NDArray[np.float32]], list[Floats]]:
        joined, numbers = np.concatenate(rows), np.concatenate(ranks)
        kept = np.sort(np.argsort(numbers, kind="stable")[:size])
        return [joined[kept]], [numbers[kept]]

    for block in blocks:
        rows.append(block)
        ranks.append(generator.random(len(block)))
        if sum(map(len, ranks)) > 2 * size:
            rows, ranks = pruned()
    return pruned()[0][0]


def weigh(counts: ArrayLike) -> NDArray[np.float32]:
    """Square roots of the shares of the words, [n, n_words]; a row of zeros stays one."""
    given = np.asarray(counts)
    if given.ndim != 2 or given.dtype.kind not in "buif":
        raise ValueError(f"counts has shape {given.shape} and dtype {given.dtype}; it must be numbers [n, n_words].")
    weighed = np.empty(given.shape, dtype=np.float32)
    for rows in row_blocks(len(given), _BLOCK_ROWS):
        shares = given[rows].astype(np.float64)
        if not np.all((shares >= 0) & (shares < np.inf)):
            raise ValueError("counts holds NaN, infinity or negative numbers; give numbers of at least 0.")
        total = shares.sum(axis=1, keepdims=True)
        shares /= np.where(total > 0, total, 1)
        np.sqrt(shares, out=weighed[rows], casting="same_kind")
    return weighed


def _features(number: int, image: ArrayLike) -> NDArray[np.float32]:
    """SIFT features of one picture, [k, 128]."""
    checked = greys.check(image, 1, f"images[{number}]")
    grey = greys.stretch(greys.reduce(checked[None], LONGEST, 1), number)[0]
    _, features = _opencv().SIFT_create().detectAndCompute(np.rint(grey).astype(np.uint8), None)
    return np.empty((0, DIMENSION), dtype=np.float32) if features is None else np.asarray(features, dtype=np.float32)


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("bags of words need OpenCV for SIFT: pip install opencv-python-headless") from error
    return cv2
