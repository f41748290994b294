"""SDS for Envoy on a Unix socket.

Source: xds-identity-dns.md sections 4.1, 4.3, 4.4 and 4.6.
"""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import grpc

from agent.errors import SecretError, SystemRefusedError
from agent.identity.secret import Secret, read_request, write_response, write_secret
from agent.identity.settings import KeyProvider
from agent.identity.stream import Meaning, SdsStream
from agent.protobuf.wire import WireError
from agent.server import Context, Streams, listen

log = logging.getLogger(__name__)

SERVICE: Final = "envoy.service.secret.v3.SecretDiscoveryService"
NOT_IMPLEMENTED: Final = ("DeltaSecrets", "FetchSecrets")
MAX_STREAMS: Final = 100_000
EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lack it
LISTEN_RETRIES: Final = 5
REJECTS: Final = "pilot_total_xds_rejects"
STALE: Final = "pilot_xds_expired_nonce"
ERRORS: Final = "pilot_total_xds_internal_errors"
SEND_TIME: Final = "pilot_xds_send_time"

Get = Callable[[str], Awaitable[Secret]]


class Recorder(NamedTuple):
    """Where figures go."""

    add: Callable[..., None]  #: adds to a counter: name, amount (1), labels
    set: Callable[..., None]  #: sets a gauge: name, value, labels
    observe: Callable[..., None]  #: adds to a histogram: name, value


class Ending(NamedTuple):
    """Why we end a stream."""

    code: grpc.StatusCode
    details: str


SHUT_DOWN: Final = Ending(grpc.StatusCode.UNAVAILABLE, "agent is shutting down")


class SdsServer:
    """All streams, and what they get."""

    def __init__(self, get: Get, provider: KeyProvider | None, recorder: Recorder) -> None:
        """Serve what `get` returns for a name; its SecretError ends the stream that asked."""
        self.get = get
        self.provider = provider
        self.recorder = recorder
        self.problem = ""  #: why there is no socket; empty if there is one
        self._versions = itertools.count(1)
        self._streams: set[SecretStream] = set()
        self._calls = Streams()

    def publish(self, name: str) -> None:
        """Tell every stream that is subscribed to a secret that it may have changed."""
        for stream in self._streams:
            stream.notify(name)

    def subscribed(self) -> set[str]:
        """Return the names that any stream is subscribed to."""
        return set[str]().union(*(stream.state.names() for stream in self._streams))

    def version(self) -> str:
        """Return a version that no other response has."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"{now}/{next(self._versions)}"

    @asynccontextmanager
    async def serving(self, path: str, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Serve on a socket while the context is open.

        A socket that cannot be made now is tried again, without keeping anybody waiting.
        """
        servers: list[grpc.aio.Server] = []
        retrying: asyncio.Task[None] | None = None
        try:
            servers.append(await self._listen(path))
        except SystemRefusedError as error:
            self.problem = f"no SDS: {error}"
            log.warning("no SDS yet, retry_in_seconds=1 reason=%r", str(error))
            retrying = tasks.create_task(self._listen_later(path, servers))
        try:
            yield
        finally:
            if retrying:
                retrying.cancel()
            for stream in self._streams:
                stream.stop()
            for server in servers:
                await self._calls.close(server)

    async def _listen(self, path: str) -> grpc.aio.Server:
        server = grpc.aio.server(options=[("grpc.max_concurrent_streams", MAX_STREAMS)])
        server.add_generic_rpc_handlers((self._handlers(),))
        await listen(server, path)
        return server

    async def _listen_later(self, path: str, servers: list[grpc.aio.Server]) -> None:
        for retry in range(LISTEN_RETRIES):
            await asyncio.sleep(2**retry)
            try:
                servers.append(await self._listen(path))
            except SystemRefusedError as error:
                self.problem = f"no SDS: {error}"
                log.warning("no SDS reason=%r", str(error))
            else:
                self.problem = ""
                return
        log.error("no SDS socket=%s: Envoy gets no certificates", path)

    def _handlers(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        def refuse(name: str) -> "grpc.RpcMethodHandler[bytes, bytes]":
            async def handle(_requests: object, context: "Context[bytes, bytes]") -> None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} not implemented")

            return grpc.stream_stream_rpc_method_handler(handle)

        methods = {name: refuse(name) for name in NOT_IMPLEMENTED}
        methods["StreamSecrets"] = self._calls.method(self._serve)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _serve(self, context: "Context[bytes, bytes]") -> None:
        stream = SecretStream(self, context)
        self._streams.add(stream)
        try:
            ending = await stream.run()
        finally:
            self._streams.discard(stream)
        if ending:
            context.set_code(ending.code)
            context.set_details(ending.details)


