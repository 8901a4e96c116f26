"""Arrays too large for memory, in a temporary file that is mapped into memory and gone when nobody uses it any more."""

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Spill:
    """A nameless temporary file (in the folder that TMPDIR names); use it in a `with` statement.

    It is written by ordinary writes, so that a full disk is an error here and not a signal at some later page fault,
    and mapped once, whatever the number of arrays.
    """

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(prefix="gphash-")
        self._map: mmap.mmap | None = None
        return self

    def __exit__(self, *error: object) -> None:
        # Arrays that still look at the mapping keep it, not the file, alive.
        self._map = None
        self._file.close()

    def write(self, offset: int, array: NDArray[Any]) -> None:
        """Store an array's bytes at an offset; several threads may write different places at once."""
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        while view:
            written = os.pwrite(self._file.fileno(), view, offset)
            offset, view = offset + written, view[written:]

    def read(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array that was stored, as a read-only view of the file."""
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        flat = np.frombuffer(self._map, dtype=dtype, count=int(np.prod(shape)), offset=offset)
        return flat.reshape(shape)


def machine_memory() -> float:
    """Bytes of memory that this process may hope for: the machine's, or its container's if that is less."""
    memory = 8e9  # where the machine does not say
    with contextlib.suppress(AttributeError, ValueError, OSError):
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
