from collections.abc import Sequence

import pytest

from iptables.config import CaptureConfig, DnsCapture, Inbound, Outbound, Proxy, Settings
from iptables.config import parse_settings as parse
from iptables.explain.chains import planned_chains
from iptables.flags import parse_flags
from iptables.host import HostFacts, Servers
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS
from iptables.plan import plan
from iptables.validate.probes import (
    NO_LISTENER,
    Outcome,
    Plan,
    Probe,
    Sender,
    failures,
    plan_probes,
    unproven,
)

FAMILIES: tuple[Family, ...] = (4, 6)
PROXY, ROOT, OTHER = Sender(1337, 1337), Sender(0, 0), Sender(65534, 65534)
ALL = ("-u", "1337", "-i", "*", "-b", "*")


def address(interface: str, text: str) -> InterfaceAddress:
    family: Family = 6 if ":" in text else 4
    is_loopback = interface == "lo"
    return InterfaceAddress(interface, 2, family, text, is_up=True, is_loopback=is_loopback)


IPV4 = (address("lo", "127.0.0.1"), address("eth0", "10.0.0.7"))
BOTH = (*IPV4, address("lo", "::1"), address("eth0", "2001:db8::7"), address("lo", "::6"))


def settings(*argv: str, addresses: Sequence[InterfaceAddress] = IPV4) -> Settings:
    facts = HostFacts(tuple(addresses), resolv_conf="nameserver 10.96.0.10\n")
    return parse(parse_flags(FLAGS, argv), {}, facts)


def planned(
    *argv: str,
    senders: Sequence[Sender] = (PROXY,),
    addresses: Sequence[InterfaceAddress] = IPV4,
) -> Plan:
    config = settings(*argv, addresses=addresses).config
    chains = {family: planned_chains(plan(config, family), {}) for family in FAMILIES}
    return plan_probes(config, chains, addresses, senders, 15002)


def shown(found: Plan) -> list[tuple[str, int | None, str, int]]:
    return [
        (
            probe.name,
            probe.sender.uid if probe.sender else None,
            probe.flow.destination.text,
            probe.port,
        )
        for probe in found.probes
    ]


def test_the_proxy_proves_its_calls_of_its_own_pod() -> None:
    found = planned(*ALL)

    assert shown(found) == [("inbound, IPv4", 1337, "127.0.0.6:15002", 15006)]
    assert found.unproven == ("outbound, IPv4",)
    (probe,) = found.probes
    assert probe.text == "inbound, IPv4: tcp to 127.0.0.6:15002 as uid 1337, gid 1337"
    call = "-o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 -m owner --uid-owner 1337"
    assert probe.rules == (
        "nat OUTPUT: -j ISTIO_OUTPUT",
        f"nat ISTIO_OUTPUT: {call} -j ISTIO_IN_REDIRECT",
        "nat ISTIO_IN_REDIRECT: -p tcp -j REDIRECT --to-ports 15006",
    )


def test_both_families_are_proven_where_both_are_captured() -> None:
    found = planned(*ALL, "--dual-stack", addresses=BOTH)

    assert shown(found) == [
        ("inbound, IPv4", 1337, "127.0.0.6:15002", 15006),
        ("inbound, IPv6", 1337, "[::6]:15002", 15006),
    ]


def test_a_missing_passthrough_address_is_an_obstacle() -> None:
    found = planned(*ALL, "--dual-stack", addresses=BOTH[:-1])

    assert [probe.obstacle for probe in found.probes] == [
        "",
        "::6, where Envoy delivers from, is not on lo",
    ]


def test_ipv4_need_not_work_without_an_address() -> None:
    found = planned(*ALL, addresses=[address("eth0", "2001:db8::7"), address("lo", "::6")])

    assert [probe.family for probe in found.probes] == [6]


def test_root_proves_outbound_and_dns() -> None:
    found = planned(*ALL, "--redirect-dns", senders=[ROOT])

    assert shown(found) == [
        ("outbound, IPv4", 0, "192.0.2.1:15002", 15001),
        ("DNS over UDP, IPv4", 0, "10.96.0.10:53", 15053),
        ("DNS over TCP, IPv4", 0, "10.96.0.10:53", 15053),
    ]
    assert found.unproven == ("inbound, IPv4",)


