"""Streams to the control plane, each on a connection of its own.

Roots, client certificate and token are read again for every stream: whatever was rotated counts
from the next one on, without a watcher, and a live stream is left alone.

Source: xds-identity-dns.md sections 2.2 to 2.4 and 2.12, deviation D-1.
"""

import asyncio
import logging
import os.path
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import grpc

from agent.channel.client import (
    CONNECT_MILLISECONDS,
    Channel,
    check_policy,
    open_channel,
)
from agent.channel.settings import Certificates, Peer
from agent.credentials.client import fetch_token
from agent.credentials.files import read_client_pair, read_root
from agent.credentials.places import Root
from agent.errors import AgentError
from agent.xds import credentials
from agent.xds.discovery import INTERNAL, Kind
from agent.xds.settings import KeepaliveSettings, UpstreamSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVICE: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
#: grpc's details where a write has failed: they do not say why the stream has ended.
FAILED_WRITE: Final = "Internal error from Core"
#: A status comes with the end of a stream, within milliseconds. HTTP/2 knows ends without one.
STATUS_LOOK_SECONDS: Final = 0.01
STATUS_LOOKS: Final = 100
NO_STATUS: Final = (INTERNAL, "control plane has ended the stream without a status")
WINDOW_BYTES: Final = 1_048_576
READ_BYTES: Final = 262_144
READY: Final = grpc.ChannelConnectivity.READY
USELESS: Final = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class Upstream:
    """One stream to the control plane and the channel under it."""

    def __init__(self, channel: Channel, kind: Kind, metadata: grpc.aio.Metadata) -> None:
        self._channel = channel
        self._end: tuple[int, str] | None = None
        method = channel.grpc.stream_stream(f"/{SERVICE}/{kind.value}", None, None)
        self._call = method(None, metadata=metadata)
        self._call.add_done_callback(self._learn)

    async def read(self) -> bytes | None:
        """Return the next response, as bytes; none when the stream has ended."""
        # Not by `read`: once a write has failed that gives up what there is still to read, and the
        # status behind it; and at the end of a stream it waits for a status, however long.
        raw: object = await self._call._read()  # type: ignore[attr-defined]  # noqa: SLF001 - above
        if isinstance(raw, bytes):
            return raw
        task = asyncio.current_task()
        if task and task.cancelling():
            raise asyncio.CancelledError  # gRPC may keep it to itself
        return None

    async def write(self, message: bytes) -> bool:
        """Send a request; false if the stream has ended, which `status` then explains."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return False
        return True

    async def status(self) -> tuple[int, str]:
        """Return gRPC code and details, once nothing more can be read."""
        for _ in range(STATUS_LOOKS):
            if self._call.done():
                self._learn(self._call)
            if self._end is not None:
                return self._end
            await asyncio.sleep(STATUS_LOOK_SECONDS)
        return NO_STATUS

    def _learn(self, _: object) -> None:
        """Take note of the status, unless it is that of a write that has failed.

        Each of the two takes the other's place, and gRPC calls for the first one alone (1.85).
        """
        code, details = _at_once(self._call.code()), _at_once(self._call.details())
        if details != FAILED_WRITE and self._end is None:
            self._end = code.value[0], self._channel.explain(code, details or "")

    async def close(self) -> None:
        """Cancel the stream if need be, and close its connection."""
        self._call.cancel()
        await self._channel.close()


class ControlPlane:
    """Where streams to the control plane come from.

    It may be in several places: the one that was reached last is dialled first, then the others in
    turn. A name that resolves to several addresses is one place; gRPC tries all of them.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        keepalive: KeepaliveSettings,
        others: Sequence[UpstreamSettings] = (),
    ) -> None:
        """Choose and read the root certificates.

        Args:
            settings: how it is reached.
            keepalive: pings.
            others: where else it is; with the same certificates.

        Raises:
            AgentError: TLS is on and there is no usable root file, or what is installed cannot be
                kept to the policy.
        """
        self._places = (settings, *others)
        self._next = 0  #: of the places, the one to be dialled first
        self._keepalive = keepalive
        self._root: Root | None = None
        self._root_pem = b""
        if settings.tls:
            self._root = credentials.choose_root(settings.credentials, os.path.isfile)
            try:
                self._root_pem = read_root(self._root)
            except (OSError, ValueError) as error:
                path, rule, remedy, _ = self._root
                raise AgentError(f"{path} ({rule}): {error}; {remedy}") from error
            if settings.policy:
                check_policy(settings.policy)
        self._first: Channel | None = None

    @property
    def address(self) -> str:
        """The address that is dialled now, or was last."""
        return self._places[self._next].address

    def connect_early(self) -> None:
        """Begin to connect for the first stream, which Envoy opens in a moment."""
        try:
            self._first = self._channel()  # with the root that was read a moment ago
        except (OSError, ValueError):
            return  # the stream will meet the same, and say so
        self._first.grpc.get_state(try_to_connect=True)

    async def open(self, kind: Kind) -> Upstream:
        """Return a new stream; that it cannot connect shows when it is read.

        Raises:
            OSError, ValueError: the channel cannot be constructed, such as for a broken key.
            SecretError: there is no token where there must be one.
        """
        channel = await self._dial()
        try:
            return Upstream(channel, kind, await self._metadata())
        except BaseException:
            await channel.close()
            raise

    async def reach(self) -> bool:
        """Return whether the control plane takes a connection, which the next stream will use.

        Raises:
            OSError, ValueError: as `open`.
        """
        for _ in self._places:
            if channel := await self._connected():
                self._first = channel
                return True
        return False

    def turn(self) -> None:
        """Dial the next place from now on: this one cannot be reached, or is of no use."""
        self._next = (self._next + 1) % len(self._places)

    async def _dial(self) -> Channel:
        """Return a channel to the first place that can be reached, else to the last one.

        That one is not waited for: its stream shows whether it can be reached.
        """
        for _ in self._places[1:]:
            address = self.address
            if channel := await self._connected():
                return channel
            log.warning("control plane cannot be reached, trying the next one at=%s", address)
        return await self._take_first() or self._new_channel()

    async def _connected(self) -> Channel | None:
        """Return a channel with its connection; none, and turn, if the place cannot be reached."""
        channel = await self._take_first() or self._new_channel()
        try:
            if await _connects(channel):
                return channel
        except BaseException:
            await channel.close()
            raise
        await channel.close()
        self.turn()
        return None

    async def _take_first(self) -> Channel | None:
        """Return the channel that was made early, if it is still of use."""
        channel, self._first = self._first, None
        if channel is not None and channel.grpc.get_state() in USELESS:
            await channel.close()
            return None
        return channel

    def _new_channel(self) -> Channel:
        self._reload_root()
        return self._channel()

    async def close(self) -> None:
        """Close the connection that no stream has used."""
        if self._first is not None:
            await self._first.close()

    def _channel(self) -> Channel:
        settings = self._places[self._next]
        peer = Peer(settings.address, settings.server_name, settings.proxy, settings.policy)
        return open_channel(
            peer,
            self._certificates(settings),
            (
                *keepalive_options(self._keepalive),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.max_send_message_length", -1),
                # A fixed window and small reads: what gRPC would take for speed is up to 25 MB.
                ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
                ("grpc.http2.bdp_probe", 0),
                ("grpc.experimental.tcp_max_read_chunk_size", READ_BYTES),
            ),
        )

    def _certificates(self, settings: UpstreamSettings) -> Certificates | None:
        if not settings.tls:
            return None
        pair = credentials.choose_client_pair(settings.credentials, os.path.isfile)
        return Certificates(self._root_pem, *read_client_pair(*pair))

    def _reload_root(self) -> None:
        """Take a changed root file; one that became unusable is reported, and not taken."""
        if self._root is None or self._root.is_system:
            return
        try:
            self._root_pem = read_root(self._root)
        except (OSError, ValueError) as error:
            log.warning("keeping previous root path=%s reason=%r", self._root.path, str(error))

    async def _metadata(self) -> grpc.aio.Metadata:
        settings = self._places[self._next]
        metadata = grpc.aio.Metadata(*settings.metadata)
        token = await fetch_token(settings.token) if settings.send_token else ""
        if token:
            metadata.add("authorization", f"Bearer {token}")
        return metadata


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a stream that has ended has a status")


async def _connects(channel: Channel) -> bool:
    """Return whether a channel gets its connection: no within five seconds is a no."""
    try:
        async with asyncio.timeout(CONNECT_MILLISECONDS / 1000):
            while (state := channel.grpc.get_state(try_to_connect=True)) is not READY:
                if state in USELESS:
                    return False
                await channel.grpc.wait_for_state_change(state)
    except TimeoutError:
        return False
    return True


def keepalive_options(keepalive: KeepaliveSettings) -> list[tuple[str, int]]:
    """Return what both sides of the relay tell gRPC about pings."""
    timeout = int(keepalive.timeout_seconds * 1000)
    return [
        ("grpc.keepalive_time_ms", int(keepalive.interval_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", timeout),
        # The one that counts in grpcio 1.85: unset, a silent peer is given up after 60 seconds.
        ("grpc.http2.ping_timeout_ms", timeout),
        ("grpc.keepalive_permit_without_calls", 0),
    ]
