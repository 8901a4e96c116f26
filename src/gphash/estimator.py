"""`GPHasher`, the scikit-learn estimator: validates at the border and hands over to `training`."""

import contextlib
import copy
import os
import warnings
from collections.abc import Callable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gphash import checkpoint as checkpoints
from gphash import training, validation
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.contract import Hasher
from gphash.datasets import blocks
from gphash.datasets.blocks import ArrayTable, FolderTable, Table
from gphash.execution.local import BlocksLostError, LocalExecutor, count_jobs
from gphash.features import inducing
from gphash.functions.kernel import HashFunction
from gphash.functions.model import Function
from gphash.inference import SOLVERS
from gphash.schema import Each, FaultError, Named, Number, Record
from gphash.state import Sweep
from gphash.training import Settings

UNCONVERGED = 0.1  # relative change of the sites in the last sweep


class GPHasher(Hasher):
    """Supervised hashing with Gaussian processes.

    Learns binary codes that keep a notion of similarity given by class labels, tag sets or judged pairs. Every bit is
    a sparse Gaussian process classifier whose labels, the codes of the training rows, are latent; expectation
    propagation and Gibbs sampling infer both.

    Parameters
    ----------
    n_bits : int
        Length of a code, m.
    n_inducing : int
        Number of inducing inputs, r. More are more accurate; training time grows with r², encoding time with r.
    inducing : {"kmeans", "random"}
        Inducing inputs are k-means centres, or random rows as in the paper.
    solver : {"shared", "blockwise"}
        Shared-factor EP for all bits together, or the paper's EP, bit by bit in blocks of 1,000 rows: some fifty
        times slower, a reference.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    length_scale, signal_scale : float or "auto"
        ℓ and σ_f of the kernel; "auto" chooses by the leave-one-out score of EP on a sample of rows.
    similarity_scale : float or "auto"
        σ_y of the similarity likelihood Φ(σ_y s V); "auto" is 2 / n_bits.
    pair_weight : float or "auto"
        κ, how much the similarity terms count against the Gaussian processes; 1 is the paper. "auto" chooses by
        retrieval on held-out rows.
    balance_pairs : bool
        For pair lists: give the similar and the dissimilar pairs the same total weight.
    n_representatives : int
        Number of random training rows that all rows are compared with, t.
    n_starts : int
        Random starts of the codes, tried on a sample of rows; the best by leave-one-out score goes on.
    max_sweeps : int
        Sweeps after which codes are fixed, settled or not. EP then converges alone.
    block_size : int
        Rows per block, the unit of parallel work. Part of what a seed means: other blocks, other random numbers.
    memory_limit : float or "auto"
        Bytes that the features Phi (4 n r) may take in memory; beyond, they are kept in a temporary
        memory-mapped file, in the folder that the environment's TMPDIR names. "auto" is half of the machine's memory.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    checkpoint : path or None
        File to keep checkpoints in. When it exists, training goes on from it; it must come from the same data and
        parameters. On a cluster, workers keep the codes of their rows beside it, in a folder that all must see.
    executor : dask.distributed.Client, address of a scheduler, or None
        Cluster to train on; X is then a dask array, or a folder of blocks that its workers can read. None trains in
        threads of this process.
    callback : callable or None
        Called with a `Sweep` record (number, flips, leave_one_out, seconds, …) after every sweep.
    random_state : int, RandomState or None
        Seed of everything random.

    Attributes
    ----------
    hash_function_ : HashFunction
        Scaling, kernel, inducing inputs, weights and uncertainty: all that encoding needs.
    length_scale_, signal_scale_, pair_weight_ : float
        As given or as chosen.
    leave_one_out_score_ : float
        Mean of log Φ(y γ) over rows and bits at the last sweep; higher is better, log ½ is chance.
    sweeps_ : list of Sweep
        What the callback saw.
    seconds_ : dict
        Training time by phase.
    classes_, class_codes_ : arrays of shape [c] and [c, n_bits]
        With class labels: the classes, and the commonest code, as bits, that each got in training. Not saved.
    traffic_ : dict
        After training on a cluster: what each worker has done; see `gphash.execution.cluster.Traffic`. Not saved.
    n_features_in_ : int
        Width of the training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gphash import GPHasher
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = GPHasher(n_bits=16, n_inducing=300, random_state=0).fit(X[:1300], y[:1300])
    >>> hasher.encode(X[1300:]).shape
    (497, 2)
    """

    whereabouts = ("executor",)
    hash_function_: HashFunction

    def __init__(
        self,
        n_bits: int = 16,
        *,
        n_inducing: int = 1000,
        inducing: str = "kmeans",
        solver: str = "shared",
        scaling: str = "unit",
        length_scale: float | str = "auto",
        signal_scale: float | str = "auto",
        similarity_scale: float | str = "auto",
        pair_weight: float | str = 1.0,
        balance_pairs: bool = True,
        n_representatives: int = 5000,
        n_starts: int = 4,
        max_sweeps: int = 50,
        block_size: int = 2048,
        memory_limit: float | str = "auto",
        n_jobs: int | None = -1,
        checkpoint: str | os.PathLike[str] | None = None,
        executor: Any = None,
        callback: Callable[[Sweep], None] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.solver = solver
        self.scaling = scaling
        self.length_scale = length_scale
        self.signal_scale = signal_scale
        self.similarity_scale = similarity_scale
        self.pair_weight = pair_weight
        self.balance_pairs = balance_pairs
        self.n_representatives = n_representatives
        self.n_starts = n_starts
        self.max_sweeps = max_sweeps
        self.block_size = block_size
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.executor = executor
        self.callback = callback
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        # A client of a cluster belongs to this process.
        state: dict[str, Any] = super().__getstate__()
        return state if isinstance(self.executor, str) else {**state, "executor": None}

    def __sklearn_clone__(self) -> Self:
        bare = copy.copy(self)
        bare.executor = None
        twin: Self = super(GPHasher, bare).__sklearn_clone__()
        twin.executor = self.executor
        return twin

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        trained, labels, traffic = self._train(X, y, self._settings())
        learned: dict[str, Any] = {
            "hash_function_": trained.function,
            "length_scale_": trained.plan.kernel.length_scale,
            "signal_scale_": trained.plan.kernel.signal_scale,
            "pair_weight_": trained.plan.pair_weight,
            "sweeps_": trained.sweeps,
            "leave_one_out_score_": trained.sweeps[-1].leave_one_out,
            "seconds_": trained.seconds,
        }
        if self.executor is not None:
            learned["traffic_"] = traffic
        if labels is not None:
            learned |= {"classes_": np.unique(labels), "class_codes_": trained.words}
        return learned

    def _train(
        self, X: ArrayLike | str | os.PathLike[str], y: ArrayLike | Pairs | None, settings: Settings
    ) -> tuple[training.Trained, NDArray[Any] | None, dict[str, Any]]:
        """Outcome of training; the class labels, if it was those; and what each worker of a cluster has done."""
        with self._place(X) as (table, executor):
            if y is None and isinstance(table, FolderTable) and (known := table.labels()) is not None:
                y = known.y
            supervision = self._supervision(y, table.n_rows, self.balance_pairs)
            if settings.n_inducing > table.n_rows:
                warnings.warn(
                    f"n_inducing={settings.n_inducing} exceeds the {table.n_rows} rows of X; "
                    "all rows are used as inducing inputs.",
                    UserWarning,
                    stacklevel=3,
                )
            keeper, resumed = self._checkpoint(table, supervision, settings, executor)
            codes = None if keeper is None else keeper.codes
            try:
                trained = training.train(table, supervision, settings, executor, self.callback, keeper, resumed, codes)
            except BlocksLostError as error:
                from gphash.execution import cluster

                needed = 4e-9 * table.n_rows * min(settings.n_inducing, table.n_rows)
                raise cluster.ClusterError(
                    f"workers were lost again and again ({error}). If they were out of memory: the features of all "
                    f"rows take {needed:.1f} GB, which workers share; give more or larger ones, or fewer n_inducing."
                ) from error
            finally:
                if keeper is not None:
                    keeper.write()
            traffic = {} if self.executor is None else executor.traffic
        change = trained.sweeps[-1].change
        if change > UNCONVERGED:
            warnings.warn(
                f"expectation propagation has not converged: its sites still change by {change:.0%} a sweep. "
                "A smaller signal_scale makes it converge more easily.",
                ConvergenceWarning,
                stacklevel=3,
            )
        exact = isinstance(supervision, Signatures) and supervision.exact
        return trained, np.asarray(y).reshape(-1) if exact else None, traffic

    @contextlib.contextmanager
    def _place(self, X: ArrayLike | str | os.PathLike[str]) -> Iterator[tuple[Table, Any]]:
        """The rows of X and the executor that works on them."""
        if self.executor is None:
            with LocalExecutor(self.n_jobs) as local:
                yield self._table(X), local
            return
        from gphash.execution import cluster

        if self.solver != "shared":
            raise ValueError(f"solver={self.solver!r} works on one machine only; on a cluster, give 'shared'.")
        with cluster.DaskExecutor(self.executor) as far:
            if hasattr(X, "dask"):
                table = far.table(X)
                self.n_features_in_ = table.n_features
                yield table, far
            else:
                yield self._table(X), far

    def _table(self, X: ArrayLike | str | os.PathLike[str]) -> Table:
        """Rows that are here, or in a folder of blocks."""
        if isinstance(X, str | os.PathLike):
            table = blocks.open_folder(X)
            self.n_features_in_ = table.n_features
            return table
        return ArrayTable(validation.features(self, X, reset=True))

    def bit_probabilities(self, X: ArrayLike) -> Floats:
        """P(bit = 1) for every bit, [n, n_bits]; at least ½ exactly where `transform` gives 1."""
        check_is_fitted(self, "hash_function_")
        return self.hash_function_.probabilities(validation.features(self, X, reset=False), self.n_jobs)

    @classmethod
    def _check_remarks(cls, remarks: dict[str, Any], function: Function) -> None:
        super()._check_remarks(remarks, function)
        if not function.has_probabilities:
            raise FaultError("the field 'uncertainty' of arrays is missing")

    LEARNED: ClassVar[Record] = Record(
        {"pair_weight": Number(), "sweeps": Each(checkpoints.SWEEP, 1), "seconds": Named(Number(0))}
    )

    def _remarks(self) -> dict[str, Any]:
        sweeps = [list(sweep) for sweep in self.sweeps_]
        return {"pair_weight": self.pair_weight_, "sweeps": sweeps, "seconds": self.seconds_}

    def _recall(self, remarks: dict[str, Any]) -> dict[str, Any]:
        kernel, sweeps = self.hash_function_.kernel, [Sweep(*record) for record in remarks["sweeps"]]
        return {
            "length_scale_": kernel.length_scale,
            "signal_scale_": kernel.signal_scale,
            "pair_weight_": remarks["pair_weight"],
            "sweeps_": sweeps,
            "leave_one_out_score_": sweeps[-1].leave_one_out,
            "seconds_": remarks["seconds"],
        }

    def _settings(self) -> Settings:
        validation.code_length("n_bits", self.n_bits)
        for name in ("n_inducing", "n_representatives", "n_starts", "max_sweeps", "block_size"):
            validation.whole_number(name, getattr(self, name))
        for name in ("length_scale", "signal_scale", "similarity_scale", "pair_weight"):
            validation.positive_or_auto(name, getattr(self, name), 1e-6, 1e6)
        validation.positive_or_auto("memory_limit", self.memory_limit, unit=" of bytes")
        validation.one_of("inducing", self.inducing, inducing.CHOICES)
        validation.one_of("solver", self.solver, tuple(SOLVERS))
        validation.one_of("scaling", self.scaling, ("unit", "centre"))
        validation.truth("balance_pairs", self.balance_pairs)
        count_jobs(self.n_jobs)
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback={self.callback!r}; give a function of one Sweep, or None.")

        def chosen(value: float | str) -> float | None:
            return None if isinstance(value, str) else float(value)

        limit = chosen(self.memory_limit)
        return Settings(
            n_bits=int(self.n_bits),
            n_inducing=int(self.n_inducing),
            inducing=self.inducing,
            solver=self.solver,
            unit_length=self.scaling == "unit",
            length_scale=chosen(self.length_scale),
            signal_scale=chosen(self.signal_scale),
            similarity_scale=chosen(self.similarity_scale),
            pair_weight=chosen(self.pair_weight),
            n_representatives=int(self.n_representatives),
            n_starts=int(self.n_starts),
            max_sweeps=int(self.max_sweeps),
            block_size=int(self.block_size),
            memory_limit=np.inf if self.executor is not None else _machine_memory() / 2 if limit is None else limit,
            seed=validation.seed(self.random_state),
        )

    def _checkpoint(
        self, table: Table, supervision: Signatures | PairGraph, settings: Settings, executor: Any
    ) -> tuple[checkpoints.Keeper | None, training.Checkpoint | None]:
        if self.checkpoint is None:
            return None, None
        given: Any = self.random_state
        if not isinstance(given, Integral):
            raise ValueError(
                f"checkpoint needs random_state to be a number, not {given!r}: otherwise no two runs are the same."
            )
        place: Any = self.checkpoint
        if not isinstance(place, str | os.PathLike) or not os.fspath(place):
            raise ValueError(f"checkpoint={place!r}; give the path of a file, or None.")
        path = Path(place)
        # Found out now, not after the first sweep.
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ValueError(
                f"checkpoint={str(path)!r} is a folder, or lies in a folder that does not exist; give a file."
            )
        run = checkpoints.fingerprint(table, supervision, settings)
        keeper = checkpoints.Keeper(path, run, None if self.executor is None else executor)
        if not path.exists():
            return keeper, None
        blocks = [len(rows) for rows in training.layout(table, supervision, settings).blocks]
        return keeper, checkpoints.load(path, run, settings, table.n_features, blocks)


def _machine_memory() -> float:
    """Bytes of memory that this process may hope for: the machine's, or its container's if that is less."""
    try:
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        memory = 8e9
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
