"""The HTTP server and client over real sockets."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from agent.errors import SystemRefusedError
from agent.http.client import HttpError, fetch, stream
from agent.http.message import Reply, Request
from agent.http.parser import Limits as RequestLimits
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


async def test_a_connection_beyond_the_limit_takes_the_place_of_the_one_that_waits() -> None:
    async with listening(echo, port=0, name="s", limits=Limits(connections=1)) as port:
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)
        idle_end = await idle_reader.read()
        idle_writer.close()

    assert answer.status == 200
    assert idle_end == b""


async def test_clients_that_do_not_read_make_room_before_those_that_are_being_answered() -> None:
    """Whoever fills all places and reads nothing keeps nobody out, nor is anybody else dropped."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> Reply:
        if request.target == "/endless":
            return Reply(200, endless())
        if request.target == "/slow":
            entered.set()
            await leave.wait()
        return await echo(request)

    limits = Limits(connections=4)
    async with (
        listening(handle, port=0, name="s", limits=limits) as port,
        asyncio.TaskGroup() as tasks,
    ):
        slow = tasks.create_task(fetch("GET", "127.0.0.1", port, "/slow", timeout_seconds=5))
        await entered.wait()
        deaf = [await stuck_client(port) for _ in range(limits.connections)]
        answers = [
            (await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)).status for _ in range(9)
        ]
        leave.set()
        for client in deaf:
            client.close()

    assert answers == [200] * 9
    assert slow.result().status == 200


async def endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536


async def stuck_client(port: int) -> socket.socket:
    """Return a client whose answer has begun and goes on for ever, and who does not read it."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.setblocking(False)  # noqa: FBT003 -- the name says it
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    await loop.sock_recv(client, 1)
    return client


async def test_where_all_are_busy_the_one_that_is_answered_longest_makes_room() -> None:
    entered = asyncio.Event()

    async def handle(request: Request) -> Reply:
        if request.target == "/slow":
            entered.set()
            await asyncio.Event().wait()
        return await echo(request)

    async with (
        listening(handle, port=0, name="s", limits=Limits(connections=1)) as port,
        asyncio.TaskGroup() as tasks,
    ):
        slow = tasks.create_task(refused(port, "/slow"))
        await entered.wait()
        answer = await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)

    assert answer.status == 200
    assert "connection closed before an answer" in slow.result()


async def test_clients_that_send_ahead_cost_little_each() -> None:
    """Times the connections there may be, this is what a flood can make the agent grow by."""
    clients, kib = 20, 1024
    entered, leave = asyncio.Semaphore(0), asyncio.Event()

    async def handle(request: Request) -> Reply:
        entered.release()
        await leave.wait()
        return await echo(request)

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(handle, port=0, name="s"))
        senders = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(clients)
        ]
        for sender in senders:
            sender.setblocking(False)  # noqa: FBT003 -- the name says it
            sender.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await entered.acquire()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        await send_all_they_take(senders, b"x" * 1024 * kib)
        held = tracemalloc.get_traced_memory()[0]
        leave.set()

    assert held < clients * 40 * kib


async def send_all_they_take(senders: list[socket.socket], data: bytes) -> None:
    taken = -1
    while taken:
        taken = 0
        for sender in senders:
            with suppress(BlockingIOError):
                taken += sender.send(data)
        for _ in range(100):  # turns of the loop, in which the server reads
            await asyncio.sleep(0)


async def test_a_request_that_does_not_end_is_refused_in_time() -> None:
    async with connected(limits=Limits(read_seconds=0.05)) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        raw = await reader.read()

    assert raw.startswith(b"HTTP/1.1 408 ")


async def test_a_connection_that_never_asks_is_closed() -> None:
    async with connected(limits=Limits(read_seconds=0.05)) as (reader, _):
        assert await reader.read() == b""


async def test_a_client_that_does_not_read_is_dropped() -> None:
    closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            closed.set()

    async def handle(_: Request) -> Reply:
        return Reply(200, pieces())

    async with connected(handle, Limits(stall_seconds=0.05)) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await closed.wait()


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


async def test_a_reply_under_way_is_finished_when_the_server_closes() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> Reply:
        entered.set()
        await leave.wait()
        return await echo(request)

    async with asyncio.TaskGroup() as tasks, listening(handle, port=0, name="s") as port:
        asked = tasks.create_task(fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5))
        await entered.wait()
        asyncio.get_running_loop().call_soon(leave.set)

    assert asked.result().status == 200


async def test_a_reply_that_takes_too_long_is_cut_off_when_the_server_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered = asyncio.Event()

    async def handle(request: Request) -> Reply:
        entered.set()
        await asyncio.Event().wait()
        return await echo(request)

    limits = Limits(close_seconds=0.01)
    async with (
        asyncio.TaskGroup() as tasks,
        listening(handle, port=0, name="s", limits=limits) as port,
    ):
        asked = tasks.create_task(refused(port))
        await entered.wait()

    assert "connection closed before an answer" in asked.result()
    assert "cut off replies=1" in caplog.text


async def refused(port: int, target: str = "/") -> str:
    try:
        await fetch("GET", "127.0.0.1", port, target, timeout_seconds=5)
    except HttpError as error:
        return error.reason
    raise AssertionError("answered")


async def test_a_client_cannot_send_ahead_without_end() -> None:
    """What arrives while a request is answered is held up to a limit, then left in the kernel."""
    leave = asyncio.Event()

    async def handle(request: Request) -> Reply:
        await leave.wait()
        return await echo(request)

    wire = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    count = 1_000_000  # 28 MB, more than any buffer between
    async with connected(handle) as (reader, writer), asyncio.TaskGroup() as tasks:
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(wire * count)
        unsent = -1
        while unsent != writer.transport.get_write_buffer_size():
            unsent = writer.transport.get_write_buffer_size()
            for _ in range(100):
                await asyncio.sleep(0)
        leave.set()
        first = tasks.create_task(reader.readuntil(b"GET /a 0"))
        await first

    assert unsent > 0


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
            await fetch("GET", "127.0.0.1", port, "/p", timeout_seconds=5, limit_bytes=40)

    assert str(caught.value).startswith(f"GET http://127.0.0.1:{port}/p: ")


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
