"""Checkpoints of training: everything that was chosen and the state between two sweeps, in one file.

Training that goes on from a checkpoint ends with the same hash function as training that was never interrupted. A
checkpoint knows which run it belongs to (data, supervision, settings) and refuses to serve another.

Of rows on a cluster, the codes alone are kept, by the workers, in a file for every block (`BlockCodes`) in a folder
beside the checkpoint; training that goes on finds sites anew, and ends with an equally good hash function.
"""

import os
import time
import warnings
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash import container, schema
from gphash.arrays import Signs
from gphash.codes import packing
from gphash.data.blocks import Table
from gphash.execution.local import BlocksLostError, Executor
from gphash.method import hashing, kernels, scaling, triangular
from gphash.method.ep import Shared, Sites
from gphash.method.hashing import HashFunction
from gphash.method.selection import Start
from gphash.method.state import Latent, State, Sweep
from gphash.method.training import Checkpoint, Chosen, Settings
from gphash.schema import Array, Each, FaultError, Flag, Maybe, Number, Record, Row, Schema, Text, Whole
from gphash.supervision.similarity import Supervision

KIND = "checkpoint"
BLOCK_KIND = "block codes"
FOLDER_OF = 1000  # blocks
SHARE = 0.05  # of training time that writing may take

FAR = 1e300
# A record of a sweep.
SWEEP = Row((Whole(1), Whole(), Number(-FAR, FAR), Number(0, FAR), Flag(), Flag(), Number(0, FAR)))
# Of a state, besides arrays; what is infinite is null in a file.
STATE = {
    **dict.fromkeys(("sweep", "quiet", "steady", "finishing"), Whole()),
    **dict.fromkeys(("calm", "frozen", "finished"), Flag()),
    **dict.fromkeys(("drift", "flips", "change"), Maybe(Number(0, FAR))),
    "damping": Number(1e-6, 1),
}
# Arrays of codes and sites, those of row blocks one after another; before the first sweep, nothing is shared.
LATENT = ("signs", "site_precision", "site_shift", "shared_precision", "shared_cavity")


def _of_start(rule: Array) -> Array:
    """The rule of an array of a start: it may be missing, and a start has fewer inducing inputs."""
    shape = tuple("some inducing inputs" if side == "inducing inputs" else side for side in rule.shape)
    return replace(rule, shape=shape, optional=True)


SCHEMA = Schema(
    {
        "run": Text(),
        "supervision": Text(),
        **{name: hashing.SCHEMA.fields[name] for name in ("unit_length", "kernel")},
        "pair_weight": Number(1e-6, 1e6),
        "sweeps": Each(SWEEP),
        "state": Maybe(Record(STATE)),
        "start": Maybe(Record(hashing.SCHEMA.fields)),
        "start_score": Maybe(Number(-FAR, FAR)),
    },
    {
        **scaling.ARRAYS,
        "Z": hashing.SCHEMA.arrays["Z"],
        "start_signs": Array("|i1", ("sample", "bits"), -1, 1, optional=True),
        **{f"start_{name}": _of_start(rule) for name, rule in hashing.SCHEMA.arrays.items()},
        "mean": Array("<f8", ("inducing inputs", "bits"), optional=True),
        "factor": Array("<f8", ("inducing inputs", "inducing inputs"), optional=True),
        "signs": Array("|i1", ("rows", "bits"), -1, 1, optional=True),
        "site_precision": Array("<f8", ("rows", "bits"), 0, optional=True),
        "site_shift": Array("<f8", ("rows", "bits"), optional=True),
        **dict.fromkeys(("shared_precision", "shared_cavity"), Array("<f8", ("rows",), 0, optional=True)),
    },
    hashing.SCHEMA.sides,
)

BLOCK_SCHEMA = Schema(
    {"run": Text(), "number": Whole(), "bits": Whole(1, packing.MOST_BITS)}, {"codes": Array("|u1", ("rows", "bytes"))}
)


