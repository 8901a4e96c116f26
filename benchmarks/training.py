"""How long training takes, in units of one float32 product Phi.T @ Phi of the same size, measured in the same run.

    python benchmarks/training.py             # n=50,000, r=1,000, 16 bits, 512 features
    python benchmarks/training.py --scale     # n from 25,000 to 1,000,000: how time grows
    python benchmarks/training.py --bits-scale --rows 8000   # 16 to 128 bits on the same rows of 40 classes

The product is the physical limit of every method that looks at all rows through r inducing inputs: shared-factor EP
needs one such product, one triangular solve and a few passes over Phi at the least.
"""

import argparse
import contextlib
import gc
import time

import numpy as np
from measuring import PeakMemory, best, descriptors

from gphash import GPHasher
from gphash.method.state import Sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="training rows (default 50,000)")
    parser.add_argument("--inducing", type=int, default=1000, help="inducing inputs (default 1,000)")
    parser.add_argument("--bits", type=int, default=16, help="bits (default 16)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each kind, interleaved; the best counts (default 3)"
    )
    parser.add_argument("--data", help="an .npz with X and y to use in place of made rows")
    parser.add_argument("--scale", action="store_true", help="time against n instead")
    parser.add_argument("--bits-scale", action="store_true", help="time against the number of bits instead")
    args = parser.parse_args()
    # Compile first: numba's kernels are cached on disk after the first use.
    X, y = descriptors(2000)
    GPHasher(args.bits, n_inducing=100, random_state=0).fit(X, y)
    if args.scale:
        scale(args)
    elif args.bits_scale:
        bits_scale(args)
    else:
        once(args)


def unit_of(n_rows: int, n_inducing: int) -> float:
    """Seconds of the unit product."""
    Phi = np.random.default_rng(0).standard_normal((n_rows, n_inducing), dtype=np.float32)
    return best(lambda: Phi.T @ Phi)


