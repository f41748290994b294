"""An application that counts connections, and answers request after request as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Application:
    """What it was asked, and over what."""

    def __init__(self, answers: tuple[bytes, ...]) -> None:
        self.answers = list(answers)  #: one for each request, the last for all that follow
        self.requests: list[bytes] = []
        self.peers: list[str] = []  #: of each connection
        self.writers: list[asyncio.StreamWriter] = []  #: of those that are open
        self.closes_after: set[int] = set()  #: requests whose connection ends behind the answer
        self.drops: set[int] = set()  #: requests whose connection ends without an answer
        #: The next request has its connection end without an answer.
        self.most_per_connection = 1000
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer.get_extra_info("peername")[0])
        self.writers.append(writer)
        try:
            await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.remove(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self.most_per_connection):
            request = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(request)
            number = len(self.requests)
            if number in self.drops:
                return
            writer.write(self.answers[min(number, len(self.answers)) - 1])
            await writer.drain()
            if number in self.closes_after:
                return
        await reader.readuntil(b"\r\n\r\n")

    def hang_up(self) -> None:
        """Close what is open, as servers do that wait no longer."""
        for writer in self.writers:
            writer.close()


@asynccontextmanager
async def counted(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Application]:
    """Serve until the block is left."""
    application = Application(answers or (OK,))
    server = await asyncio.start_server(application.serve, "127.0.0.1", 0, ssl=tls)
    application.port = server.sockets[0].getsockname()[1]
    async with server:
        yield application
        application.hang_up()


def open_sockets() -> int:
    """Return how many sockets this process has."""
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the list's own is gone by now
            count += str(path.readlink()).startswith("socket:")
    return count
