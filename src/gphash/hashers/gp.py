"""`GPHasher`, the scikit-learn estimator: validates at the border and hands over to `training`."""

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.reading import CodeReader, Reader
from gphash.codes.trust import Trust
from gphash.data import blocks
from gphash.data.blocks import ArrayTable, FolderTable, Table
from gphash.evaluation import retrieval
from gphash.execution.local import BlocksLostError, LocalExecutor
from gphash.execution.spill import machine_memory
from gphash.functions import prepared
from gphash.functions.joined import JoinedFunction
from gphash.functions.projections import LinearFunction
from gphash.hashers import free_bits, validation
from gphash.hashers.contract import Hasher
from gphash.method import checkpoint as checkpoints
from gphash.method import hashing, inducing, sweeping, training
from gphash.method.hashing import HashFunction
from gphash.method.kernels import KERNELS
from gphash.method.posteriors import PosteriorFunction
from gphash.method.state import Sweep
from gphash.method.training import Settings
from gphash.schema import Each, FaultError, Maybe, Named, Number, Plain, Rule
from gphash.supervision import similarity, targets
from gphash.supervision.similarity import Pairs, Signatures

UNCONVERGED = 0.1  # relative change of the sites in the last sweep


@dataclass(kw_only=True, eq=False, repr=False)
class GPHasher(Hasher):
    """Supervised hashing with Gaussian processes.

    Learns binary codes that keep a notion of similarity given by class labels, tag sets or judged pairs. Sparse
    Gaussian process classifiers, learned by expectation propagation, tell classes or tags apart, and bits follow from
    their probabilities. For judged pairs, and in the paper, every bit is a classifier whose labels, the codes of the
    training rows, are latent, and sampled. The parameters are those of `Hasher`, and

    Parameters
    ----------
    n_free_bits : int
        How many of the n_bits, the last ones, are learned without labels, from the features alone (`ITQ`). By them,
        classes that training has not seen are found better, and seen ones a little worse by distance. P(similar)
        leaves them out. At most as many as X has features.
    codes : {"posterior", "sampled"}
        "posterior": functions learn to tell classes or tags apart, and bits are what their probabilities look like from
        directions that retrieve well. "sampled" is the paper: every bit has a function of its own, and codes
        are sampled together with it. Pair lists are always learned by sampling.
    n_inducing : int
        Number of inducing inputs, r. More are more accurate, and take longer.
    inducing : {"kmeans", "random"}
        Inducing inputs are k-means centres, or random rows as in the paper.
    solver : {"auto", "shared", "blockwise", "conjugate"}
        "shared" is EP with one factor for all functions; "blockwise" the paper's EP, bit by bit in blocks of 1,000
        rows, some fifty times slower, a reference. "conjugate" makes no factor of all rows, and learns from labels and
        tags only. "auto" takes it where there are more than 2,000 inducing inputs, and "shared" elsewhere.
    scaling : {"unit", "centre"}
        Centre rows on the training mean and scale them to unit length, or only centre them.
    kernel : str
        "squared-exponential", "matern-3/2" or "exponential", from smooth to rough; or one that was registered in
        `gphash.method.kernels.KERNELS`.
    length_scale, signal_scale : float or "auto"
        ℓ and σ_f of the kernel; "auto" chooses by the leave-one-out score of EP on a sample of rows.
    power : float
        α of power EP: the share of what the inducing inputs leave open that counts as noise. 1 is the paper (FITC), 0
        the variational limit, which conjugate gradients (`solver`) always have.
    metric : "auto" or None
        "auto" learns, from labels or tags, a linear map to the few dimensions in which codes change, and keeps it if
        unseen rows are found better by it. None compares rows by all their features alike.
    similarity_scale : float or "auto"
        σ_y of the similarity likelihood Φ(σ_y s V); "auto" is 2 / n_bits.
    pair_weight : float or "auto"
        κ, how much the similarity terms count against the Gaussian processes; 1 is the paper. "auto" chooses by
        retrieval on held-out rows.
    class_weight : "auto", "balanced", dict or None
        How often a row counts, by its class of n rows, as if there were so many rows like it: in proportion to
        1/(n + 300), to 1/n, as a dict says (classes that it does not name have 1), or once. With classes of very
        unequal sizes, "auto" serves queries of the same classes in the same proportions, "balanced" queries of all
        classes alike.
    balance_pairs : bool
        For pair lists: give the similar and the dissimilar pairs the same total weight.
    n_representatives : int
        Number of random training rows that all rows are compared with, t.
    n_starts : int
        Searches for the words of classes or tags, on a sample of rows; the one that promises the best retrieval goes
        on. For pair lists, random starts of the codes; the best by leave-one-out score goes on.
    max_sweeps : int
        Of sampled codes: sweeps after which they are fixed, settled or not. EP then converges alone.
    block_size : int
        Rows per block, the unit of parallel work. Part of what a seed means: other blocks, other random numbers.
    memory_limit : float or "auto"
        Bytes that the features Phi (4 n r) may take in memory; beyond, they are kept in a temporary
        memory-mapped file, in the folder that the environment's TMPDIR names. "auto" is half of the machine's memory.

    Attributes
    ----------
    hash_function_ : PosteriorFunction, HashFunction or JoinedFunction
        All that encoding needs: scaling, kernel, inducing inputs, weights and uncertainty; for codes from posteriors,
        these are of its `classifier`, and directions come with it. With free bits, all this is its part `supervised`.
    length_scale_, signal_scale_, pair_weight_ : float
        As given or as chosen.
    leave_one_out_score_ : float
        Mean of log Φ(y γ) over rows and functions at the last sweep; higher is better, log ½ is chance.
    sweeps_ : list of Sweep
        What the callback saw.
    seconds_ : dict
        Training time by phase.
    classes_, class_codes_ : arrays of shape [c] and [c, n_bits − n_free_bits]
        With class labels: the classes, and the code, as supervised bits, that each got in training. Of sampled codes
        that is the commonest, and not saved.
    tags_ : list of int, or None
        With tags: which columns of y, those that some row has, the columns of `predict_proba` are.
    traffic_ : dict
        After training on a cluster: what each worker has done; see `gphash.cluster.dask_executor.Traffic`. Not saved.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gphash import GPHasher
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = GPHasher(n_bits=16, n_inducing=300, random_state=0).fit(X[:1300], y[:1300])
    >>> hasher.encode(X[1300:]).shape
    (497, 2)
    """

    runs_with: ClassVar[tuple[str, ...]] = ("executor", "checkpoint", "callback", "sample_weight")
    LEARNED: ClassVar[Mapping[str, Rule]] = {
        "pair_weight_": Number(),
        "sweeps_": Each(checkpoints.SWEEP, 1),
        "seconds_": Named(Number(0)),
        "class_names_": Maybe(Each(Plain())),
        "tags_": Maybe(Each(Number(0))),
    }

    n_free_bits: int = validation.count(0)
    codes: str = validation.one_of("posterior", "sampled")
    n_inducing: int = validation.whole(1000)
    inducing: str = validation.one_of(*inducing.CHOICES)
    solver: str = validation.one_of(*sweeping.CHOICES)
    scaling: str = validation.one_of("unit", "centre")
    kernel: str = "squared-exponential"
    length_scale: float | str = validation.positive_or_auto()
    signal_scale: float | str = validation.positive_or_auto()
    power: float = validation.share(0.05)
    metric: str | None = validation.parameter(None, "'auto' or None", lambda value: value is None or value == "auto")
    similarity_scale: float | str = validation.positive_or_auto()
    pair_weight: float | str = validation.positive_or_auto(1.0)
    class_weight: str | dict[Any, float] | None = validation.CLASS_WEIGHT
    balance_pairs: bool = validation.truth(True)
    n_representatives: int = validation.whole(5000)
    n_starts: int = validation.whole(2)
    max_sweeps: int = validation.whole(50)
    block_size: int = validation.whole(2048)
    memory_limit: float | str = validation.positive_or_auto("auto", 1, 1e18)

    hash_function_: HashFunction | PosteriorFunction | JoinedFunction | prepared.PreparedFunction = field(init=False)

    def check_parameters(self) -> None:
        """Refuse bad parameters, without any rows; `fit` does so first."""
        super().check_parameters()
        KERNELS.find(self.kernel, "kernel")
        if self.n_free_bits >= self.n_bits:
            raise ValueError(f"n_free_bits={self.n_free_bits!r}; give fewer than n_bits={self.n_bits!r}, all bits.")

    def fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike | Pairs | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        executor: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Any], None] | None = None,
    ) -> Self:
        """Learn the hash function, as `Hasher.fit` explains.

        `sample_weight` says how often every row counts, numbers of at least 0, [n], in proportion. A row of weight 0 is
        like one without a label: codes are not learned from it, but centre and inducing inputs are.
        """
        run = {"executor": executor, "checkpoint": checkpoint, "callback": callback}
        return super().fit(X, y, sample_weight=sample_weight, **run)

    def fit_lengths(
        self, X: ArrayLike, y: ArrayLike, lengths: Iterable[int], callback: Callable[[Any], None] | None = None
    ) -> dict[int, Self]:
        """Hashers for codes of several lengths, by n_bits, each as `fit` would make it; this one stays as it is.

        Codes from the posterior differ in their last step only: all lengths take little longer than one.
        """
        hashers = {int(n_bits): clone(self).set_params(n_bits=int(n_bits)) for n_bits in lengths}
        if not hashers:
            raise ValueError("lengths is empty; give at least one number of bits.")
        for hasher in hashers.values():
            hasher.check_parameters()
        first, *others = hashers.values()
        if first.codes == "sampled" or isinstance(y, Pairs):
            return {n_bits: hasher.fit(X, y, callback=callback) for n_bits, hasher in hashers.items()}
        for hasher, learned in zip(hashers.values(), first._learn_all(others, X, y, callback=callback), strict=True):
            hasher.__dict__.update(first.__dict__ | {"n_bits": hasher.n_bits} | learned)
        return hashers

    def _learn(self, *given: Any, **others: Any) -> dict[str, Any]:
        return self._learn_all([], *given, **others)[0]

    def _learn_all(
        self,
        others: Sequence["GPHasher"],
        X: Any,
        y: Any,
        executor: Any = None,
        checkpoint: Any = None,
        callback: Any = None,
        sample_weight: Any = None,
    ) -> list[dict[str, Any]]:
        """Learned attributes by name, of this one and of others that have another length and else the same."""
        if callback is not None and not callable(callback):
            raise ValueError(f"callback={callback!r}; give a function of one Sweep, or None.")
        if checkpoint is not None:
            checkpoints.check_place(checkpoint, self.random_state)
        settings = self._settings(spill=executor is None)
        with self._place(X, executor) as (table, workers):
            free_bits.check(self.n_free_bits, table.n_features)
            if y is None and isinstance(table, FolderTable) and (known := table.labels()) is not None:
                y = known.y
            weighting = self.class_weight, sample_weight
            supervision = targets.supervision(y, table.n_rows, self.balance_pairs, "GPHasher", self.takes, *weighting)
            keeper = resumed = None
            if checkpoint is not None:
                path, mark = Path(checkpoint), checkpoints.fingerprint(table, supervision, settings)
                keeper = checkpoints.Keeper(path, mark, None if executor is None else workers)
                if path.exists():
                    sizes = [len(rows) for rows in training.layout(supervision, settings).blocks]
                    width = training.n_columns(supervision, settings)
                    resumed = checkpoints.load(path, mark, settings, table.n_features, width, sizes)
            trained = [_train(table, supervision, settings, workers, callback, keeper, resumed)]
            for other in others:
                assert trained[0].resized is not None
                function = trained[0].resized(other.n_bits - other.n_free_bits)
                words = None if trained[0].words is None else function.words
                trained.append(trained[0]._replace(function=function, words=words))
            began, how = time.perf_counter(), (table, int(self.n_free_bits), settings.unit_length, settings.seed)
            free = sweeping.persist(partial(free_bits.learn, *how, workers)) if self.n_free_bits else None
            if free is not None:
                trained[0].seconds["free bits"] = time.perf_counter() - began
        traffic = {} if executor is None else {"traffic_": workers.traffic}
        return [_learned(one, free, supervision) | traffic for one in trained]

    @contextlib.contextmanager
    def _place(self, X: ArrayLike | str | os.PathLike[str], executor: Any) -> Iterator[tuple[Table, Any]]:
        """The rows of X and the executor that works on them."""
        place: Any = LocalExecutor(self.n_jobs)
        if executor is not None:
            if self.solver == "blockwise":
                raise ValueError("solver='blockwise' works on one machine only; on a cluster, give 'auto'.")
            from gphash.cluster import dask_executor

            place = dask_executor.DaskExecutor(executor)
        with place as workers:
            table: Table
            if executor is not None and hasattr(X, "dask"):
                table = workers.table(X)
            elif isinstance(X, str | os.PathLike):
                table = blocks.open_folder(X)
            elif isinstance(X, FolderTable):
                table = X
            else:
                table = ArrayTable(validation.rows(self, X, reset=True))
            if not isinstance(table, ArrayTable):
                self.__dict__.pop("feature_names_in_", None)  # of rows that were fitted before
            self.n_features_in_ = table.n_features
            yield table, workers

    def bit_probabilities(self, X: ArrayLike) -> Floats:
        """P(bit = 1) for every bit of a row's true code, [n, n_bits].

        Sampled codes have a 1 exactly where this is at least ½; codes from the posterior, here and there, elsewhere.
        """
        check_is_fitted(self, "hash_function_")
        return self.hash_function_.probabilities(validation.rows(self, X, reset=False), self.n_jobs)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(class), as often as classes occur in training, or P(tag), [n, c]; columns as in `classes_` or `tags_`.

        Of a few rows it is computed in float64, and else in float32, which changes it by some 1e-7.
        """
        self._classes()
        function, rows = self._supervised, prepared.rows(self.hash_function_, validation.rows(self, X, reset=False))
        if isinstance(function, PosteriorFunction) and len(rows) <= hashing.TILE:
            return function.believe(function.classifier.exact_means(rows[:]))
        return function.classes(rows, self.n_jobs)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class, [n]; or the tags that are more probable than not, 0 or 1, [n, c]."""
        chances = self.predict_proba(X)
        if not self._classes().exclusive:
            return np.asarray(chances >= 0.5, np.uint8)
        numbers = chances.argmax(axis=1)
        return np.asarray(self.classes_[numbers]) if hasattr(self, "classes_") else numbers

    def similarity_probability(self, X: ArrayLike, packed: ArrayLike) -> Floats:
        """P(similar) of rows, [q, d], and items with such packed codes, [n, ⌈n_bits/8⌉]: [q, n].

        Similar is to have the same class, to share a tag, or to be a pair that is judged so. An item is only its code.
        """
        check_is_fitted(self, "hash_function_")
        known, codes = retrieval.beliefs(self, X), packing.check_packed(packed, self.hash_function_.n_bits)
        assert known is not None
        return known.reader.compare(known.classes, known.reader.read(codes))

    def familiarity(self, X: ArrayLike) -> Floats:
        """How much rows resemble those of training, above 0 and up to 1, [n]; not for pairs and sampled codes.

        It is the share of up to 1,000 training rows that are at least as far from others and as unsure of their
        classes. Of rows like these, at most 5 % have .05 or less, and of other kinds of things many more.
        """
        check_is_fitted(self, "hash_function_")
        if not isinstance(function := self._supervised, PosteriorFunction):
            raise ValueError("codes were sampled, or learned from pairs; fit labels or tags with codes='posterior'.")
        rows = prepared.rows(self.hash_function_, validation.rows(self, X, reset=False))
        return function.look(rows, self.n_jobs).familiarity

    @property
    def trust_(self) -> Trust | None:
        """What may be promised of answers; None for pairs and sampled codes."""
        check_is_fitted(self, "hash_function_")
        return getattr(self.hash_function_, "trust", None)

    @property
    def class_names_(self) -> list[Any] | None:
        """The classes as a file keeps them; None if JSON has no such names, for tags and pairs."""
        if not hasattr(self, "classes_") or self.reader_ is None:
            return None
        names = self.classes_.tolist()
        return names if all(isinstance(name, bool | int | float | str) for name in names) else None

    @property
    def reader_(self) -> Reader | None:
        """What compares rows with codes: by what these say of classes or tags, or, for pairs, by distance."""
        check_is_fitted(self, "hash_function_")
        return self.hash_function_.reader()

    @property
    def _supervised(self) -> HashFunction | PosteriorFunction:
        """The part of the hash function that labels have taught."""
        function = prepared.behind(self.hash_function_)
        return function.supervised if isinstance(function, JoinedFunction) else function

    def _classes(self) -> CodeReader:
        """What reads codes, if it knows classes or tags."""
        if not isinstance(reader := self.reader_, CodeReader):
            raise ValueError("pairs name no classes; fit labels or tags, or ask for similarity_probability.")
        return reader

    def _recall(self, learned: dict[str, Any]) -> dict[str, Any]:
        function, sweeps = self._supervised, [Sweep(*record) for record in learned["sweeps_"]]
        reader = function.reader() if function.has_probabilities else None
        if reader is None:
            raise FaultError("it does not know how probable bits are, and what codes tell, and the method does")
        if (names := learned.pop("class_names_")) is not None:
            if not isinstance(reader, CodeReader) or len(set(names)) != reader.n_classes:
                raise FaultError(f"it names {len(set(names))} classes, and its function does not have so many")
            words = {"class_codes_": function.words} if isinstance(function, PosteriorFunction) else {}
            learned |= {"classes_": np.array(names), **words}
        scales = {"length_scale_": function.kernel.length_scale, "signal_scale_": function.kernel.signal_scale}
        return learned | scales | {"sweeps_": sweeps, "leave_one_out_score_": sweeps[-1].leave_one_out}

    def _settings(self, spill: bool) -> Settings:
        numbers = ("n_inducing", "n_representatives", "n_starts", "max_sweeps", "block_size")
        given: dict[str, Any] = {name: int(getattr(self, name)) for name in numbers}
        given |= {name: getattr(self, name) for name in ("codes", "inducing", "solver", "kernel")}
        for name in ("length_scale", "signal_scale", "similarity_scale", "pair_weight"):
            given[name] = None if (value := getattr(self, name)) == "auto" else float(value)
        limit = machine_memory() / 2 if self.memory_limit == "auto" else float(self.memory_limit)
        return Settings(
            n_bits=int(self.n_bits - self.n_free_bits),
            **given,
            unit_length=self.scaling == "unit",
            power=float(self.power),
            metric=self.metric is not None,
            memory_limit=limit if spill else np.inf,
            seed=validation.seed(self.random_state),
        )


