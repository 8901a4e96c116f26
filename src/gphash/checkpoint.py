"""Checkpoints of training: everything that was chosen and the state between two sweeps, in one file.

Training that goes on from a checkpoint ends with the same hash function as training that was never interrupted. A
checkpoint knows which run it belongs to (data, supervision, settings) and refuses to serve another.

Of rows on a cluster, the codes alone are kept, by the workers, in a file for every block (`BlockCodes`) in a folder
beside the checkpoint; training that goes on finds sites anew, and ends with an equally good hash function.
"""

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash import persistence, schema
from gphash.arrays import Signs
from gphash.coding.similarity import PairGraph, Signatures
from gphash.datasets.blocks import Table
from gphash.execution.local import BlocksLostError, Executor
from gphash.features.scaling import Scaling
from gphash.functions import kernel as kernel_functions
from gphash.gp import triangular
from gphash.gp.ep import Shared, Sites
from gphash.hamming import packing
from gphash.kernels import SquaredExponential
from gphash.schema import Array, Each, FaultError, Flag, Maybe, Number, Record, Row, Schema, Text, Whole
from gphash.selection import Start
from gphash.state import Latent, State, Sweep
from gphash.training import Checkpoint, Plan, Settings

KIND = "checkpoint"
BLOCK_KIND = "block codes"
FOLDER_OF = 1000  # blocks

FAR = 1e300
SWEEP = Row((Whole(1), Whole(), Number(-FAR, FAR), Number(0, FAR), Flag(), Flag(), Number(0, FAR)))
"""A record of a sweep in a file."""

STATE = Record(
    {
        "sweep": Whole(),
        "drift": Maybe(Number(0, FAR)),
        "calm": Flag(),
        "quiet": Whole(),
        "flips": Maybe(Number(0, FAR)),
        "steady": Whole(),
        "frozen": Flag(),
        "finishing": Whole(),
        "finished": Flag(),
        "damping": Number(1e-6, 1),
        "change": Maybe(Number(0, FAR)),
        "blocks": Each(Whole(1)),
    }
)

SCHEMA = Schema(
    {
        "run": Text(),
        **kernel_functions.SCHEMA.fields,
        "pair_weight": Number(1e-6, 1e6),
        "sweeps": Each(SWEEP),
        "state": Maybe(STATE),
        "start": Maybe(Record(kernel_functions.SCHEMA.fields)),
        "start_score": Maybe(Number(-FAR, FAR)),
    },
    {
        "scaling_mean": kernel_functions.SCHEMA.arrays["scaling_mean"],
        "Z": kernel_functions.SCHEMA.arrays["Z"],
        "start_signs": Array("|i1", ("sample", "bits"), -1, 1, optional=True),
        **{
            f"start_{name}": rule.renamed({"inducing inputs": "some inducing inputs"})
            for name, rule in kernel_functions.SCHEMA.arrays.items()
        },
        "mean": Array("<f8", ("inducing inputs", "bits"), optional=True),
        "factor": Array("<f8", ("inducing inputs", "inducing inputs"), optional=True),
        "signs": Array("|i1", ("rows", "bits"), -1, 1, optional=True),
        "site_precision": Array("<f8", ("rows", "bits"), 0, optional=True),
        "site_shift": Array("<f8", ("rows", "bits"), optional=True),
        "shared_precision": Array("<f8", ("rows",), 0, optional=True),
        "shared_cavity": Array("<f8", ("rows",), 0, optional=True),
    },
    kernel_functions.SCHEMA.sides,
)
"""What a checkpoint holds."""

BLOCK_SCHEMA = Schema(
    {"run": Text(), "number": Whole(), "bits": Whole(1, packing.MOST_BITS)}, {"codes": Array("|u1", ("rows", "bytes"))}
)


