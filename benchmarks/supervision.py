"""What unusual supervision costs: one class with 95 % of the rows, 1,000 classes, labels for a tenth, broad tags.

    python benchmarks/supervision.py
    python benchmarks/supervision.py --seeds 1
    python benchmarks/supervision.py --seeds 1 --only pairs sampled

And how well P(similar) is calibrated for judged pairs and for sampled codes. Broad tags, pairs and sampled codes are
measured on CIFAR-10 (ResNet features, and GIST), where the folder named by GPHASH_DATA has it.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestCentroid

from gphash import GPHasher, Pairs
from gphash.data.dataset import Split
from gphash.data.descriptors import described
from gphash.data.downloads import DataMissingError
from gphash.data.known import data_sets
from gphash.evaluation import protocol
from gphash.hashers import HadamardRidge

N_CLASSES, N_FEATURES, SPREAD = 10, 8, 0.9
BROAD = np.array([1, 1, 0, 0, 0, 0, 0, 0, 1, 1])  # vehicles among the classes of CIFAR-10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds, of which the mean is shown (default 3)")
    parser.add_argument("--small", action="store_true", help="digits alone")
    parser.add_argument("--only", nargs="+", choices=list(MEASURED), help="some of the measurements")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for about in (unlabelled,) if args.small else [MEASURED[name] for name in args.only or MEASURED]:
        found = [about(seed) for seed in range(args.seeds)]
        print(about.__doc__)
        for name in found[0]:
            values = [one[name] for one in found]
            shown = ", ".join(f"{value:.3f}" for value in values)
            print(f"  {name:55s} {np.mean(values):.3f}   ({shown})", flush=True)


def clusters(sizes: np.ndarray, seed: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clusters of so many rows each."""
    centres = np.random.default_rng(seed).normal(size=(N_CLASSES, N_FEATURES))
    y = np.repeat(np.arange(N_CLASSES), sizes)
    return centres[y] + SPREAD * np.random.default_rng([seed, draw]).normal(size=(len(y), N_FEATURES)), y


def skew(seed: int) -> dict[str, float]:
    """One class with 95 % of 3,000 rows, ten Gaussian clusters, queries of all classes alike: mAP"""
    uneven = np.array([2850, *[17] * 6, *[16] * 3])
    X_test, y_test = clusters(np.full(N_CLASSES, 100), seed, 2)
    found = {}
    for name, sizes, weight in (
        ("300 rows of every class", np.full(N_CLASSES, 300), "auto"),
        ("skewed rows, default", uneven, "auto"),
        ('skewed rows, class_weight="balanced"', uneven, "balanced"),
        ("skewed rows, class_weight=None", uneven, None),
    ):
        hasher = GPHasher(16, n_inducing=300, class_weight=weight, random_state=seed)
        found[name] = hasher.fit(*clusters(sizes, seed, 1)).score(X_test, y_test)
    for name, sizes in (("300 rows of every class", np.full(N_CLASSES, 300)), ("skewed rows", uneven)):
        told = NearestCentroid().fit(*clusters(sizes, seed, 1)).score(X_test, y_test)
        # One word a class: rows that are told rightly find each other, and so do those that are told wrongly alike.
        found[f"{name}, nearest mean: a² + (1 − a)²/9"] = told**2 + (1 - told) ** 2 / (N_CLASSES - 1)
    return found


def classes(seed: int) -> dict[str, float]:
    """1,000 Gaussian clusters of 30 rows, 64 bits: mAP of five new rows of each, and seconds of training"""
    centres, generator = np.random.default_rng(seed).normal(size=(1000, 64)), np.random.default_rng([seed, 1])
    sets = []
    for n in (30, 5):
        y = np.repeat(np.arange(len(centres)), n)
        sets.append((centres[y] + SPREAD * generator.normal(size=(len(y), 64)), y))
    found = {}
    for hasher in (GPHasher(64, random_state=seed), HadamardRidge(64, random_state=seed)):
        began = time.perf_counter()
        hasher.fit(*sets[0])
        found[f"{type(hasher).__name__}, seconds"] = time.perf_counter() - began
        found[f"{type(hasher).__name__}, mAP"] = hasher.score(*sets[1])
    return found