def stored(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the file that was given."""
    with np.load(args.data) as held:
        return held["X"][: args.rows], held["y"][: args.rows]


def once(args: argparse.Namespace) -> None:
    X, y = stored(args) if args.data else descriptors(args.rows)
    common = {"n_inducing": args.inducing, "random_state": 0}
    given = {"length_scale": 1.0, "signal_scale": 8.0}
    kinds = {
        "given": {**common, **given, "inducing": "random", "n_starts": 1},
        "k-means": {**common, **given, "inducing": "kmeans", "n_starts": 1},
        "automatic": {**common, "inducing": "random"},
    }
    units: list[float] = []
    runs: dict[str, list[tuple[float, GPHasher]]] = {kind: [] for kind in kinds}
    growth = []
    for _ in range(args.repeats):
        for kind, parameters in kinds.items():
            gc.collect()
            units.append(unit_of(len(X), args.inducing))
            with PeakMemory() as memory:
                began = time.perf_counter()
                hasher = GPHasher(args.bits, **parameters).fit(X, y)
                runs[kind].append((time.perf_counter() - began, hasher))
            growth.append(memory.growth)
    unit = min(units)
    chosen = {kind: min(results, key=lambda result: result[0]) for kind, results in runs.items()}
    Phi_bytes = 4 * len(X) * args.inducing

    print(f"n={len(X):,}  r={args.inducing:,}  d={X.shape[1]}  m={args.bits}; best of {args.repeats} interleaved runs")
    print(f"unit: one Phi.T @ Phi in float32 {unit:.3f} s (best), {np.median(units):.3f} s (median)\n")
    total, hasher = chosen["given"]
    print("whole fit, random inducing inputs, given hyper-parameters, one start:")
    for phase, seconds in hasher.seconds_.items():
        print(f"  {phase:20s} {seconds:7.2f} s {seconds / unit:6.1f} units")
    print(f"  {'total':20s} {total:7.2f} s {total / unit:6.1f} units   (aim: at most 25, then towards 15)")
    kmeans = chosen["k-means"][1].seconds_["inducing inputs"]
    print(f"k-means centres add    {kmeans:7.2f} s {kmeans / unit:6.1f} units   (aim: at most 10)")
    automatic = chosen["automatic"][1].seconds_
    choice = automatic["hyper-parameters"] + automatic["hash function"]
    print(f"kernel, read-out, bits {choice:7.2f} s {choice / unit:6.1f} units   (aim: at most 15)")
    print(
        f"peak memory growth     {max(growth) / 1e6:7.0f} MB {max(growth) / Phi_bytes:5.2f} of Phi  (aim: at most 3)\n"
    )
    blockwise(args, X, y, hasher, {**kinds["given"]})


def blockwise(args: argparse.Namespace, X: np.ndarray, y: np.ndarray, hasher: GPHasher, parameters: dict) -> None:
    """One sweep of bit-by-bit EP against the mean sweep of shared-factor EP, factor refreshes included."""

    class EnoughError(Exception):
        pass

    seen: list[Sweep] = []

    def stop(sweep: Sweep) -> None:
        seen.append(sweep)
        raise EnoughError

    with contextlib.suppress(EnoughError):
        GPHasher(args.bits, solver="blockwise", **parameters).fit(X, y, callback=stop)
    shared = float(np.mean([sweep.seconds for sweep in hasher.sweeps_]))
    ratio = seen[0].seconds / shared
    print(
        f"a sweep over all {args.bits} bits: bit by bit {seen[0].seconds:.1f} s, with the shared factor {shared:.2f} s"
    )
    print(f"  (mean of {len(hasher.sweeps_)}, refreshes included): {ratio:.0f} times as long   (aim: at least 25)")


def scale(args: argparse.Namespace) -> None:
    sizes = [25_000, 50_000, 100_000, 200_000, 400_000, 1_000_000]
    X, y = descriptors(sizes[-1])
    parameters = {
        "n_inducing": args.inducing,
        "inducing": "random",
        "length_scale": 1.0,
        "signal_scale": 8.0,
        "n_starts": 1,
    }
    seconds: list[float] = []
    previous = 0
    print(f"r={args.inducing:,}  d=512  m={args.bits}; random inducing inputs, given hyper-parameters")
    for n in sizes:
        runs = []
        for _ in range(args.repeats if n <= 100_000 else 1):
            began = time.perf_counter()
            hasher = GPHasher(args.bits, random_state=0, **parameters).fit(X[:n], y[:n])
            runs.append(time.perf_counter() - began)
        seconds.append(min(runs))
        slope = np.log(seconds[-1] / seconds[-2]) / np.log(n / previous) if len(seconds) > 1 else np.nan
        previous = n
        rate = 1e6 * seconds[-1] / n
        line = f"  n={n:>9,} {seconds[-1]:7.1f} s {rate:6.1f} µs/row {len(hasher.sweeps_):3d} sweeps"
        print(f"{line}  exponent {slope:.2f}", flush=True)
    exponent = np.log(seconds[-1] / seconds[0]) / np.log(sizes[-1] / sizes[0])
    print(f"time grows as n^{exponent:.2f} from {sizes[0]:,} to {sizes[-1]:,}   (aim: at most 1.05)")


def bits_scale(args: argparse.Namespace) -> None:
    """Whole fits, all choices automatic, with 16 to 128 bits in turn; wall clock, and seconds of all cores together."""
    X, y = stored(args) if args.data else descriptors(args.rows, n_classes=40)
    lengths = [16, 32, 64, 128]
    runs: dict[int, list[tuple[float, float]]] = {n_bits: [] for n_bits in lengths}
    hashers = {}
    for _ in range(args.repeats):
        for n_bits in lengths:
            gc.collect()
            began, worked = time.perf_counter(), time.process_time()
            hashers[n_bits] = GPHasher(n_bits, n_inducing=args.inducing, random_state=0).fit(X, y)
            runs[n_bits].append((time.perf_counter() - began, time.process_time() - worked))
    print(f"n={len(X):,}  r={args.inducing:,}  d={X.shape[1]}; best of {args.repeats} interleaved runs")
    seconds = {n_bits: np.min(times, axis=0) for n_bits, times in runs.items()}
    for n_bits, (wall, work) in seconds.items():
        ratio, work_ratio = seconds[n_bits] / seconds[32]
        line = f"  m={n_bits:>3} {wall:7.1f} s {work:7.1f} s of work, {len(hashers[n_bits].sweeps_):3d} sweeps"
        print(f"{line}   {ratio:.2f} and {work_ratio:.2f} times those of 32 bits")
    print("(aim: 128 bits at most twice 32 bits)")


if __name__ == "__main__":
    main()
