"""A connection in between, which can fail in the ways that networks, and peers, do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

#: HTTP/2: "I am leaving, and nothing is wrong" (RFC 9113 section 6.8).
GOAWAY_NO_ERROR = bytes.fromhex("000008 07 00 00000000 7fffffff 00000000")


Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Link:
    """Forwards connections."""

    def __init__(self, dial: Dial) -> None:
        self.port = 0
        self.connected = asyncio.Event()
        self.disconnected = asyncio.Event()
        #: Passed on to a client before the link is stuck; no limit if none.
        self.answer_bytes: int | None = None
        self.stuck = asyncio.Event()
        self._dial = dial
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._clients: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """Lose everything from now on without closing anything."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Be as before for connections to come."""
        self._flowing.set()
        self.stuck.clear()

    def cut(self, last_words: bytes = b"") -> None:
        """Close all connections, after some bytes to the client."""
        for writer in self._clients:
            writer.write(last_words)
            writer.close()
        self._clients.clear()

    def kill(self) -> None:
        """Have the client be gone at once, as one that was killed."""
        for writer in (*self._servers, *self._clients):
            writer.transport.abort()
        self._servers.clear()
        self._clients.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        self.connected.set()
        server_reader, server_writer = await self._dial()
        self._servers.append(server_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, server_writer, None))
                group.create_task(self._copy(server_reader, writer, self.answer_bytes))
        finally:
            self.disconnected.set()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> None:
        copied = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                copied += len(data)
                if limit is not None and copied > limit:
                    self.stuck.set()
                    self._flowing.clear()
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def link(target: int) -> AsyncIterator[Link]:
    """Run a link to a port of the loopback."""
    between = Link(lambda: asyncio.open_connection("127.0.0.1", target))
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        between._flowing.set()  # noqa: SLF001 - its own clean-up
        between.cut()


@contextlib.asynccontextmanager
async def unix_link(path: str, target: str) -> AsyncIterator[Link]:
    """Run a link from one Unix socket to another."""
    between = Link(lambda: asyncio.open_unix_connection(target))
    async with asyncio.TaskGroup() as serving:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.create_task(between.serve(reader, writer))

        server = await asyncio.start_unix_server(accept, path)
        try:
            yield between
        finally:
            server.close()
            between.kill()
            between.thaw()