def test_who_may_be_anybody_proves_everything() -> None:
    found = planned(*ALL, "--redirect-dns", "--capture-all-dns", senders=[ROOT, PROXY, OTHER])

    assert [(name.split(",")[0], uid) for name, uid, _, _ in shown(found)] == [
        ("inbound", 1337),
        ("outbound", 0),
        ("DNS over UDP", 0),
        ("DNS over TCP", 0),
    ]
    assert found.unproven == ()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("-i", "10.1.0.0/16,10.2.0.0/16"), "10.1.0.1:15002"),
        (("-i", "10.1.2.3/32"), "10.1.2.3:15002"),
        (("-i", "10.1.0.0/16,10.2.0.0/16", "-x", "10.1.0.0/16"), "10.2.0.1:15002"),
        (("-i", "*", "-x", "192.0.2.0/24"), "198.51.100.1:15002"),
        (("-i", "*", "-o", "15002", "-q", "443"), "192.0.2.1:443"),
        (("-q", "8000:8010"), "192.0.2.1:8000"),
        (("-i", ""), ""),
        (("-i", "*", "-o", "0:65535"), ""),
    ],
)
def test_a_destination_is_found_that_is_captured(argv: tuple[str, ...], expected: str) -> None:
    found = planned("-u", "1337", *argv, senders=[ROOT])

    assert [probe.flow.destination.text for probe in found.probes] == (
        [expected] if expected else []
    )


def test_where_localhost_is_wide_the_pods_own_address_is_called() -> None:
    config = settings("-u", "1337").config
    config = config._replace(outbound=Outbound(loopback_ipv4="127.0.0.0/8"))
    chains = {family: planned_chains(plan(config, family), {}) for family in FAMILIES}

    (probe,) = plan_probes(config, chains, IPV4, [PROXY], 15002).probes

    assert probe.flow.destination.text == "10.0.0.7:15002"
    assert str(probe.flow.source.address) == "10.0.0.7"


def test_what_tproxy_captures_needs_another_listener() -> None:
    config = CaptureConfig(
        inbound=Inbound(mode="TPROXY", ports=settings(*ALL).config.inbound.ports),
        proxy=Proxy(("1337",), ("1337",)),
        dns=DnsCapture(servers=Servers(v6=("fd00::10",))),
    )
    chains = {family: planned_chains(plan(config, family), {}) for family in FAMILIES}

    found = plan_probes(config, chains, IPV4, [Sender(0, 1337)], 15002)

    assert found[:2] == ((), ("inbound, IPv4",))
    assert plan_probes(config, chains, IPV4, [PROXY], 15002).probes


def test_what_comes_from_outside_is_told_by_the_plan() -> None:
    (probe,) = planned(*ALL, "-d", "15002").outside
    assert probe.flow.destination.port == 9
    (probe,) = planned("-u", "1337", "-b", "8000:8010,443").outside
    assert probe.text == ("inbound from outside, IPv4: tcp to 10.0.0.7:8000 from 203.0.113.255")
    assert probe.port == 15006
    assert probe.rules == (
        "nat PREROUTING: -p tcp -j ISTIO_INBOUND",
        "nat ISTIO_INBOUND: -p tcp --dport 8000:8010 -j ISTIO_IN_REDIRECT",
        "nat ISTIO_IN_REDIRECT: -p tcp -j REDIRECT --to-ports 15006",
    )


def test_what_the_plan_does_not_capture_from_outside_is_not_to_be_proven() -> None:
    outside = "inbound from outside, IPv4"

    assert outside in planned(*ALL, "-c", "istio+").unproven
    assert outside not in planned("-u", "1337", "-i", "*").unproven


def test_by_tproxy_it_comes_to_the_same_listener() -> None:
    (probe,) = planned(*ALL, "-m", "TPROXY").outside

    assert probe.port == 15006
    assert probe.rules[0] == "mangle PREROUTING: -p tcp -j ISTIO_INBOUND"
    assert probe.rules[-1].startswith("mangle ISTIO_TPROXY: ")