class BlockCodes:
    """Codes of row blocks of a run, a file each, in a folder that all workers see; made when something is written."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder.absolute(), run

    def __call__(self, number: int) -> Signs | None:
        """Codes of a block, [b, m]; None if there are none of this run, whole and undamaged."""
        try:
            stored = container.read(self._path(number), BLOCK_KIND)
            schema.check(BLOCK_SCHEMA, stored.meta, stored.arrays)
            bits = packing.unpack(stored.arrays["codes"], stored.meta["bits"])
        except (OSError, ValueError):
            return None
        if stored.meta["run"] != self.run or stored.meta["number"] != number:
            return None
        return np.where(bits, 1, -1).astype(np.int8)

    def write(self, number: int, signs: Signs) -> None:
        """Keep the codes of a block."""
        path = self._path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = {"run": self.run, "number": number, "bits": signs.shape[1]}
        container.write(path, BLOCK_KIND, meta, {"codes": np.packbits(signs > 0, axis=1)})

    def _path(self, number: int) -> Path:
        return self.folder / f"{number // FOLDER_OF:06d}" / f"{number:09d}.codes"


class Keeper:
    """Writes checkpoints of one run to a file, often enough to be useful and seldom enough not to be felt.

    `run` is from `fingerprint`. If an `executor` holds the row blocks elsewhere, workers keep the codes (`codes`).
    """

    def __init__(self, path: Path, run: str, executor: Executor | None = None) -> None:
        self.path, self.run, self.executor = path, run, executor
        beside = path.with_name(f"{path.name}.blocks")
        self.codes = BlockCodes(beside, run) if executor is not None or beside.is_dir() else None
        self._latest: Checkpoint | None = None
        self._due = 0.0

    def __call__(self, checkpoint: Checkpoint) -> None:
        """Take note of a sweep's outcome, and write it if the last writing is long enough ago."""
        self._latest = checkpoint
        if time.perf_counter() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the latest checkpoint, if there is one that is not written yet."""
        if self._latest is None:
            return
        began = time.perf_counter()
        try:
            save(self.path, self.run, self._apart(self._latest))
            self._latest = None
        except BlocksLostError:
            # Sooner or later training finds out, too, and goes on without.
            return
        except OSError as error:
            # Training is worth more than its checkpoint; the one before is still there.
            warnings.warn(f"checkpoint {str(self.path)!r} could not be written: {error}", RuntimeWarning, stacklevel=2)
        now = time.perf_counter()
        self._due = now + (now - began) / SHARE

    def _apart(self, checkpoint: Checkpoint) -> Checkpoint:
        """What is left of a checkpoint when workers have kept their part."""
        state, codes = checkpoint.state, self.codes
        if self.executor is None or codes is None or state is None:
            return checkpoint
        if state.sweep == 0:  # as quickly found again
            return checkpoint._replace(state=None)
        latents = state.latents
        self.executor.map(lambda number, latent: codes.write(number, latent.signs), list(range(len(latents))), latents)
        return checkpoint._replace(state=state._replace(latents=()))


def fingerprint(table: Table, supervision: Supervision, settings: Settings) -> str:
    """What tells one run from another: data, supervision and settings, except where Phi is kept."""
    chosen = {name: value for name, value in settings._asdict().items() if name != "memory_limit"}
    about = {**chosen, "table": table.fingerprint(), "supervision": supervision.kind}
    return container.fingerprint(KIND, about, supervision.parts())


def save(path: Path, run: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the file before it stays until the new one is complete."""
    chosen, start, state, sweeps = checkpoint
    meta: dict[str, Any] = {
        "run": run,
        "supervision": chosen.supervision,
        "unit_length": chosen.scaling.unit_length,
        "kernel": kernels.to_meta(chosen.kernel),
        "pair_weight": chosen.pair_weight,
        "sweeps": [list(sweep) for sweep in sweeps],
        **dict.fromkeys(("state", "start", "start_score")),
    }
    arrays: dict[str, NDArray[Any]] = scaling.arrays(chosen.scaling) | {"Z": chosen.Z}
    if start is not None:
        meta["start"], content = start.function.content()
        meta["start_score"] = start.score
        arrays |= {f"start_{name}": part for name, part in (*content.items(), ("signs", start.signs))}
    if state is not None:
        numbers = {name: getattr(state, name) for name in STATE}
        meta["state"] = {name: None if value == np.inf else value for name, value in numbers.items()}
        arrays["mean"] = state.mean
        if state.factor is not None:
            arrays["factor"] = state.factor.lower
        latents = [(latent.signs, *latent.sites, *(latent.shared or ())) for latent in state.latents]
        arrays |= {name: np.concatenate(parts) for name, parts in zip(LATENT, zip(*latents, strict=True), strict=False)}
    container.write(path, KIND, meta, arrays)


def load(path: Path, run: str, settings: Settings, n_features: int, n_columns: int, blocks: list[int]) -> Checkpoint:
    """Read the checkpoint of a run, with rows as wide as that, so many functions, and blocks of so many rows."""
    stored = container.read(path, KIND)
    if stored.meta.get("run") != run:
        raise ValueError(
            f"checkpoint {str(path)!r} belongs to another run (other data, supervision or parameters); "
            "remove the file or name another one."
        )
    with schema.reading(path, "remove the file, and training starts from the beginning"):
        sizes = {"bits": n_columns, "features": n_features, "rows": sum(blocks)}
        schema.check(SCHEMA, stored.meta, stored.arrays, sizes)
        checkpoint = _restore(stored.meta, stored.arrays, blocks)
        _check(checkpoint, settings, sum(blocks))
        return checkpoint


