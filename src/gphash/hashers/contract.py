"""What every hashing method of the package promises: scikit-learn's conventions, codes, a score, and one file.

A method learns a hash function, which gives every row a margin per bit; the bit is 1 where the margin is not negative.
`Hasher` does the rest, the same for all.
"""

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gphash import container, schema
from gphash.arrays import Floats
from gphash.codes import packing
from gphash.codes.packing import MOST_BITS
from gphash.data.descriptors.descriptor import Descriptor
from gphash.evaluation import retrieval
from gphash.execution.local import Executor, LocalExecutor, count_jobs
from gphash.functions import model as models
from gphash.functions.model import KIND, Function
from gphash.hashers import validation
from gphash.hashers.methods import METHODS
from gphash.schema import Each, FaultError, Maybe, Named, Plain, Record, Rule, Text
from gphash.supervision import targets
from gphash.supervision.similarity import Pairs

if TYPE_CHECKING:
    from gphash.functions.exporting import Exported
    from gphash.functions.onnx_encoders import EncoderGraph

REMARKS: Mapping[str, Rule] = {
    "method": Text(),
    "parameters": Named(Plain()),
    "feature_names": Maybe(Each(Text())),
    "origin": Maybe(Named()),
    "descriptor": Maybe(Named()),
}
"""What a file remarks about any model."""


_fingerprints: WeakKeyDictionary[Function, str] = WeakKeyDictionary()  # a search asks for it every time


