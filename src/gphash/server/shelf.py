"""The collection that requests are answered from, and its replacement by another one while they run."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

import numpy as np

from gphash.collection.collection import Collection
from gphash.data.descriptors.descriptor import TEXTS
from gphash.data.descriptors.networks import MissingEncoderError
from gphash.index.hamming_index import HammingIndex
from gphash.index.rankings import RANKINGS
from gphash.server import logs
from gphash.server.settings import ServiceSettings

BLANK = 64  # pixels a side of a picture to try with
CONDITION_SECONDS = 2.0  # that a stranger's condition may take
RETRY_SECONDS = 10.0  # at most, between two attempts to open what cannot be opened


class Shelf:
    """Holds the current collection, opened as by `Collection.open`; `count` is told "done" or "failed" by a reload.

    Collections see by themselves what others add and remove; only another one in the same place has to be opened. A
    request takes `collection` when its work begins, and keeps it to its end. `unfinished` is the work under way: a
    collection that was replaced is closed when all of it is done.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: ServiceSettings,
        count: Callable[[str], None],
        unfinished: Iterable[futures.Future[Any]] = (),
    ) -> None:
        self._path, self._settings, self._count, self._unfinished = path, settings, count, unfinished
        self.collection = self._open()
        self._reloading = asyncio.Lock()

    async def reload(self, reason: str) -> bool:
        """Open the collection again for the requests to come; if that fails, the old one stays."""
        if self._settings.writable:
            logs.event("reload", reason=reason, result="not needed: this service is the only writer")
            return False
        async with self._reloading:
            try:
                fresh, n_items = await asyncio.to_thread(self._open_warm)
            # Whatever is wrong with the new one, the old one is being served.
            except Exception as error:
                logs.event("reload", reason=reason, result="failed", error=f"{type(error).__name__}: {error}")
                self._count("failed")
                return False
            old, self.collection = self.collection, fresh
            # A daemon, as a stop does not wait for work that takes too long.
            given = (old, tuple(self._unfinished))
            threading.Thread(target=_close_after, args=given, name="gphash-close", daemon=True).start()
            logs.event("reload", reason=reason, result="done", items=n_items)
            self._count("done")
            return True

    async def watch(self, seconds: float) -> None:
        """Reload when somebody else has put another collection in the place; if that fails, again a little later."""
        delay = seconds
        while True:
            await asyncio.sleep(delay)
            async with self._reloading:  # nobody closes it while it is asked
                is_replaced = await asyncio.to_thread(self._is_replaced)
            if is_replaced and not await self.reload("replaced"):
                delay = min(2 * delay, max(seconds, RETRY_SECONDS))
            else:
                delay = seconds

    def _open(self) -> Collection:
        chosen = self._settings
        how: dict[str, Any] = {"writable": chosen.writable, "pictures": chosen.pictures, "encoder": chosen.encoder}
        return Collection.open(self._path, condition_seconds=CONDITION_SECONDS, **how)

    def _open_warm(self) -> tuple[Collection, int]:
        """A collection that is ready for requests, and how many items it has."""
        fresh = self._open()
        try:
            warm(fresh)
            compile_search(fresh)
            return fresh, len(fresh)
        except BaseException:
            fresh.close()
            raise

    def _is_replaced(self) -> bool:
        try:
            return self.collection.is_replaced()
        except Exception:  # there is no collection; opening it says why
            return True


def _close_after(collection: Collection, unfinished: tuple[futures.Future[Any], ...]) -> None:
    futures.wait(unfinished)
    try:
        collection.close()
    except Exception as error:
        logs.crash("closing the old collection failed", error)


def warm(collection: Collection) -> None:
    """Describe, encode and search once in every way, so that the first client waits neither for disk nor compiler."""
    descriptor = collection.descriptor
    if descriptor is not None:
        try:
            descriptor.describe("text" if descriptor.takes == TEXTS else np.zeros((BLANK, BLANK), np.uint8))
        except MissingEncoderError as error:  # items can be searched for without it
            logs.event("no_encoder", error=str(error))
    if not len(collection):
        return
    query = collection.query(key=collection.random_key())
    known = {"code": True, "probabilities": query.probabilities is not None}
    # A database has to hand over all codes for it.
    known["classes"] = collection.model.reader_ is not None and isinstance(collection.index, HammingIndex)
    for name, ranking in RANKINGS.items():
        if known[ranking.needs]:
            collection.search(query, 1, ranking=name)
    collection.encode([[0.0] * collection.model.n_features])


def compile_search(collection: Collection) -> None:
    """Compile the search, if it is done here and not by a database."""
    if isinstance(collection.index, HammingIndex):
        collection.index.warm()
