"""Addresses of the demo's pod."""

from agent.demo.addresses import CABLE, url


def test_a_url_has_brackets_around_ipv6_only() -> None:
    assert url(CABLE.pod("IPv4"), 8080, "/slow") == "http://10.244.7.2:8080/slow"
    assert url(CABLE.pod("IPv6"), 8080) == "http://[fd00:7::2]:8080/"


def test_each_end_has_an_address_of_each_family() -> None:
    assert CABLE.node("IPv4") == CABLE.node_ipv4
    assert CABLE.node("IPv6") == CABLE.node_ipv6
