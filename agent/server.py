"""Has a gRPC server listen on a Unix socket, as Envoy's bootstrap expects it, and end in order.

Source: xds-identity-dns.md section 1.3.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import grpc

from agent.errors import SystemRefusedError

log = logging.getLogger(__name__)

DIRECTORY_MODE: Final = 0o750
SOCKET_MODE: Final = 0o666
MAX_PATH_BYTES: Final = 107
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
#: Given to streams that were told to end, and to connections.
END_SECONDS: Final = 1.0

Context = grpc.aio.ServicerContext  # of bytes and bytes


class Streams:
    """Those of Envoy that are open, each a task of grpc's.

    grpc logs a traceback of each task that it has to break off, so none is left to it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def method(
        self, serve: Callable[["Context[bytes, bytes]"], Awaitable[None]]
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return a method that serves each of its streams, raw bytes in and out."""

        async def stream(_requests: object, context: "Context[bytes, bytes]") -> None:
            if task := asyncio.current_task():
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await serve(context)

        return grpc.stream_stream_rpc_method_handler(stream)

    async def close(self, server: grpc.aio.Server) -> None:
        """Stop their server, once they have been told to end.

        A client that hangs, and takes not even its status, holds this up for two seconds at most.
        """
        await self._ended()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await server.stop(None)
                await self._ended()

    async def _ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
            await asyncio.sleep(0)  # for the task of grpc's that waits for each of them


async def listen(server: grpc.aio.Server, path: str) -> None:
    """Start a server on a socket that anyone in the container may use; what is there goes.

    gRPC removes the socket when the server stops.

    Raises:
        SystemRefusedError: the socket cannot be made; says why.
    """
    try:
        _make_way(path)
        _try_out(path)
        server.add_insecure_port(f"unix:{path}")
        await _start(server, path)
    except (RuntimeError, OSError) as error:
        raise SystemRefusedError(f"{path}: cannot listen there: {_reason(path, error)}") from error
    log.info("listening socket=%s", path)


async def _start(server: grpc.aio.Server, path: str) -> None:
    """Start a server whole, or not at all.

    grpc tells of a start that is broken off with a traceback, and waits for the threads of a server
    that nobody has stopped.
    """
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
        os.chmod(path, SOCKET_MODE)  # noqa: PTH101 - pathlib costs time at start
    except (asyncio.CancelledError, OSError):
        await starting
        await server.stop(None)
        raise


def _make_way(path: str) -> None:
    """Remove a stale socket and make its directory; only the former is vital."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - pathlib costs time at start
    try:
        os.makedirs(os.path.dirname(path) or ".", DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    except OSError as error:
        log.warning("cannot make directory of socket=%s reason=%r", path, str(error))


def _try_out(path: str) -> None:
    """Bind a socket there, and remove it: gRPC would not say what is wrong, and log its own line.

    Raises:
        OSError: it cannot be bound.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    os.unlink(path)  # noqa: PTH108 - as above


def _reason(path: str, error: Exception) -> str:
    """Return what is wrong, and what to do about it."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"expected a path of at most {MAX_PATH_BYTES} bytes; shorten configPath"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return str(error)
    reason = os.strerror(number).lower()
    if number == errno.EISDIR:
        return f"{reason}; remove it, or what mounts it"
    if number in FULL:
        return f"{reason}; free space, or inodes, in its directory"
    return f"{reason}; its directory must be one that user {os.geteuid()} may write to"
