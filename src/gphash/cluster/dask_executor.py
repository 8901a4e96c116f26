"""The executor on a Dask cluster: row blocks live on its workers, and functions travel to them.

One task a worker does all of its blocks at once, on as many threads as the worker has. Blocks stay with their worker,
outside of Dask's own memory: Dask remembers how everything was made, and would make a lost block again from the very
first sweep on. What is lost with a worker is found out here (`BlocksLostError`), and training makes it again from raw
rows. Functions travel once for all workers, with the small arrays that they refer to; sums are added up by workers.
"""

import contextlib
import itertools
import time
import uuid
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from gphash.arrays import Floats
from gphash.cluster import worker
from gphash.cluster.dask_arrays import DaskPiece, DaskTable
from gphash.cluster.worker import Held, Job, Outcome
from gphash.execution.local import BlocksLostError, one_blas_thread
from gphash.files import DataError
from gphash.version import __version__

try:
    import distributed
    from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
except ImportError as error:
    raise ImportError("a cluster needs Dask: pip install 'dask[array]' distributed") from error

R = TypeVar("R")

PATIENCE = 1.0  # seconds between two looks at who is still there
ANSWERING = 10.0  # seconds to wait for the scheduler
WAITING = 60.0  # seconds to wait for a worker when there is none
PAUSED = 20.0  # seconds after which a worker that Dask has paused is given up
SMALL = 1 << 16  # bytes that may travel within a task; more are handed to workers beforehand
LARGER = "give more or larger workers, or a smaller n_inducing"
FAN = 4  # sums that are added up in one task
ALIGNED = 8  # runs of blocks, about, that a worker is given whole


class ClusterError(RuntimeError):
    """The cluster cannot do the work; the message says why and what to do."""


@dataclass
class Traffic:
    """What one worker has done and got."""

    rows: int = 0  # of raw features, counted anew in each phase of training
    received: int = 0  # bytes
    seconds: dict[str, float] = field(default_factory=dict)  # at work, by the name of the task


class Batch:
    """Blocks that one call of `map` has made, each at its home; workers drop them when this object is gone."""

    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.number = next(self.numbers)


class Handle:
    """A block on a worker: by its batch and its place in that, at home at an address."""

    __slots__ = ("batch", "home", "place")

    def __init__(self, batch: Batch, place: int, home: str) -> None:
        self.batch, self.place, self.home = batch, place, home

    def __reduce__(self) -> NoReturn:
        raise TypeError("a block's handle must not travel: a function refers to it.")


