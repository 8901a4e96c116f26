"""How long encoding takes, against the bare product X @ Z.T that every kernel hash function needs, in the same run.

python benchmarks/encoding.py             # r=1,000, d=512, 16 bits; batches of 1 and of 10,000
"""

import argparse
import time

import numpy as np
from measuring import best, descriptors

from gphash import GPHasher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inducing", type=int, default=1000, help="inducing inputs (default 1,000)")
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repeats (default 15)")
    args = parser.parse_args()
    X, y = descriptors(14_000)
    given = {"length_scale": 1.0, "signal_scale": 8.0, "n_starts": 1, "random_state": 0}
    hasher = GPHasher(16, n_inducing=args.inducing, inducing="random", **given).fit(X[:4000], y[:4000])
    Z = hasher.hash_function_.classifier.Z
    print(f"r={len(Z):,}  d={Z.shape[1]}  m=16, {args.repeats} interleaved repeats")
    for batch, loops in ((10_000, 1), (1, 200)):
        rows = X[4000 : 4000 + batch]
        works = {
            "X @ Z.T": lambda rows=rows: rows @ Z.T,
            "encode": lambda rows=rows: hasher.encode(rows),
            "bit_probabilities": lambda rows=rows: hasher.bit_probabilities(rows),
        }
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(args.repeats):
            for name, work in works.items():
                time.sleep(0.1)  # OpenBLAS's idle threads spin on for some 30 ms after a product
                times[name].append(best(lambda work=work, loops=loops: [work() for _ in range(loops)], 1) / loops)
        for name, seconds in times.items():
            aim = "   (aim: at most 1.5)" if (name, batch) == ("encode", 10_000) else ""
            ratio = np.median(np.divide(seconds, times["X @ Z.T"]))
            row = 1e6 * min(seconds) / batch
            print(f"  batch {batch:>6,}  {name:18s} {row:8.2f} µs/row (best)  {ratio:6.2f} × X @ Z.T (median){aim}")


if __name__ == "__main__":
    main()
