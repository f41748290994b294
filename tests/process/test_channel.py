"""Channels whose TLS a policy restricts: real gRPC on both sides. Source: sections 2.2 and 2.3."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from agent.channel.client import Channel, check_policy
from agent.channel.policies import POLICIES
from agent.channel.server import TlsFront
from agent.channel.settings import Peer
from agent.channel.tls import Context
from tests.fakes.channel import (
    AUTHORITY,
    POLICY,
    ask,
    channel_to,
    echo,
    refusal,
)
from tests.fakes.control_plane import SERVER_NAME, Authority
from tests.fakes.tunnels import tunnels
from tests.waiting import until

OTHER: Final = Authority("other")
UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE

every_policy: Final = pytest.mark.parametrize("policy", POLICIES)


@every_policy
async def test_a_call_is_answered_under_a_policy(policy: str) -> None:
    async with echo() as (address, _), channel_to(address, policy=policy) as channel:
        assert await ask(channel) == b"hello"


async def test_long_messages_arrive_whole_both_ways() -> None:
    message = bytes(range(256)) * 40_000  # 10 MB
    async with echo() as (address, _), channel_to(address) as channel:
        answers = await asyncio.gather(ask(channel, message), ask(channel, message[::-1]))

    assert list(answers) == [message, message[::-1]]


async def test_a_status_of_the_servers_is_kept() -> None:
    async with echo() as (address, _), channel_to(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(channel, b"leave")

    code, details = raised.value.code(), raised.value.details() or ""
    assert (code, channel.explain(code, details)) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "as told",
    )


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with channel_to(f"localhost:{port}") as channel:
        _, details = await refusal(channel)

    assert details.startswith("failed to connect to all addresses; last error: localhost:")
    assert f"Connect call failed ('127.0.0.1', {port})" in details
    assert f"('::1', {port}" in details


@pytest.mark.parametrize("host", ["istiod.invalid", f"{'a' * 64}.svc"])
async def test_a_name_that_nobody_has_is_said(host: str) -> None:
    """Or could have: a label has at most 63 letters."""
    async with channel_to(f"{host}:15012") as channel:
        _, details = await refusal(channel)

    assert f"last error: {host}:15012: " in details


async def test_a_server_without_tls_is_said() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with channel_to(f"127.0.0.1:{port}") as channel:
            _, details = await refusal(channel)

    assert "wrong version number; offered was TLS 1.2 or 1.3 with AES-GCM" in details


async def test_a_server_that_says_nothing_is_given_up() -> None:
    context = Context(POLICIES[POLICY], AUTHORITY.root)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Peer(f"127.0.0.1:{listener.getsockname()[1]}", SERVER_NAME)
        front = TlsFront(peer, context, connect_seconds=0.2)
        channel = Channel(grpc.aio.insecure_channel(front.target), front)
        _, details = await refusal(channel)
        await channel.close()

    assert details.endswith(f"{peer.address}: no connection within 0.2s")


async def test_it_goes_through_the_proxy() -> None:
    async with echo() as (address, _), tunnels(address) as (port, heads):
        proxy = f"http://user:pa%40ss@127.0.0.1:{port}"
        async with channel_to("istiod.example:15012", proxy=proxy) as channel:
            answer = await ask(channel)

    assert answer == b"hello"
    assert heads[0].split("\r\n") == [
        "CONNECT istiod.example:15012 HTTP/1.1",
        "Host: istiod.example:15012",
        "Proxy-Authorization: Basic dXNlcjpwYUBzcw==",
        "",
        "",
    ]


async def test_a_proxy_says_why_not() -> None:
    denied = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    async with (
        tunnels("127.0.0.1:1", denied) as (port, _),
        channel_to("istiod:15012", proxy=f"http://127.0.0.1:{port}") as channel,
    ):
        _, details = await refusal(channel)

    assert details.endswith("the proxy refuses a tunnel: 407 Proxy Authentication Required")


INTRUDER: Final = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect("\\0" + sys.argv[1])
sock.sendall(b"PRI * HTTP/2.0")
print(sock.recv(100))
"""


async def test_no_other_process_gets_through() -> None:
    async with echo() as (address, handler):
        context = Context(POLICIES[POLICY], AUTHORITY.root)
        front = TlsFront(Peer(address, SERVER_NAME), context)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", INTRUDER, front.target.removeprefix("unix-abstract:")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        channel = Channel(grpc.aio.insecure_channel(front.target), front)
        answer = await ask(channel)
        await channel.close()

    assert output.strip().endswith((b"Broken pipe", b"Connection reset by peer", b"b''"))
    assert answer == b"hello"
    assert len(handler.peers) == 1


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_closed_channel_leaves_nothing_open() -> None:
    async with echo() as (address, _):
        async with channel_to(address) as channel:
            await ask(channel)
        files, tasks = open_files(), len(asyncio.all_tasks())
        for _ in range(5):
            async with channel_to(address) as channel:
                await ask(channel)
        await until(lambda: open_files() <= files)

        assert len(asyncio.all_tasks()) <= tasks


@every_policy
def test_what_is_installed_can_be_kept_to_a_policy(policy: str) -> None:
    check_policy(policy)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"groups": "P-256:X1"}, "a group of P-256:X1 is not known"),
        ({"maximum": 0x0305}, "version 0x0305 of TLS is not known"),
    ],
)
def test_what_openssl_does_not_know_is_no_policy(changes: dict[str, Any], expected: str) -> None:
    """Or it would offer something else."""
    with pytest.raises(ValueError, match=expected):
        Context(POLICIES[POLICY]._replace(**changes), AUTHORITY.root)


WITHOUT_LIBRARY: Final = """
from agent.channel.client import check_policy, open_channel
from agent.channel.settings import Certificates, Peer
from agent.errors import AgentError
try:
    check_policy("pqc")
except AgentError as error:
    print(error)
try:
    open_channel(Peer("istiod:15012", "istiod", policy="pqc"), Certificates(b""))
except ValueError as error:
    print(error)
"""


def test_a_policy_that_nothing_installed_keeps_is_said(tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=True,
    )

    at_start, later = done.stdout.splitlines()
    assert later.startswith("No module named 'cryptography.hazmat'")
    assert at_start.startswith(f"COMPLIANCE_POLICY=pqc: {later}; install cryptography 47 or newer")
