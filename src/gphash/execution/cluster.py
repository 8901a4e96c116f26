"""The executor on a Dask cluster: row blocks live on its workers, and functions travel to them.

One task a worker does all of its blocks at once, on as many threads as the worker has. Blocks stay with their worker
from sweep to sweep, outside of Dask's own memory: Dask remembers how everything was made, and would make a lost block
again from the very first sweep on. What is lost with a worker is found out here (`BlocksLostError`), and training makes
it again from raw rows.

What travels is a function with the small arrays that it refers to, once for all workers; and back, sums, which workers
add up among themselves before one of them hands the total over.
"""

import contextlib
import sys
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import numpy as np

from gphash.arrays import Floats
from gphash.datasets.dataset import DataError
from gphash.execution import worker
from gphash.execution.dask_arrays import DaskPiece, DaskTable, Kept, arrived
from gphash.execution.local import BlocksLostError, one_blas_thread
from gphash.execution.sums import Sum
from gphash.execution.worker import Given, Held, Job, Outcome, Part, Same
from gphash.version import __version__

try:
    import distributed
    from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
except ImportError as error:
    raise ImportError("a cluster needs Dask; install it with: pip install 'gphash[cluster]'") from error

R = TypeVar("R")

PATIENCE = 1.0  # seconds between two looks at who is still there
ANSWERING = 10.0  # seconds to wait for the scheduler
WAITING = 60.0  # seconds to wait for a worker when there is none
PAUSED = 20.0  # seconds after which a worker that Dask has paused is given up
SMALL = 1 << 16  # bytes that may travel within a task; more are handed to workers beforehand
ALIGNED = 8  # runs of blocks, about, that a worker is given whole
FAN = 4  # sums that are added up in one task


class ClusterError(RuntimeError):
    """The cluster cannot do the work; the message says why and what to do."""


class Traffic(NamedTuple):
    """What one worker has done and got.

    rows
        Rows of raw features that it has read or was given, counted anew in each phase of training.
    received
        Bytes of functions and arguments sent to it.
    seconds
        Time at work, by the name of the task.
    """

    rows: int
    received: int
    seconds: dict[str, float]


class Batch:
    """Blocks that one call of `map` has made, each at its home; workers drop them when this object is gone.

    number
        Its name.
    """

    def __init__(self, number: int) -> None:
        self.number = number


class Handle:
    """A block on a worker.

    batch, place
        How the worker finds it.
    home
        The worker.
    """

    __slots__ = ("batch", "home", "place")

    def __init__(self, batch: Batch, place: int, home: str) -> None:
        self.batch, self.place, self.home = batch, place, home

    def __reduce__(self) -> NoReturn:
        raise TypeError("a block's handle must not travel: a function refers to it.")


class _Store(NamedTuple):
    """Where a worker keeps our blocks.

    name
        Of the store.
    lease
        Future of a `worker.Lease`: the store lives as long as anyone wants it.
    """

    name: str
    lease: Any


