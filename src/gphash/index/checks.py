"""What users hand to an index is checked here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.hamming import packing
from gphash.index import buckets as bucketing
from gphash.index.buckets import Words
from gphash.index.filters import as_sequence


def whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}; give a whole number of at least {least}.")


def bits(n_bits: Any) -> None:
    """Refuse a length that no code has."""
    whole("n_bits", n_bits, 1)
    if n_bits > packing.MOST_BITS:
        raise ValueError(f"n_bits={n_bits}; give at most {packing.MOST_BITS}.")


def words(packed: NDArray[Any], n_bits: Any, name: str) -> Words:
    """Checked packed codes as words."""
    bits(n_bits)
    return bucketing.to_words(packing.check_packed(packed, int(n_bits), name), int(n_bits))


def distinct_ids(ids: Any, n_rows: int | None) -> NDArray[np.int64]:
    """Checked ids, int64 and distinct."""
    numbers = np.asarray(as_sequence(ids))
    if numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype.kind in "fO" and not isinstance(ids, np.ndarray) and all(isinstance(one, int) for one in ids):
        raise ValueError("ids has numbers that do not fit in 64 bits with a sign.")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"ids is {numbers.dtype} of shape {numbers.shape}; give whole numbers, [n].")
    if n_rows is not None and len(numbers) != n_rows:
        raise ValueError(f"ids has {len(numbers)} numbers and packed has {n_rows} rows; give one id per row.")
    if numbers.dtype.kind == "u" and len(numbers) and numbers.max() > np.iinfo(np.int64).max:
        raise ValueError(f"ids has {numbers.max()}; give numbers that fit in 64 bits with a sign.")
    numbers = numbers.astype(np.int64)
    if n_rows is not None and len(np.unique(numbers)) < len(numbers):
        values, times = np.unique(numbers, return_counts=True)
        raise ValueError(f"ids has {int(values[times > 1][0])} {int(times.max())} times; give every id once.")
    return numbers
