"""Responses of the control plane in the order in which they can go on.

A response that has to be converted waits beside all others, but for those of its own type, and goes
on when it is ready. One task asks here for what comes next, and so one task writes to Envoy (R-7).

Source: xds-identity-dns.md sections 2.5 and 2.7, deviation D-26.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from agent.xds.discovery import Kind, Response

#: Conversions at a time; beyond, the control plane is not read, as if Envoy was slow. It pushes a
#: type again without waiting for an answer.
MOST: Final = 64

#: Returns the response that Envoy gets instead; a ValueError is a NACK.
Convert = Callable[[Kind, bytes], Awaitable[bytes]]


class Converted(NamedTuple):
    """A response was converted, or refused."""

    response: Response
    size: int  #: of what it was, in bytes
    message: bytes | None  #: for Envoy
    problem: str = ""  #: for the control plane, where there is none


class Arrivals:
    """What arrives on one stream; `run` has to run meanwhile."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, bytes | None]], kind: Kind) -> None:
        """Begin; `read` returns the next response of the control plane, none at the end."""
        self._read = read
        self._kind = kind
        self._tasks = asyncio.TaskGroup()
        self._reading: asyncio.Task[bytes | None] | None = None
        self._converting: deque[asyncio.Task[Converted]] = deque()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Carry out conversions, until cancelled."""
        async with self._tasks:
            await asyncio.Event().wait()

    async def next(self) -> bytes | Converted | None:
        """Return what comes next: as the control plane sent it, or converted; none at the end."""
        if not self._converting and not self._reading:
            return await self._read()  # nearly always: no task is made for it
        while not (self._converting and self._converting[0].done()):
            if self._reading is None and len(self._converting) < MOST:
                self._reading = self._begin(self._read())
            if self._reading and self._reading.done():
                reading, self._reading = self._reading, None
                return reading.result()
            self._changed.clear()
            await self._changed.wait()
        return self._converting.popleft().result()

    def convert(self, convert: Convert, response: Response, raw: bytes) -> None:
        """Have a response converted; `next` returns it in the order of these calls."""
        self._converting.append(self._begin(self._convert(convert, response, raw)))

    async def _convert(self, convert: Convert, response: Response, raw: bytes) -> Converted:
        try:
            return Converted(response, len(raw), await convert(self._kind, raw))
        except ValueError as problem:
            return Converted(response, len(raw), None, str(problem))

    def _begin(self, what: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._tasks.create_task(what)
        task.add_done_callback(lambda _: self._changed.set())
        return task
