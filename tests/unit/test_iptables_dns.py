"""DNS left alone: whose queries are not captured, and in which zone they are tracked."""

import pytest

from iptables.config import DnsCapture
from iptables.dns import NOTHING, Spared, is_of, rules
from iptables.host import Servers
from iptables.rules import Match, Owner

SERVERS = Servers(("10.96.0.10", "192.0.2.53"), ("fd00::10",))
GROUP: tuple[Match, ...] = (Owner("gid", "202"),)


def queries(capture: DnsCapture, spared: Spared) -> list[str]:
    """Return the rules that track what applications ask, the agent being nobody."""
    found = rules(capture, (4, 6), (), spared)
    return [rule.spec for rule in found if (rule.table, rule.chain) == ("raw", "ISTIO_OUTPUT_DNS")]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [("53", True), ("0:65535", True), ("53:53", True), ("54:60", False), ("80", False)],
)
def test_a_port_or_range_may_be_that_of_dns(ports: str, *, expected: bool) -> None:
    assert is_of(ports) is expected


def test_nothing_spared_is_the_reference() -> None:
    assert queries(DnsCapture(is_all=True), NOTHING) == ["-p udp --dport 53 -j CT --zone 2"]
    assert queries(DnsCapture(servers=SERVERS), NOTHING) == [
        "-p udp --dport 53 -d 10.96.0.10/32 -j CT --zone 2",
        "-p udp --dport 53 -d 192.0.2.53/32 -j CT --zone 2",
        "-p udp --dport 53 -d fd00::10/128 -j CT --zone 2",
    ]


def test_of_any_server_the_spared_are_tracked_first() -> None:
    spared = Spared((GROUP,), ("10.0.0.0/8", "fd00::/8"))

    assert queries(DnsCapture(is_all=True), spared) == [
        "-p udp --dport 53 -m owner --gid-owner 202 -j CT --zone 1",
        "-p udp --dport 53 -d 10.0.0.0/8 -j CT --zone 1",
        "-p udp --dport 53 -d fd00::/8 -j CT --zone 1",
        "-p udp --dport 53 -j CT --zone 2",
    ]


def test_of_named_servers_one_may_be_spared_and_whose_queries_count_for_each() -> None:
    spared = Spared((GROUP,), ("10.1.2.3/8", "fd00::/8"))

    assert queries(DnsCapture(servers=SERVERS), spared) == [
        "-p udp --dport 53 -d 10.96.0.10/32 -j CT --zone 1",
        "-p udp --dport 53 -d 192.0.2.53/32 -m owner --gid-owner 202 -j CT --zone 1",
        "-p udp --dport 53 -d 192.0.2.53/32 -j CT --zone 2",
        "-p udp --dport 53 -d fd00::10/128 -j CT --zone 1",
    ]


@pytest.mark.parametrize("is_all", [True, False])
def test_an_excluded_port_spares_everything(*, is_all: bool) -> None:
    capture = DnsCapture(is_all=is_all, servers=SERVERS)

    found = queries(capture, Spared(is_everything=True))

    assert found
    assert all(spec.endswith("--zone 1") for spec in found)


def test_the_agents_own_flows_are_told_apart_before_those_of_applications() -> None:
    found = rules(DnsCapture(is_all=True), (4,), (Owner("uid", "1337"),), Spared((GROUP,)))

    specs = [
        rule.spec for rule in found if rule.chain == "ISTIO_OUTPUT_DNS" and rule.table == "raw"
    ]
    assert specs == [
        "-p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1",
        "-p udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2",
        "-p udp --dport 53 -m owner --gid-owner 202 -j CT --zone 1",
        "-p udp --dport 53 -j CT --zone 2",
    ]


def test_without_a_server_of_the_family_nothing_jumps_to_nowhere() -> None:
    found = list(rules(DnsCapture(servers=Servers(v4=("10.96.0.10",))), (6,), (), NOTHING))

    assert [(rule.table, rule.chain, rule.spec) for rule in found] == [
        ("raw", "OUTPUT", "-j ISTIO_OUTPUT_DNS")
    ]
