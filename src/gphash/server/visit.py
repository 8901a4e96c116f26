"""One request between the server and the application: what it sends, what it is sent, and the places that it takes."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from gphash.server.failures import Failure, GoneError
from gphash.server.places import Arrival, Places

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]
CLOSE = (b"connection", b"close")
DRAIN_SECONDS = 2.0


class Visit:
    """A request.

    Parameters
    ----------
    scope, receive, send
        Of ASGI.
    places
        Where it takes one.
    send_seconds
        How long the client may take to go on reading.
    is_stopping
        Whether the service is about to end, so that nothing else is to be asked on the same connection.

    Attributes
    ----------
    status
        Of the answer; 0 before it.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        places: Places,
        send_seconds: float,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.status = 0
        self._places = places
        self._receive, self._send = receive, send
        self._send_seconds = send_seconds
        self._is_stopping = is_stopping
        self._client = str(scope["client"][0]) if scope.get("client") else ""
        self._bodiless = scope["method"] == "HEAD"
        self._arrival: Arrival | None = None
        self._has_come = False
        self._working = False

    def begin(self) -> None:
        """Take a place among the requests that are worked on."""
        self._places.begin()
        self._working = True

    def expect(self) -> None:
        """Take that place as soon as the body has come."""
        self._arrival = self._places.expect(self._client)

    def leave(self) -> None:
        """Give back what was taken."""
        self._end()
        if self._arrival is not None:
            self._places.forget(self._arrival)

    def _end(self) -> None:
        if self._working:
            self._working = False
            self._places.end()

    async def receive(self) -> Message:
        """The next message of the client."""
        if (arrival := self._arrival) is None or self._has_come:
            return await self._receive()
        message = await self._awaited(arrival)
        self._places.take(arrival, len(message.get("body", b"")))
        if not message.get("more_body", False):
            self._places.arrived(arrival)
            self._has_come = True
            if message["type"] == "http.request":
                self.begin()
        return message

    async def _awaited(self, arrival: Arrival) -> Message:
        if arrival.given_up:
            raise self._places.late(arrival)
        try:
            async with asyncio.timeout_at(arrival.deadline) as arrival.waiting:
                return await self._receive()
        except TimeoutError:
            raise self._places.late(arrival) from None
        finally:
            arrival.waiting = None

    async def send(self, message: Message) -> None:
        """Send a message to the client."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._end()  # What is left is up to the client, who may never read.
            closing = [CLOSE] if self._is_stopping() and CLOSE not in message["headers"] else []
            message["headers"] = [*message["headers"], *HEADERS, *closing]
        elif self._bodiless:
            message["body"] = b""
        # A client that asks on and on and never reads would otherwise be kept for ever.
        try:
            async with asyncio.timeout(self._send_seconds):
                await self._send(message)
        except TimeoutError:
            raise GoneError from None

    async def refuse(self, failure: Failure, drain: int) -> None:
        """Send a failure; of a body that is too large, up to `drain` bytes more are read and dropped for a moment.

        A connection that is closed while the client sends is reset, and the client would never see the answer.
        """
        content = failure.content()
        coming = failure.status == 413 and not self._has_come
        given_up = self._arrival is not None and self._arrival.given_up
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **failure.headers}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        if coming or given_up or failure.status == 408:
            raw.append(CLOSE)
        await self.send({"type": "http.response.start", "status": failure.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": content, "more_body": coming})
        if coming:
            await self._drain(drain)
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drain(self, n_bytes: int) -> None:
        # What was kept of it is kept no longer, but as long as it comes it is one of those on their way.
        if self._arrival is not None:
            self._places.forget(self._arrival)
        arrival = self._arrival = self._places.expect(self._client)
        arrival.deadline = min(arrival.deadline, asyncio.get_running_loop().time() + DRAIN_SECONDS)
        more = True
        try:
            while n_bytes > 0 and more:
                message = await self._awaited(arrival)
                n_bytes -= len(message.get("body", b""))
                more = bool(message.get("more_body", False))
        except Failure:
            pass
