"""What clients may cost the HTTP server: connections, memory and time."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress

import pytest

from agent.http.client import HttpError, fetch
from agent.http.message import Reply, Request
from agent.http.server import Limits, listening
from tests.fakes.served import connected, echo


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


async def test_a_newcomer_has_time_to_ask_though_others_come_who_do_not_read() -> None:
    async def handle(request: Request) -> Reply:
        return Reply(200, endless()) if request.target == "/endless" else await echo(request)

    async with listening(handle, port=0, name="s", limits=Limits(connections=4)) as port:
        deaf = [await stuck_client(port) for _ in range(4)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        deaf += [await stuck_client(port) for _ in range(3)]
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        for client in deaf:
            client.close()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_whoever_has_left_makes_room_before_who_waits_for_an_answer() -> None:
    entered, leave = asyncio.Semaphore(0), asyncio.Event()

    async def handle(request: Request) -> Reply:
        if request.target == "/slow":
            entered.release()
            await leave.wait()
        return await echo(request)

    async with (
        listening(handle, port=0, name="s", limits=Limits(connections=3)) as port,
        asyncio.TaskGroup() as tasks,
    ):
        slow = tasks.create_task(fetch("GET", "127.0.0.1", port, "/slow", timeout_seconds=5))
        await entered.acquire()
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            await entered.acquire()
            writer.close()
            assert (await fetch("GET", "127.0.0.1", port, "/", timeout_seconds=5)).status == 200
        leave.set()

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


async def refused(port: int, target: str = "/") -> str:
    try:
        await fetch("GET", "127.0.0.1", port, target, timeout_seconds=5)
    except HttpError as error:
        return error.reason
    raise AssertionError("answered")


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
