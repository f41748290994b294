"""Serves one stream of Envoy: relayed and recorded, or from what was kept.

Theory of operation. Every stream is relayed, and what passes is recorded. Where nothing has passed
to an Envoy that has nothing, because the control plane cannot be reached or is silent, the same
stream is served what was kept: no response of another has been seen on it. Then the control plane
is dialled again and again, and once it takes a connection the stream ends. Envoy comes back with
all it has, and the control plane makes of that what it must be (R-2).

Source: xds-identity-dns.md section 2.11; cases X10 and X11.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from agent.xds.cache.files import Kept
from agent.xds.cache.ledger import Drop
from agent.xds.cache.process import Recorder
from agent.xds.cache.run import CachingBackend
from agent.xds.cache.tap.run import Tap
from agent.xds.discovery import Kind
from agent.xds.endings import HANDED_OVER, Ending
from agent.xds.local.run import LocalBackend
from agent.xds.resources import CLUSTER, LISTENER
from agent.xds.run import Pump, run_session
from agent.xds.server import Downstream

#: Without both Envoy would not become ready.
VITAL: Final = frozenset((CLUSTER, LISTENER))
#: Envoy gets so long to take what was kept before it is told to ask the control plane.
STAY_SECONDS: Final = 0.5


class CachedSession:
    """One stream of Envoy, answered by the control plane or, in its place, from what was kept."""

    def __init__(
        self,
        backend: CachingBackend,
        recorder: Recorder,
        kind: Kind,
        downstream: Downstream,
        number: int,
    ) -> None:
        self._backend = backend
        self._recorder = recorder
        self._kind = kind
        self._number = number
        self._deadline = backend.deadline()
        self._kept: Kept | None = None  #: while it is not clear who answers
        self._tap = Tap(
            kind,
            downstream,
            recorder,
            numbers=backend.numbers,
            answered=backend.answered,
        )

    def pumps(self) -> tuple[Pump, ...]:
        """Return what runs at once."""
        return self._tap.listen(), self._serve()

    async def close(self) -> None:
        """Record the end of the stream."""
        self._tap.close()

    async def _serve(self) -> Ending:
        async with asyncio.TaskGroup() as tasks:
            relaying = tasks.create_task(self._relay())
            settled = tasks.create_task(self._tap.settled.wait())
            ending = await self._answer(relaying, settled)
            settled.cancel()
        return ending

    async def _answer(self, relaying: asyncio.Task[Ending], settled: asyncio.Task[Any]) -> Ending:
        """Return how the stream ended, whoever has answered it."""
        await _first((relaying, settled), self._backend.settings.after_seconds)
        if self._tap.settled.is_set():
            return await relaying
        self._kept = await self._load()
        if self._kept and relaying.done() and await self._comes_back(settled):
            return relaying.result()
        if self._kept is None or self._tap.settled.is_set():
            self._kept = None
            return await relaying
        downstream = self._tap.repeated()
        relaying.cancel()
        await asyncio.wait((relaying,))
        return await self._stand_in(self._kept.size, downstream)

    async def _load(self) -> Kept | None:
        """Return what was kept, none if it is no configuration.

        For whom stands in Envoy's first request: a control plane that refuses connections has done
        so before that was read.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backend.settings.after_seconds):
                await self._tap.asked.wait()
        kept = await self._recorder.load()
        return kept if kept and kept.snapshot.resources.keys() >= VITAL else None

    async def _relay(self) -> Ending:
        upstream = self._backend.upstream
        session = await upstream.open(self._kind, self._tap.recorded(), self._number)
        if isinstance(session, Ending):
            return session
        return await run_session(session, asyncio.get_running_loop().create_future())

    async def _comes_back(self, settled: asyncio.Task[Any]) -> bool:
        """Return whether the control plane can be reached before what was kept is due."""
        remaining = self._deadline - asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            dialling = tasks.create_task(self._backend.dial())
            await _first((dialling, settled), max(remaining, 0))
            is_back = dialling.done()
            dialling.cancel()
        return is_back

    async def _stand_in(self, size: int, downstream: Downstream) -> Ending:
        """Serve what was kept until the control plane can be reached."""
        local = self._local()
        session = await local.open(self._kind, downstream, self._number)
        back: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(self._wait_for(back, size))
                ending = await run_session(session, back)
                waiting.cancel()
        finally:
            local.snapshot = None
            self._backend.upstream.allocator.written(size)
        return ending

    def _local(self) -> "StandIn":
        """Return what serves that which was kept; only there it is held from now on."""
        assert self._kept  # noqa: S101 - it was looked at
        self._backend.serves(self._kept)
        local = StandIn(self._backend, self._recorder, self._kept)
        self._kept = None
        return local

    async def _wait_for(self, back: asyncio.Future[Ending], size: int) -> None:
        await asyncio.sleep(STAY_SECONDS)
        self._backend.upstream.allocator.written(size)
        await self._backend.dial()
        back.set_result(HANDED_OVER)


class StandIn(LocalBackend):
    """Answers from what was kept; what Envoy refuses of it is not kept any more."""

    def __init__(self, backend: CachingBackend, recorder: Recorder, kept: Kept) -> None:
        super().__init__(_ignore, backend.upstream.observing, kept.snapshot)
        self._recorder = recorder

    def answered(self, type_url: str, error: str | None) -> None:
        """Take Envoy's ACK or NACK."""
        super().answered(type_url, error)
        if error is not None:
            self._recorder.record([Drop(type_url)])


async def _first(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Return when one of the tasks is done, or the time is over."""
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _ignore(_about: str, _problem: str | None) -> None:
    """Keep nothing: the readiness answer says that all of it is old."""
