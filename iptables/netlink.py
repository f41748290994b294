"""Routing messages to and from the kernel as bytes: links, addresses.

Only the few fields this agent needs: a whole netlink library costs 100 ms and 15 MB at import
(performance.md, "Order and imports"). Numbers are in the machine's byte order.

Source: linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h, linux/if.h.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

Family = Literal[4, 6]
IPV4: Final[Family] = 4
IPV6: Final[Family] = 6
FAMILIES: Final = (IPV4, IPV6)

AF_INET: Final = 2
AF_INET6: Final = 10
#: What the kernel calls a family.
FAMILY_NUMBERS: Final[Mapping[Family, int]] = {IPV4: AF_INET, IPV6: AF_INET6}

ERROR: Final = 2  # NLMSG_ERROR; with the number 0 it is an acknowledgement
DONE: Final = 3  # NLMSG_DONE
NEW_LINK: Final = 16
GET_LINK: Final = 18
SET_LINK: Final = 19
NEW_ADDRESS: Final = 20
DELETE_ADDRESS: Final = 21
GET_ADDRESS: Final = 22

REQUEST: Final = 0x1
ACKNOWLEDGE: Final = 0x4
DUMP_INTERRUPTED: Final = 0x10  # the table changed while it was read
DUMP: Final = 0x300
EXCLUSIVE: Final = 0x200
CREATE: Final = 0x400

HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
LINK: Final = struct.Struct("=BxHiII")  # family, hardware type, index, flags, change mask
ADDRESS: Final = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
ATTRIBUTE: Final = struct.Struct("=HH")  # length, type

IFLA_IFNAME: Final = 3
IFLA_IFALIAS: Final = 20
IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2  # differs from IFA_ADDRESS on point-to-point links, where that is the peer
IFF_UP: Final = 0x1
IFF_LOOPBACK: Final = 0x8

LOOPBACK_INDEX: Final = 1  # in every namespace: the kernel creates `lo` first
#: Where Envoy's inbound passthrough cluster binds; 127.0.0.6's twin, which needs no address.
PASSTHROUGH_IPV6: Final = "::6"
PASSTHROUGH_PACKED: Final = bytes(15) + b"\x06"
IPV4_MAPPED: Final = "::ffff:"
IPV4_BYTES: Final = 4


class Message(NamedTuple):
    """One netlink message."""

    kind: int
    flags: int
    body: bytes


class Link(NamedTuple):
    """A network interface."""

    ifindex: int
    name: str
    flags: int  #: IFF_…
    alias: str = ""


class InterfaceAddress(NamedTuple):
    """An address and the interface it is on."""

    interface: str
    ifindex: int
    family: Family
    address: str  #: canonical text; an IPv4-mapped one as IPv4
    is_up: bool
    is_loopback: bool  #: of the interface: an address on `lo` need not be 127.0.0.1


def encode(kind: int, flags: int, body: bytes) -> bytes:
    """Return one request; the sequence number is 1, as a socket here has one request at a time."""
    return HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body


def dump_links() -> bytes:
    """Return the request for all interfaces."""
    return encode(GET_LINK, DUMP, LINK.pack(0, 0, 0, 0, 0))


def dump_addresses() -> bytes:
    """Return the request for the addresses of both families."""
    return encode(GET_ADDRESS, DUMP, ADDRESS.pack(0, 0, 0, 0, 0))


def add_passthrough_address() -> bytes:
    """Return the request that puts ::6/128 on `lo`. Source: traffic-capture.md section 10."""
    return encode(NEW_ADDRESS, ACKNOWLEDGE | CREATE | EXCLUSIVE, _passthrough_body())


def remove_passthrough_address() -> bytes:
    """Return the request that takes ::6/128 off `lo`."""
    return encode(DELETE_ADDRESS, ACKNOWLEDGE, _passthrough_body())


def set_loopback_alias(text: str) -> bytes:
    """Return the request that gives `lo` an alias, '' takes it away."""
    head = LINK.pack(0, 0, LOOPBACK_INDEX, 0, 0)
    return encode(SET_LINK, ACKNOWLEDGE, head + attribute(IFLA_IFALIAS, text.encode()))


def loopback_alias(links: Iterable[Message]) -> str:
    """Return the alias of `lo`, '' for none, from the answers to `dump_links`."""
    for link in map(decode_link, (message.body for message in links)):
        if link.ifindex == LOOPBACK_INDEX:
            return link.alias
    return ""


def _passthrough_body() -> bytes:
    packed = PASSTHROUGH_PACKED
    head = ADDRESS.pack(AF_INET6, 128, 0, 0, LOOPBACK_INDEX)
    return head + attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed)


def attribute(kind: int, payload: bytes) -> bytes:
    """Return an attribute; its payload may be attributes itself."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(payload), kind) + payload + bytes(-len(payload) % 4)


