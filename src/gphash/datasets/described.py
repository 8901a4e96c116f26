"""From images to features: descriptors of every picture, computed once and kept in the user's cache folder.

Arrays are kept as a whole. Files are kept one by one, by the SHA-256 of their bytes, and decoded a few at a time, so
that a folder may be larger than memory and adding a picture costs no more than that picture.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.datasets import pictures, storage
from gphash.datasets.dataset import DataError, Dataset, Images, Skipped, Split
from gphash.datasets.progress import Progress
from gphash.execution.local import row_blocks
from gphash.features import bag_of_words, cache, gabor, gist, greys

ARRAY_ROWS = 4096  # of an array that are described before progress is told

FEATURES = f"GIST, {gabor.DIMENSION} dimensions, pictures over {gabor.LONGEST} pixels reduced"


class Rows(NamedTuple):
    """Features of pictures.

    X
        A row for each picture that could be described, float32 [k, d].
    kept
        Their numbers among the pictures given, in order, [k].
    skipped
        The files that have turned out to be no pictures.
    """

    X: NDArray[np.float32]
    kept: Indices
    skipped: tuple[Skipped, ...]


class _Descriptor(NamedTuple):
    """How pictures become rows, and everything that decides the rows; longer ones are reduced to `longest` pixels."""

    name: str
    version: int
    parameters: Mapping[str, Any]
    describe: Callable[[Iterable[NDArray[Any]]], NDArray[np.float32]]
    longest: int


def by_gist(dataset: Dataset, folder: str | os.PathLike[str] | None = None, n_jobs: int | None = -1) -> Dataset:
    """The same data set with GIST of its images as features; one that has features is handed back as it is.

    Parameters
    ----------
    dataset
        With images: arrays, or paths of pictures.
    folder
        Where descriptors are kept; if None, ``gphash/descriptors`` in the user's cache folder, so that the data folder
        itself may be read-only.
    n_jobs
        Threads.

    Returns
    -------
    dataset
        Without the rows of files that have turned out to be no pictures; `skipped` names them.

    Raises
    ------
    DataError
        If no picture of a split is left.
    """
    if _has_features(dataset):
        return dataset
    return _described(dataset, _by_gist(n_jobs), _place(folder), FEATURES)


def gist_rows(
    images: Images,
    folder: str | os.PathLike[str] | None = None,
    n_jobs: int | None = -1,
    progress: Progress | None = None,
) -> Rows:
    """GIST of pictures that are no data set: without a split, maybe without classes.

    Parameters
    ----------
    images
        Arrays, or paths of pictures.
    folder, n_jobs
        As for `by_gist`.
    progress
        Called with the pictures done and in all.

    Raises
    ------
    DataError
        If none of the files is a picture.
    """
    rows = _rows(images, _by_gist(n_jobs, _counter(progress, len(images))), _place(folder))
    if progress is not None:  # Of what the cache has, nothing was heard.
        progress(len(images), len(images))
    return rows


def by_bag_of_words(
    dataset: Dataset,
    n_words: int = 500,
    folder: str | os.PathLike[str] | None = None,
    seed: int = 0,
    n_jobs: int | None = -1,
) -> Dataset:
    """The same data set with bags of visual words as features; one that has features is handed back as it is.

    Parameters
    ----------
    dataset
        With images: arrays, or paths of pictures.
    n_words
        Number of words of the codebook, which is learned from the images to train with.
    folder
        Where codebook and counts are kept, as for `by_gist`.
    seed
        Decides the codebook.
    n_jobs
        Threads.

    Returns
    -------
    dataset
        As for `by_gist`; X holds the square roots of the words' frequencies.

    Raises
    ------
    DataError
        If no picture of a split is left.
    """
    if _has_features(dataset):
        return dataset
    place = _place(folder)
    words = _codebook(_images(dataset.train), n_words, place, seed, n_jobs)
    codebook = bag_of_words.Codebook(words)
    counting = _Descriptor(
        "words",
        bag_of_words.VERSION,
        {"words": words},
        lambda images: bag_of_words.describe(codebook, images, n_jobs=n_jobs),
        bag_of_words.LONGEST,
    )
    features = f"square roots of the frequencies of {n_words} SIFT words, learned from the training images, seed {seed}"
    counted = _described(dataset, counting, place, features)
    train, test = (_weighed(split) for split in (counted.train, counted.test))
    return counted._replace(train=train, test=test)


def _by_gist(n_jobs: int | None, count: Callable[[int], None] = lambda _: None) -> _Descriptor:
    def counted(images: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        for image in images:
            yield image
            count(1)

    def describe(images: Iterable[NDArray[Any]]) -> NDArray[np.float32]:
        if not isinstance(images, np.ndarray):
            return gist.describe_each(counted(images), n_jobs=n_jobs)
        parts = []
        for rows in row_blocks(len(images), ARRAY_ROWS):
            parts.append(gist.describe(images[rows], n_jobs=n_jobs))
            count(len(parts[-1]))
        return np.concatenate(parts)

    return _Descriptor("gist", gist.VERSION, {}, describe, gabor.LONGEST)


def _counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return count


def _has_features(dataset: Dataset) -> bool:
    return dataset.train.X is not None and dataset.test.X is not None


def _place(folder: str | os.PathLike[str] | None) -> Path:
    return storage.cache_dir() / "gphash" / "descriptors" if folder is None else Path(folder)


def _images(split: Split) -> Images:
    if split.images is None:
        raise ValueError("the data set has neither features nor images; wanted is one of them.")
    return split.images


def _weighed(split: Split) -> Split:
    assert split.X is not None
    return split._replace(X=bag_of_words.weigh(split.X))


def _described(dataset: Dataset, descriptor: _Descriptor, folder: Path, features: str) -> Dataset:
    splits = []
    skipped = dataset.skipped
    for split in (dataset.train, dataset.test):
        images = _images(split)
        rows = _rows(images, descriptor, folder)
        skipped += rows.skipped
        splits.append(Split(rows.X, split.y[rows.kept], select(images, rows.kept)))
    train, test = splits
    return dataset._replace(train=train, test=test, features=features, skipped=skipped)


def select(images: Images, kept: Indices) -> Images:
    """Some of the pictures; all of an array without a copy."""
    if isinstance(images, np.ndarray):
        return images if len(kept) == len(images) else images[kept]
    return [images[number] for number in kept]


def _rows(images: Images, descriptor: _Descriptor, folder: Path) -> Rows:
    name, version, parameters, describe, longest = descriptor
    if isinstance(images, np.ndarray):
        return Rows(cache.cached(describe, images, name, version, parameters, folder), np.arange(len(images)), ())

    faults: dict[Path, str] = {}

    def compute(numbers: Sequence[int]) -> tuple[Sequence[int], NDArray[np.float32]]:
        opened = _opened([images[number] for number in numbers], faults, longest)
        first = next(opened, None)
        if first is None:
            return [], np.empty((0, 0), dtype=np.float32)
        rows = describe(itertools.chain([first], opened))
        return [number for number in numbers if images[number] not in faults], rows

    digests = [_digest(path) for path in images]
    decoded = {"pixels": pictures.VERSION, **parameters}
    kept, X = cache.cached_rows(compute, digests, name, version, decoded, folder)
    # Of equal files one has been opened, and its fault is theirs.
    reasons = {digest: faults[path] for digest, path in zip(digests, images, strict=True) if path in faults}
    lost = sorted(set(range(len(images))) - set(kept))
    skipped = tuple(Skipped(images[number], reasons[digests[number]]) for number in lost)
    if not kept:
        raise DataError(f"none of the {len(images)} files is a picture that can be described: {skipped[-1].reason}")
    return Rows(X, np.array(kept, dtype=np.int64), skipped)


def _codebook(images: Images, n_words: int, folder: Path, seed: int, n_jobs: int | None) -> NDArray[np.float32]:
    def fit(_: NDArray[Any]) -> NDArray[np.float32]:
        source = images if isinstance(images, np.ndarray) else _opened(images, {}, bag_of_words.LONGEST)
        return bag_of_words.fit(source, n_words, random_state=seed, n_jobs=n_jobs).words[None]

    # One codebook for all of them: what is described is a single thing, made of every image.
    parameters: dict[str, Any] = {"n_words": n_words, "seed": seed}
    if isinstance(images, np.ndarray):
        whole: NDArray[Any] = images[None]
    else:
        parameters["pixels"] = pictures.VERSION
        whole = np.frombuffer(b"".join(_digest(path) for path in images), dtype=np.uint8)[None]
    (words,) = cache.cached(fit, whole, "codebook", bag_of_words.VERSION, parameters, folder)
    return np.asarray(words, dtype=np.float32)


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _opened(paths: Iterable[Path], faults: dict[Path, str], longest: int) -> Iterator[NDArray[np.uint8]]:
    """The pictures one after another; those that are none are left out and noted."""

    def spare(height: int, width: int) -> int:
        return greys.spare(height, width, longest)

    for path in paths:
        try:
            pixels = pictures.open_picture(path, reduction=spare)
        except pictures.PictureError as error:
            faults[path] = str(error)
        else:
            yield pixels
