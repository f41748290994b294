"""The relay at work: one task group per stream of Envoy.

A stream ends when the first of its pumps has a verdict, and that is what Envoy is told. Envoy then
comes back with everything it wants, so no stream is ever mended (R-2).

Source: xds-identity-dns.md sections 2.5, 2.9 and 2.10.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent.xds.client import ControlPlane
from agent.xds.discovery import Kind
from agent.xds.endings import (
    ENVOY,
    ENVOY_LEFT,
    ISTIOD,
    NO_CHANNEL,
    REPLACED,
    SHUT_DOWN,
    Ending,
)
from agent.xds.pace import Pace
from agent.xds.server import STATUS, Downstream, listening
from agent.xds.settings import XdsSettings
from agent.xds.upstream.conversion.run import Convert
from agent.xds.upstream.run import UPSTREAM, Consume, Count, UpstreamBackend

if TYPE_CHECKING:
    from agent.xds.monitor.run import Monitor, Observer

__all__ = ["Consume", "Convert", "Relay", "serving"]

log = logging.getLogger(__name__)

#: Between two log lines about overlapping streams (D-21).
OVERLAP_LOG_SECONDS: Final = 10.0
DOWNSTREAM: Final = "Envoy"

#: Runs for a stream's life; returns how it ended, or none if another pump will know.
Pump = Coroutine[Any, Any, Ending | None]


class Session(Protocol):
    """One stream of Envoy being served."""

    def pumps(self) -> Sequence[Pump]:
        """Return what runs at once."""

    async def close(self) -> None:
        """Release what the session holds."""


class Backend(Protocol):
    """Who answers Envoy."""

    async def open(self, kind: Kind, downstream: Downstream, number: int) -> Session | Ending:
        """Return a session, or why there is none."""


class Relay:
    """Serves Envoy, one stream at a time."""

    def __init__(self, address: str, count: Count, observe: Count, pace: Pace) -> None:
        self._pace = pace
        self._count = count
        self._observe = observe
        self._monitor: Monitor | None = None
        self._numbers = itertools.count(1)
        self._current: asyncio.Future[Ending] | None = None
        self._overlap_logged = -OVERLAP_LOG_SECONDS
        self._problems: dict[str, str] = {}
        self._last_error: dict[str, object] | None = None
        #: Returns where whoever answers Envoy is, or is looked for next.
        self.address: Callable[[], str] = lambda: address
        #: Of what changes with time.
        self.remarks: list[Callable[[], str | None]] = []
        #: Takes why the application is not healthy, none where it is, for the control plane.
        self.report_health: Callable[[str | None], None] = lambda _: None

    def problem(self) -> str | None:
        """Return what is wrong now, for people; none if nothing is."""
        return self._remarked(*self._problems.values())

    def _remarked(self, *problems: str | None) -> str | None:
        remarks = (remark() for remark in self.remarks)
        return "; ".join(filter(None, (*problems, *remarks))) or None

    def connection(self) -> dict[str, object]:
        """Return, as JSON has it, who answers Envoy and whether it does; times are Unix seconds."""
        state = "connecting" if UPSTREAM in self._problems else "connected"
        return {
            "address": self.address(),
            "state": state if self._current else "disconnected",
            "problem": self._remarked(self._problems.get(UPSTREAM)),
            "last_error": self._last_error,
        }

    def note(self, about: str, problem: str | None) -> None:
        """Say what is wrong with a thing, or that nothing is any more."""
        if problem is None:
            self._problems.pop(about, None)
        else:
            self._problems[about] = problem

    def observing(self, number: int, kind: Kind) -> "Observer":
        """Return what is to be told of everything that passes on a stream."""
        return self._watched().open(number, kind)

    def document(self) -> dict[str, Any]:
        """Return, as JSON has it, what Envoy was sent and what it said to that."""
        return self._watched().document()

    def passed(self) -> dict[str, int]:
        """Return how many requests and responses there were, and how many of these were refused."""
        return self._watched().passed()

    def watch(self) -> AsyncGenerator[bytes, None]:
        """Return lines of JSON: the document, then each push with its answer."""
        return self._watched().watch()

    def warm_up(self) -> None:
        """Import what the first stream needs, in the time until Envoy opens it."""
        self._watched()

    def _watched(self) -> "Monitor":
        if self._monitor is None:
            from agent.xds.monitor.run import Monitor  # noqa: PLC0415 - when Envoy has its start

            self._monitor = Monitor(self.connection, count=self._count, observe=self._observe)
        return self._monitor

    def stop(self) -> None:
        """End the current stream."""
        self._take_over(None, SHUT_DOWN)
        if self._monitor is not None:
            self._monitor.close()

    async def serve(self, backend: Backend, kind: Kind, downstream: Downstream) -> Ending:
        """Serve one stream until it ends; return what Envoy is told."""
        number = next(self._numbers)
        taken_over: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._take_over(taken_over, REPLACED)
        self.note(DOWNSTREAM, None)
        log.info("stream opened stream=%d kind=%s", number, kind.value)
        ending = ENVOY_LEFT  # what it is if grpc cancels us
        try:
            ending = await self._serve(backend, kind, downstream, number, taken_over)
        finally:
            if self._current is taken_over:
                self._current = None
            self._report(number, ending)
        return ending

    async def _serve(
        self,
        backend: Backend,
        kind: Kind,
        downstream: Downstream,
        number: int,
        taken_over: asyncio.Future[Ending],
    ) -> Ending:
        """Serve a stream, unless another one takes over before that is possible."""
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(backend.open(kind, downstream, number))
            try:
                await asyncio.wait((taken_over, opening), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await _close_opened(opening)
                raise
            opening.cancel()
        if opening.cancelled():
            return taken_over.result()
        session = opening.result()
        return session if isinstance(session, Ending) else await run_session(session, taken_over)

    def _take_over(self, successor: asyncio.Future[Ending] | None, ending: Ending) -> None:
        current, self._current = self._current, successor
        if current is None or current.done():
            return
        current.set_result(ending)
        now = asyncio.get_running_loop().time()
        if successor is not None and now - self._overlap_logged >= OVERLAP_LOG_SECONDS:
            self._overlap_logged = now
            log.warning("overlapping stream: the newer one replaces the older one")

    def _report(self, number: int, ending: Ending) -> None:
        if ending.counter:
            self._count(ending.counter, **({"type": ending.kind} if ending.kind else {}))
        if ending.kind == "error" and ending.counter == ENVOY:
            self.note(DOWNSTREAM, ending.details)
        if ending.counter == NO_CHANNEL or (ending.kind == "error" and ending.counter == ISTIOD):
            self._last_error = {"reason": ending.details, "time": round(time.time(), 3)}
        level = logging.WARNING if ending.kind == "error" else logging.INFO
        code, details = STATUS[ending.code].name, ending.details
        wait = self._pace.delay(asyncio.get_running_loop().time())
        more = f" retry_in_seconds={wait:.1f}" if wait else ""
        log.log(level, "stream ended stream=%d code=%s details=%r%s", number, code, details, more)


async def _close_opened(opening: asyncio.Task[Session | Ending]) -> None:
    """Close what was opened in the very moment in which nobody wants it any more."""
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        session = opening.result()
        if not isinstance(session, Ending):
            await session.close()


async def run_session(session: Session, taken_over: asyncio.Future[Ending]) -> Ending:
    """Run the pumps until one has a verdict, or a newer stream takes over."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(pump) for pump in session.pumps()]
            waiting: set[asyncio.Future[Any]] = {taken_over, *tasks}
            ending: Ending | None = None
            while ending is None:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                ending = next((each.result() for each in done if each.result()), None)
            for task in tasks:
                task.cancel()
        return ending
    finally:
        await session.close()