def decode(data: bytes) -> Iterator[Message]:
    """Return the messages of one datagram, in order."""
    offset = 0
    while offset + HEADER.size <= len(data):
        length, kind, flags, _, _ = HEADER.unpack_from(data, offset)
        if length < HEADER.size:
            return
        yield Message(kind, flags, data[offset + HEADER.size : offset + length])
        offset += (length + 3) & ~3


def error_number(message: Message) -> int:
    """Return the errno of an ERROR or DONE message, zero for success."""
    if len(message.body) < struct.calcsize("=i"):
        return 0
    (number,) = struct.unpack_from("=i", message.body)
    return -int(number)


def decode_link(body: bytes) -> Link:
    """Return the interface of a NEW_LINK message."""
    _, _, index, flags, _ = LINK.unpack_from(body)
    attributes = _attributes(body, LINK.size)
    name, alias = (
        attributes.get(kind, b"").rstrip(b"\0").decode(errors="replace")
        for kind in (IFLA_IFNAME, IFLA_IFALIAS)
    )
    return Link(index, name, flags, alias)


def _attributes(body: bytes, offset: int) -> dict[int, bytes]:
    found = {}
    while offset + ATTRIBUTE.size <= len(body):
        length, kind = ATTRIBUTE.unpack_from(body, offset)
        if length < ATTRIBUTE.size:
            break
        found[kind] = body[offset + ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def interface_addresses(
    links: Iterable[Message], addresses: Iterable[Message], text: Callable[[int, bytes], str]
) -> list[InterfaceAddress]:
    """Return all addresses: IPv4 by interface index, then IPv6 likewise.

    Args:
        links: answers to `dump_links`.
        addresses: answers to `dump_addresses`.
        text: the canonical text of an address, from its family and bytes: inet_ntop.

    Source: traffic-capture.md section 3.1 step 4.
    """
    by_index = {link.ifindex: link for link in (decode_link(message.body) for message in links)}
    found = []
    for message in addresses:
        kind, _, _, _, index = ADDRESS.unpack_from(message.body)
        attributes = _attributes(message.body, ADDRESS.size)
        packed = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
        link = by_index.get(index)
        if kind in FAMILY_NUMBERS.values() and packed and link:
            found.append((kind, _interface_address(link, packed, text)))
    return [item for _, item in sorted(found, key=lambda pair: (pair[0], pair[1].ifindex))]


def _interface_address(
    link: Link, packed: bytes, text: Callable[[int, bytes], str]
) -> InterfaceAddress:
    address = text(AF_INET if len(packed) == IPV4_BYTES else AF_INET6, packed)
    if "." in address:  # an IPv4-mapped one counts as the IPv4 address it stands for
        address = address.removeprefix(IPV4_MAPPED)
    return InterfaceAddress(
        interface=link.name,
        ifindex=link.ifindex,
        family=6 if ":" in address else 4,
        address=address,
        is_up=bool(link.flags & IFF_UP),
        is_loopback=bool(link.flags & IFF_LOOPBACK),
    )
