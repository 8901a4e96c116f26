"""How functions are compiled, and word of it when it takes time: the one user of numba.

Compiled code is kept on disk. The first use of every part after an installation compiles it; it takes seconds, and a
line in the log of `gphash.compiled` says so, once a process.
"""

import logging
from functools import partial
from typing import Any

from numba import njit
from numba.core import event
from numba.extending import intrinsic

jit: Any = partial(njit, nogil=True, cache=True)
"""Decorator of a compiled function: without the interpreter's lock, and kept on disk."""

log = logging.getLogger(__name__)


class Word(event.Listener):
    """Says once that something is being compiled, which is not the case for what is on disk."""

    said = False

    def on_start(self, event: Any) -> None:
        """Hear of the first."""
        if not self.said:
            self.said = True
            log.info("compiling for this machine; every part is compiled once, when it is first used, in seconds")

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


word = Word()
event.register("numba:compile", word)  # type: ignore[no-untyped-call]


@intrinsic
def _popcount(typing_context: Any, word: Any) -> Any:
    """Number of ones in an unsigned word."""
    return word(word), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


popcount: Any = _popcount


@jit(inline="always")
def alike_pair(mine: Any, theirs: Any, exact: bool) -> int:
    """1 when two rows' signatures (`supervision.similarity.Signatures`) say similar, else 0."""
    if exact:
        return 1 if mine[0] == theirs[0] else 0
    for w in range(len(mine)):
        if mine[w] & theirs[w]:
            return 1
    return 0
