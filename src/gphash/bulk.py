"""Codes and indexes of tables that are too large for one machine: a file for every block, written by who encodes it.

Workers read a block and write its codes or its index into a folder that all of them see; what travels is where to read
and where to write. The folder holds the model, too. Work that was interrupted goes on when it is begun again in the
same way: a file is there whole or not at all, and what is there is not made again. See `index.parts` for the folder.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gphash import files, persistence
from gphash.contract import Hasher
from gphash.datasets import blocks
from gphash.datasets.blocks import FolderTable, Piece
from gphash.execution.local import BlocksLostError, Executor, SerialExecutor, row_blocks
from gphash.functions import model as models
from gphash.functions.model import Function
from gphash.hamming import packing
from gphash.index import parts
from gphash.index.parts import BlockFile, Manifest

PIECE = 1 << 16  # rows that are read at once
ATTEMPTS = 3  # in a row, without a block done

Watch = Callable[[int, int], None]


class Share(NamedTuple):
    """What one worker has done.

    blocks, rows
        How many it has made files of.
    seconds
        Time spent, by "reading", "encoding" and "writing".
    """

    blocks: int
    rows: int
    seconds: dict[str, float]


class Made(NamedTuple):
    """What came of the work.

    manifest
        What the folder holds.
    before
        How many files were there already.
    workers
        By machine and number of the process, what each has done this time, unless it was lost.
    """

    manifest: Manifest
    before: int
    workers: dict[str, Share]


class Task(NamedTuple):
    """A block to be done.

    kind
        "codes" or "index".
    pieces
        The rows, in order.
    start, n_rows
        Number of the first row, and how many they are.
    folder, file
        Where the model is, and what to write.
    model, n_bits
        Fingerprint, and length of a code.
    known
        Fingerprint of the file if it was finished before; what is there must then be that.
    """

    kind: str
    pieces: tuple[Piece, ...]
    start: int
    n_rows: int
    folder: str
    file: str
    model: str
    n_bits: int
    known: str | None


class Done(NamedTuple):
    """A block that is done.

    fingerprint
        Of the file.
    worker
        Who made it; empty if it was there.
    seconds
        As in `Share`.
    """

    fingerprint: str
    worker: str
    seconds: dict[str, float]


def encode(
    hasher: Hasher,
    data: str | os.PathLike[str] | FolderTable,
    folder: str | os.PathLike[str],
    executor: Any = None,
    watch: Watch | None = None,
) -> Made:
    """Write the codes of a folder of blocks: `NAME.codes.npy`, packed, uint8 [b, bytes], for every block NAME.

    Parameters
    ----------
    hasher
        A model of any method, fitted.
    data
        The folder of blocks; see `datasets.blocks`.
    folder
        Where to write; made if it is not there. On a cluster, all workers see both folders by the same paths. One that
        was begun with the same model and the same rows is finished.
    executor : dask.distributed.Client, address of a scheduler, or None
        The cluster; None for threads of this process, as many as the hasher's `n_jobs` says.
    watch
        Called with the number of rows that are done, and of all rows.
    """
    return _make("codes", hasher, data, folder, executor, watch)


def index(
    hasher: Hasher,
    data: str | os.PathLike[str] | FolderTable,
    folder: str | os.PathLike[str],
    executor: Any = None,
    watch: Watch | None = None,
) -> Made:
    """Write an index of a folder of blocks, `NAME.index` for every block NAME; `index.parts.PartedIndex` opens it.

    Ids are the numbers of the rows in the table. Parameters are those of `encode`.
    """
    return _make("index", hasher, data, folder, executor, watch)


def _make(
    kind: str,
    hasher: Hasher,
    data: str | os.PathLike[str] | FolderTable,
    folder: str | os.PathLike[str],
    executor: Any,
    watch: Watch | None,
) -> Made:
    check_is_fitted(hasher, "hash_function_")
    if hasattr(data, "dask"):
        raise ValueError(
            "data is a dask array; give a folder of blocks (X.to_zarr(folder) writes one), or encode its chunks where "
            "they are: X.map_blocks(hasher.encode, dtype='uint8', chunks=(X.chunks[0], -(-hasher.n_bits // 8)))."
        )
    table = data if isinstance(data, FolderTable) else blocks.open_folder(data)
    wanted = hasher.hash_function_.n_features
    if table.n_features != wanted:
        raise ValueError(
            f"data={str(table.folder)!r} has {table.n_features} features a row, and the hasher was trained on "
            f"{wanted}; give rows of the same kind."
        )
    place, plan = Path(folder).expanduser().absolute(), _plan(kind, hasher, table)
    _check_place(place, table)
    done: list[Done] = []
    with _executor(executor) as run:
        manifest = _begin(place, hasher, plan)
        tasks = [_task(table, block, place, manifest) for block in manifest.blocks]
        there = [(place / block.file).is_file() for block in manifest.blocks]
        for one in _collect(run, _work(executor, hasher.n_jobs, watch, table.n_rows), tasks):
            done.append(one)
            if watch is not None:
                watch(tasks[len(done) - 1].start + tasks[len(done) - 1].n_rows, table.n_rows)
    finished = manifest._replace(
        blocks=tuple(
            block._replace(fingerprint=one.fingerprint) for block, one in zip(manifest.blocks, done, strict=True)
        )
    )
    if finished != manifest:
        parts.write_manifest(place, finished)
    before = sum(known and not one.worker for known, one in zip(there, done, strict=True))
    return Made(finished, before, _shares(tasks, done))


def _plan(kind: str, hasher: Hasher, table: FolderTable) -> Manifest:
    """What is to be made."""
    planned = tuple(
        BlockFile(block.name, _stem(block.name) + parts.KINDS[kind], block.start, block.stop) for block in table.blocks
    )
    names: dict[str, str] = {}
    for block in planned:
        if (other := names.setdefault(block.file, block.name)) != block.name:
            raise ValueError(
                f"data={str(table.folder)!r} has the blocks {other!r} and {block.name!r}, which would both become "
                f"{block.file!r}; rename one."
            )
    return Manifest(kind, hasher.fingerprint_, hasher.hash_function_.n_bits, table.fingerprint(), planned)


def _stem(name: str) -> str:
    return Path(name).stem if Path(name).suffix.lower() in (".npy", ".parquet") else name


def _check_place(place: Path, table: FolderTable) -> None:
    label = f"folder={str(place)!r}"
    if place.exists() and not place.is_dir():
        raise ValueError(f"{label} is a file; give a folder.")
    inside, outside = Path(os.path.realpath(place)), Path(os.path.realpath(table.folder))
    if inside == outside or outside in inside.parents:
        raise ValueError(f"{label} lies in the folder that rows are read from; give another one.")
    if not place.parent.is_dir():
        raise ValueError(f"{label} lies in a folder that does not exist; make it first.")


def _begin(place: Path, hasher: Hasher, plan: Manifest) -> Manifest:
    """Get the folder ready, and return its manifest: the plan, or, of a folder that was finished before, its own."""
    label = f"folder={str(place)!r}"
    if parts.is_folder_of_parts(place):
        plan = _known(label, parts.read_manifest(place), plan)
    else:
        place.mkdir(exist_ok=True)
        if foreign := sorted(path.name for path in place.iterdir() if not path.name.startswith(".gphash-")):
            raise ValueError(f"{label} has other files, such as {foreign[0]!r}; give a new or an empty folder.")
        parts.write_manifest(place, plan)
    model = place / parts.MODEL
    if not model.is_file() or persistence.describe(model).fingerprint != plan.model:
        hasher.save(model)
    return plan


def _known(label: str, known: Manifest, plan: Manifest) -> Manifest:
    """The manifest of a folder, if it is that of the plan."""
    if known.planned() == plan:
        return known
    if known.kind != plan.kind:
        what = f"holds {known.kind}, and wanted is {plan.kind}"
    elif known.model != plan.model:
        what = f"was made with the model {known.model[:12]}…, and this is {plan.model[:12]}…"
    else:
        what = "was made of other rows, or these have changed since"
    raise ValueError(f"{label} {what}; give another folder, or remove it.")


def _task(table: FolderTable, block: BlockFile, place: Path, manifest: Manifest) -> Task:
    pieces = tuple(
        table.select(np.arange(block.start + rows.start, block.start + rows.stop))
        for rows in row_blocks(block.n_rows, PIECE)
    )
    return Task(
        manifest.kind,
        pieces,
        block.start,
        block.n_rows,
        str(place),
        block.file,
        manifest.model,
        manifest.n_bits,
        block.fingerprint,
    )


@contextlib.contextmanager
def _executor(executor: Any) -> Iterator[Executor]:
    if executor is None:
        yield SerialExecutor()
        return
    from gphash.execution import cluster

    with cluster.DaskExecutor(executor) as far:
        yield far


def _work(executor: Any, n_jobs: int | None, watch: Watch | None, total: int) -> Callable[[Task], Done]:
    """How a block is done: by a worker on one thread, among other blocks; or here, on all threads, and watched."""
    if executor is not None:
        return encode_block

    def work(task: Task) -> Done:
        return encode_block(task, n_jobs, None if watch is None else lambda row: watch(row, total))

    return work


def _collect(executor: Executor, work: Callable[[Task], Done], tasks: Sequence[Task]) -> Iterator[Done]:
    """Do all blocks; those that are lost with a worker once more."""
    left, attempts = list(tasks), 0
    while left:
        try:
            for done in executor.collect(work, tuple(left)):
                left.pop(0)
                attempts = 0
                yield done
        except BlocksLostError as error:
            attempts += 1
            if attempts == ATTEMPTS:
                from gphash.execution import cluster

                raise cluster.ClusterError(
                    f"workers are lost again and again ({error}). If they are out of memory, give larger ones, or "
                    "fewer threads to each."
                ) from error


def encode_block(task: Task, n_jobs: int | None = 1, tell: Callable[[int], None] | None = None) -> Done:
    """Write the file of a block, unless it is there."""
    target = Path(task.folder) / task.file
    function = _model(task.folder, task.model)
    there = _fingerprint(task, target)
    if there is not None:
        return Done(there, "", {})
    seconds = dict.fromkeys(("reading", "encoding", "writing"), 0.0)
    packed = np.empty((task.n_rows, -(-task.n_bits // 8)), np.uint8)
    row = 0
    for piece in task.pieces:
        with _timed(seconds, "reading"):
            X = piece.read()
        with _timed(seconds, "encoding"):
            packed[row : row + len(X)] = packing.pack(function.margins(X, n_jobs) >= 0)
        row += len(X)
        if tell is not None:
            tell(task.start + row)
    with _timed(seconds, "writing"):
        if task.kind == "index":
            mark = parts.write_part(target, packed, task.start, task.n_bits, task.model)
        else:
            with files.replacing(target) as file:
                np.save(file, packed, allow_pickle=False)
            mark = _digest(packed)
    return Done(mark, f"{socket.gethostname()}:{os.getpid()}", seconds)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] += time.perf_counter() - began


@lru_cache(maxsize=1)
def _model(folder: str, fingerprint: str) -> Function:
    """The hash function that lies in the folder; whoever cannot see it is told so."""
    path = Path(folder) / parts.MODEL
    if not path.is_file():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see {str(path)!r}; give a folder that all workers see by the same path."
        )
    model = models.load(path)
    if model.fingerprint != fingerprint:
        raise ValueError(f"{str(path)!r} is not the model that the folder was begun with; give another folder.")
    return model.function


def _fingerprint(task: Task, target: Path) -> str | None:
    """Of the file of a block, if it is there and is what is to be made."""
    if not target.is_file():
        return None
    try:
        if task.kind == "index":
            described = persistence.describe(target)
            found, shape = described.fingerprint, (described.arrays["ids"].shape[0], described.meta["n_bits"])
            right = (*shape, described.meta["model"]) == (task.n_rows, task.n_bits, task.model)
        else:
            packed = np.load(target, allow_pickle=False)
            found = _digest(packed)
            right = packed.dtype == np.uint8 and packed.shape == (task.n_rows, -(-task.n_bits // 8))
    except (ValueError, LookupError, EOFError):
        return None
    return found if right and task.known in (None, found) else None


def _digest(packed: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(packed).data).hexdigest()


def _shares(tasks: Sequence[Task], done: Sequence[Done]) -> dict[str, Share]:
    shares: dict[str, Share] = {}
    for task, one in zip(tasks, done, strict=True):
        if one.worker:
            before = shares.get(one.worker, Share(0, 0, dict.fromkeys(one.seconds, 0.0)))
            seconds = {name: before.seconds[name] + spent for name, spent in one.seconds.items()}
            shares[one.worker] = Share(before.blocks + 1, before.rows + task.n_rows, seconds)
    return shares
