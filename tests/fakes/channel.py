"""A gRPC server with TLS that says what it was sent, and channels to it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import pytest

from agent.channel.client import Channel, open_channel
from agent.channel.settings import Certificates, Peer
from tests.fakes.control_plane import SERVER_NAME, Authority, Pair
from tests.fakes.grpc_server import running

AUTHORITY: Final = Authority()
ROOTS: Final = Certificates(AUTHORITY.root)
PAIR: Final = AUTHORITY.issue(SERVER_NAME)
POLICY: Final = "fips-140-3"
METHOD: Final = "/test/Echo"


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
