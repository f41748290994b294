"""What a TLS client offers, read from its first message. Source: RFC 8446 section 4.1.2."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

SERVER_NAME, SUPPORTED_GROUPS, PROTOCOLS, SUPPORTED_VERSIONS = 0, 10, 16, 43


class ClientHello(NamedTuple):
    """Numbers as IANA has them."""

    ciphers: list[int]
    groups: list[int]
    #: Those of TLS 1.3 and before; none where TLS 1.3 is not offered.
    versions: list[int]
    #: SNI and ALPN.
    server_name: str
    protocols: list[str]


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def vector(self, size: int) -> bytes:
        """Return what a length of so many bytes goes before."""
        return self.take(int.from_bytes(self.take(size), "big"))


def parse(handshake: bytes) -> ClientHello:
    read = _Reader(handshake)
    read.take(4 + 2 + 32)  # type and length, version, random
    read.vector(1)  # session
    ciphers = numbers(read.vector(2))
    read.vector(1)  # compression
    extensions: dict[int, bytes] = {}
    rest = _Reader(read.vector(2))
    while rest.rest:
        kind = int.from_bytes(rest.take(2), "big")
        extensions[kind] = rest.vector(2)
    protocols = _Reader(extensions[PROTOCOLS][2:])
    return ClientHello(
        ciphers,
        numbers(extensions[SUPPORTED_GROUPS][2:]),
        numbers(extensions.get(SUPPORTED_VERSIONS, b"")[1:]),
        extensions[SERVER_NAME][5:].decode(),
        [name.decode() for name in iter(lambda: protocols.vector(1), b"")],
    )


@contextlib.asynccontextmanager
async def hello_listener() -> AsyncIterator[tuple[int, asyncio.Future[ClientHello]]]:
    """Listen on a port, which is yielded with what the first client will offer."""
    offered: asyncio.Future[ClientHello] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # ended meanwhile
            head = await reader.readexactly(5)
            record = await reader.readexactly(int.from_bytes(head[3:], "big"))
            if not offered.done():
                offered.set_result(parse(record))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], offered
