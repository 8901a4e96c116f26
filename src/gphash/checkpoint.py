"""Checkpoints of training: everything that was chosen and the state between two sweeps, in one file.

Training that goes on from a checkpoint ends with the same hash function as training that was never interrupted. A
checkpoint knows which run it belongs to (data, supervision, settings) and refuses to serve another.
"""

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash import hashing, persistence
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Signatures
from gphash.features.scaling import Scaling
from gphash.gp import triangular
from gphash.gp.ep import Shared, Sites
from gphash.kernels import SquaredExponential
from gphash.selection import Start
from gphash.state import Latent, State, Sweep
from gphash.training import Checkpoint, Plan, Settings

KIND = "checkpoint"


class Keeper:
    """Writes checkpoints of one run to a file, often enough to be useful and seldom enough not to be felt.

    Parameters
    ----------
    path
        The file.
    run
        Fingerprint of the run, from `fingerprint`.
    share
        The share of training time that writing may take.
    """

    def __init__(self, path: Path, run: str, share: float = 0.05) -> None:
        self.path, self.run, self.share = path, run, share
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
            save(self.path, self.run, self._latest)
            self._latest = None
        except OSError as error:
            # Training is worth more than its checkpoint; the one before is still there.
            warnings.warn(f"checkpoint {str(self.path)!r} could not be written: {error}", RuntimeWarning, stacklevel=2)
        now = time.perf_counter()
        self._due = now + (now - began) / self.share


def fingerprint(X: Floats, supervision: Signatures | PairGraph, settings: Settings) -> str:
    """What tells one run from another: data, supervision and settings, except where Phi is kept."""
    chosen = {name: value for name, value in settings._asdict().items() if name != "memory_limit"}
    parts = supervision._asdict() if isinstance(supervision, PairGraph) else vars(supervision)
    return persistence.fingerprint(KIND, chosen, {"X": X, **{name: np.asarray(part) for name, part in parts.items()}})


def save(path: Path, run: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the file before it stays until the new one is complete."""
    plan = checkpoint.plan
    meta: dict[str, Any] = {
        "run": run,
        "unit_length": plan.scaling.unit_length,
        "kernel": list(plan.kernel),
        "pair_weight": plan.pair_weight,
        "sweeps": [list(sweep) for sweep in checkpoint.sweeps],
        "state": None,
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
    arrays: dict[str, NDArray[Any]] = {
        "mean": state.mean,
        "signs": np.concatenate([latent.signs for latent in state.latents]),
        "site_precision": np.concatenate([latent.sites.precision for latent in state.latents]),
        "site_shift": np.concatenate([latent.sites.shift for latent in state.latents]),
    }
    if state.factor is not None:
        shared = [latent.shared for latent in state.latents if latent.shared is not None]
        arrays["factor"] = state.factor.lower
        arrays["shared_precision"] = np.concatenate([part.precision for part in shared])
        arrays["shared_cavity"] = np.concatenate([part.cavity for part in shared])
    return meta, arrays


def load(path: Path, run: str) -> Checkpoint:
    """Read a checkpoint of the given run."""
    stored = persistence.read(path, KIND)
    meta, arrays = stored.meta, stored.arrays
    if meta["run"] != run:
        raise ValueError(
            f"checkpoint {str(path)!r} belongs to another run (other data, supervision or parameters); "
            "remove the file or name another one."
        )
    scaling = Scaling(arrays["scaling_mean"], meta["unit_length"])
    kernel = SquaredExponential(*meta["kernel"])
    plan = Plan(scaling, arrays["Z"], kernel, meta["pair_weight"])
    start = None
    if "start_signs" in arrays:
        content = {name.removeprefix("start_"): part for name, part in arrays.items() if name.startswith("start_")}
        start = Start(arrays["start_signs"], hashing.restore(meta["start"], content), meta["start_score"])
    state = None if meta["state"] is None else _unpack_state(meta["state"], arrays)
    return Checkpoint(plan, start, state, [Sweep(*record) for record in meta["sweeps"]])


def _unpack_state(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> State:
    """The state that `_pack_state` packed."""
    ends = np.cumsum(meta["blocks"])[:-1]

    def split(name: str) -> list[Any]:
        return np.split(arrays[name], ends)

    shared: list[Shared | None] = [None] * len(meta["blocks"])
    if "factor" in arrays:
        shared = [Shared(*pair) for pair in zip(split("shared_precision"), split("shared_cavity"), strict=True)]
    parts = zip(split("signs"), split("site_precision"), split("site_shift"), shared, strict=True)
    return State(
        sweep=meta["sweep"],
        latents=[Latent(signs, Sites(precision, shift), common) for signs, precision, shift, common in parts],
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
