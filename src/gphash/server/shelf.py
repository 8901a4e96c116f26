"""The collection that requests are answered from, and its replacement by a newer one while they run."""

import asyncio
import os
from collections.abc import Callable

import numpy as np

from gphash.collection import manifest
from gphash.collection.collection import Collection
from gphash.server import logs
from gphash.server.settings import ServiceSettings

BLANK = 64  # pixels a side of a picture to try with
RETRY_SECONDS = 60.0  # at most, between two attempts to open files that cannot be opened


class Shelf:
    """Holds the current collection, opened as by `Collection.open`; `count` is told "done" or "failed" by a reload.

    A request takes `collection` once and keeps it to its end. Only a collection that is read can be replaced, and that
    holds nothing that must be closed.
    """

    def __init__(self, path: str | os.PathLike[str], settings: ServiceSettings, count: Callable[[str], None]) -> None:
        self._path, self._settings, self._count = path, settings, count
        # Looked at before opening: a change in between is then seen as one.
        self._seen = self._signature()
        self.collection = self._open()
        self._reloading = asyncio.Lock()

    async def reload(self, reason: str) -> bool:
        """Open the files again for the requests to come; if that fails, the old collection stays."""
        if self._settings.writable:
            logs.event("reload", reason=reason, result="not needed: this service is the only writer")
            return False
        async with self._reloading:
            try:
                seen = await asyncio.to_thread(self._signature)
                fresh = await asyncio.to_thread(self._open)
                await asyncio.to_thread(warm, fresh)
                await asyncio.to_thread(fresh.index.warm)
            # Whatever is wrong with the new files, the old ones are being served.
            except Exception as error:
                logs.event("reload", reason=reason, result="failed", error=f"{type(error).__name__}: {error}")
                self._count("failed")
                return False
            self._seen, self.collection = seen, fresh
            logs.event("reload", reason=reason, result="done", items=len(fresh))
            self._count("done")
            return True

    async def watch(self, seconds: float) -> None:
        """Reload when somebody else has replaced the files; if that fails, again when they change, or later."""
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

    def _open(self) -> Collection:
        chosen = self._settings
        return Collection.open(self._path, model=chosen.model, writable=chosen.writable, pictures=chosen.pictures)

    def _signature(self) -> tuple[tuple[int, ...], ...]:
        return manifest.signature(self._path, self._settings.model)


def warm(collection: Collection) -> None:
    """Describe, encode and search once in every way, so that the first client waits neither for disk nor compiler."""
    if collection.descriptor is not None:
        collection.descriptor.describe(np.zeros((BLANK, BLANK), np.uint8))
    if not len(collection):
        return
    query = collection.query(id=collection.random_id())
    for ranking in ("hamming",) if query.probabilities is None else ("hamming", "expected"):
        collection.search(query, 1, ranking=ranking, others=True)
    collection.encode([[0.0] * collection.model.n_features])