def _check(checkpoint: Checkpoint, settings: Settings, n_rows: int) -> None:
    """Refuse choices that the settings leave no room for, a start that is not from them, and an impossible state."""
    chosen, start, state, sweeps = checkpoint
    made = {
        "unit_length": chosen.scaling.unit_length,
        "kernel": kernels.to_meta(chosen.kernel)["name"],
        "pair_weight": chosen.pair_weight,
    }
    made |= {"length_scale": chosen.kernel.length_scale, "signal_scale": chosen.kernel.signal_scale}
    for name, value in made.items():
        if getattr(settings, name) not in (None, value):
            raise FaultError(f"the field {name!r} is {value!r}, and the run has {getattr(settings, name)!r}")
    if [sweep.number for sweep in sweeps] != list(range(1, len(sweeps) + 1)):
        raise FaultError("its sweeps are not numbered one after another")
    if (start is not None and len(sweeps) > 0) or (len(sweeps) > 0 and state is None):
        raise FaultError("it has a start after its first sweep, or no state")
    if start is not None:
        if len(start.signs) > n_rows or not start.signs.all():
            raise FaultError("the array 'start_signs' has more rows than the run, or holds 0")
        own, kernel = start.function.scaling, start.function.kernel
        same = kernel == chosen.kernel and own.unit_length == chosen.scaling.unit_length
        mine, theirs = scaling.arrays(own), scaling.arrays(chosen.scaling)
        if not same or mine.keys() != theirs.keys() or not all(np.array_equal(mine[key], theirs[key]) for key in mine):
            raise FaultError("its start has another kernel or scaling than the rest")
    if state is not None:
        if state.sweep != len(sweeps):
            raise FaultError(f"it is after sweep {state.sweep}, but holds records of {len(sweeps)}")
        if ((state.finished or state.finishing) and not state.frozen) or (state.finished and not sweeps):
            raise FaultError("it says that it is finished, but has not come so far")
        if not state.latents and state.factor is None:
            raise FaultError("the arrays 'signs' and 'factor' are missing, one of which is needed")
        if not all(latent.signs.all() for latent in state.latents):
            raise FaultError("the array 'signs' holds 0; it must be made of 1 and −1")


def _restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], blocks: list[int]) -> Checkpoint:
    """The checkpoint that `save` wrote."""
    kernel, Z = kernels.from_meta(meta["kernel"]), arrays["Z"]
    scaled = scaling.restore(meta["unit_length"], arrays, Z.shape[1])
    chosen = Chosen(meta["supervision"], scaled, Z, kernel, meta["pair_weight"])
    if len({meta["start"] is None, "start_signs" not in arrays, "start_uncertainty" not in arrays}) > 1:
        raise FaultError("a part of its start is missing")
    start = None
    if meta["start"] is not None:
        content = {name.removeprefix("start_"): part for name, part in arrays.items() if name.startswith("start_")}
        start = Start(content.pop("signs"), HashFunction.restore(meta["start"], content), meta["start_score"])
    state = None if meta["state"] is None else _restore_state(meta["state"], arrays, blocks)
    return Checkpoint(chosen, start, state, [Sweep(*record) for record in meta["sweeps"]])


def _restore_state(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], blocks: list[int]) -> State:
    found = tuple(name for name in LATENT if name in arrays)
    if found not in ((), LATENT[:3], LATENT):
        raise FaultError(f"of the arrays {', '.join(map(repr, LATENT))}, only {', '.join(map(repr, found))} are there")
    if "factor" in arrays and not (np.diag(arrays["factor"]) > 0).all():
        raise FaultError("the array 'factor' has a diagonal that is not positive")
    parts = zip(*(np.split(arrays[name], np.cumsum(blocks)[:-1]) for name in found), strict=True)
    latents = [
        Latent(signs, Sites(precision, shift), Shared(*shared) if shared else None)
        for signs, precision, shift, *shared in parts
    ]
    factor = triangular.factor(arrays["factor"]) if "factor" in arrays else None
    numbers: dict[str, Any] = {name: np.inf if meta[name] is None else meta[name] for name in STATE}
    return State(latents=latents, mean=arrays["mean"], factor=factor, **numbers)


def check_place(place: Any, random_state: Any) -> None:
    """Refuse a checkpoint that could not be written or used: now, not after the first sweep."""
    if not isinstance(random_state, Integral):
        raise ValueError(
            f"checkpoint needs random_state to be a number, not {random_state!r}: other runs cannot be repeated."
        )
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise ValueError(f"checkpoint={place!r}; give the path of a file, or None.")
    path = Path(place)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"checkpoint={str(path)!r} is a folder, or in a folder that does not exist; give a file.")
