"""The gallery that requests are answered from, and its replacement by a newer one while they run."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from gphash import persistence
from gphash.gallery import opening
from gphash.gallery.gallery import Gallery
from gphash.server import logs

SUFFIXES = ("", ".journal", ".items", ".items.next", ".added")
BLANK = 64  # pixels a side of a picture to try with
RETRY_SECONDS = 60.0  # at most, between two attempts to open files that cannot be opened

Signature = tuple[tuple[int, int, int] | None, ...]


class _Copy:
    """An opened gallery, how many requests use it, and whether it is to be closed after them."""

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery
        self.users = 0
        self.retired = False

    def close_if_unused(self) -> None:
        if self.retired and not self.users:
            self.gallery.close()


class Shelf:
    """Where the current gallery stands. All methods belong to the thread of the event loop.

    Parameters
    ----------
    path, model, writable
        As for `Gallery.open`.
    count
        Told "done" or "failed" after every reload.
    pictures
        As for `Gallery.open`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: str | os.PathLike[str] | None,
        writable: bool,
        count: Callable[[str], None],
        pictures: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path = Path(path)
        self._model = model
        self._writable = writable
        self._count = count
        self._pictures = pictures
        # Looked at before opening: a change in between is then seen as one.
        self._seen = self._signature()
        self._copy = _Copy(Gallery.open(path, model=model, writable=writable, pictures=pictures))
        self._reloading = asyncio.Lock()

    @property
    def gallery(self) -> Gallery:
        """The current gallery, for a glance; whoever works with it takes a `lease`."""
        return self._copy.gallery

    @contextmanager
    def lease(self) -> Iterator[Gallery]:
        """The current gallery; it stays open until it is given back."""
        copy = self._copy
        copy.users += 1
        try:
            yield copy.gallery
        finally:
            copy.users -= 1
            copy.close_if_unused()

    async def reload(self, reason: str) -> bool:
        """Open the files again, and take what was opened for the requests to come; the old one stays if that fails."""
        if self._writable:
            logs.event("reload", reason=reason, result="not needed: this service is the only writer")
            return False
        async with self._reloading:
            try:
                seen = await asyncio.to_thread(self._signature)
                fresh = await asyncio.to_thread(self._open)
            # Whatever is wrong with the new files, the old ones are being served.
            except Exception as error:
                logs.event("reload", reason=reason, result="failed", error=f"{type(error).__name__}: {error}")
                self._count("failed")
                return False
            self._seen = seen
            old, self._copy = self._copy, _Copy(fresh)
            old.retired = True
            old.close_if_unused()
            logs.event("reload", reason=reason, result="done", items=len(fresh))
            self._count("done")
            return True

    async def watch(self, seconds: float) -> None:
        """Reload whenever somebody else has replaced the files; if that fails, at once when they change, else later."""
        loop = asyncio.get_running_loop()
        failed, delay, due = self._seen, seconds, 0.0
        while True:
            await asyncio.sleep(seconds)
            found = await asyncio.to_thread(self._signature)
            if found == self._seen or (found == failed and loop.time() < due):
                continue
            delay = min(2 * delay, RETRY_SECONDS) if found == failed else seconds
            if not await self.reload("files changed"):
                failed, due = found, loop.time() + delay

    def close(self) -> None:
        """Close the current gallery after its last request."""
        self._copy.retired = True
        self._copy.close_if_unused()

    def _open(self) -> Gallery:
        gallery = Gallery.open(self._path, model=self._model, writable=False, pictures=self._pictures)
        warm(gallery)
        gallery.index.warm()
        return gallery

    def _signature(self) -> Signature:
        files = [opening.beside(self._path, suffix) for suffix in SUFFIXES]
        return tuple(_stamp(path) for path in (*files, *self._models()))

    def _models(self) -> list[Path]:
        """Where the model is: as we were told, or as the items that are there, or wait for their place, say."""
        if self._model is not None:
            return [Path(self._model)]
        found = []
        for suffix in (".items", ".items.next"):
            with suppress(OSError, persistence.FormatError):
                meta = persistence.describe(opening.beside(self._path, suffix)).meta
                found.append(opening.beside(self._path, "").parent / str(meta.get("model", "")))
        return found


def warm(gallery: Gallery) -> None:
    """Describe, encode and search once in every way, so that the first client waits neither for disk nor compiler."""
    if gallery.descriptor is not None:
        gallery.descriptor.describe(np.zeros((BLANK, BLANK), np.uint8))
    if not len(gallery):
        return
    query = gallery.query(id=gallery.random_id())
    gallery.search(query, 1, others=True)
    if query.probabilities is not None:
        gallery.search(query, 1, ranking="expected", others=True)
    gallery.encode([[0.0] * gallery.model.n_features])


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
