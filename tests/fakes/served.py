"""A server of our own with a handler that echoes, and raw conversations with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.http.message import Reply, Request
from agent.http.server import Handler, Limits, listening

ROOMY = Limits()
Exchange = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: Request) -> Reply:
    """Answer with what was asked, so that a test can tell replies apart."""
    text = f"{request.method} {request.target} {len(request.body)}"
    return Reply(200, text.encode(), (("X-Host", request.header("host")),))


@asynccontextmanager
async def connected(handle: Handler = echo, limits: Limits = ROOMY) -> AsyncIterator[Exchange]:
    async with listening(handle, port=0, name="test server", limits=limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def ask(exchange: Exchange, data: bytes) -> bytes:
    """Send everything, close our side, and return all that comes back."""
    reader, writer = exchange
    writer.write(data)
    writer.write_eof()
    return await reader.read()


def bodies(raw: bytes) -> list[bytes]:
    """Return the bodies of pipelined replies that carry a Content-Length."""
    found = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        found.append(raw[:length])
        raw = raw[length:]
    return found