@asynccontextmanager
async def serving(
    settings: XdsSettings,
    *,
    count: Count,
    observe: Count = lambda *_, **__: None,
    deliver: Mapping[str, Consume] | None = None,
    convert: Mapping[str, Convert] | None = None,
    subscribe: Sequence[str] = (),
    rng: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Relay]:
    """Serve ADS to Envoy while the context is open; the socket listens once it is entered.

    Args:
        settings: the relay's branch.
        count: adds one, or an amount, to a counter by name and labels.
        observe: adds an observation to a histogram by name, value and labels.
        deliver: handlers of the types that the agent consumes, by type URL.
        convert: what makes of a response the one that Envoy gets, by type URL.
        subscribe: type URLs that the agent itself asks for after Envoy's first request for
            listeners, in this order.
        rng: chance, in [0, 1), that keeps a fleet apart.

    Raises:
        AgentError: no usable root certificate, no such directory of resources.
        SystemRefusedError: the socket cannot be made.
    """
    pace = Pace(rng)
    relay = Relay(settings.local or settings.upstream.address, count, observe, pace)
    async with AsyncExitStack() as stack:
        backend: Backend
        if settings.local:
            from agent.xds.local.run import local_backend  # noqa: PLC0415 - few pods need it

            backend = await stack.enter_async_context(
                local_backend(settings, relay.note, relay.observing)
            )
        else:
            control_plane = ControlPlane(settings.upstream, settings.keepalive, settings.others)
            stack.push_async_callback(control_plane.close)
            control_plane.connect_early()
            backend = upstream = UpstreamBackend(
                control_plane,
                note=relay.note,
                count=count,
                observing=relay.observing,
                deliver=deliver or {},
                convert=convert or {},
                subscribe=subscribe,
                patience=settings.patience,
                pace=pace,
                rng=rng,
            )
            relay.address = lambda: control_plane.address
            relay.report_health = upstream.report_health
            if settings.cache.directory:
                from agent.xds.cache.run import CachingBackend  # noqa: PLC0415 - few ask for it

                backend = cached = CachingBackend(settings.cache, control_plane, upstream)
                stack.push_async_callback(cached.close)
                relay.remarks.append(cached.problem)

        async def serve(kind: Kind, downstream: Downstream) -> Ending:
            return await relay.serve(backend, kind, downstream)

        await stack.enter_async_context(listening(settings, serve))
        stack.callback(relay.stop)
        yield relay
