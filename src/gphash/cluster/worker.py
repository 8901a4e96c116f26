"""What runs on a worker of a cluster: it keeps blocks by name, and applies functions to them where they are.

A job names the blocks that it is about; results stay here under a new name, or are summed or handed back. Nothing that
a job reads is ever changed, so that a job can be done again.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gphash.execution.local import LocalExecutor, apart
from gphash.execution.sums import Sum


class StoreGoneError(Exception):
    """The worker, of that address, does not have the store, of that name, which a job is about: it was started anew."""


class Held(NamedTuple):
    """Stands for an argument that the worker has: a block, by the number of its batch and its place in that."""

    batch: int
    place: int


class Job(NamedTuple):
    """A function's arguments, and what is to become of the results."""

    home: str  # address of the worker
    store: str  # name of the store that the blocks are in
    arguments: list[list[Any]]  # a column for each argument of the function, a value or `Held` for each call
    places: list[int]  # of the calls in the whole list that they are a part of
    # "batch": results stay here as a batch; "list": they are handed back; "sum": they are added up; "both": they are
    # pairs, of which the first stays here and the second is added up.
    becomes: str
    batch: int  # number of the batch that results become
    alive: set[int]  # batches that somebody may need; all others are dropped


class Outcome(NamedTuple):
    """What a job hands back: None, the list of results or a part of the sum, and the time it took by worker."""

    value: Any
    seconds: dict[str, float]


class BlockStore:
    """Blocks of one training, for as long as Dask keeps this object: until the client lets go of it, or dies."""

    def __init__(self, name: str, n_threads: int) -> None:
        self.name = name
        self.batches: dict[int, dict[int, Any]] = {}
        self.executor = LocalExecutor(n_threads).__enter__()
        weakref.finalize(self, self.executor.__exit__)
        _stores[name] = self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Dask may copy it to another worker; the blocks stay where they are.
        return str, (self.name,)


_stores: weakref.WeakValueDictionary[str, BlockStore] = weakref.WeakValueDictionary()


def run(work: Callable[..., Any], job: Job) -> Outcome:
    """Do a job."""
    began = time.perf_counter()
    store = _stores.get(job.store)
    needed = {value.batch for column in job.arguments for value in column if isinstance(value, Held)}
    if store is None or not needed <= store.batches.keys():
        raise StoreGoneError(job.home, job.store)
    batches = store.batches
    for number in batches.keys() - job.alive:
        del batches[number]
    columns = [
        [batches[value.batch][value.place] if isinstance(value, Held) else value for value in column]
        for column in job.arguments
    ]
    results: Iterable[Any] = store.executor.collect(work, *columns)
    value: list[Any] | Sum | None = None
    if job.becomes == "list":
        value = list(results)
    elif job.becomes == "batch":
        batches[job.batch] = dict(zip(job.places, results, strict=True))
    else:
        kept: list[Any] = []
        terms = apart(results, kept.append) if job.becomes == "both" else results
        value = Sum(zip(job.places, terms, strict=True))
        if kept:
            batches[job.batch] = dict(zip(job.places, kept, strict=True))
    return Outcome(value, {job.home: time.perf_counter() - began})


def add(parts: Sequence[Outcome], last: bool) -> Outcome:
    """Add parts of a sum up; the last time, to the total."""
    whole, seconds = Sum(), dict[str, float]()
    for part in parts:
        whole.merge(part.value)
        seconds.update(part.seconds)
    return Outcome(whole.total() if last else whole, seconds)
