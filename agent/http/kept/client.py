"""Keeps connections between requests: one at most to each place, and for 90 s at most.

Whatever happens to a connection that is kept is its end: the peer has closed it, or speaks without
being asked. So it is gone at once, and not when it is needed. What the peer closes in the moment of
the next request is found by the request (client.py).

Source: status-lifecycle.md sections 4.8 and 5.4.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from agent.http.connection.client import Connection, Place

IDLE_SECONDS: Final = 90.0


class Kept:
    """The connections of one caller, by place."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._idle: dict[Place, _Idle] = {}
        self._is_closed = False

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self._idle)

    def take(self, place: Place) -> Connection | None:
        """Return the connection to a place, which is the caller's from now on."""
        idle = self._idle.pop(place, None)
        return idle.wake() if idle else None

    def put(self, place: Place, connection: Connection) -> None:
        """Keep a connection, or close it where there is one already."""
        if self._is_closed or place in self._idle:
            connection.close()
            return

        def forget() -> None:
            del self._idle[place]

        self._idle[place] = _Idle(connection, forget, self._idle_seconds)

    def close(self) -> None:
        """Close all, and those that come back later."""
        self._is_closed = True
        for idle in tuple(self._idle.values()):
            idle.end()


class _Idle(asyncio.Protocol):
    """Waits on a connection in the place of its stream."""

    def __init__(
        self, connection: Connection, forget: Callable[[], None], idle_seconds: float
    ) -> None:
        self._connection = connection
        self._forget = forget
        self._timer = asyncio.get_running_loop().call_later(idle_seconds, self.end)
        self._stream = connection.transport.get_protocol()
        connection.transport.set_protocol(self)

    def wake(self) -> Connection:
        self._timer.cancel()
        self._connection.transport.set_protocol(self._stream)
        return self._connection

    def end(self) -> None:
        if not self._timer.cancelled():  # its own end is told to it, too
            self._timer.cancel()
            self._forget()
            self._connection.close()

    # Called by the transport.

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - whatever it is
        self.end()

    def eof_received(self) -> None:
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - for whatever reason
        self.end()
