"""Has the control plane answer Envoy: one stream to it for each stream of Envoy.

Source: xds-identity-dns.md sections 2.5 to 2.8 and 2.10.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never

import grpc

from agent.errors import SecretError
from agent.protobuf.wire import WireError
from agent.xds.client import ControlPlane, Upstream
from agent.xds.discovery import Kind, Request, Response
from agent.xds.endings import (
    ENVOY_LEFT,
    Ending,
    backlog_too_long,
    channel_failed,
    downstream_write_failed,
    no_token,
    too_long,
    unreadable,
    upstream_ended,
)
from agent.xds.pace import Pace
from agent.xds.process import Allocator
from agent.xds.server import STATUS, Downstream
from agent.xds.settings import PatienceSettings
from agent.xds.stream import (
    AdsStream,
    Convert,
    Decision,
    Deliver,
    Drop,
    Health,
    SendDownstream,
    SendUpstream,
)
from agent.xds.upstream.conversion import run as conversion
from agent.xds.upstream.conversion.nonces import Withheld
from agent.xds.upstream.watchdog.run import Watchdog

if TYPE_CHECKING:
    from agent.xds.monitor.run import Observer

log = logging.getLogger(__name__)

#: Reading from Envoy never waits, so this is where a control plane that does not read ends (D-20).
BACKLOG_BYTES: Final = 64 * 1024 * 1024
SLOW_WRITE_SECONDS: Final = 10.0
UPSTREAM: Final = "control plane"

Count = Callable[..., None]
#: Takes the first resource of a consumed type, or none of an empty set; a ValueError is a NACK. One
#: that needs long returns an awaitable: relaying goes on, the answer waits for it.
Consume = Callable[[bytes | None], Awaitable[None] | None]


class RelayedSession:
    """Passes one stream on to the control plane, and back."""

    def __init__(
        self,
        backend: "UpstreamBackend",
        upstream: Upstream,
        downstream: Downstream,
        kind: Kind,
        number: int,
    ) -> None:
        self._backend = backend
        self._upstream = upstream
        self._downstream = downstream
        self._number = number
        self._observer = backend.observing(number, kind)
        self._stream = AdsStream(
            kind,
            consumed=backend.deliver,
            converted=backend.convert,
            subscribe=backend.subscribe,
            health=backend.health,
        )
        self._arrivals = conversion.Arrivals(upstream.read, kind)
        self._withheld = Withheld(kind, backend.convert, backend.accepted)
        self._watchdog = Watchdog(backend.patience, backend.rng)
        # Unbounded: if reading from Envoy waited for the control plane while both sides
        # write, nobody would read. BACKLOG_BYTES ends the stream instead.
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._backlog_bytes = 0
        # A control plane waits for the answer before it sends the same type again.
        self._consumed: asyncio.Queue[SendUpstream | Deliver] = asyncio.Queue(maxsize=1)

    def pumps(self) -> Sequence[Coroutine[Any, Any, Ending | None]]:
        """Return what runs at once."""
        return (
            self._arrivals.run(),
            self._receive_downstream(),
            self._send_upstream(),
            self._relay_responses(),
            self._consume(),
            self._watch(),
        )

    async def close(self) -> None:
        """Close the connection to the control plane."""
        self._watchdog.close()
        self._backend.closed(self)
        self._observer.close()
        await self._upstream.close()

    def report(self, health: Health) -> None:
        """Tell the control plane of the application's health."""
        for each in self._stream.report(health):
            self._enqueue(each.message)

    async def _receive_downstream(self) -> Ending:
        while (raw := await self._downstream.read()) is not None:
            self._backend.measure_request(len(raw))
            if len(raw) > self._downstream.limit_bytes:
                return too_long(len(raw), self._downstream.limit_bytes)
            try:
                request, own = self._stream.receive_request(raw)
                request, raw = self._withheld.readdressed(request, raw)
            except WireError as error:
                return unreadable("Envoy", str(error))
            log.debug(
                "> request stream=%d type=%s nonce=%s error=%s",
                self._number,
                request.type_url,
                request.nonce,
                request.error,
            )
            self._enqueue(raw, request)
            for each in own:
                self._enqueue(each.message)
            if self._backlog_bytes > BACKLOG_BYTES:
                return self._backend.ended(backlog_too_long(BACKLOG_BYTES))
        return ENVOY_LEFT

    async def _watch(self) -> Ending:
        return self._backend.ended(await self._watchdog.verdict())

    def _enqueue(self, message: bytes, head: Request | None = None) -> None:
        """Have a message sent; its head is read where it is not given, of the agent's own."""
        self._observer.requested(message, head)
        self._backlog_bytes += len(message)
        self._requests.put_nowait(message)

    async def _send_upstream(self) -> None:
        while True:
            message = await self._requests.get()
            with self._watchdog:
                if not await self._upstream.write(message):
                    return
            self._backend.count("xds_proxy_requests")
            self._backlog_bytes -= len(message)

    async def _relay_responses(self) -> Ending:
        """Read and write in turn: at most one response is held, so a slow Envoy slows the push.

        `raw` is given up before each wait: a push may have 60 MB.
        """
        while True:
            raw = await self._next()
            if isinstance(raw, Ending):
                return raw
            try:
                decision = self._stream.receive_response(raw)
            except WireError as error:
                return self._backend.ended(unreadable(UPSTREAM, str(error)))
            self._observe(decision, raw)
            size = len(raw)
            if isinstance(decision, Convert):
                self._convert(decision.response, raw)
                del raw
                continue
            if not isinstance(decision, SendDownstream):
                del raw
                await self._keep(decision)
                self._backend.allocator.written(size)
                continue
            self._backend.allocator.received(size)
            writing = self._downstream.write(raw)
            del raw
            ending = await self._finish(writing, decision.response)
            self._backend.allocator.written(size)
            if ending is not None:
                return ending

    async def _next(self) -> bytes | Ending:
        """Return the next response, or how all ends; what was converted goes to Envoy meanwhile."""
        while isinstance(arrived := await self._arrivals.next(), conversion.Converted):
            ending = await self._pass_on(arrived)
            self._backend.allocator.written(arrived.size)
            del arrived  # or it would be held until something else comes
            if ending is not None:
                return ending
        if arrived is None:
            return self._backend.ended(upstream_ended(*await self._upstream.status()))
        self._backend.received()
        self._watchdog.heard()
        return arrived

    def _convert(self, response: Response, raw: bytes) -> None:
        self._trace("=", response)
        self._withheld.received(response)
        self._arrivals.convert(self._backend.convert[response.type_url], response, raw)

    async def _pass_on(self, converted: conversion.Converted) -> Ending | None:
        """Send Envoy what a response was converted to, or the control plane why it was not."""
        response, _, message, problem = converted
        if message is None:
            log.warning("refused response type=%s reason=%r", response.type_url, problem)
            self._enqueue(self._withheld.refusal(response, problem))
            return None
        self._withheld.passed_on(response)
        return await self._finish(self._downstream.write(message), response)

    async def _finish(
        self, writing: Coroutine[Any, Any, None], response: Response
    ) -> Ending | None:
        self._trace("<", response)
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            await writing
        except grpc.aio.BaseError as error:
            return downstream_write_failed(response.type_url, str(error))
        seconds = clock() - started
        if seconds > SLOW_WRITE_SECONDS:
            log.warning("slow write to Envoy type=%s seconds=%.1f", response.type_url, seconds)
        return None

    def _observe(self, decision: Decision, raw: bytes) -> None:
        match decision:
            case SendDownstream(response) | Convert(response) | Deliver(response):
                self._observer.responded(raw, response)
            case SendUpstream():  # a refusal of it
                self._observer.responded(raw)
            case Drop():
                pass
            case _:
                assert_never(decision)

    async def _keep(self, decision: SendUpstream | Deliver | Drop) -> None:
        """Put aside what does not concern Envoy."""
        if isinstance(decision, Drop):
            self._trace("!", decision.response)
            type_url = decision.response.type_url
            log.error("dropped response that nobody asked for type=%.256r", type_url)
        else:
            await self._consumed.put(decision)

    async def _consume(self) -> None:
        """Have the agent's handlers take what is theirs, and answer in their place, in order."""
        while True:
            decision = await self._consumed.get()
            match decision:
                case SendUpstream(message):
                    self._enqueue(message)
                case Deliver(response, resource):
                    self._trace("=", response)
                    error = await self._deliver(response.type_url, resource)
                    self._enqueue(self._stream.answer(response, error).message)
                case _:
                    assert_never(decision)

    async def _deliver(self, type_url: str, resource: bytes | None) -> str | None:
        """Return what the handler has against the resource."""
        try:
            taking = self._backend.deliver[type_url](resource)
            if taking is not None:
                await taking
        except ValueError as problem:
            log.warning("refused response type=%s reason=%r", type_url, str(problem))
            return str(problem)
        return None

    def _trace(self, sign: str, response: Response) -> None:
        log.debug(
            "%s response stream=%d type=%s nonce=%s resources=%d",
            sign,
            self._number,
            response.type_url,
            response.nonce,
            response.resource_count,
        )


