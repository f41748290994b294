"""What a probe from outside is made of: a link of its own, and the segments of a connection.

No packet that is sent here meets the nat rules of PREROUTING: a connection has its destination once
it has passed those of OUTPUT. So one comes in by a link whose two ends are both here. The near end
has an address; what is written to the far end arrives there as if from elsewhere. The neighbour's
hardware address is nobody's, so that answers can be seen at the far end, and are not taken in.

Source: traffic-capture.md sections 12 and 17.16; linux/if_link.h, veth.h, neighbour.h; RFC 9293.
"""

import struct
from ipaddress import ip_address
from typing import Final, NamedTuple

from iptables import netlink
from iptables.explain.flow import Endpoint
from iptables.netlink import (
    ACKNOWLEDGE,
    ADDRESS,
    CREATE,
    EXCLUSIVE,
    FAMILY_NUMBERS,
    IPV6,
    LINK,
    Family,
    attribute,
)

NEAR, FAR = "istio-probe", "istio-outside"
NEAR_HARDWARE, FAR_HARDWARE, NEIGHBOUR_HARDWARE = (bytes([2, 0, 0, 0, 0, n]) for n in (1, 2, 3))
#: Addresses for documentation, where nobody is: RFC 5737 and RFC 3849. Those of the near end.
HERE: Final = {4: "203.0.113.254", 6: "2001:db8:ffff:ffff::2"}
#: Whom connections come from.
ELSEWHERE: Final = {4: "203.0.113.255", 6: "2001:db8:ffff:ffff::3"}
LENGTHS: Final = {4: 31, 6: 127}
#: EtherTypes.
TYPES: Final = {4: 0x0800, 6: 0x86DD}

DELETE_LINK, NEW_NEIGHBOUR = 17, 28
IFLA_ADDRESS, IFLA_LINKINFO = 1, 18
INFO_KIND, INFO_DATA, VETH_PEER = 1, 2, 1
NDA_DST, NDA_LLADDR = 1, 2
NEIGHBOUR: Final = struct.Struct("=BxxxiHBB")  # family, index, state, flags, type
PERMANENT: Final = 0x80
NO_DUPLICATES: Final = 0x2  # IFA_F_NODAD: usable at once

TCP: Final = 6
SYN, RST, ACK = 0x2, 0x4, 0x10
IPV4_HEADER: Final = struct.Struct("!BBHHHBBH4s4s")
IPV6_HEADER: Final = struct.Struct("!IHBB16s16s")
TCP_HEADER: Final = struct.Struct("!HHIIBBHHH")
IPV4_SUM, TCP_SUM = 10, 16  # where the checksum stands
HOPS, WINDOW = 64, 65535
DO_NOT_FRAGMENT: Final = 0x4000
VERSION_6: Final = 6 << 28


class Segment(NamedTuple):
    """A TCP segment without data."""

    source: Endpoint
    destination: Endpoint
    flags: int
    sequence: int = 0
    acknowledgement: int = 0


def add_link() -> bytes:
    """Return the request that makes both ends."""
    near, far = (
        _named(name) + attribute(IFLA_ADDRESS, hardware)
        for name, hardware in ((NEAR, NEAR_HARDWARE), (FAR, FAR_HARDWARE))
    )
    kind = attribute(INFO_KIND, b"veth") + attribute(INFO_DATA, attribute(VETH_PEER, far))
    body = near + attribute(IFLA_LINKINFO, kind)
    return netlink.encode(netlink.NEW_LINK, ACKNOWLEDGE | CREATE | EXCLUSIVE, body)


def remove_link() -> bytes:
    """Return the request that removes both ends."""
    return netlink.encode(DELETE_LINK, ACKNOWLEDGE, _named(NEAR))


def set_up(name: str) -> bytes:
    """Return the request that sets an end up."""
    return netlink.encode(netlink.NEW_LINK, ACKNOWLEDGE, _named(name, netlink.IFF_UP))


def _named(name: str, flags: int = 0) -> bytes:
    """Return a link's message of these flags, which names it."""
    return LINK.pack(0, 0, 0, flags, flags) + attribute(netlink.IFLA_IFNAME, name.encode() + b"\0")


def add_address(family: Family, index: int) -> bytes:
    """Return the request that gives the near end, of this number, an address."""
    packed = ip_address(HERE[family]).packed
    head = ADDRESS.pack(FAMILY_NUMBERS[family], LENGTHS[family], NO_DUPLICATES, 0, index)
    body = head + attribute(netlink.IFA_LOCAL, packed) + attribute(netlink.IFA_ADDRESS, packed)
    return netlink.encode(netlink.NEW_ADDRESS, ACKNOWLEDGE | CREATE | EXCLUSIVE, body)


def add_neighbour(family: Family, index: int) -> bytes:
    """Return the request that makes ELSEWHERE known at the near end, of this number."""
    head = NEIGHBOUR.pack(FAMILY_NUMBERS[family], index, PERMANENT, 0, 0)
    address = attribute(NDA_DST, ip_address(ELSEWHERE[family]).packed)
    body = head + address + attribute(NDA_LLADDR, NEIGHBOUR_HARDWARE)
    return netlink.encode(NEW_NEIGHBOUR, ACKNOWLEDGE | CREATE | EXCLUSIVE, body)


def encode(segment: Segment) -> bytes:
    """Return a segment as an IP packet."""
    source, destination = segment.source.address.packed, segment.destination.address.packed
    ports = segment.source.port, segment.destination.port
    numbers = segment.sequence, segment.acknowledgement
    pseudo = source + destination + struct.pack("!II", TCP_HEADER.size, TCP)
    length = TCP_HEADER.size // 4 << 4
    tcp = _summed(
        TCP_HEADER.pack(*ports, *numbers, length, segment.flags, WINDOW, 0, 0), TCP_SUM, pseudo
    )
    if segment.source.address.version == IPV6:
        header: bytes = IPV6_HEADER.pack(VERSION_6, len(tcp), TCP, HOPS, source, destination)
        return header + tcp
    size = IPV4_HEADER.size + len(tcp)
    rest = (0, size, 0, DO_NOT_FRAGMENT, HOPS, TCP, 0, source, destination)
    return _summed(IPV4_HEADER.pack(4 << 4 | IPV4_HEADER.size // 4, *rest), IPV4_SUM) + tcp


def decode(packet: bytes) -> Segment | None:
    """Return the segment of an IP packet, None for another protocol or a broken packet."""
    try:
        if packet[:1] and packet[0] >> 4 == IPV6:
            _, _, protocol, _, source, destination = IPV6_HEADER.unpack_from(packet)
            offset = IPV6_HEADER.size
        else:
            *_, protocol, _, source, destination = IPV4_HEADER.unpack_from(packet)
            offset = (packet[0] & 0xF) * 4
        found = TCP_HEADER.unpack_from(packet, offset)
    except struct.error:
        return None
    if protocol != TCP:
        return None
    return Segment(
        Endpoint(ip_address(source), found[0]),
        Endpoint(ip_address(destination), found[1]),
        found[5],
        found[2],
        found[3],
    )


def _summed(header: bytes, at: int, pseudo: bytes = b"") -> bytes:
    """Return a header of even length with its Internet checksum. Source: RFC 1071."""
    data = pseudo + header
    total: int = sum(word for (word,) in struct.iter_unpack("!H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return header[:at] + (~total & 0xFFFF).to_bytes(2) + header[at + 2 :]
