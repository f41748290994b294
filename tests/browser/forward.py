"""What `kubectl port-forward` does: a port here leads to the loopback of a pod.

The kubelet's runtime enters the pod's network namespace and connects from there, so the agent
sees a client on its loopback.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Thread

from agent.demo.process import Namespace

PATIENCE_SECONDS = 5


def dial(inside: Namespace, port: int) -> socket.socket:
    """Return a connection made inside; a socket stays in the namespace that it was made in."""
    made: list[socket.socket | OSError] = []

    def connect() -> None:  # in a thread of its own: what it enters, it does not leave
        try:
            entrance = os.open(Path(f"/proc/{inside.holder}/ns/net"), os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(entrance, 0):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(entrance)
            made.append(socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS))
        except OSError as error:
            made.append(error)

    thread = Thread(target=connect)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    made[0].settimeout(0)
    return made[0]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def forwarding(inside: Namespace, port: int, *, own_port: int = 0) -> AsyncIterator[int]:
    """Forward a port of ours while the context is open; yield it."""
    pumps: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            sock = await asyncio.to_thread(dial, inside, port)
        except OSError:
            writer.close()
            return
        there, back = await asyncio.open_connection(sock=sock)
        for pair in ((reader, back), (there, writer)):
            task = asyncio.create_task(_pump(*pair))
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", own_port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in (*pumps,):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await server.wait_closed()
