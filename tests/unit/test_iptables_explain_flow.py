"""Descriptions of flows: what they mean, and what is said of those that mean nothing."""

from ipaddress import ip_address

import pytest

from iptables.explain.flow import Endpoint, Flow, FlowError, complete, local_addresses, parse_flow
from iptables.netlink import InterfaceAddress

ADDRESSES = (
    InterfaceAddress("lo", 1, 4, "127.0.0.1", is_up=True, is_loopback=True),
    InterfaceAddress("net1", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),
    InterfaceAddress("lo", 1, 6, "::1", is_up=True, is_loopback=True),
    InterfaceAddress("net2", 3, 6, "2001:db8::7", is_up=True, is_loopback=False),
)


def endpoint(address: str, port: int | None = None) -> Endpoint:
    return Endpoint(ip_address(address), port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tcp 10.0.0.7 1.2.3.4:80",
            Flow("tcp", endpoint("10.0.0.7"), endpoint("1.2.3.4", 80)),
        ),
        (
            "udp uid=5 gid=6 out=eth1 10.0.0.7:1234 1.2.3.4:53",
            Flow("udp", endpoint("10.0.0.7", 1234), endpoint("1.2.3.4", 53), "out", "eth1", 5, 6),
        ),
        (
            "  tcp   10.0.0.9 10.0.0.7:80  in=eth0 ",
            Flow("tcp", endpoint("10.0.0.9"), endpoint("10.0.0.7", 80), "in", "eth0"),
        ),
        (
            "tcp 2001:db8::7 [2001:db8::9]:443",
            Flow("tcp", endpoint("2001:db8::7"), endpoint("2001:db8::9", 443)),
        ),
        (
            "tcp [::1]:7 [::6]:0",
            Flow("tcp", endpoint("::1", 7), endpoint("::6", 0)),
        ),
        (
            "tcp [::1] [::6]:9",
            Flow("tcp", endpoint("::1"), endpoint("::6", 9)),
        ),
    ],
)
def test_a_description_is_a_flow(text: str, expected: Flow) -> None:
    assert parse_flow(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found protocol ''"),
        ("icmp 1.2.3.4 1.2.3.4:0", "found protocol 'icmp'"),
        ("tcp", "found 0 addresses"),
        ("tcp 1.2.3.4:80", "found 1 addresses"),
        ("tcp 1.2.3.4 1.2.3.4:80 5.6.7.8", "found 3 addresses"),
        ("tcp 1.2.3.4 5.6.7.8", "destination '5.6.7.8': expected an address and a port"),
        ("tcp ::1 ::6", "expected an address and a port, such as 10.0.0.7:80 or [::1]:80"),
        ("tcp 1.2.3.4 [::1]:80", "expected addresses of one family"),
        ("tcp host 1.2.3.4:80", "'host': expected an address such as"),
        ("tcp [::1 1.2.3.4:80", "'[::1': expected an address such as"),
        ("tcp 1.2.3.4 1.2.3.4:65536", "'1.2.3.4:65536': expected a port in 0..65535"),
        ("tcp uid=root 1.2.3.4 1.2.3.4:80", "uid=root: expected a number in 0..4294967294"),
        ("tcp gid=4294967295 1.2.3.4 1.2.3.4:80", "gid=4294967295: expected a number in"),
        ("tcp uid=1 uid=2 1.2.3.4 1.2.3.4:80", "'uid=2': expected one each of"),
        ("tcp user=1 1.2.3.4 1.2.3.4:80", "'user=1': expected one each of"),
        ("tcp out= 1.2.3.4 1.2.3.4:80", "'out=': expected one each of"),
        ("tcp in=eth0 uid=1 1.2.3.4 1.2.3.4:80", "what comes in has no uid or gid"),
        ("tcp in=eth0 out=eth1 1.2.3.4 1.2.3.4:80", "and no out=IF"),
        ("tcp in=lo 127.0.0.1 127.0.0.1:80", "explain it as sent"),
    ],
)
def test_what_is_no_flow_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(FlowError) as caught:
        parse_flow(text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "interface"),
    [
        ("tcp 10.0.0.7 1.2.3.4:80", "net1"),
        ("tcp 2001:db8::7 [2001:db8::9]:80", "net2"),
        ("tcp 10.0.0.7 10.0.0.7:80", "lo"),
        ("tcp 10.0.0.7 127.9.9.9:80", "lo"),
        ("tcp ::1 [::1]:80", "lo"),
        ("tcp out=eth9 10.0.0.7 10.0.0.7:80", "eth9"),
        ("tcp in=eth9 10.0.0.9 10.0.0.7:80", "eth9"),
    ],
)
def test_a_flow_takes_the_interface_that_routes_would_give_it(text: str, interface: str) -> None:
    assert complete(parse_flow(text), ADDRESSES).interface == interface


def test_without_an_address_the_interface_is_what_pods_have() -> None:
    assert complete(parse_flow("tcp 10.0.0.7 1.2.3.4:80"), ADDRESSES[:1]).interface == "eth0"


def test_local_addresses_are_those_of_every_interface() -> None:
    assert local_addresses(ADDRESSES) == {"127.0.0.1", "10.0.0.7", "::1", "2001:db8::7"}


def test_what_is_sent_to_its_own_address_stays_wherever_it_is_explained() -> None:
    assert complete(parse_flow("tcp 10.244.1.7 10.244.1.7:80"), ()).interface == "lo"