def unlabelled(seed: int) -> dict[str, float]:
    """Digits with 90 % of the labels removed: mAP of 500 others"""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X[order], y[order]
    known = np.arange(len(X) - 500) < (len(X) - 500) // 10
    partly = np.where(known, y[:-500], -1)
    hasher = GPHasher(16, n_inducing=300, random_state=seed)
    return {
        "the labelled tenth alone": hasher.fit(X[:-500][known], y[:-500][known]).score(X[-500:], y[-500:]),
        "with the unlabelled rows": hasher.fit(X[:-500], partly).score(X[-500:], y[-500:]),
    }


def broad_tags(seed: int) -> dict[str, float]:
    """Pictures tagged frog;animal, truck;vehicle: precision at 10 by the narrow tag"""
    try:
        dataset = data_sets.load("cifar10_resnet50")
    except DataMissingError:
        return {"no data": float("nan")}
    rows = np.random.default_rng(seed).permutation(len(dataset.train.y))[:6000]
    X, y = np.asarray(dataset.train.X)[rows], np.asarray(dataset.train.y)[rows]
    tags = np.concatenate([np.eye(10, dtype=int)[y], np.eye(2, dtype=int)[BROAD[y]]], axis=1)
    found = {}
    for name, taught in (("classes", y), ("narrow and broad tags", tags)):
        hasher = GPHasher(16, n_inducing=500, random_state=seed).fit(X[:4000], taught[:4000])
        signs = 2.0 * hasher.transform(X[4000:]) - 1
        distance = -(signs @ signs.T) + 1e-3 * np.random.default_rng(seed).random((2000, 2000))
        np.fill_diagonal(distance, np.inf)
        nearest = np.argsort(distance, axis=1)[:, :10]
        found[name] = float((y[4000:][nearest] == y[4000:, None]).mean())
    return found


def pairs(seed: int) -> dict[str, float]:
    """5,000 rows of CIFAR-10 (GIST), 16 bits, random pairs judged by their classes; all pairs of 2,000 test rows"""
    rows = cifar10(seed)
    if rows is None:
        return {"no data": float("nan")}
    X, y, test = rows
    found: dict[str, float] = {}
    for times in (50, 10):
        i, j = np.random.default_rng([seed, times]).integers(0, len(X), (2, times * len(X)))
        i, j = i[i != j], j[i != j]
        judged = Pairs(i, j, np.where(y[i] == y[j], 1, -1))
        found |= figures(f"{times} pairs a row", GPHasher(16, random_state=seed).fit(X, judged), test)
    return found


def sampled(seed: int) -> dict[str, float]:
    """The same rows with labels, sampled codes and codes from the posterior"""
    rows = cifar10(seed)
    if rows is None:
        return {"no data": float("nan")}
    X, y, test = rows
    found: dict[str, float] = {}
    for codes in ("sampled", "posterior"):
        hasher = GPHasher(16, codes=codes, random_state=seed).fit(X, y)
        found |= figures(f"{codes} codes", hasher, test)
        found[f"{codes} codes, accuracy of predict"] = float((hasher.predict(test.X) == test.y).mean())
    return found


def cifar10(seed: int) -> tuple[np.ndarray, np.ndarray, Split] | None:
    """Some rows to train with, and some to test."""
    try:
        dataset = described.with_features(data_sets.load("cifar10"))
    except DataMissingError:
        return None
    generator = np.random.default_rng(seed)
    train, test = dataset.train, dataset.test
    some, others = generator.permutation(len(train.y))[:5000], generator.permutation(len(test.y))[:2000]
    return train.X[some], train.y[some], Split(test.X[others], test.y[others])


def figures(name: str, hasher: GPHasher, test: Split) -> dict[str, float]:
    """MAP by three rankings, and how far off P(similar) is."""
    report = protocol.measure(hasher, test)
    found = {f"{name}, mAP by {by}": report[by]["map"] for by in ("hamming", "expected", "similarity")}
    bins = report["similarity"]["calibration"]
    return found | {f"{name}, calibration error of P(similar)": bins["calibration_error"]}


MEASURED = {
    "skew": skew,
    "classes": classes,
    "unlabelled": unlabelled,
    "broad-tags": broad_tags,
    "pairs": pairs,
    "sampled": sampled,
}

if __name__ == "__main__":
    main()
