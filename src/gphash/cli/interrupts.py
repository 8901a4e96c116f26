"""Ctrl-C that Python would lose.

An interrupt that arrives within a callback from C, as LLVM makes them while numba compiles, cannot be raised there:
Python prints it and goes on, and what called the callback may fail later with an error that nobody understands.
"""

import signal
import sys
from threading import Timer, main_thread
from types import TracebackType
from typing import Self

PAUSE = 0.05  # seconds before a lost interrupt is given again; by then the callback has most likely returned


class Interrupts:
    """Gives interrupts again that were lost in a callback; use it in a `with` statement, in the main thread.

    lost
        Whether there was one, so that any error since may be its doing.
    """

    def __enter__(self) -> Self:
        self.lost = False
        self._again: Timer | None = None
        self._before = sys.unraisablehook
        sys.unraisablehook = self._hear
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.settle()
        sys.unraisablehook = self._before

    def settle(self) -> None:
        """Give no interrupt again: the one that was lost is being dealt with."""
        if self._again is not None:
            self._again.cancel()

    def _hear(self, unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._before(unraisable)
            return
        self.lost = True
        self.settle()
        self._again = Timer(PAUSE, _interrupt)
        self._again.daemon = True
        self._again.start()


def _interrupt() -> None:
    """Interrupt the main thread, which may be asleep."""
    if hasattr(signal, "pthread_kill") and (main := main_thread().ident) is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
