"""Whether two rows are similar, for compiled loops."""

from typing import Any

from gphash.compiled import jit


@jit(inline="always")
def alike_pair(mine: Any, theirs: Any, exact: bool) -> int:
    """1 when two signatures say similar, else 0; for numba loops."""
    if exact:
        return 1 if mine[0] == theirs[0] else 0
    for w in range(len(mine)):
        if mine[w] & theirs[w]:
            return 1
    return 0
