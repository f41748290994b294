"""A clock that a test moves."""

import asyncio
import time

from agent.identity.renewal.run import Clock
from agent.identity.rotation import Moment


class FakeClock(Clock):
    """Starts at the real time, and stands still until it is told to go on."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.step = 0.0
        self._start = super().now()
        self._moved = asyncio.Event()

    def now(self) -> Moment:
        running = self._start.running + self.elapsed
        return Moment(self._start.wall + self.elapsed + self.step, running)

    def advance(self, seconds: float, *, step: float = 0.0) -> None:
        """Let time pass, and set the wall clock forward, or back, by a step."""
        self.elapsed += seconds
        self.step += step
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        del seconds
        tasks = [asyncio.ensure_future(each.wait()) for each in (event, self._moved)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def lag(self) -> float:
        """Return how far the wall clock is ahead of the real one, for a CA to share."""
        return self.now().wall - time.time()
