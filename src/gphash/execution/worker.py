"""What runs on a worker of a cluster: it keeps blocks by name, and applies functions to them where they are.

A job names the blocks that it is about; results stay here under a new name, or are summed or handed back. Nothing that
a job reads is ever changed, so that a job can be done again.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from gphash.execution.local import LocalExecutor, apart
from gphash.execution.sums import Sum, partial


class StoreGoneError(Exception):
    """The worker does not have the blocks that a job is about: it was started anew.

    Its arguments are the address of the worker, and the name of the store.
    """


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
    arguments
        A column for each argument of the function, in parts.
    places
        The calls' places in the whole list that they are a part of, as ranges.
    becomes
        "batch": results stay here as a batch; "list": they are handed back; "sum": they are added up; "both": they are
        pairs, of which the first stays here and the second is added up.
    batch
        Name of the batch that results become.
    alive
        Batches that somebody may need; all others are dropped.
    """

    home: str
    store: str
    arguments: list[list[Part]]
    places: list[tuple[int, int]]
    becomes: str
    batch: int
    alive: list[int]


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

    def has(self, arguments: Sequence[Sequence[Part]]) -> bool:
        """Whether all batches are here that arguments are from."""
        return all(part.batch in self.batches for parts in arguments for part in parts if isinstance(part, Held))

    def column(self, parts: Sequence[Part]) -> Iterator[Any]:
        """One argument of every call."""
        for part in parts:
            if isinstance(part, Given):
                yield from part.values
                continue
            if isinstance(part, Same):
                yield from repeat(part.value, part.length)
                continue
            batch = self.batches[part.batch]
            for place in range(part.start, part.start + part.length):
                yield batch[place]


class Lease:
    """Keeps a store for as long as Dask keeps this object: until the client lets go of it, or dies.

    Parameters
    ----------
    name
        Of the store.
    n_threads
        Threads to work with.
    """

    def __init__(self, name: str, n_threads: int) -> None:
        _stores[name] = store = Store(n_threads)
        self.name = name
        weakref.finalize(self, _close, name, store)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Dask may copy it to another worker; the store stays where it is.
        return str, (self.name,)


_stores: dict[str, Store] = {}


def _close(name: str, store: Store) -> None:
    _stores.pop(name, None)
    store.close()


def run(work: Callable[..., Any], job: Job) -> Outcome:
    """Do a job."""
    began = time.perf_counter()
    store = _stores.get(job.store)
    if store is None or not store.has(job.arguments):
        raise StoreGoneError(job.home, job.store)
    for batch in [number for number in store.batches if number not in job.alive]:
        del store.batches[batch]
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
