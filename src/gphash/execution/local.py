"""The executor seam, and its local form: threads of this process.

All heavy work of training is a map over row blocks followed by a sum of small matrices. `Executor` names just that; whoever
implements it decides where the blocks live. Results come back, and are added, in block order, and every block is
worked on by one BLAS thread, so that the number of threads never changes a result.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from gphash.arrays import Floats

R = TypeVar("R")


class Executor(Protocol):
    """Runs functions on row blocks, wherever those live.

    A list of blocks is opaque to the caller: it is made by `map` and handed back to `map`, `collect` and `sum`.
    """

    def map(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Sequence[R]:
        """Apply `work` to every block (or to corresponding blocks of several lists); results stay where the blocks are."""

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` to every block and bring the results here, in the order of the blocks."""

    def sum(self, work: Callable[..., tuple[Floats, ...]], *blocks: Sequence[Any]) -> tuple[Floats, ...]:
        """Apply `work` to every block and add the results up in the order of the blocks, in float64."""


def count_jobs(n_jobs: int | None) -> int:
    """Number of threads that `n_jobs` asks for: None is 1, and −1 all cores, −2 all but one, as in scikit-learn."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs is 0; give a positive number of threads, or -1 for all cores.")
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def row_blocks(n_rows: int, block_size: int) -> list[slice]:
    """Consecutive slices of at most `block_size` rows."""
    return [slice(start, min(start + block_size, n_rows)) for start in range(0, n_rows, block_size)]


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class LocalExecutor:
    """Threads of this process; use it in a `with` statement.

    Parameters
    ----------
    n_jobs
        Number of threads; −1 for all cores.
    """

    def __init__(self, n_jobs: int | None = -1) -> None:
        self.n_threads = count_jobs(n_jobs)

    def __enter__(self) -> Self:
        # NumPy releases the GIL inside BLAS: parallel blocks with one BLAS thread each beat threads within each product.
        self._limit = _controller().limit(limits=1, user_api="blas")
        self._limit.__enter__()
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="gphash") if self.n_threads > 1 else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._limit.__exit__(kind, error, trace)

    def map(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Sequence[R]:
        """Apply `work` to every block; here, results stay in memory."""
        return list(self.collect(work, *blocks))

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` to every block, a few blocks ahead of whoever reads the results."""
        calls = zip(*blocks, strict=True)
        if self._pool is None:
            yield from (work(*call) for call in calls)
            return
        ahead = islice(calls, self.n_threads + 1)
        waiting: deque[Future[R]] = deque(self._pool.submit(work, *call) for call in ahead)
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(self._pool.submit(work, *call) for call in islice(calls, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()

    def sum(self, work: Callable[..., tuple[Floats, ...]], *blocks: Sequence[Any]) -> tuple[Floats, ...]:
        """Apply `work` to every block and add the results up in the order of the blocks, in float64."""
        return add_up(self.collect(work, *blocks))


def add_up(results: Iterable[Sequence[Any]]) -> tuple[Floats, ...]:
    """Add tuples of arrays element by element, in float64, in the order given."""
    totals: list[Floats] = []
    for result in results:
        if not totals:
            totals = [np.array(part, dtype=np.float64) for part in result]
        else:
            for total, part in zip(totals, result, strict=True):
                total += part
    return tuple(totals)
