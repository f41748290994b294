"""ADS for Envoy on a Unix socket: raw bytes in, raw bytes out.

Source: xds-identity-dns.md sections 1.3 and 2.1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from agent.server import listen
from agent.xds.client import EOF, SERVICE, keepalive_options
from agent.xds.discovery import Kind
from agent.xds.endings import ENVOY, Ending
from agent.xds.settings import XdsSettings

STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


#: gRPC refuses a longer message than that without our seeing it, so it is never the lower limit.
SILENT_LIMIT_BYTES: Final = 64 * 1024 * 1024
#: Within that, grpc cancels the stream of an Envoy that is gone.
GONE_SECONDS: Final = 0.1
#: Given to streams that were told to end.
END_SECONDS: Final = 1.0


class Downstream:
    """Envoy's end of a stream; `limit_bytes` is what one of its messages may have."""

    def __init__(self, context: "grpc.aio.ServicerContext[bytes, bytes]", limit_bytes: int) -> None:
        self._context = context
        self.limit_bytes = limit_bytes
        #: Sends one response; the bound method itself, so that no frame of ours holds the message.
        self.write = context.write

    async def read(self) -> bytes | None:
        """Return the next request; none once Envoy has half-closed."""
        try:
            raw: Any = await self._context.read()
        except grpc.aio.BaseError:
            return None  # the server was stopped
        return None if raw is EOF else raw


Handle = Callable[[Kind, Downstream], Awaitable[Ending]]


@asynccontextmanager
async def listening(settings: XdsSettings, handle: Handle) -> AsyncIterator[None]:
    """Serve both ADS methods on the socket while the context is open.

    Args:
        settings: the path and the limits.
        handle: called for each stream; returns what Envoy is told at its end.

    Raises:
        SystemRefusedError: the socket cannot be made.
    """
    server = grpc.aio.server(options=_options(settings))
    streams = _Streams(handle, settings.max_receive_bytes)
    server.add_generic_rpc_handlers((streams.methods(),))
    await listen(server, settings.socket_path)
    try:
        yield
    finally:
        await streams.ended()
        await server.stop(None)
        await streams.ended()


def _options(settings: XdsSettings) -> list[tuple[str, int]]:
    interval = int(settings.keepalive.interval_seconds * 1000)
    return [
        ("grpc.max_concurrent_streams", settings.max_streams),
        (
            "grpc.max_receive_message_length",
            max(settings.max_receive_bytes, SILENT_LIMIT_BYTES),
        ),
        ("grpc.max_send_message_length", -1),
        *keepalive_options(settings.keepalive),
        ("grpc.http2.min_ping_interval_without_data_ms", interval // 2),
    ]


class _Streams:
    """Those of Envoy that are open, each a task of grpc's.

    grpc logs a traceback of what it has to break off, so none is left to it: not a status for an
    Envoy that is gone, and no task at the end of the loop.
    """

    def __init__(self, handle: Handle, limit_bytes: int) -> None:
        self._handle = handle
        self._limit_bytes = limit_bytes
        self._tasks: set[asyncio.Task[Any]] = set()

    def methods(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        """Return both ADS methods."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {kind.value: self._method(kind) for kind in Kind}
        )

    async def ended(self) -> None:
        """Return when all have ended, or soon."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
            await asyncio.sleep(0)  # for the task of grpc's that waits for each of them

    def _method(self, kind: Kind) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def stream(
            _requests: object, context: "grpc.aio.ServicerContext[bytes, bytes]"
        ) -> None:
            if task := asyncio.current_task():
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._serve(kind, context)

        return grpc.stream_stream_rpc_method_handler(stream)

    async def _serve(self, kind: Kind, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        # At once: grpc could not end a stream whose first write, with these, still waits.
        await context.send_initial_metadata(())
        ending = await self._handle(kind, Downstream(context, self._limit_bytes))
        if ending.counter == ENVOY:
            await asyncio.sleep(GONE_SECONDS)
        context.set_code(STATUS[ending.code])
        context.set_details(ending.details)
