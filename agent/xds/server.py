"""ADS for Envoy on a Unix socket: raw bytes in, raw bytes out.

Source: xds-identity-dns.md sections 1.3 and 2.1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from agent.server import Context, Streams, listen
from agent.xds.client import EOF, SERVICE, keepalive_options
from agent.xds.discovery import Kind
from agent.xds.endings import ENVOY, Ending
from agent.xds.settings import XdsSettings

STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


#: gRPC refuses a longer message than that without our seeing it, so it is never the lower limit.
SILENT_LIMIT_BYTES: Final = 64 * 1024 * 1024
#: Within that, grpc cancels the stream of an Envoy that is gone; a status for it would be logged.
GONE_SECONDS: Final = 0.1


class Downstream:
    """Envoy's end of a stream; `limit_bytes` is what one of its messages may have."""

    def __init__(self, context: "Context[bytes, bytes]", limit_bytes: int) -> None:
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
    streams = Streams()
    methods = {
        kind.value: streams.method(_serve(kind, handle, settings.max_receive_bytes))
        for kind in Kind
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    await listen(server, settings.socket_path)
    try:
        yield
    finally:
        await streams.close(server)


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


def _serve(
    kind: Kind, handle: Handle, limit_bytes: int
) -> Callable[["Context[bytes, bytes]"], Awaitable[None]]:
    async def serve(context: "Context[bytes, bytes]") -> None:
        # At once: grpc could not end a stream whose first write, with these, still waits.
        await context.send_initial_metadata(())
        ending = await handle(kind, Downstream(context, limit_bytes))
        if ending.counter == ENVOY:
            await asyncio.sleep(GONE_SECONDS)
        context.set_code(STATUS[ending.code])
        context.set_details(ending.details)

    return serve