def _learned(trained: training.Trained, free: LinearFunction | None, supervision: Any) -> dict[str, Any]:
    """Learned attributes by name."""
    learned: dict[str, Any] = {
        "hash_function_": trained.function if free is None else JoinedFunction(trained.function, free),
        "length_scale_": trained.chosen.kernel.length_scale,
        "signal_scale_": trained.chosen.kernel.signal_scale,
        "pair_weight_": trained.chosen.pair_weight,
        "sweeps_": trained.sweeps,
        "leave_one_out_score_": trained.sweeps[-1].leave_one_out,
        "seconds_": trained.seconds,
        "tags_": None,
    }
    if isinstance(supervision, Signatures) and supervision.kind == "labels" and supervision.classes is not None:
        taught = supervision[supervision.known]
        classes = supervision.classes[np.unique(taught.masks).astype(np.int64)]
        learned |= {"classes_": classes, "class_codes_": trained.words}
    elif isinstance(supervision, Signatures) and supervision.kind == "tags":
        learned["tags_"] = similarity.tags_there(supervision[supervision.known]).tolist()
    return learned


def _train(
    table: Table, supervision: Any, settings: Settings, executor: Any, callback: Any, keeper: Any, resumed: Any
) -> training.Trained:
    if settings.n_inducing > table.n_rows:
        words = f"n_inducing={settings.n_inducing} exceeds the {table.n_rows} rows of X; all rows are inducing inputs."
        warnings.warn(words, UserWarning, stacklevel=6)
    codes = None if keeper is None else keeper.codes
    try:
        trained = training.train(table, supervision, settings, executor, callback, keeper, resumed, codes)
    except BlocksLostError as error:
        needed = 4e-9 * table.n_rows * min(settings.n_inducing, table.n_rows)
        from gphash.cluster import dask_executor

        raise dask_executor.ClusterError(
            f"workers were lost again and again ({error}). If they were out of memory: the features of all "
            f"rows take {needed:.1f} GB, which workers share; give more or larger ones, or fewer n_inducing."
        ) from error
    finally:
        if keeper is not None:
            keeper.write()
    if (change := trained.sweeps[-1].change) > UNCONVERGED:
        words = f"training has not converged: its sites still change by {change:.0%} a sweep. "
        words += "A smaller signal_scale makes it converge more easily."
        warnings.warn(words, ConvergenceWarning, stacklevel=6)
    if trained.collapse is not None:
        warnings.warn(trained.collapse, UserWarning, stacklevel=6)
    return trained
