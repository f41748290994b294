"""Address families and DNS servers, from what the host tells."""

import pytest

from iptables.host import Families, Servers, dns_servers, families
from iptables.netlink import Family, InterfaceAddress


def on(address: str, interface: str = "eth0", *, is_up: bool = True) -> InterfaceAddress:
    family: Family = 6 if ":" in address else 4
    return InterfaceAddress(interface, 2, family, address, is_up=is_up, is_loopback=False)


@pytest.mark.parametrize(
    "addresses", [[], ["127.0.0.1", "::1"], ["169.254.1.1", "fe80::1"], ["224.0.0.1", "ff02::1"]]
)
def test_loopback_and_link_local_addresses_do_not_count(addresses: list[str]) -> None:
    assert families(map(on, addresses), dual_stack=True) is None


def test_the_first_address_decides_without_dual_stack() -> None:
    found = families([on("10.0.0.7"), on("2001:db8::7")], dual_stack=False)

    assert found == Families(
        ipv6=False, has_ipv4=True, host_ip="10.0.0.7", uncaptured_ipv6="2001:db8::7"
    )


def test_dual_stack_looks_at_every_address() -> None:
    found = families([on("10.0.0.7"), on("2001:db8::7")], dual_stack=True)

    assert found == Families(ipv6=True, has_ipv4=True, host_ip="10.0.0.7")


@pytest.mark.parametrize("dual_stack", [True, False])
def test_a_host_without_ipv4_has_ipv6(*, dual_stack: bool) -> None:
    found = families([on("169.254.0.1"), on("fe80::1"), on("fd00::7")], dual_stack=dual_stack)

    assert found == Families(ipv6=True, has_ipv4=False, host_ip="fd00::7")


def test_an_interface_that_is_down_counts() -> None:
    assert families([on("10.0.0.7", is_up=False)], dual_stack=False)


def test_our_own_passthrough_address_is_not_uncaptured_traffic() -> None:
    found = families([on("10.0.0.7"), on("::6", "lo")], dual_stack=False)

    assert found == Families(ipv6=False, has_ipv4=True, host_ip="10.0.0.7")


def test_only_whole_nameserver_lines_count() -> None:
    text = """
# nameserver 1.1.1.1
search example.com
nameserver 10.96.0.10
  nameserver\t10.96.0.11 # cluster
nameserver
nameservers 1.2.3.4
Nameserver 1.2.3.5
nameserver 10.96.0.10
nameserver dns.example.com
"""

    found, bad = dns_servers(text)

    assert found == Servers(v4=("10.96.0.10", "10.96.0.11", "10.96.0.10"))
    assert bad == ["dns.example.com"]


def test_servers_are_canonical_without_zone_and_by_family() -> None:
    """Source: traffic-capture.md section 17.14."""
    text = "\n".join(
        f"nameserver {server}"
        for server in ("fe80::1%eth0", "2001:DB8::0:1", "::127.0.0.53", "::ffff:10.0.0.1")
    )

    found, bad = dns_servers(text)

    assert found.of(6) == ("fe80::1", "2001:db8::1", "::7f00:35")
    assert found.of(4) == ("10.0.0.1",)
    assert bad == []
