"""The process that fetches modules, for as long as there is something to fetch.

It carries a library of HTTP and TLS that no pod should have in memory for what happens once in its
life. Orders go in and outcomes come out over one socket, so that many fetches share one process and
a slow one holds up no other. A secret is on no command line, in no environment and on no disk.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from agent.wasm.order import Order, Outcome, Refused, read_outcome, write_order, write_settings
from agent.wasm.settings import FetchSettings

#: After so long without an order the process goes.
IDLE_SECONDS: Final = 2.0
#: Given to it beyond what an order may take: to start, to unpack and to store.
GRACE_SECONDS: Final = 30.0
#: Of one outcome: an extension.
LINE_BYTES: Final = 64 << 20
FAILED: Final = "fetch_failure"
DIED: Final = Refused("the fetching process has died", FAILED)

#: Runs something to its end, whoever waits for it: a task group's `create_task`.
Spawn = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Fetching:
    """Has orders carried out; there is a process only while there are any."""

    def __init__(
        self,
        settings: FetchSettings,
        spawn: Spawn,
        *,
        idle_seconds: float = IDLE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._idle_seconds = idle_seconds
        self._spawn = spawn
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._asked = 0
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, order: Order, seconds: float) -> Outcome:
        """Return what became of an order, which has so many seconds by itself."""
        if self._idle:
            self._idle.cancel()
        self._asked += 1
        try:
            async with asyncio.timeout(max(seconds, 0.0) + self._grace_seconds):
                outcome = await self._ask(order)
                # It is another order that a process dies of, unless it happens twice.
                return await self._ask(order) if outcome == DIED else outcome
        except TimeoutError:
            if self._child:
                self._child.kill()
            return Refused("the fetching process hangs", FAILED)
        except OSError as error:
            return Refused(f"no fetching process: {error.strerror}".lower(), FAILED)
        finally:
            self._asked -= 1
            if not self._asked:
                self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire)

    async def _ask(self, order: Order) -> Outcome:
        child = await self._running()
        return await child.ask(order)

    @property
    def pid(self) -> int | None:
        """Return the id of the process, none where there is none."""
        return self._child.pid if self._child and not self._child.has_ended else None

    async def _running(self) -> "_Child":
        async with self._starting:
            if self._child is None or self._child.has_ended:
                self._child = _Child(self._settings)
                await self._child.connect(self._spawn)
            return self._child

    def _retire(self) -> None:
        if self._child:
            self._child.retire()
            self._child = None


class _Child:
    """One process at work."""

    def __init__(self, settings: FetchSettings) -> None:
        """Start it.

        Raises:
            OSError: the system does not let us.
        """
        self.has_ended = False
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._number = 0
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self.pid = _spawn(settings, theirs.fileno())
            except OSError:
                self._socket.close()
                raise
        self._pidfd = os.pidfd_open(self.pid)

    async def connect(self, spawn: Spawn) -> None:
        """Begin to listen to it."""
        try:
            reader, self._writer = await asyncio.open_connection(
                sock=self._socket, limit=LINE_BYTES
            )
        except BaseException:
            self.kill()
            self._reap()
            raise
        spawn(self._listen(reader))

    async def ask(self, order: Order) -> Outcome:
        """Return what became of an order."""
        self._number += 1
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = outcome
        self._writer.write(write_order(self._number, order))
        return await outcome

    def retire(self) -> None:
        """Have it end by itself: there is nothing to do any more."""
        if not self.has_ended:
            self._writer.write_eof()

    def kill(self) -> None:
        """End it now; whoever waits for it is told so."""
        self.has_ended = True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            with suppress(OSError, ValueError):
                while line := await reader.readline():
                    number, outcome = read_outcome(line)
                    self._settle(number, outcome)
        finally:
            self.kill()
            self._writer.transport.abort()
            self._reap()
            for number in list(self._waiting):
                self._settle(number, DIED)

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # somebody who reaps orphans came first
            os.waitpid(self.pid, 0)
        os.close(self._pidfd)
        self._socket.close()

    def _settle(self, number: int, outcome: Outcome) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting and not waiting.done():
            waiting.set_result(outcome)


def _spawn(settings: FetchSettings, socket_number: int) -> int:
    """Return the process's id."""
    return os.posix_spawn(
        sys.executable,
        # -P: what lies in the working directory is no module of ours.
        [sys.executable, "-P", "-m", "agent.wasm", write_settings(settings)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, socket_number, 0)],
        setsigmask=[],
    )
