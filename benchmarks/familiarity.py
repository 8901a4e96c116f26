"""Are unseen kinds of things told apart? AUROC of `GPHasher.familiarity` beside three other ways.

    python benchmarks/familiarity.py
    python benchmarks/familiarity.py --small       # digits alone

Three classes are left out of training, and test rows of these are to be found among all test rows; or shapes that are
no digits are to be found among digits of MNIST. The other ways: the distance to the nearest training row, in floats;
the mean certainty of the bits; the largest probability of logistic regression. At the end: how often a row of the
trained classes is called strange with a familiarity of .05 or less, which should be 5 %.
"""

import argparse
import warnings

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from gphash import GPHasher
from gphash.data.descriptors import described
from gphash.data.downloads import DataMissingError
from gphash.data.known import data_sets

TRIPLES = ((0, 1, 2), (3, 5, 8), (7, 8, 9))
ROWS = 10_000  # to train with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="digits alone")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = {}
    for name in ("digits",) if args.small else ("digits", "mnist", "cifar10"):
        try:
            dataset = described.with_features(data_sets.load(name))
        except DataMissingError as error:
            print(f"{name} left out: {error}")
            continue
        some = np.random.default_rng(0).permutation(len(dataset.train.y))[:ROWS]
        sets[name] = dataset.train.X[some], dataset.train.y[some], dataset.test.X, dataset.test.y
    for name, (X, y, X_test, y_test) in sets.items():
        for out in TRIPLES:
            seen = ~np.isin(y, out)
            show(f"{name} without {', '.join(map(str, out))}", X[seen], y[seen], X_test, np.isin(y_test, out))
        if name == "mnist":
            strange = shapes(X_test[:5000])
            both = np.concatenate([X_test[:5000], strange])
            show("mnist against shapes", X, y, both, np.arange(len(both)) >= 5000)


def shapes(like: np.ndarray) -> np.ndarray:
    """Smooth shapes with as many pixels of every grey as pictures have, [n, 784]."""
    noise = np.random.default_rng(0).normal(size=(len(like), 28, 28))
    ranks = gaussian_filter(noise, (0, 2, 2)).reshape(len(like), -1).argsort(axis=1).argsort(axis=1)
    return np.take_along_axis(np.sort(like, axis=1), ranks, axis=1)


def show(title: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, strange: np.ndarray) -> None:
    hasher = GPHasher(16, random_state=0).fit(X, y)
    familiarity = hasher.familiarity(X_test)
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(X).kneighbors(X_test)[0][:, 0]
    certainty = np.abs(hasher.bit_probabilities(X_test) - 0.5).mean(axis=1)
    scaler = StandardScaler().fit(X)
    logistic = LogisticRegression(max_iter=200).fit(scaler.transform(X), y)
    top = logistic.predict_proba(scaler.transform(X_test)).max(axis=1)
    scores = {
        "familiarity": -familiarity, "nearest row": nearest, "bits": -certainty, "logistic": -top
    }  # fmt: skip
    told = "  ".join(f"{name} {roc_auc_score(strange, score):.3f}" for name, score in scores.items())
    print(f"{title:25s} {told}  called strange {np.mean(familiarity[~strange] <= 0.05):.3f}", flush=True)


if __name__ == "__main__":
    main()
