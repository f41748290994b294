"""What Envoy does with the relay's socket: ADS over gRPC, raw messages."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from agent.xds.discovery import Kind

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class AdsCall:
    """One stream, as its client has it."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401 - grpc-stubs know no such call
        self._call = call

    async def send(self, message: bytes) -> None:
        await self._call.write(message)

    async def receive(self) -> bytes:
        """Return the next response; the stream must not have ended."""
        raw = await self._call.read()
        assert isinstance(raw, bytes), "stream has ended"
        return raw

    async def rest(self) -> list[bytes]:
        """Return all further responses until the stream ends in good order."""
        responses = []
        while isinstance(raw := await self._call.read(), bytes):
            responses.append(raw)
        return responses

    async def half_close(self) -> None:
        await self._call.done_writing()

    def cancel(self) -> None:
        self._call.cancel()

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """Return how the stream ended, once it has."""
        return await self._call.code(), await self._call.details()


class AdsClient:
    """A connection to the socket."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._calls: list[AdsCall] = []  # gRPC may cancel what nobody holds

    def open(self, kind: Kind) -> AdsCall:
        method = self._channel.stream_stream(f"/{SERVICE}/{kind.value}", None, None)
        self._calls.append(AdsCall(method(None)))
        return self._calls[-1]


@contextlib.asynccontextmanager
async def ads_client(socket_path: str) -> AsyncIterator[AdsClient]:
    """Connect to a Unix socket; nothing is dialled before the first stream."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"unix:{socket_path}", options) as channel:
        client = AdsClient(channel)
        yield client
