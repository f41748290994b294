"""Channels to the control plane and the CA: one connection each, dialled once.

Source: xds-identity-dns.md sections 2.2, 2.3 and 6.2, deviation D-1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc

from agent.channel.settings import NO_PROXY, NOT_CONNECTED, Certificates, Peer, proxy_option
from agent.errors import AgentError

if TYPE_CHECKING:
    from agent.channel.server import TlsFront  # few pods need these
    from agent.channel.tls import Context

CONNECT_MILLISECONDS: Final = 5000

#: What gRPC says of a connection that has ended, without knowing why.
ENDED: Final = "Socket closed"

KEEPALIVE_TIMEOUT: Final = "grpc.keepalive_timeout_ms"

Options = Sequence[tuple[str, Any]]
COMMON: Final[Options] = (
    # Without its own pool a channel shares the connection of an equal one.
    ("grpc.use_local_subchannel_pool", 1),
    # The only thing that bounds a connection attempt in gRPC (D-1).
    ("grpc.min_reconnect_backoff_ms", CONNECT_MILLISECONDS),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
)


class Channel:
    """A channel of gRPC's, and what carries its bytes where that is not gRPC."""

    def __init__(self, channel: grpc.aio.Channel, front: "TlsFront | None" = None) -> None:
        """Take over both."""
        self.grpc = channel
        self._front = front

    async def close(self) -> None:
        """Close the connection, and cancel what is under way on it."""
        await self.grpc.close(None)
        if self._front:
            await self._front.close()

    def explain(self, code: grpc.StatusCode, details: str) -> str:
        """Return the details of a status: gRPC's, or what it cannot know of its connection."""
        front = self._front
        if front is None or code is not grpc.StatusCode.UNAVAILABLE:
            return details
        if front.failure and NOT_CONNECTED in details:
            return front.failure
        if front.failure:  # beside it gRPC may say what came before, such as a GOAWAY
            return details.replace(ENDED, front.failure)
        return details.replace(front.target, front.address)


def open_channel(peer: Peer, certificates: Certificates | None, options: Options = ()) -> Channel:
    """Return a channel; it connects when it is used.

    Args:
        peer: the server.
        certificates: of TLS; none: there is no TLS.
        options: of gRPC, beside those of every channel.

    Raises:
        OSError: under a policy, no file descriptor is left.
        ValueError: a certificate or the key cannot be used, or what is installed cannot be kept to
            the policy.
    """
    own: list[tuple[str, Any]] = [*COMMON, *options]
    if certificates is None:
        own.append(proxy_option(peer.proxy))
        return Channel(grpc.aio.insecure_channel(peer.address, own))
    own.append(("grpc.default_authority", peer.server_name))
    if peer.policy:
        return _restricted(peer, certificates, own)
    own += [("grpc.ssl_target_name_override", peer.server_name), proxy_option(peer.proxy)]
    roots, chain, key = certificates
    secured = grpc.ssl_channel_credentials(roots, key, chain)
    return Channel(grpc.aio.secure_channel(peer.address, secured, own))


def check_policy(name: str) -> None:
    """Raise AgentError if what is installed cannot be kept to a policy."""
    try:
        _context(name, Certificates(b""))
    except ValueError as error:
        raise AgentError(
            f"COMPLIANCE_POLICY={name}: {error}; install cryptography 47 or newer as published, or "
            "unset the policy"
        ) from error


def _context(policy: str, certificates: Certificates) -> "Context":
    """Return what TLS is spoken by; ValueError says why none can be."""
    from agent.channel.policies import POLICIES  # noqa: PLC0415 - for few pods

    try:
        from agent.channel.tls import Context  # noqa: PLC0415 - 3 ms, 2 MB, for few pods

        return Context(POLICIES[policy], *certificates)
    except (ImportError, AttributeError) as error:  # no library, or one without these functions
        raise ValueError(str(error)) from error


def _restricted(peer: Peer, certificates: Certificates, options: list[tuple[str, Any]]) -> Channel:
    """Return a channel over TLS that gRPC cannot be told of."""
    from agent.channel.server import TlsFront  # noqa: PLC0415 - for few pods

    front = TlsFront(
        peer,
        _context(peer.policy, certificates),
        # So does gRPC use it where it has the connection itself.
        unacknowledged_milliseconds=dict(options).get(KEEPALIVE_TIMEOUT, 0),
    )
    options += [("grpc.http2_scheme", "https"), NO_PROXY]
    try:
        channel = grpc.aio.insecure_channel(front.target, options)
    except BaseException:
        front.stop()
        raise
    return Channel(channel, front)
