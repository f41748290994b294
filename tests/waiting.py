"""Waiting for what another process does: there is nothing to be notified by, only to look at."""

import asyncio
import stat
import time
from collections.abc import Callable
from pathlib import Path

from agent.server import SOCKET_MODE

LOOK_SECONDS = 0.005


async def until(condition: Callable[[], object], *, seconds: float = 10) -> None:
    """Return when the condition holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(LOOK_SECONDS)


def block_until(condition: Callable[[], object], *, seconds: float = 10) -> None:
    """Do the same without an event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still not so after {seconds:g} seconds")
        time.sleep(LOOK_SECONDS)


def listens(path: Path) -> bool:
    """Return whether an agent's socket is there, and not only tried out: that has another mode."""
    try:
        return stat.S_IMODE(path.stat().st_mode) == SOCKET_MODE
    except FileNotFoundError:
        return False