class DaskExecutor:
    """Workers of a Dask cluster, by a client or the address of a scheduler; use it in a `with` statement."""

    def __init__(self, client: Any) -> None:
        self.client: Any = client
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)  # by the address of a worker
        # By worker, the name of our store there, and its future: it lives as long as anyone needs it.
        self._stores: dict[str, tuple[str, Any]] = {}
        self._alive: weakref.WeakSet[Batch] = weakref.WeakSet()
        self._homes: dict[str, int] = {}
        self._paused: dict[str, float] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if not isinstance(self.client, distributed.Client):
                self.client = stack.enter_context(_connect(self.client))
            self._refresh_homes()
            # What is done here is done as elsewhere, or results would differ in the last bit.
            stack.enter_context(one_blas_thread)
            stack.callback(self._stores.clear)  # and with the stores go the blocks
            self._leave = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._leave.close()

    @property
    def _address(self) -> str:
        return str(self.client.scheduler.address)

    def table(self, X: Any) -> DaskTable:
        """A dask array, computed once, its chunks on the workers that have made them."""
        table = DaskTable(X)
        table.X = self.client.persist(table.X)
        return table

    def hold(self, pieces: Sequence[Any]) -> Sequence[Any]:
        """Give every piece a home, neighbours together, in proportion to the workers' threads."""
        if not pieces:
            return []
        self._refresh_homes()
        homes = share_out([len(piece) for piece in pieces], self._homes)
        for home, piece in zip(homes, pieces, strict=True):
            self.traffic[home].rows += len(piece)
        return self._do(_hold, [pieces], homes, "batch")[0]

    def lost(self, blocks: Sequence[Any]) -> list[int]:
        """Places of blocks whose worker is gone, or was started anew."""
        here = self._stores.keys() & self._living().keys()
        return [place for place, block in enumerate(blocks) if isinstance(block, Handle) and block.home not in here]

    def map(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Sequence[R]:
        """Apply `work` where blocks are, and leave the results there."""
        return self._do(work, blocks, self._homes_of(blocks), "batch")[0]

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` where blocks are, or anywhere if none is held, and bring the results here."""
        if not blocks[0]:
            return iter(())
        if not any(isinstance(block, Handle) for column in blocks for block in column):
            return self._anywhere(work, blocks)
        homes = self._homes_of(blocks)
        _, found = self._do(work, blocks, homes, "list")
        # In the order of the blocks: each is the next one of its worker.
        values = {home: iter(value) for home, value in found.items()}
        return (next(values[home]) for home in homes)

    def sum(self, work: Callable[..., tuple[Floats, ...]], *blocks: Sequence[Any]) -> tuple[Floats, ...]:
        """Apply `work` where blocks are, and add the results up on the way here."""
        return tuple(self._do(work, blocks, self._homes_of(blocks), "sum")[1])

    def map_and_sum(
        self, work: Callable[..., tuple[R, tuple[Floats, ...]]], *blocks: Sequence[Any]
    ) -> tuple[Sequence[R], tuple[Floats, ...]]:
        """Apply `work` where blocks are; of the pairs that it returns, leave the first there and add the second up."""
        return self._do(work, blocks, self._homes_of(blocks), "both")

    def _do(
        self, work: Callable[..., Any], blocks: Sequence[Sequence[Any]], homes: list[str], becomes: str
    ) -> tuple[list[Any], Any]:
        """Handles of results that stay where blocks are, and what comes here: lists by worker, or the sum.

        What is to become of the results is as in `worker.Job`.
        """
        batch, name = Batch(), _name(work)
        self._alive.add(batch)
        if not homes:
            return [], ()
        futures, sums = self._submit(work, blocks, homes, becomes, batch.number), becomes in ("sum", "both")
        if sums:
            futures = {"": self._added_up(list(futures.values()), name)}
        values = {home: outcome.value for home, outcome in self._finish(futures, homes, name).items()}
        return [Handle(batch, place, home) for place, home in enumerate(homes)], values[""] if sums else values

    def _added_up(self, level: list[Any], name: str) -> Any:
        """The future of a sum whose parts workers add up."""
        token, last = f"gphash-{name}-add-up-{uuid.uuid4().hex}", False
        while not last:
            groups = [level[start : start + FAN] for start in range(0, len(level), FAN)]
            last = len(groups) == 1
            level = [
                self.client.submit(worker.add, group, last, key=f"{token}-{len(level)}-{place}", pure=False)
                for place, group in enumerate(groups)
            ]
        return level[0]

    def _anywhere(self, work: Callable[..., R], blocks: Sequence[Sequence[Any]]) -> Iterator[R]:
        """Calls about nothing that is held, each a task of its own for whoever is free; results as they come in."""
        payload = self._pack(work, None)
        name = f"gphash-{_name(work)}-{uuid.uuid4().hex}"
        futures = deque(
            self.client.submit(_call, payload, serialize_bytes(call), key=f"{name}-{place}", pure=False)
            for place, call in enumerate(zip(*blocks, strict=True))
        )
        try:
            while futures:
                value = self._finish({"": futures[0]}, [], _name(work))[""]
                futures.popleft()
                yield value
        finally:
            with contextlib.suppress(Exception):
                self.client.cancel(list(futures), force=True)

    def _submit(
        self, work: Callable[..., Any], blocks: Sequence[Sequence[Any]], homes: list[str], becomes: str, batch: int
    ) -> dict[str, Any]:
        """A task for every worker that has some of the blocks: futures by worker."""
        places = by_home(homes)
        payload, alive, futures = self._pack(work, list(places)), {other.number for other in self._alive}, {}
        for home, mine in places.items():
            columns = [[column[place] for place in mine] for column in blocks]
            # Rows of dask arrays are computed by Dask, and handed to the task as it is done.
            pieces = [value for column in columns for value in column if isinstance(value, DaskPiece)]
            chunks = [piece.array.rechunk((-1, -1)).to_delayed()[0, 0] for piece in pieces]
            computed = self.client.compute(chunks, workers=[home], allow_other_workers=True) if chunks else []
            name, store = self._store(home)
            arguments = [[_stand_in(value) for value in column] for column in columns]
            job = Job(home, name, arguments, mine, becomes, batch, alive)
            futures[home] = self._task(home, _name(work), _run, payload, self._pack(job, [home]), store, computed)
        return futures

    def _task(self, home: str, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """The future of work that one worker does, and no other."""
        key = f"gphash-{name}-{uuid.uuid4().hex}-0"
        return self.client.submit(work, *arguments, key=key, workers=[home], allow_other_workers=False, pure=False)

    def _store(self, home: str) -> tuple[str, Any]:
        """Where a worker keeps our blocks."""
        if home not in self._stores:
            name = uuid.uuid4().hex
            self._stores[home] = name, self._task(home, "store", worker.BlockStore, name, self._homes.get(home, 1))
        return self._stores[home]

    def _pack(self, thing: Any, homes: list[str] | None) -> Any:
        """Bytes to travel within a task, or, if they are many, a future of bytes that workers have been given."""
        packed = serialize_bytes(thing)
        for home in homes or []:
            self.traffic[home].received += len(packed)
        if len(packed) <= SMALL:
            return packed
        try:
            return self.client.scatter(packed, workers=homes, broadcast=True, hash=False)
        except (TimeoutError, OSError, ValueError, KeyError) as error:
            if set(homes or []) - set(self._living()):
                raise BlocksLostError("a worker is gone") from error
            raise

    def _finish(self, futures: dict[str, Any], homes: list[str], name: str) -> dict[str, Any]:
        """Results by worker, once all are there; unless a worker is gone, with what it held."""
        needed = set(homes)
        try:
            return {home: self._result(home, future, needed, name) for home, future in futures.items()}
        except BaseException:
            with contextlib.suppress(Exception):
                self.client.cancel(list(futures.values()), force=True)
            raise

    def _result(self, home: str, future: Any, needed: set[str], name: str) -> Any:
        patience = PATIENCE
        while True:
            try:
                result = future.result(timeout=patience)
                break
            except TimeoutError:
                if future.status == "error":
                    raise future.exception() from None
                self._check(needed)
                # What is there already takes its time to come here, and begins anew every time.
                patience = PATIENCE if future.status == "pending" else 10 * patience
            except worker.StoreGoneError as error:
                gone, store = error.args
                if gone in self._stores and self._stores[gone][0] == store:
                    del self._stores[gone]
                raise BlocksLostError(f"the worker at {gone} was started anew") from error
            except DataError as error:
                where = f" (seen by the worker at {home})" if home in needed else ""
                raise DataError(f"{error}{where}") from error
            except (distributed.KilledWorker, distributed.client.FutureCancelledError) as error:
                self._check(needed)
                raise BlocksLostError(str(error)) from error
        self._paused.clear()
        if isinstance(result, Outcome):
            for worked, seconds in result.seconds.items():
                spent = self.traffic[worked].seconds
                spent[name] = spent.get(name, 0.0) + seconds
        return result

    def _check(self, needed: set[str]) -> None:
        """Find out whether a worker is gone, or will do nothing more for want of memory."""
        living = self._living()
        if not needed and not living:
            self._refresh_homes()  # whoever is free does the work: somebody must come
        if gone := needed - set(living):
            for home in gone:
                self._stores.pop(home, None)
            raise BlocksLostError(f"the worker at {', '.join(sorted(gone))} is gone")
        now, seen = time.monotonic(), self.client.scheduler_info(n_workers=-1)["workers"]
        paused = {home for home in needed or living if seen.get(home, {}).get("status") == "paused"}
        if not needed and len(paused) < len(living):
            return  # somebody is free
        self._paused = {home: self._paused.get(home, now) for home in paused}
        for home, since in self._paused.items():
            if now - since > PAUSED:
                told = f"Dask has paused it for {PAUSED:.0f} seconds"
                raise ClusterError(f"the worker at {home} is out of memory: {told}; {LARGER}.")

    def _living(self) -> dict[str, int]:
        """Threads of every worker that is there."""
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterError(f"the scheduler at {self._address} is gone ({error}); start it, and go on.") from error

    def _refresh_homes(self) -> None:
        """Find out who is there, and whether newcomers can do the work."""
        began = time.monotonic()
        while not (living := self._living()):
            if time.monotonic() - began > WAITING:
                if not self._homes:
                    start = f"start some: dask worker {self._address}"
                    raise ClusterError(f"the cluster at {self._address} has no worker; {start}")
                raise ClusterError(f"all workers of {self._address} are gone. If they were out of memory, {LARGER}.")
            time.sleep(PATIENCE)
        if new := set(living) - set(self._homes):
            _check_versions(self.client, sorted(new))
        self._homes = living

    def _homes_of(self, blocks: Sequence[Sequence[Any]]) -> list[str]:
        """Where each call is to be done: where its blocks are."""
        homes = [{block.home for block in call if isinstance(block, Handle)} for call in zip(*blocks, strict=True)]
        if any(len(found) > 1 for found in homes):
            raise BlocksLostError("blocks that belong together are at different workers")
        if homes and not any(homes):
            return share_out([1] * len(homes), self._homes)
        return [home for (home,) in homes]


def _stand_in(value: Any) -> Any:
    """What travels in place of an argument that the worker has, or gets from Dask."""
    if isinstance(value, Handle):
        return Held(value.batch.number, value.place)
    return replace(value, array=None) if isinstance(value, DaskPiece) else value


def _run(work: bytes, packed: bytes, store: Any, computed: list[Any]) -> Outcome:
    job, arrays = deserialize_bytes(packed), iter(computed)
    columns = [
        [value.arrived(next(arrays)) if isinstance(value, DaskPiece) else value for value in column]
        for column in job.arguments
    ]
    return worker.run(deserialize_bytes(work), job._replace(arguments=columns))


def _hold(piece: Any) -> Any:
    return piece


def _call(work: bytes, call: bytes) -> Any:
    with one_blas_thread:
        return deserialize_bytes(work)(*deserialize_bytes(call))


def share_out(sizes: Sequence[int], threads: Mapping[str, int]) -> list[str]:
    """A worker for every piece: consecutive ones together, as many rows as the worker's threads are worth.

    Workers begin at multiples of a power of two, so that each one's part of a sum is few nodes of its tree.
    """
    addresses, counts = zip(*sorted(threads.items()), strict=True)
    ends = np.cumsum(counts) / sum(counts)
    together = 1 << max(0, int(np.log2(max(1.0, len(sizes) / len(addresses) / ALIGNED))))
    rows = np.add.reduceat(np.asarray(sizes), np.arange(0, len(sizes), together))
    middles = (np.cumsum(rows) - rows / 2) / max(rows.sum(), 1)
    places = np.minimum(np.searchsorted(ends, middles), len(addresses) - 1)
    return [addresses[places[number // together]] for number in range(len(sizes))]


def by_home(homes: Sequence[str]) -> dict[str, list[int]]:
    """Places of calls by the worker that does them."""
    places = defaultdict[str, list[int]](list)
    for place, home in enumerate(homes):
        places[home].append(place)
    return places


def _name(work: Callable[..., Any]) -> str:
    """What a task is called on the dashboard: by its function, or by the one around it."""
    qualified = getattr(work, "__qualname__", "work")
    names = [part for part in qualified.split(".") if part not in ("<locals>", "<lambda>")] or ["work"]
    # The dashboard takes words of letters, with dashes between them, for a name.
    return str(names[-1].strip("_").replace("_", "-"))


def _connect(address: Any) -> "distributed.Client":
    if not isinstance(address, str):
        raise ValueError(f"executor={address!r}; give a dask.distributed.Client, the address of a scheduler, or None.")
    try:
        return distributed.Client(address, timeout=ANSWERING, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        start = "start one with: dask scheduler"
        raise ClusterError(f"no Dask scheduler answers at {address!r} ({error}); {start}") from error


def _check_versions(client: "distributed.Client", workers: list[str]) -> None:
    """Refuse workers without this package, or with another version of it."""

    # Within a function, so that it travels as code: a worker may not have this module.
    def version() -> tuple[str | None, str]:
        import platform

        try:
            from gphash.version import __version__ as found
        except ImportError:
            return None, platform.python_version()
        return found, platform.python_version()

    own = version()[1]
    for address, (found, python) in client.run(version, workers=workers).items():
        has = f"the worker at {address} has"
        if found is None:
            raise ClusterError(f"{has} no gphash; install version {__version__} there")
        if found != __version__:
            raise ClusterError(f"{has} gphash {found}, and this is {__version__}; install the same on all.")
        if python.split(".")[:2] != own.split(".")[:2]:
            raise ClusterError(
                f"{has} Python {python}, and this is {own}: functions cannot travel; use the same on all."
            )