class UpstreamBackend:
    """Has the control plane answer Envoy; what all sessions share."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        note: Callable[[str, str | None], None],
        count: Count,
        observing: "Callable[[int, Kind], Observer]",
        deliver: Mapping[str, Consume],
        convert: Mapping[str, conversion.Convert],
        subscribe: Sequence[str],
        patience: PatienceSettings,
        pace: Pace,
        rng: Callable[[], float],
    ) -> None:
        self.patience = patience
        self.rng = rng
        self._pace = pace
        self.allocator = Allocator()
        self.count = count
        self.observing = observing
        self.deliver = deliver
        self.convert = convert
        self.accepted: dict[str, str] = {}  #: versions of converted types, by type URL
        self.subscribe = subscribe
        self.health: Health | None = None  #: as last reported
        self._session: RelayedSession | None = None  #: the current one
        self._control_plane = control_plane
        self._note = note
        self._largest_request = 0
        self._has_answered = False  #: in the latest session
        self._last_end = ""  #: of a session without an answer since

    @property
    def _where(self) -> str:
        return f"{UPSTREAM} {self._control_plane.address}"

    async def open(
        self, kind: Kind, downstream: Downstream, number: int
    ) -> "RelayedSession | Ending":
        """Return a session with a stream to the control plane, which may still be connecting.

        It is not begun before its time: see pace.py.
        """
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._pace.delay(clock()))
        self._pace.began(clock())
        try:
            upstream = await self._control_plane.open(kind)
        except (OSError, ValueError) as error:
            self._note(UPSTREAM, f"{self._where}: {error}")
            return channel_failed(str(error))
        except SecretError as error:
            self._note(UPSTREAM, f"{self._where}: {error}")
            return no_token(str(error))
        # Whoever accepts connections and never answers would else be nobody's fault.
        self._has_answered = False
        self._note(UPSTREAM, f"{self._where}: no answer yet{self._last_end}")
        self.allocator.prepare()  # while gRPC's own threads connect
        self._session = RelayedSession(self, upstream, downstream, kind, number)
        return self._session

    def closed(self, session: RelayedSession) -> None:
        """Take note that a session is over."""
        self.allocator.ended()
        if self._session is session:
            self._session = None

    def report_health(self, problem: str | None) -> None:
        """Tell the control plane, now and on each stream to come, what the application lacks."""
        self.health = Health(problem)
        if self._session:
            self._session.report(self.health)

    def measure_request(self, size: int) -> None:
        """Keep the largest size of a request as a metric that only grows."""
        if size > self._largest_request:
            self.count("pilot_xds_recv_max", size - self._largest_request)
            self._largest_request = size

    def received(self) -> None:
        """Take note that the control plane has answered."""
        self.count("xds_proxy_responses")
        self._has_answered = True
        self._pace.answered()
        self._last_end = ""
        self._note(UPSTREAM, None)

    def ended(self, ending: Ending) -> Ending:
        """Return how a stream ended; it is a problem unless it was in good order, and answered."""
        self._pace.ended(ending.code, asyncio.get_running_loop().time())
        if ending.kind == "error" or not self._has_answered:
            how = f"{STATUS[ending.code].name}: {ending.details}"
            self._last_end = f", and the last stream ended with {how}"
            self._note(UPSTREAM, f"{self._where}: {how}")
        if not self._has_answered:
            self._control_plane.turn()  # S6
        return ending
