"""The HTTP server over real sockets: requests and what they are answered."""

import asyncio
import socket
from collections.abc import AsyncGenerator

import pytest

from agent.errors import SystemRefusedError
from agent.http.client import fetch, stream
from agent.http.message import Reply, Request
from agent.http.parser import Limits as RequestLimits
from agent.http.server import Limits, listening
from tests.fakes.served import ask, bodies, connected, echo


async def test_a_request_is_answered_on_both_families() -> None:
    async with listening(echo, port=0, name="test server") as port:
        answers = [
            await fetch("GET", host, port, "/a?b=c", timeout_seconds=5)
            for host in ("127.0.0.1", "::1", "localhost")
        ]

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert {answer.body for answer in answers} == {b"GET /a?b=c 0"}
    assert [answer.header("x-host") for answer in answers] == [
        f"127.0.0.1:{port}",
        f"[::1]:{port}",
        f"localhost:{port}",
    ]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def slow_first(request: Request) -> Reply:
        if request.target == "/0":
            await asyncio.sleep(0)
        return await echo(request)

    wire = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(500))
    async with connected(slow_first) as exchange:
        raw = await ask(exchange, wire)

    assert bodies(raw) == [b"GET /%d 0" % number for number in range(500)]


async def test_a_chunked_request_body_is_joined() -> None:
    async with connected() as exchange:
        raw = await ask(
            exchange,
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
        )

    assert bodies(raw) == [b"POST / 11"]


async def test_head_gets_the_length_and_no_body() -> None:
    async with connected() as exchange:
        raw = await ask(exchange, b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")

    assert b"Content-Length: 9\r\n" in raw
    assert raw.endswith(b"\r\n\r\n")


async def test_expect_continue_is_answered_before_the_body() -> None:
    async with connected() as (reader, writer):
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        interim = await reader.readuntil(b"\r\n\r\n")
        final = await ask((reader, writer), b"ab")

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert bodies(final) == [b"POST / 2"]


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/3.7\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost:\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, 413),
    ],
)
async def test_what_cannot_be_served_is_refused_and_the_connection_ends(
    wire: bytes, status: int
) -> None:
    limits = Limits(RequestLimits(head_bytes=1000, header_count=10, body_bytes=5000))
    async with connected(limits=limits) as exchange:
        raw = await ask(exchange, wire + b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")

    assert raw.startswith(b"HTTP/1.1 %d " % status)
    assert raw.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close\r\n" in raw


async def test_a_handler_that_fails_is_a_500_and_the_server_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(request: Request) -> Reply:
        if request.target == "/bad":
            raise RuntimeError("broken handler")
        return await echo(request)

    async with listening(handle, port=0, name="test server") as port:
        bad = await fetch("GET", "127.0.0.1", port, "/bad", timeout_seconds=5)
        good = await fetch("GET", "127.0.0.1", port, "/good", timeout_seconds=5)

    assert (bad.status, good.status) == (500, 200)
    assert "broken handler" in caplog.text


@pytest.mark.parametrize(
    "wire",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["a TLS hello", "no HTTP", "no Host"],
)
async def test_a_client_that_leaves_without_its_refusal_is_not_worth_a_line(
    wire: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(echo, port=0, name="s") as port:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(wire)
        assert (await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)).status == 200

    assert caplog.text == ""


async def test_a_streamed_reply_waits_for_its_reader_and_is_closed_when_it_leaves() -> None:
    made = 0
    closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal made
        try:
            while True:
                made += 1
                yield b"x" * 65536
        finally:
            closed.set()

    async def handle(_: Request) -> Reply:
        return Reply(200, pieces())

    async with listening(handle, port=0, name="test server") as port:
        async with stream("GET", "127.0.0.1", port, "/", timeout_seconds=5) as incoming:
            first = await anext(incoming)
        await closed.wait()

    assert set(first) == {ord("x")}
    assert made < 1000


async def test_an_http_1_0_client_gets_a_streamed_reply_ended_by_closing() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one "
        yield b"two"

    async def handle(_: Request) -> Reply:
        return Reply(200, pieces())

    async with connected(handle) as exchange:
        raw = await ask(exchange, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

    assert raw.endswith(b"\r\n\r\none two")
    assert b"Connection: close" in raw


async def test_a_taken_port_is_named_with_how_to_find_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(SystemRefusedError) as caught:
            async with listening(echo, port=port, name="test server"):
                raise AssertionError("listens on a taken port")

    assert str(caught.value) == (
        f"port {port}, needed by the test server: address already in use; "
        f"find its holder with 'ss -ltnp sport = :{port}'"
    )


async def test_the_callback_comes_after_the_reply_was_handed_over() -> None:
    order: list[str] = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"x"
        order.append("written")

    async def handle(_: Request) -> Reply:
        return Reply(200, pieces(), then=lambda: order.append("then"))

    async with connected(handle) as exchange:
        await ask(exchange, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert order == ["written", "then"]


async def test_a_handler_is_cancelled_when_its_client_resets() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> Reply:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return await echo(request)

    async with listening(handle, port=0, name="s") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await entered.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
        await cancelled.wait()
        assert await reader.read() == b""


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with listening(echo, port=0, name="s"):
            raise KeyError


async def test_an_upgrade_is_ignored_and_the_connection_ends() -> None:
    async with connected() as exchange:
        raw = await ask(
            exchange,
            b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
            b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        )

    assert bodies(raw) == [b"GET /a 0"]
    assert b"Connection: close" in raw


async def test_the_callback_comes_though_the_client_leaves_in_the_middle() -> None:
    called = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 65536

    async def handle(_: Request) -> Reply:
        return Reply(200, pieces(), then=called.set)

    async with listening(handle, port=0, name="test server") as port:
        async with stream("GET", "127.0.0.1", port, "/", timeout_seconds=5) as incoming:
            await anext(incoming)
        await called.wait()
