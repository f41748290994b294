"""An HTTP proxy: CONNECT leads to one place, whatever is asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

ESTABLISHED = b"HTTP/1.1 200 OK\r\n\r\n"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@contextlib.asynccontextmanager
async def tunnels(
    address: str, answer: bytes = ESTABLISHED
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a proxy that leads to host:port; yield its own port, and the heads that it was sent.

    With another answer than that all is well, it gives that and closes the connection.
    """
    heads: list[str] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer)
        if answer != ESTABLISHED:
            writer.close()
            return
        host, _, port = address.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writers.append(back)
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, back))
            group.create_task(_copy(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