class BlockCodes:
    """Codes of row blocks, a file each, in a folder that all workers see.

    Parameters
    ----------
    folder
        Made when something is written.
    run
        Fingerprint of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder.absolute(), run

    def __call__(self, number: int) -> Signs | None:
        """Codes of a block, [b, m]; None if there are none of this run, whole and undamaged."""
        try:
            stored = persistence.read(self._path(number), BLOCK_KIND)
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
        persistence.write(path, BLOCK_KIND, meta, {"codes": np.packbits(signs > 0, axis=1)})

    def _path(self, number: int) -> Path:
        return self.folder / f"{number // FOLDER_OF:06d}" / f"{number:09d}.codes"


class Keeper:
    """Writes checkpoints of one run to a file, often enough to be useful and seldom enough not to be felt.

    Parameters
    ----------
    path
        The file.
    run
        Fingerprint of the run, from `fingerprint`.
    executor
        Who holds the row blocks, if they are not in this process: workers then keep the codes.
    share
        The share of training time that writing may take.

    Attributes
    ----------
    codes : BlockCodes or None
        What workers keep.
    """

    def __init__(self, path: Path, run: str, executor: Executor | None = None, share: float = 0.05) -> None:
        self.path, self.run, self.executor, self.share = path, run, executor, share
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
        self._due = now + (now - began) / self.share

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


def fingerprint(table: Table, supervision: Signatures | PairGraph, settings: Settings) -> str:
    """What tells one run from another: data, supervision and settings, except where Phi is kept."""
    chosen = {name: value for name, value in settings._asdict().items() if name != "memory_limit"}
    parts = supervision._asdict() if isinstance(supervision, PairGraph) else vars(supervision)
    about = {**chosen, "table": table.fingerprint()}
    return persistence.fingerprint(KIND, about, {name: np.asarray(part) for name, part in parts.items()})


def save(path: Path, run: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the file before it stays until the new one is complete."""
    plan = checkpoint.plan
    meta: dict[str, Any] = {
        "run": run,
        "unit_length": plan.scaling.unit_length,
        "kernel": plan.kernel.to_meta(),
        "pair_weight": plan.pair_weight,
        "sweeps": [list(sweep) for sweep in checkpoint.sweeps],
        "state": None,
        "start": None,
        "start_score": None,
    }
    arrays: dict[str, NDArray[Any]] = {"scaling_mean": plan.scaling.mean, "Z": plan.Z}
    if checkpoint.start is not None:
        meta["start"], content = checkpoint.start.function.content()
        meta["start_score"] = checkpoint.start.score
        arrays |= {"start_signs": checkpoint.start.signs, **{f"start_{name}": part for name, part in content.items()}}
    if checkpoint.state is not None:
        meta["state"], more = _pack_state(checkpoint.state)
        arrays |= more
    persistence.write(path, KIND, meta, arrays)


