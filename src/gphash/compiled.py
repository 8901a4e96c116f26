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

log = logging.getLogger(__name__)


def jit(function: Any = None, /, **options: Any) -> Any:
    """Decorator of a compiled function: without the interpreter's lock, and kept on disk.

    Where nothing may be written, neither beside the module nor in the user's cache, every process compiles for itself:
    numba would refuse instead, and a service that may write nothing could not start.
    """
    if function is None:
        return partial(jit, **options)
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)


class CompilationNotice(event.Listener):
    """Logs a message on the first compilation; what is loaded from disk is not compiled."""

    said = False

    def on_start(self, event: Any) -> None:
        """Log the message, once."""
        if not self.said:
            self.said = True
            log.info("compiling for this machine; this takes a few seconds, once for each part of the program")

    def on_end(self, event: Any) -> None:
        """Do nothing."""


notice = CompilationNotice()
event.register("numba:compile", notice)  # type: ignore[no-untyped-call]


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
