"""A hash function behind the steps that prepare its rows: affine maps, after which rows may be scaled to length one.

    x ← (x A + a) / ‖x A + a‖,   in float64, step by step

A is a matrix, or a factor for every feature. Scalers, principal components and the like are such steps, and any number
of them without a scaling to length one in between is one step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gphash import arrays, schema
from gphash.arrays import Floats, HeldRows, Indices, Rows, SparseRows, widened
from gphash.codes.reading import CodeReader
from gphash.codes.trust import Trust
from gphash.functions import model as models
from gphash.functions.model import Function
from gphash.method.posteriors import Seen
from gphash.schema import Array, Each, Named, Record, Text

NORMS = {"none": 0, "l1": 1, "l2": 2}
"""What rows are divided by, and its order."""
MOST_STEPS = 100
BEHIND = "behind"  # what a file calls the hash function


class Step(NamedTuple):
    """An affine map, and what rows are divided by after it; a row of zeros stays one."""

    weights: Floats  # A, [d] or [d, k]
    offset: Floats  # a, [k]
    norm: str = "none"

    def apply(self, X: Any) -> Any:
        """Rows, [n, d], an array or sparse, prepared; sparse ones stay sparse where they can."""
        is_sparse = arrays.is_sparse(X)
        found = (
            X @ self.weights if self.weights.ndim == 2 else X.multiply(self.weights) if is_sparse else X * self.weights
        )
        if self.offset.any():
            found = (found.toarray() if arrays.is_sparse(found) else found) + self.offset
        if self.norm == "none":
            return found
        if arrays.is_sparse(found):
            from scipy.sparse import diags_array, linalg

            return diags_array(_inverse(linalg.norm(found, NORMS[self.norm], axis=1))) @ found.tocsr()
        return found * _inverse(np.linalg.norm(found, NORMS[self.norm], axis=1))[:, None]


def _inverse(lengths: Floats) -> Floats:
    return np.asarray(1 / np.where(lengths == 0, 1.0, lengths))


@dataclass(frozen=True, eq=False)
class PreparedRows(HeldRows):
    """Raw rows, prepared when they are asked for, float64."""

    raw: Rows
    steps: Sequence[Step]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, of prepared ones."""
        return len(self.raw), len(self.steps[-1].offset)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return np.dtype(np.float64)

    def __getitem__(self, rows: slice | Indices) -> NDArray[Any]:
        some = self.raw
        found: Any = some.matrix[rows].astype(np.float64) if isinstance(some, SparseRows) else widened(some[rows])
        for step in self.steps:
            found = step.apply(found)
        dense = np.ascontiguousarray(found.toarray() if arrays.is_sparse(found) else found, np.float64)
        arrays.check_range(dense)
        return dense


def rows(function: Any, X: Rows) -> Rows:
    """Raw rows as the hash function that steps may prepare them for takes them."""
    return function.prepared(X) if isinstance(function, PreparedFunction) else X


def behind(function: Any) -> Any:
    """The hash function of prepared rows."""
    return function.behind if isinstance(function, PreparedFunction) else function


@dataclass(frozen=True, eq=False)
class PreparedFunction:
    """Everything needed to encode a raw row."""

    steps: Sequence[Step]
    behind: Any  # the hash function of prepared rows

    def __repr__(self) -> str:
        return f"PreparedFunction({self.n_features} features → {self.behind})"

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return int(self.behind.n_bits)

    @property
    def n_features(self) -> int:
        """Width of a raw row."""
        return len(self.steps[0].weights)

    @property
    def has_probabilities(self) -> bool:
        """Whether the hash function knows how certain its bits are."""
        return bool(self.behind.has_probabilities)

    @property
    def trust(self) -> Trust | None:
        """What may be promised; None if the hash function does not know."""
        return getattr(self.behind, "trust", None)

    def prepared(self, X: Rows) -> PreparedRows:
        """Raw rows as the hash function takes them."""
        return PreparedRows(X, self.steps)

    def margins(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """How far on the 1 side every bit of every row is, [n, m]."""
        found: Floats = self.behind.margins(self.prepared(X), n_jobs)
        return found

    def probabilities(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(bit = 1), [n, m]; only some functions know it."""
        found: Floats = self.behind.probabilities(self.prepared(X), n_jobs)
        return found

    def look(self, X: Rows, n_jobs: int | None = 1) -> Seen:
        """Everything about rows; only a function with a reader knows it."""
        seen: Seen = self.behind.look(self.prepared(X), n_jobs)
        return seen

    def classes(self, X: Rows, n_jobs: int | None = 1) -> Floats:
        """P(class | x), or P(tag | x), [n, c]; only a function with a reader knows it."""
        found: Floats = self.behind.classes(self.prepared(X), n_jobs)
        return found

    def tell(self, chances: Floats) -> Floats:
        """The same from P(bit = 1) of sampled codes, [n, m]."""
        found: Floats = self.behind.tell(chances)
        return found

    def reader(self) -> CodeReader | None:
        """What reads codes; None if the hash function cannot."""
        reader = getattr(self.behind, "reader", None)
        return None if reader is None or not self.has_probabilities else reader()

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps."""
        meta, own = models.content(self.behind)
        kept = {f"{BEHIND}.{name}": array for name, array in own.items()}
        for number, step in enumerate(self.steps):
            kept |= {f"{number}.weights": step.weights, f"{number}.offset": step.offset}
        return {"norms": [step.norm for step in self.steps], BEHIND: meta}, kept

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The function from its content; a FaultError says what is wrong with that."""
        Record({"norms": Each(Text(tuple(NORMS)), 1), BEHIND: Named()}).check(meta, "")
        if len(norms := meta["norms"]) > MOST_STEPS:
            raise schema.FaultError(f"it has {len(norms)} steps; there may be {MOST_STEPS}")
        own = {name: one for name, one in arrays.items() if name.partition(".")[0] == BEHIND}
        given = {name: one for name, one in arrays.items() if name not in own}
        flat = [given.get(f"{number}.weights", np.empty(0)).ndim == 1 for number in range(len(norms))]
        sides = [f"side {sum(not one for one in flat[:number])}" for number in range(len(norms) + 1)]
        rules: dict[str, Array] = {}
        for number, is_flat in enumerate(flat):
            here, there = sides[number : number + 2]
            rules[f"{number}.weights"] = Array("<f8", (here,) if is_flat else (here, there))
            rules[f"{number}.offset"] = Array("<f8", (there,))
        schema.check(schema.Schema({}, rules, dict.fromkeys(sides, (1, 2**31))), {}, given)
        if meta[BEHIND].get("form") == "prepared":
            raise schema.FaultError("it has steps behind steps, which are one function")
        behind: Function = models.restore(
            meta[BEHIND], {name.removeprefix(f"{BEHIND}."): one for name, one in own.items()}
        )
        steps = [Step(given[f"{at}.weights"], given[f"{at}.offset"], norm) for at, norm in enumerate(norms)]
        if len(steps[-1].offset) != behind.n_features:
            raise schema.FaultError(
                f"its steps give {len(steps[-1].offset)} features, and it takes {behind.n_features}"
            )
        return cls(steps, behind)
