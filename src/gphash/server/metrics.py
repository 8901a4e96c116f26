"""What Prometheus may know of the service."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counters of one application.

    Parameters
    ----------
    n_items
        Called when somebody asks.

    Attributes
    ----------
    in_work, arriving
        Requests worked on now, and bodies on their way; kept by `places.Places`.
    """

    def __init__(self, n_items: Callable[[], int]) -> None:
        self.in_work = self.arriving = 0
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "gphash_requests", "Requests answered.", ["route", "method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "gphash_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=self._registry
        )
        self._search = Histogram(
            "gphash_search_seconds", "Time in the index.", buckets=SECONDS, registry=self._registry
        )
        self._reloads = Counter(
            "gphash_reloads", "Times the files were opened again.", ["result"], registry=self._registry
        )
        self._busy = Counter("gphash_busy", "Requests refused for want of room.", ["reason"], registry=self._registry)
        Gauge("gphash_items", "Items to search among.", registry=self._registry).set_function(n_items)
        Gauge("gphash_in_work", "Requests worked on now.", registry=self._registry).set_function(lambda: self.in_work)
        Gauge("gphash_bodies", "Bodies on their way.", registry=self._registry).set_function(lambda: self.arriving)
        # Looking a child up costs more than counting with it.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request; routes are templates, so that there are few."""
        key = (route, method if method in METHODS else "other", status)
        if key not in self._children:
            self._children[key] = (self._requests.labels(key[0], key[1], str(status)), self._seconds.labels(route))
        count, duration = self._children[key]
        count.inc()
        duration.observe(seconds)

    def search(self, seconds: float) -> None:
        """Note how long the index took."""
        self._search.observe(seconds)

    def reload(self, result: str) -> None:
        """Count an opening of the files: "done" or "failed"."""
        self._reloads.labels(result).inc()

    def busy(self, reason: str) -> None:
        """Count a request that was sent away."""
        self._busy.labels(reason).inc()

    def text(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return generate_latest(self._registry)
