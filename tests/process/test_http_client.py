"""The HTTP client against servers of every kind."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.http.client import HttpError, dial, fetch, stream
from agent.http.message import Reply, Request
from agent.http.server import listening


@asynccontextmanager
async def raw_server(answer: bytes, *, closes: bool = True) -> AsyncIterator[int]:
    """A server that sends the same bytes whatever it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not closes:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef", b"ab"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
            b"ab",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
    ],
)
async def test_the_client_reads_every_kind_of_body(answer: bytes, body: bytes) -> None:
    async with raw_server(answer) as port:
        response = await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)

    assert (response.status, response.body) == (200, body)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "connection closed before an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP answer: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "connection closed in the middle"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + b"x" * 50, "longer than 40 bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "headers are longer than"),
    ],
)
async def test_an_unusable_answer_is_one_kind_of_error(answer: bytes, reason: str) -> None:
    async with raw_server(answer) as port:
        with pytest.raises(HttpError, match=reason) as caught:
            await fetch("GET", "127.0.0.1", port, "/p?token=x", timeout_seconds=5, limit_bytes=40)

    assert str(caught.value).startswith(f"GET http://127.0.0.1:{port}/p: ")


async def test_chunks_that_come_together_are_one_piece() -> None:
    """Or a body of the smallest ones would keep the loop for itself, a piece at a time."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        raw_server(head + b"1\r\nx\r\n" * 9 + b"0\r\n\r\n") as port,
        stream("GET", "127.0.0.1", port, "/", timeout_seconds=5) as incoming,
    ):
        assert [piece async for piece in incoming] == [b"x" * 9]


async def test_a_refused_connection_a_timeout_and_a_bad_port_are_such_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(HttpError, match="timed out"):
            await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=0.05)
    with pytest.raises(HttpError, match="connection refused"):
        await fetch("GET", "localhost", port, "/", timeout_seconds=5)
    with pytest.raises(HttpError, match="port 70000: expected 1 to 65535"):
        await fetch("GET", "127.0.0.1", 70000, "/", timeout_seconds=5)
    with pytest.raises(HttpError, match="expected a path from '/' on"):
        await fetch("GET", "127.0.0.1", port, "/a b", timeout_seconds=5)


@pytest.mark.parametrize(("source", "linger"), [("127.0.0.6", (1, 1)), (None, (0, 0))])
async def test_a_probe_lingers_as_the_kubelets_does(
    source: str | None, linger: tuple[int, int]
) -> None:
    """status-lifecycle.md section 5.3."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with await dial("127.0.0.1", port, timeout_seconds=5, source=source) as sock:
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)

    assert struct.unpack("ii", found) == linger


async def test_only_what_was_given_is_sent_from_the_given_source() -> None:
    seen: list[Request] = []

    async def handle(request: Request) -> Reply:
        seen.append(request)
        return Reply(200)

    async with listening(handle, port=0, name="s") as port:
        headers = (("B", "2"), ("A", "1"), ("a", "3"))
        await fetch(
            "GET", "127.0.0.1", port, "/", headers=headers, timeout_seconds=5, source="127.0.0.6"
        )

    assert seen[0].headers == (("Host", f"127.0.0.1:{port}"), ("Connection", "close"), *headers)
    assert seen[0].peer == "::ffff:127.0.0.6"
