"""The executor seam, and its local form: threads of this process.

All heavy work of training is a map over row blocks followed by a sum of small matrices. `Executor` names just that;
whoever implements it decides where the blocks live. Results come back, and are added, in block order, and every block
is worked on by one BLAS thread, so that neither threads nor processes ever change a result.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from numbers import Integral
from threading import Lock
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import ThreadpoolController

from gphash.arrays import Floats
from gphash.execution.sums import Sum

R = TypeVar("R")
T = TypeVar("T")


class BlocksLostError(Exception):
    """Blocks are gone together with whoever held them; `Executor.lost` tells which."""


class Executor(Protocol):
    """Runs functions on row blocks, wherever those live; by itself, here and one after another.

    Blocks are opaque to the caller: `hold` and `map` make lists of them, which may be cut and joined as lists are, and
    are handed back to `map`, `collect` and `sum`; only `collect` and `sum` bring anything here. Functions may be sent
    to where blocks are, with everything that they refer to: they should refer to little.
    """

    def hold(self, pieces: Sequence[Any]) -> Sequence[Any]:
        """Give every piece a home, where all that is made of it will stay; neighbours live together."""
        return pieces

    def lost(self, blocks: Sequence[Any]) -> list[int]:
        """Places of those blocks in the list that are gone."""
        return []

    def map(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Sequence[R]:
        """Apply `work` to every block, or to corresponding blocks of lists; results stay where blocks are."""
        return list(self.collect(work, *blocks))

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` to every block and bring the results here, in the order of the blocks."""
        return (work(*call) for call in zip(*blocks, strict=True))

    def sum(self, work: Callable[..., tuple[Floats, ...]], *blocks: Sequence[Any]) -> tuple[Floats, ...]:
        """Apply `work` to every block and add the results up as a binary tree, in float64; see `sums`."""
        return Sum(enumerate(self.collect(work, *blocks))).total()

    def map_and_sum(
        self, work: Callable[..., tuple[R, tuple[Floats, ...]]], *blocks: Sequence[Any]
    ) -> tuple[Sequence[R], tuple[Floats, ...]]:
        """Apply `work`, whose results are pairs: the first of each stays where blocks are, the second is summed."""
        kept: list[R] = []
        return kept, Sum(enumerate(apart(self.collect(work, *blocks), kept.append))).total()


class SerialExecutor(Executor):
    """The calling thread, block after block."""


def count_jobs(n_jobs: Any) -> int:
    """Number of threads that `n_jobs` asks for: None is 1, and −1 all cores, −2 all but one, as in scikit-learn."""
    cores: int = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs={n_jobs!r}; give a number of threads, -1 for all cores, or None for one.")
    threads = int(n_jobs)
    return threads if threads > 0 else max(1, cores + 1 + threads)


def row_blocks(n_rows: int, block_size: int) -> list[slice]:
    """Consecutive slices of at most `block_size` rows."""
    return [slice(start, min(start + block_size, n_rows)) for start in range(0, n_rows, block_size)]


class _OneBlasThread:
    """Holds BLAS to one thread while anybody in the process asks for it, from whichever thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._libraries: list[Any] = []
        self._modules = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                # A module imported since may have brought another BLAS along.
                if len(sys.modules) != self._modules:
                    self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                    self._modules = len(sys.modules)
                self._before = [library.num_threads for library in self._libraries]
            # Also for those who come later: a BLAS on OpenMP has a limit for every thread.
            self._set([1] * len(self._libraries))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._set(self._before)
                self._release()

    def hold(self) -> None:
        """Say once more, from the calling thread, what holds for all."""
        with self._lock:
            self._set([1] * len(self._libraries))

    def _set(self, counts: list[int]) -> None:
        self._release()
        for library, count in zip(self._libraries, counts, strict=True):
            library.set_num_threads(count)

    def _release(self) -> None:
        # From threadpoolctl 3.8 on, OpenBLAS obeys only the living thread that set a limit first, and ignores others
        # without a word. Here the last to leave restores what the first to come has set.
        for library in self._libraries:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()


class LocalExecutor(Executor):
    """Threads of this process, −1 for all cores; use it in a `with` statement."""

    def __init__(self, n_jobs: int | None = -1) -> None:
        self.n_threads = count_jobs(n_jobs)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        # NumPy releases the GIL inside BLAS: blocks side by side with one BLAS thread each beat threads within each
        # product.
        one_blas_thread.__enter__()
        if self.n_threads > 1:
            # A BLAS built on OpenMP counts threads per calling thread, so each of the pool's says so itself.
            self._pool = ThreadPoolExecutor(
                self.n_threads, thread_name_prefix="gphash", initializer=one_blas_thread.hold
            )
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._pool = None
            one_blas_thread.__exit__()

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` to every block, a few blocks ahead of whoever reads the results."""
        if self._pool is None:
            yield from super().collect(work, *blocks)
            return
        pool, calls = self._pool, zip(*blocks, strict=True)
        waiting: deque[Future[R]] = deque(pool.submit(work, *call) for call in islice(calls, self.n_threads + 1))
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(work, *call) for call in islice(calls, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()


def apart(pairs: Iterable[tuple[R, T]], keep: Callable[[R], None]) -> Iterator[T]:
    """The second of every pair, after the first was kept."""
    for first, second in pairs:
        keep(first)
        yield second


def side_by_side(work: Callable[[Any], R], blocks: Sequence[Any], n_jobs: int | None) -> list[R]:
    """Apply compiled work, which calls no BLAS, to every block in threads of this call: cheap enough for a search."""
    n_threads = min(count_jobs(n_jobs), len(blocks)) if len(blocks) > 1 else 1
    if n_threads == 1:
        return [work(block) for block in blocks]
    with ThreadPoolExecutor(n_threads, thread_name_prefix="gphash") as pool:
        return list(pool.map(work, blocks))
