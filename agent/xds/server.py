"""ADS for Envoy on a Unix socket: raw bytes in, raw bytes out.

Source: xds-identity-dns.md sections 1.3 and 2.1.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from agent.errors import SystemRefusedError
from agent.xds.client import EOF, SERVICE, keepalive_options
from agent.xds.discovery import Kind
from agent.xds.endings import Ending
from agent.xds.settings import XdsSettings

log = logging.getLogger(__name__)

STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}
DIRECTORY_MODE: Final = 0o750
SOCKET_MODE: Final = 0o666


class Downstream:
    """Envoy's end of a stream."""

    def __init__(self, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        self._context = context
        #: Sends one response; the bound method itself, so that no frame of ours holds the message.
        self.write = context.write

    async def read(self) -> bytes | None:
        """Return the next request; none once Envoy has half-closed."""
        raw: Any = await self._context.read()
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
    server.add_generic_rpc_handlers((_handlers(handle),))
    _make_way(settings.socket_path)
    try:
        server.add_insecure_port(f"unix:{settings.socket_path}")
        await server.start()
        os.chmod(settings.socket_path, SOCKET_MODE)  # noqa: PTH101 - pathlib costs time at start
    except (RuntimeError, OSError) as error:
        raise SystemRefusedError(
            f"{settings.socket_path}: cannot listen there: {error}; "
            "choose another configPath, of less than 100 characters and writable"
        ) from error
    log.info("listening socket=%s", settings.socket_path)
    try:
        yield
    finally:
        await server.stop(None)


def _options(settings: XdsSettings) -> list[tuple[str, int]]:
    interval = int(settings.keepalive.interval_seconds * 1000)
    return [
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.max_receive_message_length", settings.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        *keepalive_options(settings.keepalive),
        ("grpc.http2.min_ping_interval_without_data_ms", interval // 2),
    ]


def _handlers(handle: Handle) -> "grpc.GenericRpcHandler[bytes, bytes]":
    def method(kind: Kind) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def stream(
            _requests: object, context: "grpc.aio.ServicerContext[bytes, bytes]"
        ) -> None:
            # At once: grpc could not end a stream whose first write, with these, still waits.
            await context.send_initial_metadata(())
            ending = await handle(kind, Downstream(context))
            context.set_code(STATUS[ending.code])
            context.set_details(ending.details)

        return grpc.stream_stream_rpc_method_handler(stream)

    return grpc.method_handlers_generic_handler(
        SERVICE, {kind.value: method(kind) for kind in Kind}
    )


def _make_way(path: str) -> None:
    """Remove a stale socket and make its directory; only the former is vital."""
    try:
        os.unlink(path)  # noqa: PTH108 - pathlib costs time at start
    except FileNotFoundError:
        pass
    except OSError as error:
        raise SystemRefusedError(
            f"{path}: cannot remove what is in the socket's place: {error.strerror}"
        ) from error
    try:
        os.makedirs(os.path.dirname(path) or ".", DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    except OSError as error:
        log.warning("cannot make directory of socket=%s reason=%r", path, str(error))
