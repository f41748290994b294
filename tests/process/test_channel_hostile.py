"""Channels under a policy whose servers, or neighbours, are up to no good. Source: section 2.2."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from agent.channel.client import Channel, Options, open_channel
from agent.channel.policies import POLICIES
from agent.channel.server import TlsFront
from agent.channel.settings import Certificates, Peer
from agent.channel.tls import Context
from tests.fakes.control_plane import SERVER_NAME, Authority
from tests.fakes.tls_records import HANDSHAKE, HELLO_REQUEST, Records, server_context
from tests.waiting import until

AUTHORITY: Final = Authority()
ROOTS: Final = Certificates(AUTHORITY.root)
PAIR: Final = AUTHORITY.issue(SERVER_NAME)
POLICY: Final = "fips-140-3"
SETTINGS: Final = bytes.fromhex("000000040000000000")
#: NO_ERROR; the first stream is the last one that is served.
GOAWAY: Final = bytes.fromhex("0000080700000000000000000100000000")
RESET: Final = struct.pack("ii", 1, 0)

Serve = Callable[[socket.socket], None]


@contextlib.asynccontextmanager
async def serving(serve: Serve, buffer_bytes: int = 65536) -> AsyncIterator[str]:
    """Serve one connection, in a thread; yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)

    def run() -> None:
        connection, _ = listener.accept()
        listener.close()
        with connection, contextlib.suppress(ConnectionError):
            serve(connection)

    served = asyncio.create_task(asyncio.to_thread(run))
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await served


@contextlib.asynccontextmanager
async def channel_to(
    serve: Serve, options: Options = (), *, buffer_bytes: int = 65536
) -> AsyncIterator[Channel]:
    async with serving(serve, buffer_bytes) as address:
        channel = open_channel(Peer(address, SERVER_NAME, policy=POLICY), ROOTS, options)
        try:
            yield channel
        finally:
            await channel.close()


async def refusal(channel: Channel, message: bytes = b"hello") -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await channel.grpc.unary_unary("/test/Echo", None, None)(message, timeout=20)
    code = raised.value.code()
    assert code is grpc.StatusCode.UNAVAILABLE
    return channel.explain(code, raised.value.details() or "")


@contextlib.contextmanager
def connected(front: TlsFront) -> Iterator[socket.socket]:
    """Connect to a front, as gRPC does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + front.target.removeprefix("unix-abstract:"))
        client.settimeout(0)
        yield client


async def test_a_handshake_without_end_is_given_up() -> None:
    """It would be the only thing the agent does: more is there whenever it looks."""
    request = bytes((HANDSHAKE, 3, 3, 0, len(HELLO_REQUEST))) + HELLO_REQUEST

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        while True:
            connection.sendall(request * 1000)

    async with channel_to(serve) as channel:
        assert (await refusal(channel)).endswith("no TLS handshake within 256 kB")


async def test_a_server_that_reads_no_answer_is_given_up(tmp_path: Path) -> None:
    """TLS answers by itself, whether or not there is room."""

    def serve(connection: socket.socket) -> None:
        records = Records(connection, tmp_path, PAIR)
        while True:
            connection.sendall(records.make(HANDSHAKE, HELLO_REQUEST * 4000))

    async with channel_to(serve) as channel:
        assert "the server asks without end, and reads no answer" in await refusal(channel)


async def test_a_server_that_is_gone_is_sent_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a transport that is used nonetheless asyncio complains to the user."""
    context = server_context(tmp_path, PAIR)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(4096)
            tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    loop = asyncio.get_running_loop()
    async with serving(serve) as address:
        front = TlsFront(Peer(address, SERVER_NAME), Context(POLICIES[POLICY], AUTHORITY.root))
        with connected(front) as client:
            await loop.sock_sendall(client, b"first")
            assert await loop.sock_recv(client, 4096) == b""
            for _ in range(10):
                await loop.sock_sendall(client, b"more")
                await asyncio.sleep(0)  # or all would arrive at once
        await front.close()

    assert "Connection reset by peer" in front.failure
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_what_a_server_said_before_a_reset_is_kept(tmp_path: Path) -> None:
    """So does a server end whose connection is old, if there is something it has not read."""
    context = server_context(tmp_path, PAIR)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.sendall(SETTINGS)
            while b"hello" not in tls.recv(4096):
                pass
            tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            tls.sendall(GOAWAY)

    async with channel_to(serve) as channel:
        details = await refusal(channel)

    assert "Connection reset by peer (GOAWAY received; Error code: 0;" in details


async def test_a_server_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    """Long before the kernel would do so: as where gRPC itself has the connection."""
    context = server_context(tmp_path, PAIR)
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.sendall(SETTINGS)
            assert ended.wait(20)

    options = [("grpc.keepalive_time_ms", 3_600_000), ("grpc.keepalive_timeout_ms", 200)]
    async with channel_to(serve, options, buffer_bytes=4096) as channel:
        try:
            assert "Connection timed out" in await refusal(channel, bytes(60_000))
        finally:
            ended.set()


async def test_a_server_must_agree_to_http2(tmp_path: Path) -> None:
    context = server_context(tmp_path, PAIR)
    context.set_alpn_protocols(["http/1.1"])

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True):
            pass

    async with channel_to(serve) as channel:
        assert (await refusal(channel)).endswith("the server does not agree to HTTP/2 by ALPN")


@contextlib.contextmanager
def no_file_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_front_outlives_a_lack_of_files() -> None:
    """Its name would be anybody's, and gRPC would connect to whom that is."""
    front = TlsFront(Peer("127.0.0.1:1", SERVER_NAME), Context(POLICIES[POLICY], b""))
    with connected(front):
        with no_file_left():
            await until(lambda: "Too many open files" in front.failure)
        await until(lambda: "Connect call failed" in front.failure)
    await front.close()


def listeners() -> int:
    found = Path("/proc/self/fd").iterdir()
    return sum(1 for each in found if each.is_socket())


async def test_a_channel_that_is_closed_at_once_leaves_no_listener() -> None:
    before = listeners()
    for _ in range(5):
        await open_channel(Peer("127.0.0.1:1", SERVER_NAME, policy=POLICY), ROOTS).close()

    assert listeners() == before


async def test_a_channel_that_grpc_does_not_make_leaves_no_listener() -> None:
    before = listeners()
    with pytest.raises(UnicodeEncodeError):
        open_channel(Peer("127.0.0.1:1", "istiod\udcff", policy=POLICY), ROOTS)

    assert listeners() == before
