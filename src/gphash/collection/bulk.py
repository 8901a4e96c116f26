"""Codes of tables too large for one machine: a file for every block, written by whoever encodes it.

Workers read a block and write its codes, or its part of a collection, into a folder that all of them see; only paths
travel. The folder holds the model, too, and `plan.json`, which says what is made with and of: first without
fingerprints of the files, and at last with them. Interrupted work goes on when it is started again in the same way: a
file is there whole or not at all, and what is there is not made again.
"""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash import container, files, schema
from gphash.codes.packing import MOST_BITS
from gphash.collection import vectors
from gphash.collection.stores import Location
from gphash.collection.vectors import VectorKind, VectorWriter
from gphash.data import blocks
from gphash.data.blocks import FolderTable, Piece
from gphash.data.dataset import Progress
from gphash.execution.local import BlocksLostError, Executor, SerialExecutor, row_blocks
from gphash.functions import model as models
from gphash.functions.model import Model
from gphash.index import buckets as bucketing
from gphash.index import storage
from gphash.schema import Each, FaultError, Maybe, Name, Record, Text, Whole
from gphash.version import __version__

PLAN, MODEL = "plan.json", "model.gph"
FORMAT = 1
KINDS = {"codes": ".codes.npy", "index": ".index"}  # and how their files end
PIECE = 1 << 16  # rows that are read at once
ATTEMPTS = 3  # in a row, without a block done

T = TypeVar("T")
R = TypeVar("R")


BLOCK = Record(
    {
        **{"name": Text(), "file": Name(), "start": Whole(), "stop": Whole()},
        **dict.fromkeys(("fingerprint", "vectors"), Maybe(Text())),
    }
)
TOLD = Record(
    {
        **{"format": Whole(FORMAT, FORMAT), "gphash": Text(), "kind": Text(tuple(KINDS)), "model": Text()},
        **{"n_bits": Whole(1, MOST_BITS), "source": Text(), "blocks": Each(BLOCK, 1)},
    }
)