class DaskExecutor:
    """Workers of a Dask cluster; use it in a `with` statement.

    Parameters
    ----------
    client
        A client, or the address of a scheduler.

    Attributes
    ----------
    traffic : dict
        By the address of a worker, what it has done; see `Traffic`.
    """

    def __init__(self, client: Any) -> None:
        self.client: Any = client
        self.traffic: dict[str, Traffic] = {}
        self._mine = False
        self._stores: dict[str, _Store] = {}
        self._alive: weakref.WeakSet[Batch] = weakref.WeakSet()
        self._batches = 0
        self._homes: dict[str, int] = {}
        self._paused: dict[str, float] = {}

    def __enter__(self) -> Self:
        if not isinstance(self.client, distributed.Client):
            self.client, self._mine = _connect(self.client), True
        try:
            self._meet()
        except BaseException:
            if self._mine:
                self.client.close()
            raise
        # What is done here is done as elsewhere, or results would differ in the last bit.
        one_blas_thread.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        one_blas_thread.__exit__()
        self._stores.clear()  # and with the leases go the blocks
        if self._mine:
            self.client.close()

    def _meet(self) -> None:
        """Find out who is there, and whether they can do the work."""
        self._homes = self._living()
        if not self._homes:
            with contextlib.suppress(TimeoutError):
                self.client.wait_for_workers(1, timeout=WAITING)
            self._homes = self._living()
        if not self._homes:
            raise ClusterError(f"the cluster at {self._address} has no worker; start some: dask worker {self._address}")
        _check_versions(self.client)

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
        homes = self._share_out([len(piece) for piece in pieces])
        for home, piece in zip(homes, pieces, strict=True):
            self.traffic[home] = self._seen(home)._replace(rows=self._seen(home).rows + len(piece))
        batch, token = self._new_batch(), uuid.uuid4().hex
        futures: dict[str, Any] = {}
        for home in dict.fromkeys(homes):
            mine = [place for place, other in enumerate(homes) if other == home]
            job = self._job(home, [], mine, "batch", batch)
            # Rows of dask arrays are computed by Dask, and handed to the task as it is done.
            arrays = [pieces[place].array for place in mine if isinstance(pieces[place], DaskPiece)]
            chunks = [array.rechunk((-1, -1)).to_delayed()[0, 0] for array in arrays]
            given = [
                Kept(piece.kept, tuple(piece.array.shape)) if isinstance(piece, DaskPiece) else piece
                for piece in (pieces[place] for place in mine)
            ]
            futures[home] = self.client.submit(
                _hold,
                self._pack((job, given), [home]),
                self._store(home).lease,
                self.client.compute(chunks, workers=[home], allow_other_workers=True),
                key=f"gphash-hold-{token}-{len(futures)}",
                workers=[home],
                allow_other_workers=False,
                pure=False,
            )
        self._finish(futures, homes, "hold")
        return [Handle(batch, place, home) for place, home in enumerate(homes)]

    def lost(self, blocks: Sequence[Any]) -> list[int]:
        """Places of blocks whose worker is gone, or was started anew."""
        here = {home: self._stores.get(home) for home in self._living()}
        return [
            place for place, block in enumerate(blocks) if isinstance(block, Handle) and here.get(block.home) is None
        ]

    def map(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Sequence[R]:
        """Apply `work` where blocks are, and leave the results there."""
        homes, batch = self._homes_of(blocks), self._new_batch()
        if homes:
            self._finish(self._submit(work, blocks, homes, _name(work), "batch", batch), homes, _name(work))
        made: list[Any] = [Handle(batch, place, home) for place, home in enumerate(homes)]
        return made

    def collect(self, work: Callable[..., R], *blocks: Sequence[Any]) -> Iterator[R]:
        """Apply `work` where blocks are, or anywhere if none is held, and bring the results here."""
        calls = len(blocks[0])
        if not calls:
            return iter(())
        if not any(isinstance(block, Handle) for column in blocks for block in column):
            return self._anywhere(work, blocks)
        homes = self._homes_of(blocks)
        outcomes = self._finish(self._submit(work, blocks, homes, _name(work), "list"), homes, _name(work))
        results: list[Any] = [None] * calls
        for home, outcome in outcomes:
            mine = [place for place in range(calls) if homes[place] == home]
            for place, value in zip(mine, outcome.value, strict=True):
                results[place] = value
        return iter(results)

    def sum(self, work: Callable[..., tuple[Floats, ...]], *blocks: Sequence[Any]) -> tuple[Floats, ...]:
        """Apply `work` where blocks are, and add the results up on the way here."""
        homes = self._homes_of(blocks)
        if not homes:
            return ()
        return self._add_up(self._submit(work, blocks, homes, _name(work), "sum"), homes, _name(work))

    def map_and_sum(
        self, work: Callable[..., tuple[R, tuple[Floats, ...]]], *blocks: Sequence[Any]
    ) -> tuple[Sequence[R], tuple[Floats, ...]]:
        """Apply `work` where blocks are; of the pairs that it returns, leave the first there and add the second up."""
        homes, batch = self._homes_of(blocks), self._new_batch()
        totals = self._add_up(self._submit(work, blocks, homes, _name(work), "both", batch), homes, _name(work))
        kept: list[Any] = [Handle(batch, place, home) for place, home in enumerate(homes)]
        return kept, totals

    def _add_up(self, parts: dict[str, Any], homes: list[str], name: str) -> tuple[Floats, ...]:
        """Parts of a sum, added up by workers."""
        level, token, last = list(parts.values()), f"gphash-{name}-add-up-{uuid.uuid4().hex}", False
        while not last:
            groups = [level[start : start + FAN] for start in range(0, len(level), FAN)]
            last = len(groups) == 1
            level = [
                self.client.submit(_add, group, last, key=f"{token}-{len(level)}-{place}", pure=False)
                for place, group in enumerate(groups)
            ]
        ((_, outcome),) = self._finish({"": level[0]}, homes, name)
        return tuple(outcome.value)

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
                ((_, value),) = self._finish({"": futures[0]}, [], _name(work))
                futures.popleft()
                yield value
        finally:
            with contextlib.suppress(Exception):
                self.client.cancel(list(futures), force=True)

    def _new_batch(self) -> Batch:
        self._batches += 1
        batch = Batch(self._batches)
        self._alive.add(batch)
        return batch

    def _submit(
        self,
        work: Callable[..., Any],
        blocks: Sequence[Sequence[Any]],
        homes: list[str],
        name: str,
        becomes: str,
        batch: Batch | None = None,
    ) -> dict[str, Any]:
        """A task for every worker that has some of the blocks: futures by worker."""
        everyone = list(dict.fromkeys(homes))
        payload = self._pack(work, everyone)
        token = uuid.uuid4().hex
        futures: dict[str, Any] = {}
        for home in everyone:
            mine = [place for place, other in enumerate(homes) if other == home]
            job = self._job(home, [[column[place] for place in mine] for column in blocks], mine, becomes, batch)
            futures[home] = self.client.submit(
                _run,
                payload,
                self._pack(job, [home]),
                self._store(home).lease,
                key=f"gphash-{name}-{token}-{len(futures)}",
                workers=[home],
                allow_other_workers=False,
                pure=False,
            )
        return futures

    def _job(self, home: str, columns: list[list[Any]], places: list[int], becomes: str, batch: Batch | None) -> Job:
        number = 0 if batch is None else batch.number
        alive = [other.number for other in self._alive]
        arguments = [_parts(column) for column in columns]
        return Job(home, self._store(home).name, arguments, _ranges(places), becomes, number, alive)

    def _store(self, home: str) -> "_Store":
        """Where a worker keeps our blocks."""
        if home not in self._stores:
            name = uuid.uuid4().hex
            lease = self.client.submit(
                worker.Lease,
                name,
                self._homes.get(home, 1),
                key=f"gphash-store-{name}",
                workers=[home],
                allow_other_workers=False,
                pure=False,
            )
            self._stores[home] = _Store(name, lease)
        return self._stores[home]

    def _pack(self, thing: Any, homes: list[str] | None) -> Any:
        """Bytes to travel within a task, or, if they are many, a future of bytes that workers have been given."""
        packed = serialize_bytes(thing)
        for home in homes or []:
            self.traffic[home] = self._seen(home)._replace(received=self._seen(home).received + len(packed))
        if len(packed) <= SMALL:
            return packed
        try:
            return self.client.scatter(packed, workers=homes, broadcast=True, hash=False)
        except (TimeoutError, OSError, ValueError, KeyError) as error:
            if set(homes or []) - set(self._living()):
                raise BlocksLostError("a worker is gone") from error
            raise

    def _finish(self, futures: dict[str, Any], homes: list[str], name: str) -> list[tuple[str, Any]]:
        """Results by worker, once all are there; unless a worker is gone, with what it held."""
        needed = set(homes)
        try:
            return [(home, self._result(home, future, needed, name)) for home, future in futures.items()]
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
                self._forget(*error.args)
                raise BlocksLostError(f"the worker at {error.args[0]} was started anew") from error
            except DataError as error:
                where = f" (seen by the worker at {home})" if home in needed else ""
                raise DataError(f"{error}{where}") from error
            except distributed.KilledWorker as error:
                self._check(needed)
                raise BlocksLostError(str(error)) from error
            except distributed.client.FutureCancelledError as error:
                self._check(needed)
                raise BlocksLostError(str(error)) from error
        self._paused.clear()
        if isinstance(result, Outcome):
            for worked, seconds in result.seconds.items():
                spent = self._seen(worked).seconds
                spent[name] = spent.get(name, 0.0) + seconds
        return result

    def _forget(self, home: str, store: str) -> None:
        """A worker does not have what it was given."""
        if home in self._stores and self._stores[home].name == store:
            del self._stores[home]

    def _seen(self, home: str) -> Traffic:
        return self.traffic.setdefault(home, Traffic(0, 0, {}))

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
                raise ClusterError(
                    f"the worker at {home} is out of memory: Dask has paused it for {PAUSED:.0f} seconds. Give more or "
                    "larger workers, or a smaller n_inducing."
                )

    def _living(self) -> dict[str, int]:
        """Threads of every worker that is there."""
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterError(f"the scheduler at {self._address} is gone ({error}); start it, and go on.") from error

    def _refresh_homes(self) -> None:
        began = time.monotonic()
        while not (living := self._living()):
            if time.monotonic() - began > WAITING:
                raise ClusterError(
                    f"all workers of {self._address} are gone. If they were out of memory, give more or larger "
                    "workers, or a smaller n_inducing."
                )
            time.sleep(PATIENCE)
        if new := set(living) - set(self._homes):
            _check_versions(self.client, sorted(new))
        self._homes = living

    def _share_out(self, sizes: Sequence[int]) -> list[str]:
        """A home for every piece: consecutive ones together, as many rows as the worker's threads are worth.

        Homes begin at multiples of a power of two, so that a worker's part of a sum is few nodes of its tree.
        """
        addresses, threads = zip(*sorted(self._homes.items()), strict=True)
        ends = np.cumsum(threads) / sum(threads)
        together = 1 << max(0, int(np.log2(max(1.0, len(sizes) / len(addresses) / ALIGNED))))
        rows = np.add.reduceat(np.asarray(sizes), np.arange(0, len(sizes), together))
        middles = (np.cumsum(rows) - rows / 2) / max(rows.sum(), 1)
        places = np.minimum(np.searchsorted(ends, middles), len(addresses) - 1)
        return [addresses[places[number // together]] for number in range(len(sizes))]

    def _homes_of(self, blocks: Sequence[Sequence[Any]]) -> list[str]:
        """Where each call is to be done: where its blocks are."""
        homes: list[str] = []
        for call in zip(*blocks, strict=True):
            found = {block.home for block in call if isinstance(block, Handle)}
            if len(found) > 1:
                raise BlocksLostError("blocks that belong together are at different workers")
            homes.append(found.pop() if found else "")
        if homes and "" in homes and set(homes) != {""}:
            raise AssertionError("some calls are about blocks that are held, and others are not")
        if homes and homes[0] == "":
            return self._share_out([1] * len(homes))
        return homes


def _itself(piece: R) -> R:
    return piece


def _run(work: bytes, job: bytes, lease: Any) -> Outcome:
    return worker.run(deserialize_bytes(work), deserialize_bytes(job))


def _call(work: bytes, call: bytes) -> Any:
    with one_blas_thread:
        return deserialize_bytes(work)(*deserialize_bytes(call))


def _hold(packed: bytes, lease: Any, arrays: list[Any]) -> Outcome:
    job, given = deserialize_bytes(packed)
    computed = iter(arrays)
    pieces = [arrived(next(computed), piece) if isinstance(piece, Kept) else piece for piece in given]
    return worker.run(_itself, job._replace(arguments=[[Given(pieces)]]))


def _add(parts: list[Outcome], last: bool) -> Outcome:
    """Add parts of a sum up; the last time, to the total."""
    whole, seconds = Sum(), dict[str, float]()
    for part in parts:
        whole.merge(part.value)
        seconds.update(part.seconds)
    return Outcome(whole.total() if last else whole, seconds)


def _parts(column: list[Any]) -> list[Part]:
    """A column of arguments, neighbours taken together: as many bytes for many blocks as for few."""
    parts: list[Part] = []
    for value in column:
        last = parts[-1] if parts else None
        if isinstance(value, Handle):
            number, place = value.batch.number, value.place
            if isinstance(last, Held) and (last.batch, last.start + last.length) == (number, place):
                parts[-1] = last._replace(length=last.length + 1)
            else:
                parts.append(Held(number, place, 1))
        elif value is None:
            if isinstance(last, Same):
                parts[-1] = last._replace(length=last.length + 1)
            else:
                parts.append(Same(None, 1))
        elif isinstance(last, Given):
            last.values.append(value)
        else:
            parts.append(Given([value]))
    return parts


def _ranges(places: list[int]) -> list[tuple[int, int]]:
    """Increasing numbers as ranges."""
    found = []
    for _, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        run = [place for _, place in group]
        found.append((run[0], run[-1] + 1))
    return found


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
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({error}); start one with: dask scheduler"
        ) from error


def _check_versions(client: "distributed.Client", workers: list[str] | None = None) -> None:
    """Refuse workers without this package, or with another version of it."""

    # Within a function, so that it travels as code: a worker may not have this module.
    def version() -> tuple[str | None, list[int]]:
        import sys

        try:
            from gphash.version import __version__ as found
        except ImportError:
            return None, list(sys.version_info[:2])
        return found, list(sys.version_info[:2])

    for address, (found, python) in client.run(version, workers=workers).items():
        if found is None:
            raise ClusterError(
                f"the worker at {address} has no gphash; install it there: pip install gphash=={__version__}"
            )
        if found != __version__:
            raise ClusterError(
                f"the worker at {address} has gphash {found}, and this is {__version__}; install the same on all."
            )
        if python != list(sys.version_info[:2]):
            raise ClusterError(
                f"the worker at {address} runs Python {python[0]}.{python[1]}, and this is "
                f"{sys.version_info[0]}.{sys.version_info[1]}: functions cannot travel; use the same on all."
            )
