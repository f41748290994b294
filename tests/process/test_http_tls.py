"""The TLS client against OpenSSL's server, and against what is no TLS server."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.http.tls.client import TlsStream, trusting_context
from tests.fakes.web import server_context

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(serve: Serve, context: ssl.SSLContext | None) -> AsyncIterator[TlsStream]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield TlsStream(reader, writer, trusting_context("h2", "http/1.1"), "")
        finally:
            writer.transport.abort()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close at once."""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_long_message_arrives_whole_both_ways(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    context = server_context(tmp_path)
    context.minimum_version = context.maximum_version = version
    sent = bytes(range(256)) * 4096
    received = b""
    async with connected(echo, context) as stream:
        await stream.handshake()
        stream.write(sent)
        while len(received) < len(sent):
            received += await stream.read(10_000)

    assert received == sent


@pytest.mark.parametrize(
    ("offered", "chosen"), [(("h2",), "h2"), (("http/1.1",), "http/1.1"), ((), "")]
)
async def test_the_protocol_is_what_both_know(
    tmp_path: Path, offered: tuple[str, ...], chosen: str
) -> None:
    async with connected(echo, server_context(tmp_path, *offered)) as stream:
        await stream.handshake()
        protocol = stream.protocol

    assert protocol == chosen


async def test_the_end_of_a_connection_is_no_error(tmp_path: Path) -> None:
    async with connected(leave, server_context(tmp_path)) as stream:
        await stream.handshake()
        ends = [await stream.read(10), await stream.read(10)]

    assert ends == [b"", b""]


async def test_whoever_speaks_no_tls_is_named() -> None:
    async def chat(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 this is a mail server\r\n")

    async with connected(chat, None) as stream:
        with pytest.raises(OSError, match="WRONG_VERSION_NUMBER") as caught:
            await stream.handshake()

    assert caught.value.errno is None


async def test_a_connection_closed_in_the_handshake_is_named() -> None:
    async with connected(leave, None) as stream:
        with pytest.raises(OSError, match=r"closed during the TLS handshake|reset"):
            await stream.handshake()


async def test_a_server_that_wants_a_certificate_refuses(tmp_path: Path) -> None:
    context = server_context(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with connected(echo, context) as stream:
        with pytest.raises(OSError, match=r"alert|reset|closed"):
            await stream.handshake()
