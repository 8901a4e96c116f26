"""Who has a place: requests that are worked on, and, bounded apart from them, bodies that are still on their way.

A body that comes slowly, or never, takes no place from requests that are complete. Where too many are on their way, the
slowest is given up for the newest, so that those who send at once are always heard; where they take too much memory,
the largest is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from gphash.server.failures import Failure, busy
from gphash.server.metrics import Metrics
from gphash.server.settings import Settings

# When bodies are compared, at least so many bytes of each have come, and in no less than so many seconds: one that has
# just begun is neither slow nor quicker than one that comes steadily.
BEGINNING_BYTES, BEGINNING_SECONDS = 1 << 16, 1.0
LARGEST_BODIES = 32  # that there is memory for, of requests on their way and in work


class Arrival:
    """A body on its way.

    Parameters
    ----------
    client
        Address of who sends it.
    seconds
        How long it may take.
    """

    def __init__(self, client: str, seconds: float) -> None:
        self.client = client
        self.n_bytes = 0
        self.given_up = False
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.waiting: asyncio.Timeout | None = None
        self.began = time.monotonic()

    def speed(self) -> float:
        """Bytes a second."""
        return max(self.n_bytes, BEGINNING_BYTES) / max(time.monotonic() - self.began, BEGINNING_SECONDS)

    def give_up(self) -> None:
        """Wait for it no longer."""
        self.given_up = True
        if self.waiting is not None:
            self.waiting.reschedule(asyncio.get_running_loop().time())


class Places:
    """The places of one application. All methods belong to the thread of the event loop.

    Parameters
    ----------
    settings
        How many there are.
    metrics
        Where they are counted.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._arrivals: set[Arrival] = set()
        self._n_bytes = 0

    def begin(self) -> None:
        """Take a place among the requests that are worked on."""
        most = self._settings.max_in_work
        if self._metrics.in_work >= most:
            self._metrics.busy("in_work")
            raise busy("busy", 503, f"{most} requests are being worked on; try again in a moment.")
        self._metrics.in_work += 1

    def end(self) -> None:
        """Give it back."""
        self._metrics.in_work -= 1

    def expect(self, client: str) -> Arrival:
        """Begin to wait for a body; a slower one may have to go."""
        most = self._settings.max_unread
        own = [one for one in self._arrivals if one.client == client]
        if len(own) >= max(1, most // 2):
            self._give_up(_slowest(own))
        elif len(self._arrivals) >= most:
            self._give_up(_slowest(self._of_heaviest(lambda one: 1)))
        arrival = Arrival(client, self._settings.body_seconds)
        self._arrivals.add(arrival)
        self._metrics.arriving = len(self._arrivals)
        return arrival

    def take(self, arrival: Arrival, n_bytes: int) -> None:
        """Take note of bytes that have come, and are kept."""
        arrival.n_bytes += n_bytes
        self._n_bytes += n_bytes
        if self._n_bytes > LARGEST_BODIES * self._settings.max_body_bytes and self._arrivals:
            self._give_up(max(self._of_heaviest(lambda one: one.n_bytes), key=lambda one: one.n_bytes))

    def arrived(self, arrival: Arrival) -> None:
        """Wait for it no longer: it is there, or nobody wants it."""
        self._arrivals.discard(arrival)
        self._metrics.arriving = len(self._arrivals)

    def forget(self, arrival: Arrival) -> None:
        """Take note that a body is kept no longer."""
        self.arrived(arrival)
        self._n_bytes -= arrival.n_bytes
        arrival.n_bytes = 0

    def late(self, arrival: Arrival) -> Failure:
        """Why a body is waited for no longer."""
        if arrival.given_up:
            message = "too many bodies are on their way, and this one is slow or large; try again in a moment."
            return busy("busy", 503, message)
        return Failure(408, "timeout", f"the body did not come within {self._settings.body_seconds:g} seconds.")

    def _give_up(self, arrival: Arrival) -> None:
        self._metrics.busy("bodies")
        self.forget(arrival)
        arrival.give_up()

    def _of_heaviest(self, weight: Callable[[Arrival], int]) -> list[Arrival]:
        """Bodies of the client who has the most of something on the way."""
        sums: Counter[str] = Counter()
        for one in self._arrivals:
            sums[one.client] += weight(one)
        client = max(sums, key=sums.__getitem__)
        return [one for one in self._arrivals if one.client == client]


def _slowest(some: list[Arrival]) -> Arrival:
    return min(some, key=lambda one: (one.speed(), one.began))