class BlockFile(NamedTuple):
    """A block, its file in the folder, its range among all rows, and, once made, the marks of it and of its vectors."""

    name: str
    file: str
    start: int
    stop: int
    fingerprint: str | None = None
    vectors: str | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class BlockPlan(NamedTuple):
    """What a folder is to hold: "codes" or an "index", fingerprints of model and table, and blocks in order."""

    kind: str
    model: str
    n_bits: int
    source: str
    blocks: tuple[BlockFile, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.blocks[-1].stop

    def made(self, marks: Iterable[Sequence[str | None]]) -> "BlockPlan":
        """The same with the marks of all blocks, and of their vectors."""
        named = zip(self.blocks, marks, strict=True)
        done = (block._replace(fingerprint=mark, vectors=kept) for block, (mark, kept) in named)
        return self._replace(blocks=tuple(done))

    @property
    def finished(self) -> bool:
        """Whether all files are there."""
        return all(block.fingerprint is not None for block in self.blocks)

    def begun(self) -> "BlockPlan":
        """The same before anything was made: what must be equal for work to go on."""
        return self._replace(blocks=tuple(block._replace(fingerprint=None, vectors=None) for block in self.blocks))


def has_plan(path: Path) -> bool:
    """Whether a folder has a plan."""
    return (path / PLAN).is_file()


def write_plan(folder: Path, plan: BlockPlan) -> None:
    """Write the plan, whole or not at all."""
    told = {"format": FORMAT, "gphash": __version__, **plan._asdict()}
    told["blocks"] = [block._asdict() for block in plan.blocks]
    files.write_text(folder / PLAN, json.dumps(told, indent=1) + "\n")


def read_plan(folder: str | os.PathLike[str]) -> BlockPlan:
    """What a folder holds, finished or not."""
    path = Path(folder) / PLAN
    if not path.is_file():
        raise FileNotFoundError(f"{os.fspath(folder)!r} has no {PLAN}; give a folder that gphash encode has made.")
    with schema.reading(path, "make the folder again, or get it from where it was made"):
        told = json.loads(path.read_text(encoding="utf-8"))
        TOLD.check(told, "")
        found = tuple(BlockFile(**one) for one in told["blocks"])
        for one, before in zip(found, (0, *(block.stop for block in found)), strict=False):
            if one.start != before or one.stop < one.start or Path(one.file).name != one.file:
                raise FaultError(
                    f"its block {one.name!r} does not follow the one before it, or is no file of the folder"
                )
        return BlockPlan(told["kind"], told["model"], told["n_bits"], told["source"], found)


class Share(NamedTuple):
    """What one worker did."""

    blocks: int
    rows: int


class Made(NamedTuple):
    """What the folder holds, how many files were there already, and what each worker (machine:process) did now."""

    plan: BlockPlan
    before: int
    workers: dict[str, Share]


class BlockTask(NamedTuple):
    """A block to be done, of "codes" or "index", from these pieces, in a folder with the model of this fingerprint.

    If the block has a fingerprint, it was finished before, and a file that is there must be that one. `numbers` are
    those of the items, if they are not those of the rows. Vectors are kept if there is a `keep`.
    """

    kind: str
    pieces: tuple[Piece, ...]
    folder: str
    block: BlockFile
    model: str
    n_bits: int
    numbers: NDArray[np.int64] | None = None
    keep: VectorKind | None = None


def make(
    kind: str,
    model: Location,
    data: Location | FolderTable,
    folder: Location,
    executor: Any = None,
    watch: Progress | None = None,
    n_jobs: int | None = -1,
    numbers: NDArray[np.int64] | None = None,
    keep: VectorKind | None = None,
) -> Made:
    """Write codes or an index of a folder of blocks, a file for every block NAME.

    Parameters
    ----------
    kind
        "codes" for `NAME.codes.npy`, packed, uint8 [b, bytes], or "index" for parts of a collection.
    model
        The file of a model of any method.
    data
        The folder of blocks; see `data.blocks`.
    folder
        Where to write; made if it is not there. On a cluster, all workers must see both folders by the same paths. A
        folder that was begun with the same model and the same rows is finished.
    executor : dask.distributed.Client, address of a scheduler, or None
        The cluster; None for this process.
    watch
        Called with the number of rows that are done, and of all rows.
    n_jobs
        Threads of this process; −1 for all cores.
    numbers, keep
        Numbers of the items of an index, [n]; None for those of the rows. How it keeps vectors; None if it does not.
    """
    if hasattr(data, "dask"):
        raise ValueError(
            "data is a dask array; give a folder of blocks (X.to_zarr(folder) writes one), or encode its chunks where "
            "they are: X.map_blocks(hasher.encode, dtype='uint8', chunks=(X.chunks[0], -(-hasher.n_bits // 8)))."
        )
    table = data if isinstance(data, FolderTable) else blocks.open_folder(data)
    place, plan = Path(folder).expanduser().absolute(), _plan(kind, models.load(model), table, numbers, keep)
    tell = watch or (lambda done, total: None)
    marks, before, workers = [], 0, dict[str, Share]()
    with _executor(executor) as run:
        begun = _begin(place, model, table, plan)
        tasks = [_task(table, block, place, begun, numbers, keep) for block in begun.blocks]
        there = [(place / block.file).is_file() for block in begun.blocks]
        # A worker has one thread for each block; here, all threads work on one block, which is watched.
        here = partial(encode_block, n_jobs=n_jobs, tell=lambda row: tell(row, table.n_rows))
        done = _collect(run, here if executor is None else encode_block, tasks)
        for block, was_there, (*mark, worker) in zip(begun.blocks, there, done, strict=True):
            marks.append(mark)
            before += was_there and not worker
            if worker:
                share = workers.get(worker, Share(0, 0))
                workers[worker] = Share(share.blocks + 1, share.rows + block.n_rows)
            tell(block.stop, table.n_rows)
    if (finished := begun.made(marks)) != begun:
        write_plan(place, finished)
    return Made(finished, before, workers)


encode = partial(make, "codes")


def _executor(executor: Any) -> contextlib.AbstractContextManager[Executor]:
    if executor is None:
        return contextlib.nullcontext(SerialExecutor())
    from gphash.cluster import dask_executor

    return dask_executor.DaskExecutor(executor)


def _plan(
    kind: str, model: Model, table: FolderTable, numbers: NDArray[np.int64] | None, keep: VectorKind | None = None
) -> BlockPlan:
    """What should be made."""
    if table.n_features != model.n_features:
        raise ValueError(
            f"data={str(table.folder)!r} has {table.n_features} features a row, and the model takes "
            f"{model.n_features}; give rows of the kind that it was trained with."
        )
    names: dict[str, str] = {}
    planned, source = [], table.fingerprint()
    if numbers is not None:
        source = hashlib.sha256(source.encode() + numbers.tobytes()).hexdigest()
    if keep is not None:
        source = hashlib.sha256(f"{source} {keep.form}".encode()).hexdigest()
    mark = hashlib.sha256(f"{model.fingerprint} {source}".encode()).hexdigest()[:8]
    for block in table.blocks:
        stem = Path(block.name).stem if Path(block.name).suffix.lower() in (".npy", ".parquet") else block.name
        # Parts of another collection may lie in the folder, and stay there until this one is whole.
        file = (f"{mark}-{stem}" if kind == "index" else stem) + KINDS[kind]
        if (other := names.setdefault(file, block.name)) != block.name:
            raise ValueError(
                f"data={str(table.folder)!r} has the blocks {other!r} and {block.name!r}, which would both become "
                f"{file!r}; rename one."
            )
        planned.append(BlockFile(block.name, file, block.start, block.stop))
    return BlockPlan(kind, model.fingerprint, model.n_bits, source, tuple(planned))


def _begin(place: Path, model: Location, table: FolderTable, plan: BlockPlan) -> BlockPlan:
    """Get the folder ready, and return its plan, or that of a folder that was begun before."""
    label = f"folder={str(place)!r}"
    if place.exists() and not place.is_dir():
        raise ValueError(f"{label} is a file; give a folder.")
    if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(table.folder)):
        raise ValueError(f"{label} lies in the folder that rows are read from; give another one.")
    if not place.parent.is_dir():
        raise ValueError(f"{label} lies in a folder that does not exist; make it first.")
    known = read_plan(place) if has_plan(place) else None
    if known is not None and plan.kind == "index" and known.begun() != plan:
        known = None  # of another collection, which was never finished
    if known is not None:
        if known.begun() != plan:
            what = "was made of other rows, or these have changed since"
            if known.kind != plan.kind:
                what = f"holds {known.kind}, not {plan.kind}"
            elif known.model != plan.model:
                what = f"was made with the model {known.model[:12]}…, and this is {plan.model[:12]}…"
            raise ValueError(f"{label} {what}; give another folder, or remove it.")
        plan = known
    else:
        place.mkdir(exist_ok=True)
        foreign = sorted(path.name for path in place.iterdir() if not path.name.startswith(files.PREFIX))
        if foreign and plan.kind == "codes":
            raise ValueError(f"{label} has other files, such as {foreign[0]!r}; give a new or an empty folder.")
        write_plan(place, plan)
    target = place / MODEL
    if not target.is_file() or container.describe(target).fingerprint != plan.model:
        with files.replacing(target) as file:
            file.write(Path(model).read_bytes())
    return plan


