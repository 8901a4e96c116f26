"""Checkpoints of training: everything that was chosen and the state between two sweeps, in one file.

Training that goes on from a checkpoint ends with the same hash function as training that was never interrupted. A
checkpoint knows which run it belongs to (data, supervision, settings) and refuses to serve another.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from gphash import persistence
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Signatures
from gphash.features.scaling import Scaling
from gphash.gp import triangular
from gphash.gp.ep import Shared, Sites
from gphash.inference import Latent, State, Sweep
from gphash.kernels import SquaredExponential
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
        save(self.path, self.run, self._latest)
        self._latest = None
        now = time.perf_counter()
        self._due = now + (now - began) / self.share


def fingerprint(X: Floats, supervision: Signatures | PairGraph, settings: Settings) -> str:
    """What tells one run from another: data, supervision and settings, except where Phi is kept."""
    chosen = {name: value for name, value in settings._asdict().items() if name != "memory_limit"}
    parts = supervision._asdict() if isinstance(supervision, PairGraph) else vars(supervision)
    return persistence.fingerprint(KIND, chosen, {"X": X, **{name: np.asarray(part) for name, part in parts.items()}})


def save(path: Path, run: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the file before it stays until the new one is complete."""
    plan, state = checkpoint.plan, checkpoint.state
    meta: dict[str, Any] = {
        "run": run,
        "unit_length": plan.scaling.unit_length,
        "kernel": list(plan.kernel),
        "pair_weight": plan.pair_weight,
        "sweep": state.sweep,
        "drift": state.drift if np.isfinite(state.drift) else None,
        "calm": state.calm,
        "quiet": state.quiet,
        "frozen": state.frozen,
        "finishing": state.finishing,
        "finished": state.finished,
        "damping": state.damping,
        "change": state.change if np.isfinite(state.change) else None,
        "blocks": [len(latent.signs) for latent in state.latents],
        "sweeps": [list(sweep) for sweep in checkpoint.sweeps],
    }
    arrays = {
        "scaling_mean": plan.scaling.mean,
        "Z": plan.Z,
        "mean": state.mean,
        "signs": np.concatenate([latent.signs for latent in state.latents]),
        "site_precision": np.concatenate([latent.sites.precision for latent in state.latents]),
        "site_shift": np.concatenate([latent.sites.shift for latent in state.latents]),
    }
    if state.factor is not None:
        arrays["factor"] = state.factor.lower
        shared = [latent.shared for latent in state.latents if latent.shared is not None]
        arrays["shared_precision"] = np.concatenate([part.precision for part in shared])
        arrays["shared_cavity"] = np.concatenate([part.cavity for part in shared])
    persistence.write(path, KIND, meta, arrays)


def load(path: Path, run: str) -> Checkpoint:
    """Read a checkpoint of the given run."""
    stored = persistence.read(path, KIND)
    meta, arrays = dict[str, Any](stored.meta), stored.arrays
    if meta["run"] != run:
        raise ValueError(
            f"checkpoint {str(path)!r} belongs to another run (other data, supervision or parameters); "
            "remove the file or name another one."
        )
    ends = np.cumsum(meta["blocks"])[:-1]

    def split(name: str) -> list[Any]:
        return np.split(arrays[name], ends)

    has_factor = "factor" in arrays
    parts = zip(split("signs"), split("site_precision"), split("site_shift"), strict=True)
    shared: list[Shared | None] = [None] * len(meta["blocks"])
    if has_factor:
        shared = [Shared(*pair) for pair in zip(split("shared_precision"), split("shared_cavity"), strict=True)]
    latents = [
        Latent(signs, Sites(precision, shift), common)
        for (signs, precision, shift), common in zip(parts, shared, strict=True)
    ]
    state = State(
        sweep=meta["sweep"],
        latents=latents,
        mean=arrays["mean"],
        factor=triangular.factor(arrays["factor"]) if has_factor else None,
        drift=np.inf if meta["drift"] is None else meta["drift"],
        calm=meta["calm"],
        quiet=meta["quiet"],
        frozen=meta["frozen"],
        finishing=meta["finishing"],
        finished=meta["finished"],
        damping=meta["damping"],
        change=np.inf if meta["change"] is None else meta["change"],
    )
    scaling = Scaling(arrays["scaling_mean"], meta["unit_length"])
    plan = Plan(scaling, arrays["Z"], SquaredExponential(*meta["kernel"]), meta["pair_weight"])
    return Checkpoint(plan, state, [Sweep(*record) for record in meta["sweeps"]])
