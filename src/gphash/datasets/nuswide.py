"""NUS-WIDE: 269,648 photographs as counts over 500 SIFT words, with 81 concepts as tags.

The official files, in the data folder or in ``NUS-WIDE`` there:

===========================================================  ======================================================
``ConceptsList/Concepts81.txt``                              names of the concepts, one to a line
``Low_Level_Features/BoW_Train_int.dat``, ``BoW_Test_…``     counts, a photograph to a line
``Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt``,  0 or 1, a photograph to a line
``…_Test.txt``
===========================================================  ======================================================

or, without the official split, ``Low_Level_Features/BoW_int.dat`` and ``Groundtruth/AllLabels/Labels_<concept>.txt``.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.datasets import dataset, splitting, storage
from gphash.datasets.dataset import DataError, Dataset, Split
from gphash.datasets.progress import Progress
from gphash.features import bag_of_words

NAME = "NUS-WIDE"
PAGE = "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html"
SOURCE = f"T.-S. Chua et al., NUS-WIDE, {PAGE}; not verified, as there are no official checksums"
N_CONCEPTS = 81
N_WORDS = 500
N_TRAIN = 161_789
N_TEST = 107_859
SEED = 0
# The paper tests with 10,000 of the test photographs that have one of the 21 most frequent concepts.
N_PAPER_TEST = 10_000
N_PAPER_CONCEPTS = 21

CONCEPTS = ("ConceptsList/Concepts81.txt", "Concepts81.txt")


class _Part(NamedTuple):
    """Where a part of the data lies: its counts, its label files by concept, and its number of photographs."""

    counts: str
    labels: str
    n_rows: int


def load(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    paper_test: bool = False,
) -> Dataset:
    """Load NUS-WIDE, 161,789 photographs to train with and 107,859 to test with.

    The split is the official one where the files of the two parts are there; otherwise the last 107,859 rows of a
    permutation of all by `numpy.random.default_rng(0)` are the test set. Photographs without any concept are kept.

    Parameters
    ----------
    data_dir
        The folder with the official files, unpacked; if None, see `storage.data_dir`.
    download
        Not used: the official page hands out its files to people only.
    progress
        Called with the files done and in all.
    paper_test
        Reduce the test set as the paper does: 10,000 photographs, drawn from seed 0, of those that have one of the 21
        concepts that are most frequent in training. The columns of y stay the same.

    Returns
    -------
    dataset
        X are square roots of words' frequencies, [n, 500]; y are 81 tags.

    Raises
    ------
    DataMissingError
        If files are missing; it says what to do by hand.
    DataError
        If a file does not match the others; it is named.
    """
    del download
    folder = storage.data_dir(data_dir)
    root = folder / NAME if (folder / NAME).is_dir() else folder
    official = [
        _Part(f"BoW_{part}_int.dat", f"TrainTestLabels/Labels_{{}}_{part}.txt", n_rows)
        for part, n_rows in (("Train", N_TRAIN), ("Test", N_TEST))
    ]
    concepts_path = next((root / name for name in CONCEPTS if (root / name).is_file()), None)
    if concepts_path is None:
        labels = "Groundtruth/TrainTestLabels"
        names = [f"{labels}/Labels_<concept>_{part}.txt" for part in ("Train", "Test") if not (root / labels).is_dir()]
        raise _missing(root, [CONCEPTS[0], *_absent(root, official, ()), *names])
    digests: dict[str, str] = {}
    concepts = _concepts(concepts_path, digests)

    whole = [_Part("BoW_int.dat", "AllLabels/Labels_{}.txt", N_TRAIN + N_TEST)]
    parts = official
    if absent := _absent(root, official, concepts):
        if _absent(root, whole, concepts):
            raise _missing(root, absent)
        parts = whole

    n_files = len(parts) * (1 + len(concepts))
    splits = []
    for number, part in enumerate(parts):
        X = _features(root / "Low_Level_Features" / part.counts, part.n_rows, digests)
        y = np.empty((part.n_rows, len(concepts)), dtype=np.uint8)
        for column, concept in enumerate(concepts):
            y[:, column] = _labels(root / "Groundtruth" / part.labels.format(concept), part.n_rows, digests)
            if progress is not None:
                progress(number * (1 + len(concepts)) + column + 2, n_files)
        splits.append(Split(X, y, None))
    train, test = splits if len(splits) == 2 else _halves(splits[0])
    if paper_test:
        test = _paper_test(train, test)
    features = f"square roots of the frequencies of {N_WORDS} SIFT words"
    return Dataset(NAME, train, test, concepts, features, dataset.checksum(digests), SOURCE)


def _missing(root: Path, files: list[str]) -> storage.DataMissingError:
    shown = files if len(files) <= 6 else [*files[:5], f"and {len(files) - 5} more"]
    where = f"get the low-level features, the ground truth and the list of concepts from {PAGE} and unpack them"
    return storage.DataMissingError(NAME, shown, root, where)


def _absent(root: Path, parts: list[_Part], concepts: tuple[str, ...]) -> list[str]:
    names = [f"Low_Level_Features/{part.counts}" for part in parts]
    names += [f"Groundtruth/{part.labels.format(concept)}" for part in parts for concept in concepts]
    return [name for name in names if not (root / name).is_file()]


def _concepts(path: Path, digests: dict[str, str]) -> tuple[str, ...]:
    content = path.read_bytes()
    digests["Concepts81.txt"] = hashlib.sha256(content).hexdigest()
    names = tuple(content.decode("utf-8", errors="replace").split())
    if len(set(names)) != len(names) or len(names) != N_CONCEPTS:
        raise DataError(f"{str(path)!r} names {len(set(names))} concepts; wanted are {N_CONCEPTS}, each once")
    # They become parts of file names.
    if odd := [name for name in names if not re.fullmatch(r"\w[\w-]*", name)]:
        raise DataError(f"{str(path)!r} names the concept {odd[0]!r}; wanted are letters, digits, _ and - only")
    return names


def _features(path: Path, n_rows: int, digests: dict[str, str]) -> NDArray[np.float32]:
    if not path.stat().st_size:
        raise DataError(f"{str(path)!r} is empty; wanted are {n_rows} rows of {N_WORDS} counts")
    try:
        counts = np.loadtxt(path, dtype=np.uint16, comments=None, ndmin=2, max_rows=n_rows + 1)
    except (ValueError, OverflowError) as error:  # UnicodeDecodeError is one of the former
        raise DataError(f"{str(path)!r} does not hold rows of {N_WORDS} counts: {error}") from error
    if counts.shape != (n_rows, N_WORDS):
        more = "more than " if len(counts) > n_rows else ""
        rows = min(len(counts), n_rows)
        raise DataError(
            f"{str(path)!r} holds {more}{rows} rows of {counts.shape[1]} counts; wanted are {n_rows} of {N_WORDS}"
        )
    with open(path, "rb") as file:
        digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return bag_of_words.weigh(counts)


def _labels(path: Path, n_rows: int, digests: dict[str, str]) -> NDArray[np.uint8]:
    """The 0s and 1s of a label file, one to a line."""
    # A digit and up to three bytes of blanks and line ends for each, which is more than any version has.
    if (size := path.stat().st_size) > 4 * n_rows + 64:
        raise DataError(f"{str(path)!r} has {size} bytes, too many for {n_rows} rows of 0 or 1")
    content = path.read_bytes()
    digests[path.name] = hashlib.sha256(content).hexdigest()
    characters = np.frombuffer(content, dtype=np.uint8)
    places = np.flatnonzero(characters > ord(" "))
    labels = characters[places] - np.uint8(ord("0"))
    if (labels > 1).any() or (np.diff(places) == 1).any():
        raise DataError(f"{str(path)!r} holds something else than 0 or 1 on each line")
    if len(labels) != n_rows:
        raise DataError(f"{str(path)!r} has {len(labels)} rows; wanted are {n_rows}, one for every row of counts")
    return labels


def _halves(split: Split) -> tuple[Split, Split]:
    assert split.X is not None
    train, test = splitting.at_random(split.n_rows, N_TEST, SEED)
    return Split(split.X[train], split.y[train], None), Split(split.X[test], split.y[test], None)


def _paper_test(train: Split, test: Split) -> Split:
    assert test.X is not None
    # Stable, so that of equally frequent concepts the first in the list are taken.
    frequent = np.argsort(-train.y.sum(axis=0, dtype=np.int64), kind="stable")[:N_PAPER_CONCEPTS]
    rows = np.flatnonzero(test.y[:, frequent].any(axis=1))
    if len(rows) < N_PAPER_TEST:
        raise DataError(
            f"{len(rows)} photographs of the test set have one of the {N_PAPER_CONCEPTS} most frequent concepts; the "
            f"paper's test set needs {N_PAPER_TEST}: give the whole data set"
        )
    chosen = np.sort(np.random.default_rng(SEED).choice(rows, N_PAPER_TEST, replace=False))
    return Split(test.X[chosen], test.y[chosen], None)
