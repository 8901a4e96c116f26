"""Are promised precision and recall kept on rows that are drawn as the training rows were? And on the test rows?

    python benchmarks/promises.py
    python benchmarks/promises.py --data digits --seeds 1

A fifth of the training rows is held out of training, anew for every seed, and searched for among themselves; so are the
test rows. Printed are means over the seeds, and how likely the true class is in the mean, in logarithms: of rows that
are harder than the training rows, no promise is made. A mean that some seeds have no answer for has their number.
"""

import argparse
import warnings

import numpy as np

from gphash import GPHasher
from gphash.data.dataset import Split
from gphash.data.downloads import DataMissingError
from gphash.evaluation import protocol
from gphash.paper import compare

DATA = ("cifar10", "mnist", "jeopardy", "digits")
HELD = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA, help="data sets (default all)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, of which the mean is shown (default 3)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.data:
        try:
            dataset = compare.load(name, None)
        except DataMissingError as error:
            print(f"{name} left out: {error}")
            continue
        found = [measured(dataset.train, dataset.test, seed) for seed in range(args.seeds)]
        for part in found[0]:
            told = [one[part] for one in found]
            print(f"{name}, {part}: " + ", ".join(f"{key} {mean([one[key] for one in told])}" for key in told[0]))


def measured(train: Split, test: Split, seed: int) -> dict[str, dict[str, float]]:
    """What is kept, for rows held out and for test rows."""
    order = np.random.default_rng(seed).permutation(len(train.X))
    n = round(HELD * len(order))
    hasher = GPHasher(16, random_state=seed).fit(train.X[order[n:]], train.y[order[n:]])
    held = Split(train.X[order[:n]], train.y[order[:n]])
    return {"held-out training rows": kept(hasher, held), "test rows": kept(hasher, test)}


def kept(hasher: GPHasher, rows: Split) -> dict[str, float]:
    chances = hasher.predict_proba(rows.X)[np.arange(len(rows.y)), np.searchsorted(hasher.classes_, rows.y)]
    promises = protocol.measure(hasher, rows)["similarity"]["promises"]
    found = {key: np.nan if value is None else value for key, value in promises.items()}
    return found | {"log-likelihood": float(np.log(np.maximum(chances, 1e-12)).mean())}


def mean(values: list[float]) -> str:
    there = [value for value in values if np.isfinite(value)]
    some = f" ({len(there)} of {len(values)})" if 0 < len(there) < len(values) else ""
    return f"{np.mean(there):.3f}{some}" if there else "–"


if __name__ == "__main__":
    main()
