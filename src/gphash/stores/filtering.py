"""Items that a caller names: read from the store, and searched in memory."""

import numpy as np
from numpy.typing import NDArray

from gphash.index import filters
from gphash.index.contents import Contents, Filter
from gphash.index.filters import Allowed, Where
from gphash.index.hamming_index import HammingIndex
from gphash.stores import reading
from gphash.stores.conditions import Condition
from gphash.stores.postgres import Session
from gphash.stores.tables import Tables

LAST = np.iinfo(np.int64).max


def among(session: Session, tables: Tables, allowed: Allowed, condition: Condition | None) -> HammingIndex:
    """An index of the items that are allowed and pass a condition."""
    packed, numbers = reading.some(session, tables, _ids(session, tables, allowed), condition)
    return HammingIndex.build(packed, numbers, n_bits=tables.form.n_bits)


def _ids(session: Session, tables: Tables, allowed: Allowed) -> NDArray[np.int64]:
    """Ids that a filter names."""
    if isinstance(allowed, Filter):
        return allowed.ids
    contents = Contents(())
    if not isinstance(allowed, Where):
        allowed = np.asarray(filters.as_sequence(allowed))
    # Whose place in the order of ids counts, or might be meant to, needs all ids.
    plain = isinstance(allowed, np.ndarray) and allowed.dtype.kind in "iu" and not np.isin(allowed, [0, 1]).all()
    if plain and isinstance(allowed, np.ndarray):
        contents.__dict__["ids"] = np.unique(allowed[allowed <= LAST].astype(np.int64))
    else:
        contents.__dict__["ids"] = reading.ids(session, tables)
    return filters.resolve(allowed, contents).ids
