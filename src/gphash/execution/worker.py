"""What runs on a worker of a cluster: it keeps blocks by name, and applies functions to them where they are.

A job names the blocks that it is about; results stay here under a new name, or are summed or handed back. Nothing that
a job reads is ever changed, so that a job can be done again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from gphash.execution.local import LocalExecutor, apart
from gphash.execution.sums import Sum, partial


class StoreGoneError(Exception):
    """The worker does not have the blocks that a job is about: it was started anew."""


class Held(NamedTuple):
    """Arguments that the worker has: consecutive blocks of one batch.

    batch
        Name of the batch.
    start, length
        Place of the first block in the batch, and how many blocks.
    """

    batch: int
    start: int
    length: int


class Given(NamedTuple):
    """Arguments that come with the job.

    values
        One for each call.
    """

    values: list[Any]


class Same(NamedTuple):
    """An argument that several calls share.

    value
        What it is.
    length
        How many calls.
    """

    value: Any
    length: int


Part: TypeAlias = Held | Given | Same


class Job(NamedTuple):
    """A function's arguments, and what is to become of the results.

    home
        Address of the worker.
    store
        Name of the store that the blocks are in.
    n_threads
        Threads to work with.
    arguments
        A column for each argument of the function, in parts.
    places
        The calls' places in the whole list that they are a part of, as ranges.
    becomes
        "batch": results stay here as a batch; "list": they are handed back; "sum": they are added up; "both": they are
        pairs, of which the first stays here and the second is added up.
    batch
        Name of the batch that results become.
    dropped
        Batches that nobody needs any more.
    """

    home: str
    store: str
    n_threads: int
    arguments: list[list[Part]]
    places: list[tuple[int, int]]
    becomes: str
    batch: int
    dropped: list[int]


class Outcome(NamedTuple):
    """What a job hands back.

    value
        None, the list of results, or a part of the sum.
    seconds
        Time that it took, by the address of the worker.
    """

    value: Any
    seconds: dict[str, float]


class Store:
    """Blocks of one training, on one worker.

    Parameters
    ----------
    n_threads
        Threads to work with.
    """

    def __init__(self, n_threads: int) -> None:
        self.batches: dict[int, dict[int, Any]] = {}
        self.executor = LocalExecutor(n_threads).__enter__()

    def close(self) -> None:
        """Let go of everything."""
        self.batches.clear()
        self.executor.__exit__()

    def column(self, parts: Sequence[Part]) -> Iterator[Any]:
        """One argument of every call."""
        for part in parts:
            if isinstance(part, Given):
                yield from part.values
                continue
            if isinstance(part, Same):
                yield from repeat(part.value, part.length)
                continue
            batch = self.batches.get(part.batch)
            if batch is None:
                raise StoreGoneError(f"batch {part.batch} is not here")
            for place in range(part.start, part.start + part.length):
                yield batch[place]


_stores: dict[str, Store] = {}


def run(work: Callable[..., Any], job: Job) -> Outcome:
    """Do a job."""
    began = time.perf_counter()
    store = _stores.get(job.store)
    if store is None:
        if any(isinstance(part, Held) for column in job.arguments for part in column):
            raise StoreGoneError("this worker has no such store")
        store = _stores.setdefault(job.store, Store(job.n_threads))
    for batch in job.dropped:
        store.batches.pop(batch, None)
    places = [place for start, stop in job.places for place in range(start, stop)]
    columns = [list(store.column(parts)) for parts in job.arguments]
    results = store.executor.collect(work, *columns)
    value: list[Any] | Sum | None = None
    if job.becomes == "sum":
        value = partial(zip(places, results, strict=True))
    elif job.becomes == "both":
        kept: list[Any] = []
        value = partial(zip(places, apart(results, kept.append), strict=True))
        store.batches[job.batch] = dict(zip(places, kept, strict=True))
    elif job.becomes == "list":
        value = list(results)
    else:
        store.batches[job.batch] = dict(zip(places, results, strict=True))
    return Outcome(value, {job.home: time.perf_counter() - began})


def close(name: str) -> None:
    """Forget a store."""
    store = _stores.pop(name, None)
    if store is not None:
        store.close()
