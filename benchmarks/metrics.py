"""How long measuring takes: 10,000 queries, each searched for among the others, and how much memory it needs.

python benchmarks/metrics.py             # clustered 16-bit codes and random 64-bit codes

Beside it, in the same run, the plain numpy computation on 200 queries (distances to all rows, sort, average precision
of the ties), scaled up to all of them. Metrics are those of a report: average precision, and precision and recall at
some 60 depths; numpy computes average precision only. Aim: under 5 s and 1 GB.
"""

import argparse
import time

import numpy as np
from measuring import PeakMemory

from gphash.evaluation import retrieval
from gphash.evaluation.retrieval import Queries
from gphash.supervision import similarity


def clustered(n_rows: int, n_bits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bits, their probabilities and labels as training makes them: a code per class, of which rows stray a little."""
    y = rng.integers(10, size=n_rows)
    latent = 2.0 * rng.choice([-1, 1], (10, n_bits))[y] + 1.3 * rng.standard_normal((n_rows, n_bits))
    return _coded(latent, y)


def scattered(n_rows: int, n_bits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same without any structure, so that all codes differ."""
    return _coded(rng.standard_normal((n_rows, n_bits)), rng.integers(10, size=n_rows))


def _coded(latent: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (latent >= 0).astype(np.uint8), 1 / (1 + np.exp(-2 * latent)), y


def naive(weights: np.ndarray, bits: np.ndarray, y: np.ndarray, n_queries: int) -> np.ndarray:
    """Average precision of the first queries: distances to all rows as a product, then one sort per query."""
    distances = weights[:n_queries] @ (1.0 - bits.T) + (1 - weights[:n_queries]) @ bits.T
    values = []
    for query, row in enumerate(distances.round(9)):
        others = np.arange(len(y)) != query
        values.append(textbook(row[others], (y == y[query])[others]))
    return np.array(values)


def textbook(distances: np.ndarray, relevant: np.ndarray) -> float:
    """Average precision from the expectation at every position, one after another; no closed form."""
    order = np.argsort(distances, kind="stable")
    ranked, hits = distances[order], relevant[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    sizes = np.diff(np.append(starts, len(ranked)))
    within = np.add.reduceat(hits.astype(float), starts)
    before = np.repeat(np.cumsum(within) - within, sizes)
    n, r = np.repeat(sizes, sizes), np.repeat(within, sizes)
    place = np.arange(len(ranked)) - np.repeat(starts, sizes)
    others = place * (r - 1) / np.maximum(n - 1, 1)
    return float(np.sum(r / n * (before + 1 + others) / np.arange(1, len(ranked) + 1)) / hits.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000, help="rows, each searched for among the others")
    parser.add_argument("--queries", type=int, default=200, help="queries of the plain computation (default 200)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of which the best counts (default 3)")
    args = parser.parse_args()
    n_queries = min(args.queries, args.rows)
    depths = np.unique(np.geomspace(1, args.rows - 1, 60).round().astype(int)).tolist()
    print(f"{args.rows:,} rows, leave one out, {len(depths)} depths; best of {args.repeats} (aim: under 5 s, 1 GB)")
    for name, draw, n_bits in (("clustered", clustered, 16), ("random", scattered, 64)):
        bits, chances, y = draw(args.rows, n_bits, np.random.default_rng(0))
        packed, signatures = np.packbits(bits, axis=1), similarity.from_labels(y)

        def by_hamming(depths=depths, packed=packed, signatures=signatures, n_bits=n_bits):
            queries, stored = Queries(packed, signatures, leave_one_out=True), retrieval.store(packed, signatures)
            return retrieval.measure(queries, stored, n_bits, depths=depths)

        def by_expected(depths=depths, packed=packed, signatures=signatures, n_bits=n_bits, chances=chances):
            queries, stored = Queries(packed, signatures, True, chances), retrieval.store(packed, signatures)
            return retrieval.measure(queries, stored, n_bits, depths=depths)

        n_codes = len(np.unique(packed, axis=0))
        print(f"{name} codes of {n_bits} bits, {n_codes:,} of them distinct")
        for title, work, weights in (
            ("Hamming distance", by_hamming, bits.astype(np.float64)),
            ("expected distance", by_expected, chances),
        ):
            work(depths=[])  # compiled, and memory touched
            with PeakMemory() as memory:
                seconds, found = min((timed(work) for _ in range(args.repeats)), key=lambda pair: pair[0])
            slow, wanted = timed(lambda weights=weights, bits=bits, y=y: naive(weights, bits, y, n_queries))
            slow *= args.rows / n_queries
            gap = np.abs(found["map"][:n_queries] - wanted).max()
            print(
                f"  {title:18s} {seconds:6.2f} s  {memory.growth / 1e6:6.0f} MB   plain numpy {slow:6.1f} s, "
                f"{slow / seconds:5.1f} ×   largest difference {gap:.0e}",
                flush=True,
            )


def timed(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


if __name__ == "__main__":
    main()