def _pack_state(state: State) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A state as JSON and arrays."""
    meta = {
        "sweep": state.sweep,
        "drift": state.drift if np.isfinite(state.drift) else None,
        "calm": state.calm,
        "quiet": state.quiet,
        "flips": state.flips if np.isfinite(state.flips) else None,
        "steady": state.steady,
        "frozen": state.frozen,
        "finishing": state.finishing,
        "finished": state.finished,
        "damping": state.damping,
        "change": state.change if np.isfinite(state.change) else None,
        "blocks": [len(latent.signs) for latent in state.latents],
    }
    arrays: dict[str, NDArray[Any]] = {"mean": state.mean}
    if state.factor is not None:
        arrays["factor"] = state.factor.lower
    if not state.latents:
        return meta, arrays
    arrays["signs"] = np.concatenate([latent.signs for latent in state.latents])
    arrays["site_precision"] = np.concatenate([latent.sites.precision for latent in state.latents])
    arrays["site_shift"] = np.concatenate([latent.sites.shift for latent in state.latents])
    if shared := [latent.shared for latent in state.latents if latent.shared is not None]:
        arrays["shared_precision"] = np.concatenate([part.precision for part in shared])
        arrays["shared_cavity"] = np.concatenate([part.cavity for part in shared])
    return meta, arrays


def load(path: Path, run: str, settings: Settings, n_features: int, blocks: list[int]) -> Checkpoint:
    """Read a checkpoint.

    Parameters
    ----------
    path
        The file.
    run
        Fingerprint of the run that it must belong to.
    settings
        Of the run.
    n_features
        Width of a row.
    blocks
        How many rows every block has.
    """
    stored = persistence.read(path, KIND)
    if stored.meta.get("run") != run:
        raise ValueError(
            f"checkpoint {str(path)!r} belongs to another run (other data, supervision or parameters); "
            "remove the file or name another one."
        )
    with schema.reading(path, "remove the file, and training begins anew"):
        sizes = {"bits": settings.n_bits, "features": n_features, "rows": sum(blocks)}
        schema.check(SCHEMA, stored.meta, stored.arrays, sizes)
        _check_choices(stored.meta, settings)
        checkpoint = _restore(stored.meta, stored.arrays)
        _check_state(checkpoint, blocks)
        return checkpoint


def _check_choices(meta: dict[str, Any], settings: Settings) -> None:
    """Refuse choices that the settings leave no room for."""
    made = {"unit_length": meta["unit_length"], **meta["kernel"], "pair_weight": meta["pair_weight"]}
    for name in ("unit_length", "length_scale", "signal_scale", "pair_weight"):
        if getattr(settings, name) not in (None, made[name]):
            raise FaultError(f"the field {name!r} is {made[name]!r}, and the run has {getattr(settings, name)!r}")


def _check_state(checkpoint: Checkpoint, blocks: list[int]) -> None:
    """Refuse a state that training cannot be in."""
    plan, start, state, sweeps = checkpoint
    if [sweep.number for sweep in sweeps] != list(range(1, len(sweeps) + 1)):
        raise FaultError("its sweeps are not numbered one after another")
    if (start is None) != (len(sweeps) > 0) or (len(sweeps) > 0 and state is None):
        raise FaultError("it has a start after the first sweep, or none before it")
    if start is not None:
        _check_signs("start_signs", start.signs)
        if len(start.signs) > sum(blocks):
            raise FaultError("the array 'start_signs' has more rows than the run")
        scaling, kernel = start.function.scaling, start.function.kernel
        same = kernel == plan.kernel and scaling.unit_length == plan.scaling.unit_length
        if not same or not np.array_equal(scaling.mean, plan.scaling.mean):
            raise FaultError("its start has another kernel or scaling than the rest")
    if state is None:
        return
    if state.sweep != len(sweeps):
        raise FaultError(f"it is after sweep {state.sweep}, and tells of {len(sweeps)}")
    if ((state.finished or state.finishing) and not state.frozen) or (state.finished and not sweeps):
        raise FaultError("it says that it is finished, and has not come so far")
    if [len(latent.signs) for latent in state.latents] not in (blocks, []):
        raise FaultError("its blocks are not those of the run")
    if not state.latents and state.factor is None:
        raise FaultError("the arrays 'signs' and 'factor' are missing, one of which is needed")
    for latent in state.latents:
        _check_signs("signs", latent.signs)


def _check_signs(name: str, signs: Signs) -> None:
    if not signs.all():
        raise FaultError(f"the array {name!r} holds 0; it must be made of 1 and −1")


def _restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Checkpoint:
    """The checkpoint that `save` wrote."""
    plan = Plan(
        Scaling(arrays["scaling_mean"], meta["unit_length"]),
        arrays["Z"],
        SquaredExponential.from_meta(meta["kernel"]),
        meta["pair_weight"],
    )
    if len({meta["start"] is None, "start_signs" not in arrays, "start_uncertainty" not in arrays}) > 1:
        raise FaultError("a part of its start is missing")
    start = None
    if "start_signs" in arrays:
        content = {name.removeprefix("start_"): part for name, part in arrays.items() if name.startswith("start_")}
        del content["signs"]
        start = Start(arrays["start_signs"], kernel_functions.restore(meta["start"], content), meta["start_score"])
    state = None if meta["state"] is None else _unpack_state(meta["state"], arrays)
    return Checkpoint(plan, start, state, [Sweep(*record) for record in meta["sweeps"]])


def _unpack_state(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> State:
    """The state that `_pack_state` packed."""
    if sum(meta["blocks"]) != len(arrays.get("signs", ())):
        raise FaultError("the field 'state.blocks' tells of other rows than there are")
    if ("shared_precision" in arrays) != ("shared_cavity" in arrays):
        raise FaultError("one of the arrays 'shared_precision' and 'shared_cavity' is missing")
    if "factor" in arrays and not (np.diag(arrays["factor"]) > 0).all():
        raise FaultError("the array 'factor' has a diagonal that is not positive")
    ends = np.cumsum(meta["blocks"])[:-1]

    def split(name: str) -> list[Any]:
        return np.split(arrays[name], ends)

    shared: list[Shared | None] = [None] * len(meta["blocks"])
    if "shared_precision" in arrays:
        shared = [Shared(*pair) for pair in zip(split("shared_precision"), split("shared_cavity"), strict=True)]
    latents: list[Latent] = []
    if meta["blocks"]:
        parts = zip(split("signs"), split("site_precision"), split("site_shift"), shared, strict=True)
        latents = [Latent(signs, Sites(precision, shift), common) for signs, precision, shift, common in parts]
    return State(
        sweep=meta["sweep"],
        latents=latents,
        mean=arrays["mean"],
        factor=triangular.factor(arrays["factor"]) if "factor" in arrays else None,
        drift=np.inf if meta["drift"] is None else meta["drift"],
        calm=meta["calm"],
        quiet=meta["quiet"],
        flips=np.inf if meta["flips"] is None else meta["flips"],
        steady=meta["steady"],
        frozen=meta["frozen"],
        finishing=meta["finishing"],
        finished=meta["finished"],
        damping=meta["damping"],
        change=np.inf if meta["change"] is None else meta["change"],
    )