class SecretStream:
    """One stream of Envoy. Requests come before changes, and one reply is made at a time."""

    __slots__ = ("_changed", "_context", "_limit", "_notified", "_server", "state")

    def __init__(self, server: SdsServer, context: "Context[bytes, bytes]") -> None:
        self.state = SdsStream()
        self._server = server
        self._context = context
        self._changed: dict[str, None] = {}  # in order
        self._notified: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limit = asyncio.timeout(None)

    def notify(self, name: str) -> None:
        """Take note that a secret may have changed."""
        if self.state.is_subscribed(name):
            self._changed[name] = None
            if not self._notified.done():
                self._notified.set_result(None)

    def stop(self) -> None:
        """End the stream, whatever it waits for."""
        self._limit.reschedule(0)

    async def run(self) -> Ending | None:
        """Serve until Envoy is gone; return why, if we end the stream ourselves."""
        try:
            async with self._limit:
                return await self._run()
        except TimeoutError:
            return SHUT_DOWN

    async def _run(self) -> Ending | None:
        await self._context.send_initial_metadata(())
        reading: asyncio.Future[Any] = asyncio.ensure_future(self._context.read())
        try:
            while True:
                waiting: tuple[asyncio.Future[Any], ...] = (reading, self._notified)
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    raw = reading.result()
                    if raw is EOF:
                        return None
                    ending = await self._receive(raw)
                    del raw  # a first request has kilobytes, and there may be a thousand streams
                    reading = asyncio.ensure_future(self._context.read())
                else:
                    ending = await self._push()
                if ending:
                    return ending
        except grpc.aio.BaseError as error:
            log.debug("= stream is gone reason=%r", str(error))
            return None
        finally:
            reading.cancel()

    async def _receive(self, raw: bytes) -> Ending | None:
        try:
            request = read_request(raw)
        except WireError as error:
            return Ending(grpc.StatusCode.INVALID_ARGUMENT, f"request cannot be read: {error}")
        meaning, names = self.state.receive(request)
        log.debug("> request meaning=%s names=%s", meaning.name, request.names)
        if meaning is Meaning.ANONYMOUS:
            return Ending(grpc.StatusCode.INVALID_ARGUMENT, "missing node information")
        if meaning is Meaning.NACK:
            log.warning("Envoy refused a secret names=%s reason=%r", request.names, request.error)
            self._server.recorder.add(REJECTS, type="sds")
        if meaning is Meaning.STALE:
            self._server.recorder.add(STALE, type="sds")
        return await self._send(names) if names else None

    async def _push(self) -> Ending | None:
        """Send what has changed; a secret that cannot be had any more ends the stream (R-4)."""
        self._notified = asyncio.get_running_loop().create_future()
        while self._changed:
            name = next(iter(self._changed))
            del self._changed[name]
            if not self.state.is_subscribed(name):
                continue
            if ending := await self._send((name,), only_if_new=True):
                return ending
        return None

    async def _send(self, names: tuple[str, ...], *, only_if_new: bool = False) -> Ending | None:
        resources: list[bytes] = []
        digests: dict[str, int] = {}
        for name in names:
            try:
                secret = await self._server.get(name)
            except SecretError as error:
                details = f"failed to generate secret for {name}: {error}"
                log.warning("no secret name=%r reason=%r", name, str(error))
                self._server.recorder.add(ERRORS, type="sds")
                return Ending(grpc.StatusCode.UNKNOWN, details)
            resources.append(write_secret(name, secret, self._server.provider))
            digests[name] = hash(resources[-1])
        if only_if_new and not any(self.state.is_new(*item) for item in digests.items()):
            return None
        await self._write(resources, digests)
        return None

    async def _write(self, resources: list[bytes], digests: dict[str, int]) -> None:
        nonce = _uuid()
        response = write_response(resources, version=self._server.version(), nonce=nonce)
        self.state.sent(nonce, digests)
        started = time.monotonic()
        await self._context.write(response)
        self._server.recorder.observe(SEND_TIME, time.monotonic() - started)
        log.debug("< response names=%s nonce=%s", tuple(digests), nonce)


def _uuid() -> str:
    """Return a random UUID, version 4; the module `uuid` would be 0.2 MB in every pod."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
