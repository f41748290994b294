"""The thread that keeps what Envoy accepts: the relay never waits for a disk.

Small changes are gathered, large ones are handed over at once, so that no push is held for longer
than it takes to write it. What belongs together is kept together: a transaction ends when nothing
has come for a while.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from agent.xds.cache.files import Kept, Store
from agent.xds.cache.ledger import Change, Stage

log = logging.getLogger(__name__)

#: Nothing more has come for so long: the burst is over. Its ACKs have come, too.
QUIET_SECONDS: Final = 1.0
#: Where it is never quiet, what came is kept for good at least so often.
LONGEST_SECONDS: Final = 10.0
#: Gathered before it is handed to the thread.
GATHERED_BYTES: Final = 256 * 1024
#: Handed to the thread and not written. One push that is larger is still taken.
QUEUED_BYTES: Final = 16 * 1024 * 1024
#: A disk that takes longer for a push is not one to keep anything on.
WRITE_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0

T = TypeVar("T")


class Recorder:
    """Keeps what Envoy accepts, in a directory; stops for good where that fails."""

    def __init__(self, directory: str) -> None:
        """Begin with nothing: no file is touched before there is something to keep, or to load."""
        self._directory = directory
        self._node = ""
        self._store: Store | None = None
        #: Why nothing more is kept, none if it is.
        self.problem: str | None = None
        self._executor = ThreadPoolExecutor(1, "xds-cache")
        self._changes: list[Change] = []
        self._gathered_bytes = 0
        self._queued_bytes = 0
        self._began_at = 0.0  #: the first change that is not kept for good
        self._changed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, node: str) -> None:
        """Say whose configuration it is: Envoy's node id."""
        self._node = self._node or node

    def record(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Take changes; return what is done when a large one was written, none if none is."""
        if not changes or self.problem:
            return None
        self._changes += changes
        self._gathered_bytes += _size(changes)
        loop = asyncio.get_running_loop()
        self._changed_at = loop.time()
        if self._timer is None:
            self._began_at = self._changed_at
            self._timer = loop.call_later(QUIET_SECONDS, self._look)
        return self._hand_over(None) if self._gathered_bytes > GATHERED_BYTES else None

    async def written(self, writing: asyncio.Future[None]) -> None:
        """Return when a large change was written, or the disk is given up."""
        await asyncio.wait((writing,), timeout=WRITE_SECONDS)
        if not writing.done():
            self._give_up(f"{self._directory}: writing takes longer than {WRITE_SECONDS:g} s")

    async def load(self) -> Kept | None:
        """Return what is kept for this node, none if there is nothing."""
        if self.problem or not self._node:
            return None
        self._hand_over(None)
        try:
            return await self._run(self._load)
        except (OSError, sqlite3.Error) as error:
            self._give_up(f"{self._directory}: {error}")
            return None

    async def close(self) -> None:
        """Keep for good what has come, and end the thread, or leave it where it hangs."""
        if self._timer:
            self._timer.cancel()
        writing = self._hand_over(time.time())
        closing = self._run(self._close)
        await asyncio.wait((writing, closing), timeout=CLOSE_SECONDS)
        self._executor.shutdown(wait=False)

    def _look(self) -> None:
        """Keep for good what has come, unless more is coming."""
        loop = asyncio.get_running_loop()
        due = min(self._changed_at + QUIET_SECONDS, self._began_at + LONGEST_SECONDS)
        if loop.time() < due:
            self._timer = loop.call_at(due, self._look)
            return
        self._timer = None
        self._hand_over(time.time())

    def _hand_over(self, now: float | None) -> asyncio.Future[None]:
        changes, self._changes = self._changes, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if self._queued_bytes and self._queued_bytes + size > QUEUED_BYTES:
            self._give_up(f"{self._directory}: more than {QUEUED_BYTES} bytes wait to be written")
            changes = []
        self._queued_bytes += size
        writing = self._run(lambda: self._apply(changes, now))

        def done(written: asyncio.Future[None]) -> None:
            self._queued_bytes -= size
            error = None if written.cancelled() else written.exception()
            if error is not None:
                self._give_up(f"{self._directory}: {error}")

        writing.add_done_callback(done)
        return writing

    def _give_up(self, problem: str) -> None:
        if self.problem is None:
            log.warning("not keeping what Envoy accepts any more reason=%r", problem)
        self.problem = problem
        self._changes.clear()

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    # What follows runs in the thread.

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store(self._directory, self._node)
        return self._store

    def _apply(self, changes: Sequence[Change], now: float | None) -> None:
        if self.problem is None and (changes or self._store):
            self._opened().apply(changes, now)

    def _load(self) -> Kept | None:
        return self._opened().load()

    def _close(self) -> None:
        if self._store is not None:
            with suppress(sqlite3.Error):
                self._store.close()


def _size(changes: Sequence[Change]) -> int:
    return sum(len(change.raw) for change in changes if isinstance(change, Stage))