def _task(
    table: FolderTable,
    block: BlockFile,
    place: Path,
    plan: BlockPlan,
    numbers: NDArray[np.int64] | None,
    keep: VectorKind | None = None,
) -> BlockTask:
    pieces = tuple(
        table.select(np.arange(block.start + rows.start, block.start + rows.stop))
        for rows in row_blocks(block.n_rows, PIECE)
    )
    own = None if numbers is None else numbers[block.start : block.stop]
    return BlockTask(plan.kind, pieces, str(place), block, plan.model, plan.n_bits, own, keep)


def _collect(executor: Executor, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
    """Do all blocks; do those again that are lost with a worker."""
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
                from gphash.cluster import dask_executor

                raise dask_executor.ClusterError(
                    f"workers are lost again and again ({error}). If they are out of memory, give larger ones, or "
                    "fewer threads to each."
                ) from error


def encode_block(
    task: BlockTask, n_jobs: int | None = 1, tell: Callable[[int], None] = lambda row: None
) -> tuple[str, str | None, str]:
    """Write the files of a block, unless they are there; marks of codes and vectors, and who made them now."""
    block, target = task.block, Path(task.folder) / task.block.file
    model = _model(task.folder, task.model)._replace(n_jobs=n_jobs)
    if (there := _fingerprint(task, target)) is not None:
        return *there, ""
    rows, kept = (piece.read() for piece in task.pieces), None
    numbers = np.arange(block.start, block.stop) if task.numbers is None else task.numbers
    encode_rows = partial(model.encode_pieces, n_rows=block.n_rows, tell=lambda row: tell(block.start + row))
    if task.keep is None:
        packed = encode_rows(rows)
    else:
        # First, so that they are there if the codes are.
        with VectorWriter(target.with_suffix(vectors.ENDING), block.n_rows, model.n_features, task.keep) as writer:
            packed = encode_rows(writer.passing(rows, numbers))
            kept = writer.finish()
    if task.kind == "index":
        words = bucketing.to_words(packed, task.n_bits)
        grouped = bucketing.group(words, numbers)
        mark = storage.write_index(target, grouped, task.n_bits, task.model)
    else:
        with files.replacing(target) as file:
            np.save(file, packed, allow_pickle=False)
        mark = _digest(packed)
    return mark, kept, f"{socket.gethostname()}:{os.getpid()}"


@lru_cache(maxsize=1)
def _model(folder: str, fingerprint: str) -> Model:
    """The model that lies in the folder; a worker that cannot see it says so."""
    path = Path(folder) / MODEL
    if not path.is_file():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see {str(path)!r}; give a folder that all workers see by the same path."
        )
    model = models.load(path)
    if model.fingerprint != fingerprint:
        raise ValueError(f"{str(path)!r} is not the model that the folder was begun with; give another folder.")
    return model


def _fingerprint(task: BlockTask, target: Path) -> tuple[str, str | None] | None:
    """The fingerprints of a block's file and of its vectors, if they are there and are what should be made."""
    if not target.is_file():
        return None
    kept = None
    try:
        if task.keep is not None:
            beside = container.read(target.with_suffix(vectors.ENDING), vectors.KIND, mapped=True)
            if beside.meta["form"] != task.keep.form or len(beside.arrays["rows"]) != task.block.n_rows:
                return None
            kept = beside.fingerprint
        if task.kind == "index":
            described = container.describe(target)
            found, shape = described.fingerprint, (described.arrays["ids"].shape[0], described.meta["n_bits"])
            right = (*shape, described.meta["model"]) == (task.block.n_rows, task.n_bits, task.model)
        else:
            packed = np.load(target, allow_pickle=False)
            found = _digest(packed)
            right = packed.dtype == np.uint8 and packed.shape == (task.block.n_rows, -(-task.n_bits // 8))
    except (ValueError, LookupError, EOFError, FileNotFoundError):
        return None
    return (found, kept) if right and task.block.fingerprint in (None, found) else None


def _digest(packed: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(packed).data).hexdigest()
