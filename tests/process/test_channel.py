"""Channels whose TLS a policy restricts: real gRPC on both sides. Source: sections 2.2 and 2.3."""

import asyncio
import contextlib
import datetime as dt
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from agent.channel.client import Channel, check_policy, open_channel
from agent.channel.policies import POLICIES
from agent.channel.server import TlsFront
from agent.channel.settings import Certificates, Peer
from agent.channel.tls import Context
from tests.fakes.control_plane import SERVER_NAME, Authority, Pair
from tests.fakes.grpc_server import running
from tests.fakes.tls_records import server_context
from tests.fakes.tunnels import tunnels
from tests.waiting import until

AUTHORITY: Final = Authority()
OTHER: Final = Authority("other")
ROOTS: Final = Certificates(AUTHORITY.root)
PAIR: Final = AUTHORITY.issue(SERVER_NAME)
POLICY: Final = "fips-140-3"
METHOD: Final = "/test/Echo"
UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE

ENCRYPTED: Final = load_pem_private_key(PAIR.key, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)

every_policy: Final = pytest.mark.parametrize("policy", POLICIES)


class Server(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it takes none at run time
    """Says what it was sent, and to whom it was said."""

    def __init__(self) -> None:
        self.peers: list[str] = []
        self.identities: list[list[bytes]] = []

    def service(self, _: object) -> "grpc.RpcMethodHandler[Any, Any]":
        return grpc.unary_unary_rpc_method_handler(self._echo)

    async def _echo(self, request: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        self.peers.append(context.peer())
        self.identities.append(list(context.peer_identities() or []))
        if request == b"leave":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "as told")
        return request


@contextlib.asynccontextmanager
async def echo(
    pair: Pair = PAIR, *, client_root: bytes | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, Server]]:
    """Run a server; yield its address."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler = Server()
    server.add_generic_rpc_handlers((handler,))
    secured = grpc.ssl_server_credentials(
        [(pair.key, pair.certificate)], client_root, client_root is not None
    )
    port = server.add_secure_port(f"{host}:0", secured)
    async with running(server):
        yield f"{host}:{port}", handler


@contextlib.asynccontextmanager
async def channel_to(
    address: str,
    *,
    certificates: Certificates = ROOTS,
    name: str = SERVER_NAME,
    policy: str = POLICY,
    proxy: str = "",
) -> AsyncIterator[Channel]:
    channel = open_channel(Peer(address, name, proxy, policy), certificates)
    try:
        yield channel
    finally:
        await channel.close()


async def ask(channel: Channel, message: bytes = b"hello") -> bytes:
    answer: Any = await channel.grpc.unary_unary(METHOD, None, None)(message, timeout=10)
    return bytes(answer)


async def refusal(channel: Channel) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await ask(channel)
    code = raised.value.code()
    return code, channel.explain(code, raised.value.details() or "")


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


async def test_who_signs_the_server_must_be_known() -> None:
    async with (
        echo() as (address, handler),
        channel_to(address, certificates=Certificates(OTHER.root)) as channel,
    ):
        code, details = await refusal(channel)

    assert code is UNAVAILABLE
    assert details == (
        f"failed to connect to all addresses; last error: {address}: CERTIFICATE_VERIFY_FAILED: "
        "unable to get local issuer certificate"
    )
    assert handler.peers == []


@pytest.mark.parametrize("name", ["elsewhere.svc", "127.0.0.2", "svc", f"x.{SERVER_NAME}"])
async def test_the_servers_name_must_be_in_its_certificate(name: str) -> None:
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{address}: Peer name {name} is not in peer certificate")


@pytest.mark.parametrize("name", ["", ".", ".istio-system.svc", f"{SERVER_NAME}\0", "a" * 254])
async def test_nobody_is_believed_without_a_name(name: str) -> None:
    """OpenSSL would take any certificate for none, and one of any host below a domain."""
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{name!r} is no name of a server")


@pytest.mark.parametrize(
    "name", [f"{SERVER_NAME}.", SERVER_NAME.upper(), "127.0.0.1", "[127.0.0.1]"]
)
async def test_a_name_may_be_written_in_several_ways(name: str) -> None:
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        assert await ask(channel) == b"hello"


async def test_a_certificate_that_has_expired_is_refused() -> None:
    expired = AUTHORITY.issue(SERVER_NAME, lifetime=dt.timedelta(hours=-1))
    async with echo(expired) as (address, _), channel_to(address) as channel:
        _, details = await refusal(channel)

    assert details.endswith("CERTIFICATE_VERIFY_FAILED: certificate has expired")


async def test_a_root_that_is_broken_spoils_no_other() -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n"
    async with (
        echo() as (address, _),
        channel_to(address, certificates=Certificates(broken + AUTHORITY.root)) as channel,
    ):
        assert await ask(channel) == b"hello"


async def test_a_server_that_is_trusted_by_itself_needs_no_root() -> None:
    """As Go has it: whatever is among the roots is believed, though it be no root."""
    async with (
        echo() as (address, _),
        channel_to(address, certificates=Certificates(PAIR.certificate)) as channel,
    ):
        assert await ask(channel) == b"hello"


@every_policy
async def test_a_server_learns_who_the_client_is(policy: str) -> None:
    own = OTHER.issue("web")
    certificates = Certificates(AUTHORITY.root, own.certificate + OTHER.root, own.key)
    async with (
        echo(client_root=OTHER.root) as (address, handler),
        channel_to(address, certificates=certificates, policy=policy) as channel,
    ):
        await ask(channel)

    assert b"web" in handler.identities[0]


def refuse(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Take a client that lacks something; asyncio would not tell it."""
    connection, _ = listener.accept()
    with connection, connection.dup() as raw:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)
        while raw.recv(4096):
            pass


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fips-140-2", "alert handshake failure"),
        # The client's handshake was done long before.
        ("fips-140-3", "tlsv13 alert certificate required"),
    ],
)
async def test_a_server_says_what_it_misses(policy: str, expected: str, tmp_path: Path) -> None:
    context = server_context(tmp_path, PAIR)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener, context))
        async with channel_to(address, policy=policy) as channel:
            code, details = await refusal(channel)
        await refusing

    assert code is UNAVAILABLE
    assert f"{address}: TLS: " in details
    assert expected in details


async def test_a_connection_that_ends_is_that_of_the_server() -> None:
    async with echo(client_root=OTHER.root) as (address, _), channel_to(address) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{address}: Socket closed")


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (PAIR._replace(key=OTHER.issue("web").key), "key values mismatch"),
        (PAIR._replace(key=b"no key"), "the client's key cannot be read"),
        (PAIR._replace(key=ENCRYPTED), "the client's key cannot be read: bad decrypt"),
    ],
)
async def test_a_broken_pair_opens_no_channel(pair: Pair, expected: str) -> None:
    certificates = Certificates(AUTHORITY.root, pair.certificate, pair.key)

    with pytest.raises(ValueError, match=expected):
        open_channel(Peer("127.0.0.1:1", SERVER_NAME, policy=POLICY), certificates)


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
