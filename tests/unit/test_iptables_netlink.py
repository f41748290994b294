"""Netlink messages as bytes, little-endian and big-endian alike through struct's native order."""

import struct
from ipaddress import ip_address
from socket import inet_ntop

import pytest

from iptables import netlink
from iptables.netlink import InterfaceAddress, Link, Message

NAME, ADDRESS, LOCAL, ALIAS = 3, 1, 2, 20


def attribute(kind: int, payload: bytes) -> bytes:
    padding = bytes(-len(payload) % 4)
    return struct.pack("=HH", 4 + len(payload), kind) + payload + padding


def link(ifindex: int, name: str, flags: int = 0) -> Message:
    head = struct.pack("=BxHiII", 0, 1, ifindex, flags, 0)
    return Message(netlink.NEW_LINK, 0, head + attribute(NAME, name.encode() + b"\0"))


def address(ifindex: int, **texts: str) -> Message:
    packed = {kind: ip_address(text).packed for kind, text in texts.items()}
    family = 2 if all(len(value) == 4 for value in packed.values()) else 10
    body = struct.pack("=BBBBI", family, 32, 0, 0, ifindex)
    for kind, value in packed.items():
        body += attribute(ADDRESS if kind == "address" else LOCAL, value)
    return Message(netlink.NEW_ADDRESS, 0, body)


def test_a_request_states_its_own_length() -> None:
    for request in (
        netlink.dump_links(),
        netlink.dump_addresses(),
        netlink.add_passthrough_address(),
        netlink.remove_passthrough_address(),
        netlink.set_loopback_alias("a note"),
    ):
        (length,) = struct.unpack_from("=I", request)
        (message,) = netlink.decode(request)

        assert length == len(request)
        assert message.flags & netlink.REQUEST


def test_the_passthrough_address_is_a_host_address_of_lo() -> None:
    (message,) = netlink.decode(netlink.add_passthrough_address())

    assert message.kind == netlink.NEW_ADDRESS
    assert message.body[:8] == struct.pack("=BBBBI", 10, 128, 0, 0, 1)
    assert message.body.count(ip_address("::6").packed) == 2


def test_a_datagram_holds_several_messages() -> None:
    data = netlink.encode(16, 0, b"abc") + b"\0" + netlink.encode(3, 2, b"\0\0\0\0")

    assert list(netlink.decode(data)) == [
        Message(16, netlink.REQUEST, b"abc"),
        Message(3, netlink.REQUEST | 2, b"\0\0\0\0"),
    ]


@pytest.mark.parametrize("data", [b"", b"\x10\0\0", bytes(16), b"\x0f\0\0\0" + bytes(12)])
def test_a_broken_datagram_ends_the_reading(data: bytes) -> None:
    assert list(netlink.decode(data)) == []


def test_an_error_number_is_positive_and_absent_means_success() -> None:
    assert netlink.error_number(Message(2, 0, struct.pack("=i", -17))) == 17
    assert netlink.error_number(Message(2, 0, struct.pack("=i", 0))) == 0
    assert netlink.error_number(Message(3, 0, b"")) == 0


def test_a_link_has_its_name_and_flags() -> None:
    assert netlink.decode_link(link(7, "eth0", 0x41).body) == Link(7, "eth0", 0x41)


def test_lo_has_the_alias_that_it_is_given() -> None:
    (asked,) = netlink.decode(netlink.set_loopback_alias("a note"))
    lo = Message(netlink.NEW_LINK, 0, link(1, "lo").body + attribute(ALIAS, b"mine\0"))
    other = Message(netlink.NEW_LINK, 0, link(2, "eth0").body + attribute(ALIAS, b"not mine\0"))

    assert asked.kind == netlink.SET_LINK
    assert netlink.decode_link(asked.body).alias == "a note"
    assert netlink.loopback_alias([other, lo]) == "mine"
    assert netlink.loopback_alias([other]) == ""


def test_an_attribute_that_is_too_short_ends_the_reading() -> None:
    body = struct.pack("=BxHiII", 0, 1, 7, 0, 0) + struct.pack("=HH", 2, NAME) + b"eth0"

    assert netlink.decode_link(body).name == ""


def test_ipv4_comes_first_each_family_by_interface_index() -> None:
    links = [link(2, "b", 0x1), link(1, "a", 0x9)]
    addresses = [
        address(2, address="2001:db8::2"),
        address(2, local="10.0.0.2", address="10.0.0.9"),
        address(1, address="::1"),
        address(1, local="127.0.0.1", address="127.0.0.1"),
    ]

    found = netlink.interface_addresses(links, addresses, inet_ntop)

    assert found == [
        InterfaceAddress("a", 1, 4, "127.0.0.1", is_up=True, is_loopback=True),
        InterfaceAddress("b", 2, 4, "10.0.0.2", is_up=True, is_loopback=False),
        InterfaceAddress("a", 1, 6, "::1", is_up=True, is_loopback=True),
        InterfaceAddress("b", 2, 6, "2001:db8::2", is_up=True, is_loopback=False),
    ]


def test_a_mapped_address_is_ipv4() -> None:
    (found,) = netlink.interface_addresses(
        [link(1, "a")], [address(1, address="::ffff:10.0.0.1")], inet_ntop
    )

    assert (found.family, found.address) == (4, "10.0.0.1")


def test_an_address_without_interface_text_or_known_family_is_left_out() -> None:
    strange = Message(netlink.NEW_ADDRESS, 0, struct.pack("=BBBBI", 28, 0, 0, 0, 1))
    bare = Message(netlink.NEW_ADDRESS, 0, struct.pack("=BBBBI", 2, 0, 0, 0, 1))

    links = [link(1, "a")]

    assert (
        netlink.interface_addresses(links, [strange, bare, address(9, address="::1")], inet_ntop)
        == []
    )
