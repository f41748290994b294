"""ADS for Envoy on a Unix socket: raw bytes in, raw bytes out.

Source: xds-identity-dns.md sections 1.3 and 2.1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from agent.server import Context, Streams, listen
from agent.xds.client import SERVICE, keepalive_options
from agent.xds.discovery import Kind
from agent.xds.endings import ENVOY, Ending
from agent.xds.settings import XdsSettings

if TYPE_CHECKING:
    from agent.xds.reflection.run import Reflection

#: For people with grpcurl.
REFLECTION: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}
#: What read() returns at the end of a stream.
EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs lack it
#: gRPC refuses a longer message than that without our seeing it, so it is never the lower limit.
SILENT_LIMIT_BYTES: Final = 64 * 1024 * 1024
#: Within that, grpc cancels the stream of an Envoy that is gone; a status for it would be logged.
GONE_SECONDS: Final = 0.1


class Downstream(NamedTuple):
    """Envoy's end of a stream."""

    #: Returns the next request; none once Envoy has half-closed.
    read: Callable[[], Coroutine[Any, Any, bytes | None]]
    #: Sends one response.
    write: Callable[[bytes], Coroutine[Any, Any, None]]
    limit_bytes: int  #: of one of Envoy's messages


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
    reflecting = {"ServerReflectionInfo": streams.method(_reflecting())}
    for name in REFLECTION:
        handler = grpc.method_handlers_generic_handler(name, reflecting)
        server.add_generic_rpc_handlers((handler,))
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
        # The bound method itself, so that no frame of ours holds the message.
        downstream = Downstream(_reader(context), context.write, limit_bytes)
        ending = await handle(kind, downstream)
        if ending.counter == ENVOY:
            await asyncio.sleep(GONE_SECONDS)
        context.set_code(STATUS[ending.code])
        context.set_details(ending.details)

    return serve


def _reflecting() -> Callable[["Context[bytes, bytes]"], Awaitable[None]]:
    reflection: Reflection | None = None

    async def serve(context: "Context[bytes, bytes]") -> None:
        nonlocal reflection
        if reflection is None:
            from agent.xds.reflection.run import Reflection  # noqa: PLC0415 - people rarely ask

            reflection = Reflection()
        await reflection.serve(context)

    return serve


def _reader(context: "Context[bytes, bytes]") -> Callable[[], Coroutine[Any, Any, bytes | None]]:
    async def read() -> bytes | None:
        try:
            raw: Any = await context.read()
        except grpc.aio.BaseError:
            return None  # the server was stopped
        return None if raw is EOF else raw

    return read
