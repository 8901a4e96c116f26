"""Checks of what users hand to an index."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.codes import packing
from gphash.index import buckets as bucketing
from gphash.index.buckets import Words

LAST = np.iinfo(np.int64).max


def whole(name: str, value: Any, least: int) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}; give a whole number of at least {least}.")
    return int(value)


def length(n_bits: Any) -> int:
    """A length that a code can have."""
    if whole("n_bits", n_bits, 1) > packing.MOST_BITS:
        raise ValueError(f"n_bits={n_bits}; give at most {packing.MOST_BITS}.")
    return int(n_bits)


def words(packed: ArrayLike, n_bits: Any) -> Words:
    """Packed codes as words."""
    n_bits = length(n_bits)
    return bucketing.to_words(packing.check_packed(packed, n_bits), n_bits)


def probabilities(chances: ArrayLike, n_bits: int) -> Floats:
    """P(bit = 1) of some queries, [q, n_bits], as float64."""
    given = np.asarray(chances)
    if given.ndim != 2 or given.shape[1] != n_bits:
        raise ValueError(f"probabilities has shape {given.shape}; give P(bit = 1), [q, {n_bits}].")
    if given.dtype.kind not in "fiub" or not ((given >= 0) & (given <= 1)).all():
        raise ValueError("probabilities has NaN or values outside of 0 to 1; give P(bit = 1) for every bit.")
    return given.astype(np.float64)


def distinct_ids(ids: Any, n_rows: int | None) -> NDArray[np.int64]:
    """Ids as int64; with a number of rows, as many as those, and all different."""
    numbers = np.asarray(as_sequence(ids))
    if numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype.kind in "fO" and not isinstance(ids, np.ndarray) and all(isinstance(one, int) for one in ids):
        raise ValueError("ids has numbers that do not fit in 64 bits with a sign.")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"ids is {numbers.dtype} of shape {numbers.shape}; give whole numbers, [n].")
    if n_rows is not None and len(numbers) != n_rows:
        raise ValueError(f"ids has {len(numbers)} numbers and packed has {n_rows} rows; give one id per row.")
    if numbers.dtype.kind == "u" and len(numbers) and numbers.max() > LAST:
        raise ValueError(f"ids has {numbers.max()}; give numbers that fit in 64 bits with a sign.")
    numbers = numbers.astype(np.int64)
    if n_rows is not None and len(np.unique(numbers)) < len(numbers):
        values, times = np.unique(numbers, return_counts=True)
        raise ValueError(f"ids has {int(values[times > 1][0])} {int(times.max())} times; give every id once.")
    return numbers


def refuse_known(ids: NDArray[np.int64], there: NDArray[np.bool_]) -> None:
    """Refuse ids of which some are in the index."""
    if there.any():
        raise ValueError(
            f"ids has {int(ids[there][0])}, which is in the index already ({int(there.sum())} such); "
            "remove it first, or give another id."
        )


def fingerprint_of(model: Any) -> str | None:
    """The fingerprint of a hasher, or the fingerprint that is given."""
    if model is None or isinstance(model, str):
        return model
    if not hasattr(model, "fingerprint_"):
        raise ValueError(f"model={model!r}; give a fitted hasher or its fingerprint.")
    mark: str = model.fingerprint_
    return mark


def as_sequence(given: Any) -> Any:
    """What numpy takes for an array; sets, keys and iterators become lists."""
    if isinstance(given, Sequence) or hasattr(given, "__array__") or not isinstance(given, Iterable):
        return given
    return list(given)
