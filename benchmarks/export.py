"""Whether an exported graph gives our codes, and how long onnxruntime takes with it against ours, in the same run.

Both have one thread: in one process, idle threads of one would spin in the way of the other.

python benchmarks/export.py             # r=1,000, d=512, 32 bits; equality on 100,000 rows, batches of 1 and of 1,000
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from measuring import best, descriptors
from threadpoolctl import threadpool_limits

from gphash import GPHasher
from gphash.functions import exporting
from gphash.hashers.contract import Hasher
from gphash.hashers.methods import METHODS

TRAINED = 4000
PIECE = 5000
AIM = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows that both encode (default 100,000)")
    parser.add_argument("--inducing", type=int, default=1000, help="inducing inputs (default 1,000)")
    parser.add_argument("--repeats", type=int, default=21, help="interleaved repeats (default 21)")
    args = parser.parse_args()
    X, y = descriptors(TRAINED + max(args.rows, 1000))
    given = {"length_scale": 1.0, "signal_scale": 8.0, "n_starts": 1, "random_state": 0, "n_inducing": args.inducing}
    hashers: dict[str, Hasher] = {
        "posterior": GPHasher(32, **given),
        "matern-3/2": GPHasher(32, kernel="matern-3/2", **given),
        "sampled": GPHasher(32, codes="sampled", max_sweeps=3, **given),
        "itq": METHODS["itq"](32, random_state=0),
    }
    print(f"r={args.inducing:,}  d={X.shape[1]}  m=32, {args.repeats} interleaved repeats, one thread each")
    for name, hasher in hashers.items():
        hasher.fit(X[:TRAINED], y[:TRAINED])
        with threadpool_limits(1):
            measure(name, hasher, X[TRAINED:], args.repeats)


def measure(name: str, hasher: Hasher, X: np.ndarray, repeats: int) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, hasher.n_jobs = 1, 1
    with tempfile.TemporaryDirectory(prefix="gphash-export-") as folder:
        paths = Path(folder, "all.onnx"), Path(folder, "codes.onnx")
        for path, codes_only in zip(paths, (False, True), strict=True):
            hasher.to_onnx(path, codes_only=codes_only)
        everything, codes = (onnxruntime.InferenceSession(path, options) for path in paths)
    pieces = [{"rows": X[start : start + PIECE]} for start in range(0, len(X), PIECE)]
    parts = [exporting.compare(hasher.hash_function_, everything, piece) for piece in pieces]
    rows, doubtful, different = (sum(part[place] for part in parts) for place in (2, 3, 4))
    print(f"{name}: codes equal on {rows:,} rows but for {different} of {doubtful:,} bits in doubt, of {rows * 32:,}")
    for batch, loops in ((1, 200), (1000, 2)):
        some = X[:batch]
        works = {
            "ours": lambda some=some: hasher.encode(some),
            "onnx, codes": lambda some=some: codes.run(["codes"], {"rows": some}),
            "onnx, all outputs": lambda some=some: everything.run(None, {"rows": some}),
        }
        times: dict[str, list[float]] = {work: [] for work in works}
        for _ in range(repeats):
            for label, work in works.items():
                times[label].append(best(lambda work=work, loops=loops: [work() for _ in range(loops)], 1) / loops)
        for label, seconds in times.items():
            aim = f"   (aim: at most {AIM:g})" if label == "onnx, codes" else ""
            ratio = np.median(np.divide(seconds, times["ours"]))
            row = 1e6 * np.median(seconds) / batch
            print(f"  batch {batch:>5,}  {label:18s} {row:8.2f} µs/row (median)  {ratio:5.2f} × ours (median){aim}")


if __name__ == "__main__":
    main()
