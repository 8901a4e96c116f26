"""Which items a search may return."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.index import buckets as bucketing
from gphash.index.buckets import Buckets


class Where(NamedTuple):
    """Items whose label is a certain one.

    labels
        One per item, in the order of `HammingIndex.ids`, [n].
    value
        The label wanted.
    """

    labels: ArrayLike
    value: Any


class Filter(NamedTuple):
    """Items that a search may return, worked out once for many searches.

    ids
        Ascending, int64 [a].
    version
        Of the index that it was made for; another one has other items.
    """

    ids: NDArray[np.int64]
    version: int


Allowed: TypeAlias = Filter | Where | Iterable[int] | ArrayLike


def resolve(allowed: Allowed, known: NDArray[np.int64], version: int) -> Filter:
    """Work out which of the known ids, ascending, are allowed."""
    if isinstance(allowed, Filter):
        if allowed.version != version:
            raise ValueError("allowed is a filter of another state of the index; make it again with index.filter(…).")
        return allowed
    if isinstance(allowed, Where):
        labels = np.asarray(allowed.labels)
        if np.ndim(allowed.value):
            raise ValueError(f"allowed.value is {allowed.value!r}; give one label, or a mask for several.")
        if labels.shape != (len(known),):
            raise ValueError(f"allowed.labels has shape {labels.shape}; give one label per item, [{len(known)}].")
        return Filter(known[labels == allowed.value], version)
    given: NDArray[Any] = np.asarray(_as_sequence(allowed))
    if given.dtype == bool:
        if given.shape != (len(known),):
            raise ValueError(
                f"allowed is a mask of shape {given.shape}; give one mark per item in the order of index.ids, "
                f"[{len(known)}]."
            )
        return Filter(known[given], version)
    if given.size == 0:
        return Filter(known[:0], version)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"allowed is {given.dtype} of shape {given.shape}; give a mask, a set of ids or Where(…).")
    # Numbers beyond 64 bits with a sign are nobody's, and must not become somebody's.
    wanted = np.unique(given[given <= np.iinfo(np.int64).max].astype(np.int64))
    return Filter(wanted[np.isin(wanted, known, assume_unique=True)], version)


def _as_sequence(allowed: Any) -> Any:
    """What numpy takes for an array; sets, keys and iterators become lists."""
    if isinstance(allowed, Sequence) or hasattr(allowed, "__array__") or not isinstance(allowed, Iterable):
        return allowed
    return list(allowed)


def marks(buckets: Buckets, allowed: Filter | None, alive: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For every place in `buckets.ids` whether it counts, and how many of every bucket do; empty if all do."""
    kept = alive
    if allowed is not None:
        found = np.isin(buckets.ids, allowed.ids)
        kept = found if not len(alive) else found & alive
    if not len(kept):
        return np.empty(0, bool), np.empty(0, np.int64)
    return kept, bucketing.counts(buckets, kept)
