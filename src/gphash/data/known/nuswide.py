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
import re
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, checksum, file_digest, split_at_random
from gphash.data.descriptors import bag_of_words
from gphash.files import DataError

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


# Where a part of the data lies, its counts and its labels by concept, and how many photographs it has.
_Part: TypeAlias = tuple[str, str, int]


def load(
    data_dir: DataDir = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    paper_test: bool = False,
) -> Dataset:
    """Load NUS-WIDE, 161,789 photographs to train with and 107,859 to test with; arguments as for `data_sets.load`.

    The split is the official one where the files of the two parts are there; otherwise the last 107,859 rows of a
    permutation of all by `numpy.random.default_rng(0)` are the test set. Photographs without any concept are kept. X
    are square roots of words' frequencies, [n, 500]; y are 81 tags. The official page hands out its files to people
    only, so nothing is downloaded.

    Parameters
    ----------
    paper_test
        Reduce the test set as the paper does: 10,000 photographs, drawn from seed 0, of those that have one of the 21
        concepts that are most frequent in training. The columns of y stay the same.
    """
    del download
    root = _root(downloads.data_dir(data_dir))
    named = [root / name for name in CONCEPTS if (root / name).is_file()]
    official, whole = _layouts()
    if not named:
        raise _missing(root, [CONCEPTS[0], *_absent(root, official, ("<concept>",))])
    digests: dict[str, str] = {}
    concepts = _concepts(named[0], digests)
    parts = official
    if absent := _absent(root, official, concepts):
        parts = whole
        if _absent(root, whole, concepts):
            raise _missing(root, absent)
    splits = []
    done, n_files = 0, len(parts) * (1 + len(concepts))
    for counts, labels, n_rows in parts:
        X = _features(root / counts, n_rows, digests)
        done += 1
        y = np.empty((n_rows, len(concepts)), dtype=np.uint8)
        for column, concept in enumerate(concepts):
            y[:, column] = _labels(root / labels.format(concept), n_rows, digests)
            done += 1
            if progress is not None:
                progress(done, n_files)
        splits.append((X, y))
    if len(splits) == 1:
        ((X, y),) = splits
        splits = [(X[rows], y[rows]) for rows in split_at_random(len(y), N_TEST, SEED)]
    (X, y), (X_test, y_test) = splits
    if paper_test:
        rows = _paper_rows(y, y_test)
        X_test, y_test = X_test[rows], y_test[rows]
    features = f"square roots of the frequencies of {N_WORDS} SIFT words"
    return Dataset(NAME, Split(X, y), Split(X_test, y_test), concepts, features, checksum(digests), SOURCE)


def _root(folder: Path) -> Path:
    return folder / NAME if (folder / NAME).is_dir() else folder


def _layouts() -> tuple[list[_Part], list[_Part]]:
    """The files of the two parts of the official split, and those of the whole."""
    labels = "Groundtruth/TrainTestLabels/Labels_{}_"
    official = [
        (f"Low_Level_Features/BoW_{part}_int.dat", f"{labels}{part}.txt", size)
        for part, size in (("Train", N_TRAIN), ("Test", N_TEST))
    ]
    return official, [("Low_Level_Features/BoW_int.dat", "Groundtruth/AllLabels/Labels_{}.txt", N_TRAIN + N_TEST)]


def _missing(root: Path, files: list[str]) -> downloads.DataMissingError:
    shown = files if len(files) <= 6 else [*files[:5], f"and {len(files) - 5} more"]
    where = f"get the low-level features, the ground truth and the list of concepts from {PAGE} and unpack them"
    return downloads.DataMissingError(NAME, shown, root, where)


def _absent(root: Path, parts: list[_Part], concepts: tuple[str, ...]) -> list[str]:
    names = [counts for counts, _, _ in parts]
    names += [labels.format(concept) for _, labels, _ in parts for concept in concepts]
    return [name for name in names if not (root / name).is_file()]


def _concepts(path: Path, digests: dict[str, str]) -> tuple[str, ...]:
    content = path.read_bytes()
    digests["Concepts81.txt"] = hashlib.sha256(content).hexdigest()
    names = tuple(content.decode("utf-8", errors="replace").split())
    if len(set(names)) != len(names) or len(names) != N_CONCEPTS:
        raise DataError(f"{str(path)!r} names {len(set(names))} concepts; it must name {N_CONCEPTS}, each once")
    # They become parts of file names.
    if odd := [name for name in names if not re.fullmatch(r"\w[\w-]*", name)]:
        raise DataError(f"{str(path)!r} names the concept {odd[0]!r}; a name may have letters, digits, _ and - only")
    return names


def _features(path: Path, n_rows: int, digests: dict[str, str]) -> NDArray[np.float32]:
    needed = f"it must hold {n_rows} rows of {N_WORDS} counts"
    if not path.stat().st_size:
        raise DataError(f"{str(path)!r} is empty; {needed}")
    try:
        counts = np.loadtxt(path, dtype=np.uint16, comments=None, ndmin=2, max_rows=n_rows + 1)
    except (ValueError, OverflowError) as error:  # UnicodeDecodeError is one of the former
        raise DataError(f"{str(path)!r}: {error}; {needed}") from error
    if counts.shape != (n_rows, N_WORDS):
        rows = f"more than {n_rows}" if len(counts) > n_rows else len(counts)
        raise DataError(f"{str(path)!r} holds {rows} rows of {counts.shape[1]} counts; {needed}")
    digests[path.name] = file_digest(path)
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
        raise DataError(f"{str(path)!r} has {len(labels)} rows; it must have {n_rows}, one for every row of counts")
    return labels


def _paper_rows(train: NDArray[np.uint8], test: NDArray[np.uint8]) -> Indices:
    """Rows of the paper's test set, by the tags to train and to test with."""
    # Stable, so that of equally frequent concepts the first in the list are taken.
    frequent = np.argsort(-train.sum(axis=0, dtype=np.int64), kind="stable")[:N_PAPER_CONCEPTS]
    rows = np.flatnonzero(test[:, frequent].any(axis=1))
    if len(rows) < N_PAPER_TEST:
        raise DataError(
            f"{len(rows)} photographs of the test set have one of the {N_PAPER_CONCEPTS} most frequent concepts; the "
            f"paper's test set needs {N_PAPER_TEST}: give the whole data set"
        )
    return np.sort(np.random.default_rng(SEED).choice(rows, N_PAPER_TEST, replace=False))


def _is_there(folder: Path) -> bool:
    root = _root(folder)
    concepts = any((root / name).is_file() for name in CONCEPTS)
    return concepts and not all(_absent(root, parts, ()) for parts in _layouts())


KNOWN = KnownData(load, f"download it by hand from {PAGE}", _is_there)
