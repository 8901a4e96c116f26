"""Counters of the service, for Prometheus."""

import contextlib
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters of one application; `in_work`, `arriving` and `body_bytes` are kept by `edge.Visit`."""

    def __init__(self, n_items: Callable[[], int]) -> None:
        self.in_work = self.arriving = self.body_bytes = 0
        self._registry = CollectorRegistry()
        new: dict[str, Any] = {"registry": self._registry}
        ProcessCollector(**new)
        self._requests = Counter("gphash_requests", "Requests answered.", ["route", "method", "status"], **new)
        self._seconds = Histogram("gphash_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, **new)
        self.reloads = Counter("gphash_reloads", "Times the collection was opened again.", ["result"], **new)
        self.refused = Counter("gphash_busy", "Requests refused for want of room.", ["reason"], **new)
        self.search = Histogram("gphash_search_seconds", "Time in the index.", buckets=SECONDS, **new).observe
        self._n_items, self._items = n_items, Gauge("gphash_items", "Items to search among.", **new)
        Gauge("gphash_in_work", "Requests worked on now.", **new).set_function(lambda: self.in_work)
        Gauge("gphash_bodies", "Bodies on their way.", **new).set_function(lambda: self.arriving)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request; routes are templates, so that there are few."""
        self._requests.labels(route, method if method in METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Everything, in the text format of Prometheus; counting the items may wait for a disk or a database."""
        with contextlib.suppress(OSError):  # a database that does not answer: the last known number stays
            self._items.set(self._n_items())
        return generate_latest(self._registry)
