"""A TCP connection in between, which can fail in the ways that networks do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

#: HTTP/2: "I am leaving, and nothing is wrong" (RFC 9113 section 6.8).
GOAWAY_NO_ERROR = bytes.fromhex("000008 07 00 00000000 7fffffff 00000000")


class Link:
    """Forwards connections to a port of the loopback."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.connected = asyncio.Event()
        self.disconnected = asyncio.Event()
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._clients: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """Lose everything from now on without closing anything."""
        self._flowing.clear()

    def cut(self, last_words: bytes = b"") -> None:
        """Close all connections, after some bytes to the client."""
        for writer in self._clients:
            writer.write(last_words)
            writer.close()
        self._clients.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        self.connected.set()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, server_writer))
                group.create_task(self._copy(server_reader, writer))
        finally:
            self.disconnected.set()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def link(target: int) -> AsyncIterator[Link]:
    """Run a link to a port of the loopback."""
    between = Link(target)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        between._flowing.set()  # noqa: SLF001 - its own clean-up
        between.cut()
