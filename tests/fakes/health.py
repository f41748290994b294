"""An application's gRPC health service, on real gRPC."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
from grpc import aio

from tests.fakes.grpc_server import running

#: Field 1 as a varint: SERVING, NOT_SERVING.
SERVING = b"\x08\x01"
NOT_SERVING = b"\x08\x02"


class Health:
    """Answers by service name; an unknown one is NOT_FOUND, None never answers."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = answers
        self.user_agents: list[str] = []
        self.peers: list[str] = []

    async def check(self, question: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        self.peers.append(context.peer())
        metadata = dict(context.invocation_metadata() or ())
        self.user_agents.append(str(metadata.get("user-agent", "")))
        service = question[2:].decode()
        if service not in self.answers:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return self.answers[service]


@asynccontextmanager
async def health_server(
    health: Health, *, implements: bool = True, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve; yield the port. Without the service every call is UNIMPLEMENTED."""
    server = aio.server()
    if implements:
        handler = grpc.unary_unary_rpc_method_handler(health.check)
        service = "grpc.health.v1.Health"
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"Check": handler}),)
        )
    port = server.add_insecure_port(f"[{host}]:0" if ":" in host else f"{host}:0")
    async with running(server, 0):
        yield port
