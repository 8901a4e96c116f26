"""Which items a search may return."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.index.contents import Contents, Filter


class Where(NamedTuple):
    """Items whose label is a certain one.

    labels
        One per item, in the order of `HammingIndex.ids`, [n].
    value
        The label wanted.
    """

    labels: ArrayLike
    value: Any


Allowed: TypeAlias = Filter | Where | Iterable[int] | ArrayLike


def resolve(allowed: Allowed, contents: Contents) -> Filter:
    """Work out which items are allowed."""
    known, state = contents.ids, contents.state
    if isinstance(allowed, Filter):
        if allowed.state is not state:
            raise ValueError("allowed is a filter of another state of the index; make it again with index.filter(…).")
        return allowed
    if isinstance(allowed, Where):
        labels = np.asarray(allowed.labels)
        if np.ndim(allowed.value):
            raise ValueError(f"allowed.value is {allowed.value!r}; give one label, or a mask for several.")
        if labels.shape != (len(known),):
            raise ValueError(f"allowed.labels has shape {labels.shape}; give one label per item, [{len(known)}].")
        return Filter(known[labels == allowed.value], state)
    given: NDArray[Any] = np.asarray(as_sequence(allowed))
    if given.dtype == bool:
        if given.shape != (len(known),):
            raise ValueError(
                f"allowed is a mask of shape {given.shape}; give one mark per item in the order of index.ids, "
                f"[{len(known)}]."
            )
        return Filter(known[given], state)
    if given.size == 0:
        return Filter(known[:0], state)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"allowed is {given.dtype} of shape {given.shape}; give a mask, a set of ids or Where(…).")
    # Numbers beyond 64 bits with a sign are nobody's, and must not become somebody's.
    numbers = given[given <= np.iinfo(np.int64).max].astype(np.int64)
    wanted = np.unique(numbers)
    if len(numbers) == len(known) > 2 and np.isin(wanted, [0, 1]).all():
        raise ValueError("allowed looks like a mask of numbers; give one of dtype bool, or ids.")
    return Filter(wanted[np.isin(wanted, known, assume_unique=True)], state)


def as_sequence(allowed: Any) -> Any:
    """What numpy takes for an array; sets, keys and iterators become lists."""
    if isinstance(allowed, Sequence) or hasattr(allowed, "__array__") or not isinstance(allowed, Iterable):
        return allowed
    return list(allowed)
