"""A link, and a handshake's segments, as bytes; judged by pyroute2 and by hand."""

import struct
from ipaddress import ip_address, ip_network

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from iptables.explain.flow import Endpoint
from iptables.netlink import Family
from iptables.validate import outside
from iptables.validate.outside import ACK, SYN, Segment, decode, encode

FAMILIES: tuple[Family, ...] = (4, 6)
NUMBERS = {4: 2, 6: 10}


def segment(family: Family, flags: int = SYN) -> Segment:
    source, destination = outside.ELSEWHERE[family], outside.HERE[family]
    return Segment(
        Endpoint(ip_address(source), 40000), Endpoint(ip_address(destination), 80), flags, 7, 8
    )


def is_summed(data: bytes) -> bool:
    """Return whether the words of data with its checksum add up, in one's complement."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return total % 0xFFFF == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("flags", [SYN, SYN | ACK])
def test_what_is_encoded_is_decoded(family: Family, flags: int) -> None:
    assert decode(encode(segment(family, flags))) == segment(family, flags)


@pytest.mark.parametrize("family", FAMILIES)
def test_checksums_are_right(family: Family) -> None:
    packet = encode(segment(family))

    tcp = packet[-20:]
    addresses = (
        ip_address(outside.ELSEWHERE[family]).packed + ip_address(outside.HERE[family]).packed
    )
    assert is_summed(addresses + struct.pack("!II", 20, 6) + tcp)
    assert family == 6 or is_summed(packet[:20])


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x45",
        encode(segment(4))[:30],
        encode(segment(6))[:50],
        encode(segment(4))[:9] + b"\x11" + encode(segment(4))[10:],
    ],
)
def test_what_is_no_whole_segment_is_none(packet: bytes) -> None:
    assert decode(packet) is None


def test_the_link_has_two_named_ends() -> None:
    message = ifinfmsg(outside.add_link())
    message.decode()

    info = message.get_attr("IFLA_LINKINFO")
    peer = info.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert info.get_attr("IFLA_INFO_KIND") == "veth"
    assert message.get_attr("IFLA_IFNAME") == "istio-probe"
    assert message.get_attr("IFLA_ADDRESS") == "02:00:00:00:00:01"
    assert peer.get_attr("IFLA_IFNAME") == "istio-outside"
    assert peer.get_attr("IFLA_ADDRESS") == "02:00:00:00:00:02"


def test_an_end_is_set_up_and_both_go_by_the_name_of_one() -> None:
    up, gone = ifinfmsg(outside.set_up("istio-outside")), ifinfmsg(outside.remove_link())
    up.decode()
    gone.decode()

    assert (up.get_attr("IFLA_IFNAME"), up["flags"], up["change"]) == ("istio-outside", 1, 1)
    assert (gone.get_attr("IFLA_IFNAME"), gone["header"]["type"]) == ("istio-probe", 17)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_near_end_has_an_address_and_a_neighbour_with_nobodys_hardware(family: Family) -> None:
    address = ifaddrmsg(outside.add_address(family, 7))
    neighbour = ndmsg(outside.add_neighbour(family, 7))
    address.decode()
    neighbour.decode()

    assert (address["family"], address["index"], address["flags"]) == (NUMBERS[family], 7, 2)
    assert address.get_attr("IFA_LOCAL") == outside.HERE[family]
    assert (neighbour["family"], neighbour["ifindex"], neighbour["state"]) == (
        NUMBERS[family],
        7,
        0x80,
    )
    assert neighbour.get_attr("NDA_DST") == outside.ELSEWHERE[family]
    assert neighbour.get_attr("NDA_LLADDR") == "02:00:00:00:00:03"
    block = ip_network(f"{outside.HERE[family]}/{address['prefixlen']}", strict=False)
    assert ip_address(outside.ELSEWHERE[family]) in block
