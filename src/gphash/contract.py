"""What every hashing method of the package promises: scikit-learn's conventions, codes, a score, and one file.

A method learns a hash function, which gives every row a margin per bit; the bit is 1 where the margin is not negative.
`Hasher` does the rest, the same for all.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gphash import persistence, validation
from gphash.arrays import Floats
from gphash.coding.similarity import PairGraph, Pairs, Signatures
from gphash.evaluation import metrics, retrieval
from gphash.features.descriptor import Descriptor
from gphash.functions import model as models
from gphash.functions.model import KIND, Function
from gphash.hamming import packing
from gphash.schema import Each, FaultError, Maybe, Named, Plain, Record, Rule, Text, Whole

REMARKS: Mapping[str, Rule] = {
    "parameters": Named(Plain()),
    "feature_names": Maybe(Each(Text())),
    "origin": Maybe(Named()),
    "descriptor": Maybe(Named()),
}
"""What a file remarks about any model."""


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A method that learns binary codes.

    A method says in `takes` what it can learn from, and learns in `_learn`.
    """

    takes: ClassVar[tuple[str, ...]] = ("labels", "tags", "pairs")
    """Kinds of supervision that `fit` can use; with none, it learns from X alone and ignores y."""

    whereabouts: ClassVar[tuple[str, ...]] = ()
    """Parameters that say where training is done, not what: a file does not keep them."""

    LEARNED: ClassVar[Record] = Record({})
    """What `_remarks` gives."""

    descriptor_: Descriptor | None = None
    """How the pictures were described that the model was trained with, if a file says so."""

    hash_function_: Function
    n_bits: int
    n_jobs: int | None

    def fit(self, X: ArrayLike, y: ArrayLike | Pairs | None = None) -> Self:
        """Learn the hash function.

        Parameters
        ----------
        X : array of shape [n, d]
            Features.
        y : labels [n], 0/1 tags [n, c], or Pairs
            Rows are similar when their labels are equal, when they share a tag, or as the pairs say. Methods that
            learn from X alone ignore it.
        """
        # Until the end, a model that was there before stays as it was.
        before = dict(self.__dict__)
        try:
            learned = self._learn(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        stale = [name for name in before if name.endswith("_") and not name.endswith("_in_")]
        for name in stale:
            del self.__dict__[name]
        self.__dict__.update(learned)
        return self

    def _learn(self, X: ArrayLike, y: ArrayLike | Pairs | None) -> dict[str, Any]:
        """Learned attributes by name, `hash_function_` among them."""
        raise NotImplementedError

    def _supervision(self, y: ArrayLike | Pairs | None, n_rows: int, balance_pairs: bool) -> Signatures | PairGraph:
        """What is similar, in a form that this method can learn from."""
        return validation.supervision(y, n_rows, balance_pairs, type(self).__name__, self.takes)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes, uint8 [n, ceil(n_bits / 8)]; bit j in numpy's `packbits` order, spare bits zero."""
        return packing.pack(self._margins(X) >= 0)

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Codes as 0/1, uint8 [n, n_bits]."""
        return (self._margins(X) >= 0).astype(np.uint8)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Mean average precision, tie-aware, when each row of X is searched for among the others by Hamming distance.

        Rows that have no similar one among the others are left out of the mean.

        Parameters
        ----------
        X : array of shape [n, d]
            Features.
        y : labels [n] or 0/1 tags [n, c]
            What counts as similar.
        """
        packed = self.encode(X)
        signatures = validation.signatures(y, len(packed))
        collection = retrieval.store(packed, signatures)
        found = retrieval.rank_by_hamming(
            packed, signatures, collection, self.hash_function_.n_bits, leave_one_out=True, n_jobs=self.n_jobs
        )
        quality = metrics.mean(found.average_precision)
        if np.isnan(quality):
            raise ValueError("no row of X has a similar one in X by y, so that there is nothing to find.")
        return quality

    @property
    def fingerprint_(self) -> str:
        """SHA-256 of the hash function: models with the same fingerprint compute the same codes and probabilities."""
        check_is_fitted(self, "hash_function_")
        return persistence.fingerprint(KIND, *self._content())

    def save(
        self,
        path: str | os.PathLike[str],
        origin: dict[str, Any] | None = None,
        descriptor: Descriptor | None = None,
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
        persistence.check_replaceable(path, KIND)
        if self.n_bits != self.hash_function_.n_bits:
            raise ValueError(
                f"n_bits={self.n_bits!r} was set after fit, which gave {self.hash_function_.n_bits} bits; fit again."
            )
        names = [str(name) for name in self.feature_names_in_] if hasattr(self, "feature_names_in_") else None
        given = self.get_params(deep=False).items()
        parameters = {name: value for name, value in given if name not in self.whereabouts and _plain(value)}
        remarks = {"parameters": parameters, "feature_names": names, "learned": self._remarks(), "origin": origin}
        known = descriptor or self.descriptor_
        remarks["descriptor"] = None if known is None else known.to_meta()
        models.descriptor_of(remarks, self.hash_function_)
        return persistence.write(path, KIND, *self._content(), remarks)

    def _content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return models.content(self.hash_function_, type(self).__name__)

    def _remarks(self) -> dict[str, Any]:
        """Learned attributes beside the hash function, in JSON's types, for the file."""
        return {}

    def _recall(self, remarks: dict[str, Any]) -> dict[str, Any]:
        """Learned attributes from what `_remarks` gave."""
        return dict(remarks)

    @classmethod
    def from_container(cls, stored: persistence.Container) -> Self:
        """A hasher, ready to encode, from what `save` wrote; a FaultError says what is wrong with that."""
        function = models.restore(stored.meta, stored.arrays)
        cls._check_remarks(stored.remarks, function)
        known = cls._get_param_names()
        hasher = cls(**{name: value for name, value in stored.remarks["parameters"].items() if name in known})
        hasher.hash_function_ = function
        if (described := models.descriptor_of(stored.remarks, function)) is not None:
            hasher.descriptor_ = described
        hasher.n_features_in_ = function.n_features
        if stored.remarks["feature_names"] is not None:
            hasher.feature_names_in_ = np.array(stored.remarks["feature_names"], dtype=object)
        hasher.__dict__.update(hasher._recall(stored.remarks["learned"]))
        return hasher

    @classmethod
    def _check_remarks(cls, remarks: dict[str, Any], function: Function) -> None:
        """Refuse remarks that `save` has not written about such a function."""
        Record({**REMARKS, "learned": cls.LEARNED}).check(remarks, "")
        parameters, names = remarks["parameters"], remarks["feature_names"]
        if parameters.get("n_bits") != function.n_bits:
            raise FaultError(f"it is of {parameters.get('n_bits')!r} bits, and its function of {function.n_bits}")
        if names is not None and len(names) != function.n_features:
            raise FaultError(f"it has {len(names)} names of features, and its function takes {function.n_features}")
        Maybe(Whole(-(2**31), 2**31)).check(parameters.get("n_jobs"), "parameters.n_jobs")
        if parameters.get("n_jobs") == 0:
            raise FaultError("the field 'parameters.n_jobs' is 0; it must be another whole number, or nothing")

    def _margins(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "hash_function_")
        return self.hash_function_.margins(validation.features(self, X, reset=False), self.n_jobs)

    @property
    def _n_features_out(self) -> int:
        return int(self.hash_function_.n_bits)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.takes)
        tags.target_tags.two_d_labels = "tags" in self.takes
        tags.transformer_tags.preserves_dtype = []
        return tags


def _plain(value: object) -> bool:
    """Whether a parameter can be kept in a file: a number, a word, or nothing."""
    return value is None or isinstance(value, bool | int | float | str | np.integer | np.floating)
