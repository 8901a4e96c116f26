"""Peak memory of indexing, encoding and training from rows of short types, mapped from a file, and from sparse rows.

    python benchmarks/memory.py                        # 1,000,000 × 384: float16 and int8 from mapped files, and sparse
    python benchmarks/memory.py --types float16 --work index --features 768

Rows are made up. Every piece of work runs in a process of its own, whose peak is what the kernel says: all resident
pages, those of the mapped file among them, which it would give up if others needed them; "own" leaves these out, and is
sampled. Sparse rows have 30 numbers each, as TF-IDF of short texts has. Training takes fewer rows, see --fit-rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse

from gphash import Collection, GPHasher
from gphash.data import sources
from gphash.functions import model as models

N_CLASSES, SPARSE_NUMBERS, BLOCK = 20, 30, 65536
WORK = ("index", "index with vectors", "encode", "fit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (1,000,000)")
    parser.add_argument("--features", type=int, default=384, help="numbers of a row (384)")
    parser.add_argument("--fit-rows", type=int, default=200_000, help="rows of training (200,000)")
    parser.add_argument("--bits", type=int, default=64, help="length of a code (64)")
    parser.add_argument("--types", nargs="+", default=["float16", "int8", "sparse"], help="of rows (all)")
    parser.add_argument("--work", nargs="+", default=list(WORK), help=f"of {', '.join(WORK)} (all)")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child, args.fit_rows)
        return
    print(f"{args.rows:,} rows of {args.features} numbers; training on {min(args.rows, args.fit_rows):,}")
    print("rows      work                  rows take, MB   peak, MB   own, MB   seconds", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.types:
            file, y = write(Path(folder), kind, args.rows, args.features)
            hasher = GPHasher(args.bits, n_inducing=200, random_state=0)
            hasher.fit(read(file)[:5000], y[:5000]).save(Path(folder, "model.gph"))
            for work in args.work:
                command = [
                    sys.executable,
                    __file__,
                    "--fit-rows",
                    str(args.fit_rows),
                    "--child",
                    work,
                    str(file),
                    folder,
                ]
                told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                size = file.stat().st_size / 1e6
                figures = f"{size:13,.0f} {told['peak']:10,.0f} {told['own']:9,.0f} {told['seconds']:9.1f}"
                print(f"{kind:9} {work:21} {figures}", flush=True)
            file.unlink()


def write(folder: Path, kind: str, n_rows: int, n_features: int) -> tuple[Path, np.ndarray]:
    """A file of rows, and their classes, which the child reads from beside it."""
    rng = np.random.default_rng(0)
    y, centres = rng.integers(N_CLASSES, size=n_rows), rng.standard_normal((N_CLASSES, n_features), np.float32)
    np.save(folder / "y.npy", y)
    if kind == "sparse":
        columns = rng.integers(n_features, size=(n_rows, SPARSE_NUMBERS), dtype=np.int32)
        starts = np.arange(0, columns.size + 1, SPARSE_NUMBERS)
        values = (rng.random(columns.size, np.float32), columns.ravel(), starts)
        scipy.sparse.save_npz(file := folder / "rows.npz", scipy.sparse.csr_array(values, (n_rows, n_features)), False)
        return file, y
    X = np.lib.format.open_memmap(file := folder / f"{kind}.npy", "w+", kind, (n_rows, n_features))
    for start in range(0, n_rows, BLOCK):
        own = y[start : start + BLOCK]
        rows = centres[own] + 2 * rng.standard_normal((len(own), n_features), np.float32)
        X[start : start + BLOCK] = np.clip(10 * rows, -127, 127) if kind == "int8" else rows
    X.flush()
    return file, y


def read(file: Path) -> np.ndarray | scipy.sparse.csr_array:
    return scipy.sparse.load_npz(file) if file.suffix == ".npz" else np.load(file, mmap_mode="r")


def child(work: str, file: str, folder: str, fit_rows: int) -> None:
    """Do the work and say what it took."""
    own = Own()
    began, place = time.perf_counter(), Path(folder)
    if work == "fit":
        y = np.load(place / "y.npy")[:fit_rows]
        GPHasher(16, n_inducing=100, random_state=0).fit(read(Path(file))[:fit_rows], y)
    elif work == "encode":
        models.load(place / "model.gph").encode(read(Path(file)))
    else:
        X = sources.read(file) if file.endswith(".npy") else read(Path(file))
        kept = "int8" if work.endswith("vectors") else None
        Collection.create(place / "rows.gphash", place / "model.gph", X, vectors=kept, replace=True).close()
    # Not that of getrusage, which also counts the parent until the process became this one.
    (peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(json.dumps({"peak": int(peak) * 1024 / 1e6, "own": own.peak / 1e6, "seconds": time.perf_counter() - began}))


class Own:
    """The most memory of this process that is not mapped from files, in bytes, looked at every 10 ms."""

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
            self.peak = max(self.peak, (resident - shared) * os.sysconf("SC_PAGE_SIZE"))
            time.sleep(0.01)


if __name__ == "__main__":
    main()
