"""What a channel is told.

Source: xds-identity-dns.md sections 2.2 and 2.3.
"""

from typing import Final, NamedTuple

#: What gRPC says where there was no connection at all.
NOT_CONNECTED: Final = "failed to connect to all addresses"
#: By itself gRPC follows http_proxy, which is for web pages, and no upper-case name.
NO_PROXY: Final = ("grpc.enable_http_proxy", 0)


class Peer(NamedTuple):
    """A server, and the way to it."""

    address: str  #: host:port, as configured
    server_name: str  #: SNI, the name in its certificate, and :authority
    proxy: str = ""  #: URL of an HTTP proxy in between; empty: none
    policy: str = ""  #: one of POLICIES; empty: whatever gRPC speaks


class Certificates(NamedTuple):
    """Whom to believe, and who we are; all in PEM."""

    roots: bytes
    chain: bytes | None = None
    key: bytes | None = None

    def __repr__(self) -> str:
        """Show nothing of the key (R-29)."""
        return f"Certificates(roots={self.roots!r}, chain={self.chain!r}, key={bool(self.key)})"


def proxy_option(proxy: str) -> tuple[str, object]:
    """Return what tells gRPC of a proxy, or that there is none."""
    return ("grpc.http_proxy", proxy) if proxy else NO_PROXY
