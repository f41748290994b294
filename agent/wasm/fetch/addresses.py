"""Where nothing is fetched from: what a cloud or a node tells only those who are on it.

Source: xds-identity-dns.md section 3.7.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Metadata servers, and what reaches no further than the link.
ALWAYS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "169.254.0.0/16",
            "224.0.0.0/24",
            "fe80::/10",
            *(f"ff{flags:x}2::/16" for flags in range(16)),
            "100.100.100.200/32",
            "fd00:ec2::/32",
        ),
    )
)
#: IPv4 networks of RFC 1918.
PRIVATE: Final = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
)
#: What the kernel takes for the loopback.
UNSPECIFIED: Final = {
    ipaddress.ip_address("0.0.0.0"): ipaddress.ip_address("127.0.0.1"),  # noqa: S104 - no listener
    ipaddress.ip_address("::"): ipaddress.ip_address("::1"),
}
#: Leads to IPv4 where there is IPv6 alone. Source: RFC 6052.
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
METADATA_HOST: Final = "metadata.google.internal"


class Blocked:
    """The addresses that no connection is made to."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """Make the rules: those that always hold, and these."""
        self._networks = (*ALWAYS, *map(ipaddress.ip_network, networks))

    def problem(self, address: str) -> str | None:
        """Return why nothing is fetched from an IP address, none if it may be."""
        parsed = _plain(ipaddress.ip_address(address.partition("%")[0]))
        for network in self._networks:
            if parsed in network:
                return f"address {address} is in {network}, which nothing is fetched from"
        return None


def realm_problem(realm: str) -> str | None:
    """Return why a token is not asked for at this URL, none if it may be.

    A registry names it, so it could have the agent send its password to whoever listens nearby.
    """
    try:
        parts = urlsplit(realm)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return f"realm {realm!r}: expected a URL"
    if parts.scheme not in ("http", "https"):
        return f"realm {realm!r}: expected http or https"
    if not host:
        return f"realm {realm!r}: has no host"
    if not host.isascii():
        # Whoever resolves it may take it for another one: wide letters for those of localhost.
        return f"realm {realm!r}: expected a host in ASCII"
    if host in (METADATA_HOST, "localhost") or _is_near(host):
        return f"realm {realm!r}: {host} is not asked for tokens"
    return None


def _is_near(host: str) -> bool:
    try:
        address = _plain(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        # Resolvers take 2130706433 and 0x7f.1 for addresses, too.
        return bool(re.fullmatch(r"(.*\.)?(\d+|0x[0-9a-f]*)", host))
    return (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )


def _plain(address: Address) -> Address:
    """Return an IPv4 address that is written as an IPv6 one as what it is; so with the loopback."""
    if isinstance(address, ipaddress.IPv6Address):
        in_nat64 = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None
        address = address.ipv4_mapped or in_nat64 or address
    return UNSPECIFIED.get(address, address)


def is_local_registry(registry: str) -> bool:
    """Return whether a registry, host[:port], may be one without TLS. Section 3.5."""
    if registry.startswith("localhost:"):
        return True
    try:
        host = urlsplit(f"//{registry}").hostname or ""
    except ValueError:
        return False
    if host.endswith(".localhost") or host == "::1":
        return True
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return host == "127.0.0.1" or any(address in network for network in PRIVATE)