@dataclass(eq=False, repr=False)
class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A method that learns binary codes.

    A method is a dataclass of its parameters, which says in `takes` what it can learn from, and learns in `_train`.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    n_jobs : int or None
        Threads; −1 uses all cores, None one. Never changes a result.
    random_state : int, RandomState or None
        Seed of everything random.

    Attributes
    ----------
    hash_function_ : Function
        All that encoding needs.
    n_features_in_ : int
        Width of the training rows.
    """

    # Kinds of supervision that `fit` can use; with none, it learns from X alone and ignores y.
    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")
    # Which of `executor`, `checkpoint` and `callback` its `fit` can use.
    runs_with: ClassVar[tuple[str, ...]] = ()
    # Learned attributes that a file keeps beside the hash function, and what they may be there.
    LEARNED: ClassVar[Mapping[str, Rule]] = {}

    n_bits: int = validation.whole(16, MOST_BITS)
    _: KW_ONLY
    n_jobs: int | None = -1
    random_state: int | np.random.RandomState | None = validation.RANDOM_STATE

    hash_function_: Function = field(init=False)
    # How the pictures were described that the model was trained with, if a file says so.
    descriptor_: Descriptor | None = field(default=None, init=False)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | Pairs | None = None,
        *,
        executor: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[Any], None] | None = None,
        **others: Any,
    ) -> Self:
        """Learn the hash function.

        The last three say where and how training runs. They never change the result, so they are not parameters of the
        method. Only `GPHasher` can use them; other methods refuse them.

        Parameters
        ----------
        X : array of shape [n, d], such a matrix of scipy.sparse, or a table of Arrow's or a frame of polars
            Features. `GPHasher` reads them a block at a time: rows of float16 or int8, a mapped file and sparse rows
            are never copied as a whole. Other methods make float32 or float64 of them.
        y : labels [n], 0/1 tags [n, c], or Pairs
            Rows are similar when their labels are equal, when they share a tag, or as the pairs say. Methods that
            learn from X alone ignore it. Rows with the label −1, None, NaN or a blank word have no label; nor do rows
            whose tags are all −1 or NaN. They are left out, and a warning says how many.
        executor : dask.distributed.Client, address of a scheduler, or None
            Cluster to train on; X is then a dask array, or a folder of blocks that its workers can read. None trains
            in threads of this process.
        checkpoint : path or None
            File to keep the state of training in. When it exists, training goes on from it; it must come from the same
            data and parameters. On a cluster, workers keep the codes of their rows beside it, in a folder that all
            must see.
        callback : callable or None
            Called with a `Sweep` record (number, flips, leave_one_out, seconds, …) after every sweep.
        others
            What only some methods take: `sample_weight` of `GPHasher`. Others refuse it.
        """
        self.check_parameters()
        for name in others:
            if name not in self.runs_with:
                raise TypeError(f"{type(self).__name__} cannot use {name}; leave it out. GPHasher takes sample_weight.")
        for name, value in (("executor", executor), ("checkpoint", checkpoint), ("callback", callback)):
            if value is not None and name not in self.runs_with:
                raise ValueError(f"{type(self).__name__} cannot use {name}={value!r}; leave {name} out.")
        # A twin learns, so that until the end a model that was there before stays as it was.
        twin = copy.copy(self)
        learned = twin._learn(X, y, executor, checkpoint, callback, **others)
        kept = {name: value for name, value in vars(twin).items() if not name.endswith("_") or name.endswith("_in_")}
        self.__dict__ = kept | learned
        return self

    def check_parameters(self) -> None:
        """Refuse bad parameters, without any rows; `fit` does so first."""
        for known in fields(self):
            if "fits" in known.metadata and not known.metadata["fits"](value := getattr(self, known.name)):
                raise ValueError(f"{known.name}={value!r}; give {known.metadata['need']}.")
        count_jobs(self.n_jobs)

    def _learn(self, X: Any, y: Any, executor: Any, checkpoint: Any, callback: Any) -> dict[str, Any]:
        """Learned attributes by name, `hash_function_` among them."""
        seed = validation.seed(self.random_state)
        rows = validation.features(self, X, reset=True)
        supervision = targets.supervision(y, len(rows), True, type(self).__name__, self.takes) if self.takes else None
        if supervision is not None and len(known := supervision.known) < len(rows):
            rows, supervision = rows[known], supervision.among(known)
        with LocalExecutor(self.n_jobs) as threads:
            return self._train(rows, supervision, seed, threads)

    def _train(self, X: Floats, supervision: Any, seed: int, executor: Executor) -> dict[str, Any]:
        """Learned attributes from rows that have been checked; `supervision` is None if the method takes none."""
        raise NotImplementedError

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes, uint8 [n, ceil(n_bits / 8)]; bit j in numpy's `packbits` order, spare bits zero."""
        check_is_fitted(self, "hash_function_")
        return models.encode(self.hash_function_, validation.rows(self, X, reset=False), self.n_jobs)

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Codes as 0/1, uint8 [n, n_bits]."""
        packed = self.encode(X)
        return packing.unpack(packed, self.hash_function_.n_bits)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Mean average precision, tie-aware, when each row of X is searched for among the others by Hamming distance.

        Rows that have no similar one among the others are left out of the mean. Rows without a label are neither
        searched for nor found.

        Parameters
        ----------
        X : array of shape [n, d]
            Features.
        y : labels [n] or 0/1 tags [n, c]
            What counts as similar.
        """
        packed, n_bits = self.encode(X), self._n_features_out
        signatures = targets.signatures(y, len(packed))
        known = signatures.known
        quality = retrieval.mean_average_precision(packed[known], signatures[known], n_bits, n_jobs=self.n_jobs)
        if np.isnan(quality):
            raise ValueError("no two rows of X are similar according to y, so there is nothing to find.")
        return quality

    @property
    def fingerprint_(self) -> str:
        """SHA-256 of the hash function: models with the same fingerprint compute the same codes and probabilities."""
        check_is_fitted(self, "hash_function_")
        function = self.hash_function_
        if function not in _fingerprints:
            _fingerprints[function] = container.fingerprint(KIND, *models.content(function))
        return _fingerprints[function]

    def save(
        self, path: str | os.PathLike[str], origin: dict[str, Any] | None = None, descriptor: Descriptor | None = None
    ) -> str:
        """Write the model to one file and return its fingerprint; an old file is replaced only by a complete one.

        Parameters
        ----------
        path
            The file.
        origin
            Anything worth keeping about what the model was learned from, in JSON's types; codes do not depend on it.
        descriptor
            How pictures were made into the rows it was learned from: pictures that are described in another way are
            then refused. A model that was read from a file keeps what that said.
        """
        check_is_fitted(self, "hash_function_")
        self.check_parameters()
        container.check_replaceable(path, KIND)
        function, known = self.hash_function_, descriptor or self.descriptor_
        if self.n_bits != function.n_bits:
            raise ValueError(f"n_bits={self.n_bits!r} was set after fit, which gave {function.n_bits} bits; fit again.")
        plain = (type(None), bool, int, float, str, np.integer, np.floating)
        given = self.get_params(deep=False).items()
        remarks: dict[str, Any] = {
            "method": METHODS.name_of(type(self)),
            "parameters": {name: value for name, value in given if isinstance(value, plain)},
            "learned": {name: getattr(self, name) for name in self.LEARNED},
            "feature_names": [*map(str, self.feature_names_in_)] if hasattr(self, "feature_names_in_") else None,
            "origin": origin,
            "descriptor": None if known is None else known.to_meta(),
        }
        models.descriptor_of(remarks, function)
        return container.write(path, KIND, *models.content(function), remarks)

    def to_onnx(
        self, path: str | os.PathLike[str], *, codes_only: bool = False, behind: "EncoderGraph | None" = None
    ) -> "Exported":
        """Write the model as an ONNX file that any runtime encodes with, and tell how it compares with the model.

        Its input is `rows`, float32 [n, d]. Its outputs are `codes`, packed as `encode` gives them, and, if the method
        knows them, `bit_probabilities` and `class_probabilities`. Codes are compared first, on rows near the inducing
        inputs: they must be equal but for bits whose sign rounding decides.

        Parameters
        ----------
        path
            The file. Only an ONNX graph of gphash is replaced, and only by a complete one.
        codes_only
            Leave probabilities out.
        behind : gphash.functions.onnx_encoders.EncoderGraph or None
            An encoder's graph to put in front. The inputs are then the encoder's, and `rows` is one of the outputs.
            If the model knows the encoder that it was trained with, another one is refused, and rows are made as then.
        """
        from gphash.functions import exporting

        check_is_fitted(self, "hash_function_")
        names = getattr(self, "class_names_", None) or getattr(self, "tags_", None)
        about = self.hash_function_, path, self.fingerprint_, names
        return exporting.export(*about, codes_only=codes_only, behind=behind, trained=self.descriptor_)

    def _recall(self, learned: dict[str, Any]) -> dict[str, Any]:
        """Learned attributes from those that a file keeps."""
        return learned

    @property
    def _n_features_out(self) -> int:
        return int(self.hash_function_.n_bits)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = bool(self.takes)
        tags.target_tags.two_d_labels = "tags" in self.takes
        tags.transformer_tags.preserves_dtype = []
        return tags


