"""What Envoy does with the socket of secrets: SDS over gRPC, judged by Envoy's own messages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse

SERVICE = "envoy.service.secret.v3.SecretDiscoveryService"
TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
NODE = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"


class Reply(NamedTuple):
    """One response."""

    version: str
    nonce: str
    secrets: dict[str, Secret]

    @property
    def names(self) -> list[str]:
        return list(self.secrets)

    def chain(self, name: str = "default") -> bytes:
        return bytes(self.secrets[name].tls_certificate.certificate_chain.inline_bytes)

    def key(self, name: str = "default") -> bytes:
        return bytes(self.secrets[name].tls_certificate.private_key.inline_bytes)

    def roots(self, name: str = "ROOTCA") -> bytes:
        return bytes(self.secrets[name].validation_context.trusted_ca.inline_bytes)


class SdsCall:
    """One stream; the node goes with its first request only, as Envoy has it."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401 - grpc-stubs know no such call
        self._call = call
        self._node = NODE
        self._reading: asyncio.Task[Any] | None = None

    async def ask(
        self,
        *names: str,
        nonce: str = "",
        version: str = "",
        error: str = "",
        node: str | None = None,
        kind: str = TYPE,
    ) -> None:
        request = DiscoveryRequest(
            type_url=kind, resource_names=names, response_nonce=nonce, version_info=version
        )
        request.node.id = self._node if node is None else node
        self._node = ""
        if error:
            request.error_detail.message = error
        await self._call.write(request.SerializeToString())

    async def send_raw(self, message: bytes) -> None:
        await self._call.write(message)

    async def acknowledge(self, reply: Reply, *names: str) -> None:
        await self.ask(*(names or reply.names), nonce=reply.nonce, version=reply.version)

    async def receive(self, seconds: float = 20) -> Reply:
        """Return the next response; the stream must not have ended."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(seconds):
            raw = await asyncio.shield(self._reading)
        self._reading = None
        assert isinstance(raw, bytes), "stream has ended"
        response = DiscoveryResponse.FromString(raw)
        assert response.type_url == TYPE
        secrets = [Secret.FromString(each.value) for each in response.resources]
        assert all(each.type_url == TYPE for each in response.resources)
        return Reply(
            response.version_info, response.nonce, {secret.name: secret for secret in secrets}
        )

    async def fetch(self, *names: str) -> Reply:
        """Subscribe to names, acknowledge, and return what came."""
        await self.ask(*names)
        reply = await self.receive()
        await self.acknowledge(reply)
        return reply

    async def is_silent(self, *names: str) -> bool:
        """Return whether nothing was due before: a request for the same names is answered first."""
        await self.ask(*names)
        return (await self.receive()).names == list(names)

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """Return how the stream ended, once it has."""
        return await self._call.code(), await self._call.details()

    def cancel(self) -> None:
        self._call.cancel()

    async def _read(self) -> object:
        return await self._call.read()


class SdsClient:
    """A connection to the socket."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def open(self, method: str = "StreamSecrets") -> SdsCall:
        return SdsCall(self._channel.stream_stream(f"/{SERVICE}/{method}", None, None)(None))


@contextlib.asynccontextmanager
async def sds_client(socket_path: str) -> AsyncIterator[SdsClient]:
    """Connect to a Unix socket; nothing is dialled before the first stream."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{socket_path}", options) as channel:
        yield SdsClient(channel)
