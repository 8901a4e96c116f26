"""A model from its file, ready to encode: a hash function, and who has learned it.

Nothing that only training needs is imported here: whoever encodes and searches starts at once. The estimators of
scikit-learn's kind wrap the same functions and write the same files.
"""

import os
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import persistence, schema
from gphash.arrays import Floats
from gphash.features import scaling
from gphash.features.descriptor import Descriptor
from gphash.hamming import packing
from gphash.schema import Text

KIND = "model"
INSTEAD = "fit the model again, or get its file from where it was made"

FORMS = {
    "kernel": "gphash.functions.kernel",
    "linear": "gphash.functions.linear",
    "sinusoids": "gphash.functions.sinusoids",
    "trees": "gphash.functions.trees",
}
"""Modules of the forms of hash functions by the names that files have for them."""


class Function(Protocol):
    """A learned hash function."""

    form: ClassVar[str]
    """Its name in `FORMS`; the module there has a `restore` that undoes `content`."""

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    @property
    def n_features(self) -> int:
        """Width of a row."""

    @property
    def has_probabilities(self) -> bool:
        """Whether it knows how certain bits are; then there is a method `probabilities` beside `margins`."""

    def margins(self, X: Floats, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; the bit is 1 where this is not negative."""

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that decides about codes: what JSON can hold, and arrays."""


class Model(NamedTuple):
    """What a model file holds.

    function
        The hash function.
    method
        Name of the estimator that learned it.
    fingerprint
        Of the file's content: models with the same one compute the same codes.
    remarks
        What the estimator wanted to remember.
    descriptor
        How the pictures were described that it was trained with; None if nobody said, or for plain features.
    n_jobs
        Threads that encode.
    """

    function: Function
    method: str
    fingerprint: str
    remarks: dict[str, Any]
    descriptor: Descriptor | None = None
    n_jobs: int | None = -1

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.function.n_bits

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return self.function.n_features

    @property
    def has_probabilities(self) -> bool:
        """Whether the method knows how certain bits are."""
        return self.function.has_probabilities

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of rows [n, d], uint8 [n, ceil(n_bits / 8)]."""
        return packing.pack(self.function.margins(self._checked(X), self.n_jobs) >= 0)

    def bit_probabilities(self, X: ArrayLike) -> Floats:
        """P(bit = 1) of rows [n, d], [n, n_bits]."""
        function: Any = self.function
        if not self.has_probabilities:
            raise ValueError(f"the model is one of {self.method}, which tells no probabilities.")
        chances: Floats = function.probabilities(self._checked(X), self.n_jobs)
        return chances

    def _checked(self, X: ArrayLike) -> Floats:
        rows = np.asarray(X)
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != self.n_features or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"X is {rows.dtype} of shape {rows.shape}; give at least one row of numbers, [n, {self.n_features}], "
                "as the model was trained with."
            )
        # As the estimator has it: float32 holds short whole numbers exactly, all others become float64.
        short = rows.dtype == np.float32 or rows.dtype.itemsize <= 2
        rows = rows.astype(np.float32 if short else np.float64, copy=False)
        if not np.isfinite(rows).all():
            raise ValueError("X holds NaN or infinity; give finite numbers.")
        scaling.check_range(rows)
        return rows


def load(path: str | os.PathLike[str], n_jobs: int | None = -1) -> Model:
    """Read a model of any method, as `save` wrote it."""
    stored = persistence.read(path, KIND)
    with schema.reading(path, INSTEAD):
        function = restore(stored.meta, stored.arrays)
        descriptor = descriptor_of(stored.remarks, function)
    return Model(function, stored.meta["method"], stored.fingerprint, stored.remarks, descriptor, n_jobs)


def descriptor_of(remarks: dict[str, Any], function: Function) -> Descriptor | None:
    """How the pictures were described that a function was learned from; a FaultError if that cannot be."""
    try:
        found = Descriptor.from_meta(remarks.get("descriptor"))
    except ValueError as error:
        raise schema.FaultError(str(error)) from error
    if found is not None and found.n_features != function.n_features:
        raise schema.FaultError(f"it was trained on {found}, and takes {function.n_features} numbers")
    return found


def content(function: Function, method: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a file keeps of a hash function and the method that learned it."""
    meta, arrays = function.content()
    return {"method": method, "form": function.form, **meta}, arrays


def restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Function:
    """The hash function from what `content` gave; a FaultError says what is wrong with that."""
    for name, rule in (("method", Text()), ("form", Text(tuple(FORMS)))):
        rule.check(meta.get(name), name)
    own = {name: value for name, value in meta.items() if name not in ("method", "form")}
    function: Function = import_module(FORMS[meta["form"]]).restore(own, arrays)
    return function