def load(path: str | os.PathLike[str]) -> Hasher:
    """Read a model of any method, as its `save` wrote it, ready to encode."""
    stored = container.read(path, KIND)
    remarks = stored.remarks
    with schema.reading(path, models.INSTEAD):
        Text().check(remarks.get("method"), "method")
        try:
            method: type[Hasher] = METHODS.find(remarks["method"])
        except ValueError as error:
            raise FaultError(f"its method is not known here: {error}") from error
        function = models.restore(stored.meta, stored.arrays)
        Record({**REMARKS, "learned": Record(method.LEARNED)}).check(remarks, "")
        hasher = method(**remarks["parameters"])
        hasher.check_parameters()
        if hasher.n_bits != function.n_bits:
            raise FaultError(f"it is of {hasher.n_bits} bits, and its function of {function.n_bits}")
        if (names := remarks["feature_names"]) is not None:
            if len(names) != function.n_features:
                raise FaultError(f"it names {len(names)} features, and its function takes {function.n_features}")
            hasher.feature_names_in_ = np.array(names, dtype=object)
        hasher.hash_function_, hasher.n_features_in_ = function, function.n_features
        if (described := models.descriptor_of(remarks, function)) is not None:
            hasher.descriptor_ = described
        hasher.__dict__.update(hasher._recall(remarks["learned"]))
    return hasher
