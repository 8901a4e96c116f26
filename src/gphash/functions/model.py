"""A model from its file, ready to encode: a hash function, and who has learned it.

Nothing that only training needs is imported here: whoever encodes and searches starts at once. The estimators of
scikit-learn's kind wrap the same functions and write the same files.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import arrays, container, schema
from gphash.arrays import Floats, HeldRows, Rows
from gphash.codes import packing
from gphash.codes.reading import CodeReader, Reader
from gphash.codes.trust import Trust
from gphash.data import frames
from gphash.data.descriptors.descriptor import Descriptor
from gphash.registry import Registry
from gphash.schema import Rule, Text

KIND = "model"
PIECE = 1 << 16  # rows that are encoded at a time
INSTEAD = "fit the model again, or get its file from where it was made"


class Function(Protocol):
    """A learned hash function; its class has a method `restore` that undoes `content`."""

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    @property
    def n_features(self) -> int:
        """Width of a row."""

    @property
    def has_probabilities(self) -> bool:
        """Whether it knows how certain bits are; then there is a method `probabilities` beside `margins`."""

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]; the bit is 1 where this is not negative."""

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that decides about codes: what JSON can hold, and arrays."""


FORMS: Registry[Any] = Registry(
    "form",
    {
        "kernel": "gphash.method.hashing:HashFunction",
        "posteriors": "gphash.method.posteriors:PosteriorFunction",
        "linear": "gphash.functions.projections:LinearFunction",
        "sinusoids": "gphash.functions.projections:SinusoidFunction",
        "trees": "gphash.functions.trees:TreesFunction",
        "joined": "gphash.functions.joined:JoinedFunction",
        "prepared": "gphash.functions.prepared:PreparedFunction",
    },
)
"""Classes of hash functions by the names that files have for them."""


class Looked(NamedTuple):
    """What is known of rows; None is what the method does not know."""

    packed: NDArray[np.uint8]  # codes, [n, ⌈m/8⌉]
    chances: Floats | None = None  # P(bit = 1), [n, m]
    classes: Floats | None = None  # P(class) or P(tag), [n, c]
    familiarity: Floats | None = None  # see `codes.trust`, [n]


class Model(NamedTuple):
    """What a model file holds."""

    function: Function
    method: str  # registered name of the method that learned it
    fingerprint: str  # of the file's content: models with the same one compute the same codes
    remarks: dict[str, Any]  # what the file says beside it, such as the parameters of the method
    descriptor: Descriptor | None = None  # how the pictures were described that it was trained with, if anybody said
    n_jobs: int | None = -1  # threads that encode

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
        return encode(self.function, self._taken(X), self.n_jobs)

    def encode_pieces(
        self, pieces: Iterable[ArrayLike], n_rows: int, tell: Callable[[int], None] | None = None
    ) -> NDArray[np.uint8]:
        """Packed codes of so many rows that come in pieces; `tell` is called with the number of rows done."""
        packed, done = np.empty((n_rows, -(-self.n_bits // 8)), np.uint8), 0
        for piece in pieces:
            codes = self.encode(piece)
            packed[done : done + len(codes)] = codes
            done += len(codes)
            if tell is not None:
                tell(done)
        return packed

    def bit_probabilities(self, X: ArrayLike) -> Floats:
        """P(bit = 1) of rows [n, d], [n, n_bits]."""
        function: Any = self.function
        if not self.has_probabilities:
            raise ValueError(f"the model's method, {self.method}, gives no bit probabilities.")
        chances: Floats = function.probabilities(self._taken(X), self.n_jobs)
        return chances

    @property
    def reader_(self) -> Reader | None:
        """What tells how probable it is that rows and codes are similar; None if the method does not know."""
        reader = getattr(self.function, "reader", None)
        return reader() if reader is not None and self.has_probabilities else None

    @property
    def trust_(self) -> Trust | None:
        """What may be promised of answers; None if the method does not know."""
        trust: Trust | None = getattr(self.function, "trust", None)
        return trust

    @property
    def class_names(self) -> list[str] | None:
        """What its classes or tags are called, in the order of their probabilities; None if it does not say."""
        if not isinstance(reader := self.reader_, CodeReader):
            return None
        learned, origin = (
            found if isinstance(found := self.remarks.get(name), dict) else {} for name in ("learned", "origin")
        )
        names, tags, columns = learned.get("class_names_"), learned.get("tags_"), origin.get("classes") or []
        if names is None and isinstance(tags, list):
            named = isinstance(columns, list) and all(isinstance(tag, int) and 0 <= tag < len(columns) for tag in tags)
            names = [columns[tag] for tag in tags] if named else tags
        return [*map(str, names)] if isinstance(names, list) and len(names) == reader.n_classes else None

    def look(self, X: ArrayLike) -> "Looked":
        """All that is known of rows [n, d], from one look at them."""
        function: Any = self.function
        rows = self.check_rows(X)
        if self.trust_ is None:
            chances = self.bit_probabilities(rows) if self.has_probabilities else None
            knows = isinstance(self.reader_, CodeReader)
            return Looked(self.encode(rows), chances, function.tell(chances) if knows else None)
        seen = function.look(rows, self.n_jobs)
        return Looked(packing.pack(seen.margins >= 0), seen.chances, seen.classes, seen.familiarity)

    def check_rows(self, X: ArrayLike | None, name: str = "X") -> Floats:
        """Rows [n, d] as float32 or float64; an error calls them by `name`."""
        rows = self._taken(X, name)
        return arrays.widened(rows[:] if isinstance(rows, HeldRows) else rows)

    def _taken(self, X: Any, name: str = "X") -> Rows:
        """Rows as the function takes them, which makes tiles of them wide and dense."""
        rows = X if isinstance(X, HeldRows) else frames.held(X, name)
        fits = len(rows.shape) == 2 and len(rows) and rows.shape[1] == self.n_features
        if not fits or rows.dtype.kind not in arrays.NUMBERS:
            raise ValueError(
                f"{name} has dtype {rows.dtype} and shape {rows.shape}; give at least one row of numbers, "
                f"[n, {self.n_features}], as the model was trained with."
            )
        arrays.check_numbers(rows, name)
        return rows


def encode(function: Function, X: Rows, n_jobs: int | None) -> NDArray[np.uint8]:
    """Packed codes of rows that have been checked; margins, 64 times as large, are never there for all of them."""
    packed = np.empty((len(X), -(-function.n_bits // 8)), np.uint8)
    for start in range(0, len(X), PIECE):
        rows = slice(start, start + PIECE)
        packed[rows] = packing.pack(function.margins(arrays.part(X, rows), n_jobs) >= 0)
    return packed


def load(path: str | os.PathLike[str], n_jobs: int | None = -1) -> Model:
    """Read a model of any method, as `save` wrote it."""
    stored = container.read(path, KIND)
    with schema.reading(path, INSTEAD):
        function = restore(stored.meta, stored.arrays)
        descriptor = descriptor_of(stored.remarks, function)
        Text().check(stored.remarks.get("method"), "method")
    return Model(function, stored.remarks["method"], stored.fingerprint, stored.remarks, descriptor, n_jobs)


def descriptor_of(remarks: dict[str, Any], function: Function) -> Descriptor | None:
    """How the pictures were described that a function was learned from; a FaultError if that cannot be."""
    try:
        found = Descriptor.from_meta(remarks.get("descriptor"))
    except ValueError as error:
        raise schema.FaultError(str(error)) from error
    if found is not None and found.n_features != function.n_features:
        raise schema.FaultError(f"it was trained on {found}, and takes {function.n_features} numbers")
    return found


def content(function: Function) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a file keeps of a hash function."""
    meta, arrays = function.content()
    return {"form": FORMS.name_of(type(function)), **meta}, arrays


def restore(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Function:
    """The hash function from what `content` gave; a FaultError says what is wrong with that."""
    form = Rule(f"one of {', '.join(FORMS)}", lambda name: isinstance(name, str) and name in FORMS)
    form.check(meta.get("form"), "form")
    own = {name: value for name, value in meta.items() if name != "form"}
    function: Function = FORMS[meta["form"]].restore(own, arrays)
    return function
