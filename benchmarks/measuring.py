"""What the benchmarks share: data like CIFAR-10's descriptors, the unit product, timing and peak memory."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def descriptors(
    n_rows: int, n_features: int = 512, n_classes: int = 10, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose classes overlap as image descriptors' do: curved clusters in 40 dimensions, seen through noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    modes = rng.normal(size=(n_classes, 6, 40))
    lift = rng.normal(size=(80, n_features)).astype(np.float32) / 9
    X = np.empty((n_rows, n_features), dtype=np.float32)
    for start in range(0, n_rows, 65536):
        rows = slice(start, min(start + 65536, n_rows))
        latent = modes[y[rows], rng.integers(6, size=rows.stop - start)] + 1.2 * rng.normal(
            size=(rows.stop - start, 40)
        )
        curved = np.concatenate([latent, np.sin(2 * latent)], axis=1).astype(np.float32)
        X[rows] = curved @ lift
        X[rows] += 0.3 * rng.standard_normal((rows.stop - start, n_features), dtype=np.float32)
    return X, y


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


class PeakMemory:
    """Growth of this process's resident memory within a `with` block, in bytes, sampled every few milliseconds."""

    def __enter__(self) -> "PeakMemory":
        self._start = self._peak = _resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, _resident())

    @property
    def growth(self) -> int:
        return self._peak - self._start


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
