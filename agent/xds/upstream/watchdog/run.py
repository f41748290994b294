"""Ends a stream to a control plane whose connection lives and that hangs all the same.

A connection that is dead is keepalive's business: gRPC ends a stream whose pings are not answered,
and tells nobody of those that are. So what is left to look at is the stream: that a request is not
taken shows a peer that hangs, within seconds; that nothing comes may as well be a mesh in which
nothing happens, so that counts only where the user has said for how long.

Source: cases.md X6.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from agent.xds.endings import Ending, not_read, silent
from agent.xds.settings import PatienceSettings

#: Longer than asked for by up to this share: a fleet that has heard nothing must not come as one.
SPREAD: Final = 0.25


class Watchdog:
    """Watches one stream."""

    def __init__(self, settings: PatienceSettings, rng: Callable[[], float]) -> None:
        """Begin to watch a stream that was just opened.

        Args:
            settings: how long what may last.
            rng: chance, in [0, 1).
        """
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._not_read = not_read(settings.send_seconds)
        self._verdict: asyncio.Future[Ending] = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._limit = settings.silence_seconds * (1 + SPREAD * rng())
        self._writing: asyncio.TimerHandle | None = None
        self._listening: asyncio.TimerHandle | None = None
        if self._limit:
            self._listening = self._loop.call_at(self._heard_at + self._limit, self._listen)

    async def verdict(self) -> Ending:
        """Return why the stream is of no use any more."""
        return await self._verdict

    def heard(self) -> None:
        """Take note of a message from the control plane."""
        self._heard_at = self._loop.time()

    def __enter__(self) -> None:
        """Begin to send a message."""
        self._writing = self._loop.call_later(
            self._settings.send_seconds, self._end, self._not_read
        )

    def __exit__(self, *_: object) -> None:
        """Take note that the message was sent, or never will be."""
        if self._writing:
            self._writing.cancel()

    def close(self) -> None:
        """Watch no longer."""
        for timer in (self._writing, self._listening):
            if timer:
                timer.cancel()

    def _listen(self) -> None:
        """End the stream, or wait for the rest of the time since the last message."""
        due = self._heard_at + self._limit
        if self._loop.time() >= due:
            self._end(silent(self._settings.silence_seconds))
        else:
            self._listening = self._loop.call_at(due, self._listen)

    def _end(self, ending: Ending) -> None:
        if not self._verdict.done():
            self._verdict.set_result(ending)
