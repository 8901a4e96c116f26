"""Learn from clicks: pairs of rows that people took for alike, and pairs that they did not.

Nobody says what the classes are. Simulated visitors look at a picture and are shown others; they click what is of the
same digit, and err now and then. Those judgements are all that the codes are learned from. What is found is compared
with codes that nobody taught, among rows that nobody has seen. A few judgements are worse than none.

    python examples/pairs.py [--judgements 20000] [--errors 0.05] [--bits 16]
"""

import argparse
import time

import numpy as np

from gphash import GPHasher, Pairs
from gphash.data.known import digits
from gphash.hashers import ITQ


def clicks(y, n, errors, rng):
    """Judgements of n pairs of rows, of which this share is wrong: half of what is shown is alike."""
    i, j = rng.integers(0, len(y), (2, n))
    members = [np.flatnonzero(y == digit) for digit in range(10)]
    alike = rng.random(n) < 0.5
    j[alike] = [rng.choice(members[digit]) for digit in y[i[alike]]]
    similar = (y[i] == y[j]) ^ (rng.random(n) < errors)
    # Of two judgements of one pair, the first counts.
    ends = np.sort(np.stack([i, j], axis=1), axis=1)
    first = np.sort(np.unique(ends, axis=0, return_index=True)[1])
    first = first[i[first] != j[first]]
    return Pairs(i[first], j[first], np.where(similar, 1, -1)[first])


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Learn codes from judgements of pairs.")
    parser.add_argument("--judgements", type=int, default=20_000, help="pairs that are judged (20,000)")
    parser.add_argument("--errors", type=float, default=0.05, help="share of wrong judgements (0.05)")
    parser.add_argument("--bits", type=int, default=16, help="length of a code (16)")
    given = parser.parse_args(arguments)

    data, rng = digits.load(), np.random.default_rng(0)
    X, y = data.train.X, data.train.y
    possible = len(y) * (len(y) - 1) // 2
    print(f"{len(X):,} rows; {given.judgements:,} judgements, of {possible:,} pairs, {given.errors:.0%} of them wrong")
    print(f"{'learned from':28}   mAP of {len(data.test.X)} rows never seen   seconds")
    judged = clicks(y, given.judgements, given.errors, rng)
    tenth, quarter = (Pairs(*(part[: len(part) // share] for part in judged)) for share in (10, 4))
    for name, hasher, lesson in (
        ("nothing (ITQ)", ITQ(given.bits, random_state=0), None),
        (f"{len(tenth.i):,} judgements", GPHasher(given.bits, n_inducing=300, random_state=0), tenth),
        (f"{len(quarter.i):,} judgements", GPHasher(given.bits, n_inducing=300, random_state=0), quarter),
        (f"{len(judged.i):,} judgements", GPHasher(given.bits, n_inducing=300, random_state=0), judged),
        ("all labels", GPHasher(given.bits, n_inducing=300, random_state=0), y),
    ):
        began = time.perf_counter()
        hasher.fit(X, lesson)
        seconds = time.perf_counter() - began
        print(f"{name:28}   {hasher.score(data.test.X, data.test.y):26.3f}   {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