def test_nothing_comes_from_outside_to_an_address_that_only_this_pod_has() -> None:
    on_lo = address("lo", "240.240.240.240")

    assert planned(*ALL, addresses=[*IPV4[:1], on_lo, *IPV4[1:]]).outside[0].flow.destination == (
        planned(*ALL).outside[0].flow.destination
    )
    (probe,) = planned(*ALL, addresses=[on_lo]).outside
    assert probe.flow.destination.text == "240.240.240.240:15002"
    link_local = [*IPV4[:1], address("eth0", "169.254.7.7"), on_lo]
    assert planned(*ALL, addresses=link_local).outside[0].flow.destination.text.startswith("240.")
    only_here = [address("eth0", "2001:db8::7"), address("lo", "::6")]
    assert [
        probe.family for probe in planned(*ALL, "--dual-stack", addresses=only_here).outside
    ] == [6]
    assert planned(*ALL, "--dual-stack", addresses=[*IPV4, *BOTH[-1:]]).outside[1:] == ()


def test_what_is_not_proven_is_said_with_the_reason() -> None:
    found = planned(*ALL)

    assert unproven(found, [PROXY], may_inject=False) == (
        "not to be proven as uid 1337, gid 1337: outbound, IPv4; nor without CAP_NET_ADMIN and "
        "CAP_NET_RAW, as nothing that is sent here meets 'nat PREROUTING: -p tcp -j "
        "ISTIO_INBOUND': inbound from outside, IPv4"
    )
    assert unproven(found, [PROXY], may_inject=True) == (
        "not to be proven as uid 1337, gid 1337: outbound, IPv4"
    )
    everything = planned(*ALL, senders=[ROOT, PROXY])
    assert unproven(everything, [ROOT], may_inject=True) == ""
    assert unproven(everything, [ROOT], may_inject=False).startswith("not to be proven without CAP")


def probes() -> tuple[Probe, ...]:
    return planned(*ALL, senders=[ROOT, PROXY]).probes


def test_what_ends_where_it_should_is_no_failure() -> None:
    assert failures({probe: Outcome(probe.port) for probe in probes()}) == []


def test_a_failure_names_the_rules_that_nothing_else_has_proven() -> None:
    inbound, outbound = probes()

    (line,) = failures({inbound: Outcome(15006), outbound: Outcome(problem="refused")})

    assert line == (
        "outbound, IPv4: tcp to 192.0.2.1:15002 as uid 0, gid 0: expected port 15001, seen "
        "refused; missing, or behind another rule: nat ISTIO_OUTPUT: -j ISTIO_REDIRECT or nat "
        "ISTIO_REDIRECT: -p tcp -j REDIRECT --to-ports 15001"
    )


def test_without_a_listener_the_rules_are_not_blamed() -> None:
    inbound, outbound = probes()

    assert failures(dict.fromkeys((inbound, outbound), Outcome(problem=NO_LISTENER)))[1] == (
        "outbound, IPv4: tcp to 192.0.2.1:15002 as uid 0, gid 0: expected port 15001, "
        "seen no listener available"
    )


def test_another_port_than_expected_is_a_failure() -> None:
    inbound, _ = probes()

    (line,) = failures({inbound: Outcome(15001)})

    assert "expected port 15006, seen port 15001; missing" in line


def test_without_a_route_outbound_proves_nothing_and_inbound_has_failed() -> None:
    unsent = Outcome(problem="network is unreachable", is_sent=False)

    lines = failures(dict.fromkeys(probes(), unsent))

    assert [line.partition(":")[0] for line in lines] == ["inbound, IPv4"]


def test_an_obstacle_is_no_rule() -> None:
    _, probe = planned(*ALL, "--dual-stack", addresses=BOTH[:-1]).probes

    (line,) = failures({probe: Outcome(problem=probe.obstacle)})

    assert line.endswith("seen ::6, where Envoy delivers from, is not on lo")
