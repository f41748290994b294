"""What the host tells about itself: its address families and its DNS servers.

Source: traffic-capture.md section 3.1.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from iptables.netlink import IPV4, IPV6, PASSTHROUGH_IPV6, Family, InterfaceAddress


class Account(NamedTuple):
    """A user of the host."""

    uid: int
    gid: int  #: of the primary group


class HostFacts(NamedTuple):
    """What was read from the host before anything is decided."""

    addresses: tuple[InterfaceAddress, ...]  #: IPv4 first
    proxy_account: Account | None = None  #: of ENVOY_USER; None where there is no such user
    resolv_conf: str | None = None  #: text of /etc/resolv.conf where it was needed
    resolv_conf_problem: str = ""  #: why it could not be read
    loopback_alias: str = ""  #: see `iptables.record`


class Families(NamedTuple):
    """Which address families the host has."""

    ipv6: bool  #: IPv6 is captured
    has_ipv4: bool  #: IPv4 is always captured; without an address, failing to is no error
    host_ip: str  #: the first address; validation connects in its family
    uncaptured_ipv6: str = ""  #: an address whose traffic bypasses Envoy, if there is one

    @property
    def captured(self) -> tuple[Family, ...]:
        """Return the families whose traffic is captured."""
        return (4, 6) if self.ipv6 else (4,)


class Servers(NamedTuple):
    """DNS servers, in the order of resolv.conf, canonical."""

    v4: tuple[str, ...] = ()
    v6: tuple[str, ...] = ()

    def of(self, family: Family) -> tuple[str, ...]:
        """Return the servers of a family."""
        return self.v4 if family == IPV4 else self.v6


def families(addresses: Iterable[InterfaceAddress], *, dual_stack: bool) -> Families | None:
    """Return the host's address families, or None where it has no address that counts.

    Loopback and link-local addresses do not count, interfaces that are down do. Without
    `dual_stack` the first address decides, and IPv4 ones come first: one IPv4 address anywhere
    leaves IPv6 uncaptured.

    Source: traffic-capture.md sections 3.1 step 4 and 17.8.
    """
    counted = [item for item in addresses if _counts(ip_address(item.address))]
    if not counted:
        return None
    ipv6 = [item.address for item in counted if item.family == IPV6]
    is_captured = bool(ipv6) if dual_stack else counted[0].address in ipv6
    foreign = [address for address in ipv6 if address != PASSTHROUGH_IPV6]
    return Families(
        ipv6=is_captured,
        has_ipv4=len(ipv6) < len(counted),
        host_ip=counted[0].address,
        uncaptured_ipv6="" if is_captured or not foreign else foreign[0],
    )


def _counts(address: IPv4Address | IPv6Address) -> bool:
    return not (address.is_loopback or address.is_link_local or address.is_multicast)


def dns_servers(resolv_conf: str) -> tuple[Servers, list[str]]:
    """Return the servers that resolv.conf names, and the texts that are no address.

    The zone of a link-local server is dropped and an IPv4-mapped one is IPv4, as rules have it.

    Source: traffic-capture.md sections 3.1 step 5 and 17.14.
    """
    found: dict[int, list[str]] = {4: [], 6: []}
    bad = []
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", text, *_]:
                try:
                    address = ip_address(text.partition("%")[0])
                except ValueError:
                    bad.append(text)
                    continue
                address = getattr(address, "ipv4_mapped", None) or address
                found[address.version].append(str(address))
    return Servers(tuple(found[4]), tuple(found[6])), bad
