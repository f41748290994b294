"""What iptables-save prints, as values."""

import pytest

from iptables.explain.specs import read_form
from iptables.normal import normal_form
from iptables.rules import (
    DROP,
    TCP,
    UDP,
    Address,
    ConnectionState,
    CopyMark,
    Interface,
    Jump,
    Mark,
    Match,
    Owner,
    Port,
    Ports,
    Redirect,
    SetMark,
    Target,
    TrackInZone,
    TransparentProxy,
)

CHAINS = {"ISTIO_OUTPUT", "DOCKER"}


@pytest.mark.parametrize(
    ("spec", "matches", "target"),
    [
        ("-j ISTIO_OUTPUT", set(), Jump("ISTIO_OUTPUT")),
        ("-p tcp -m tcp --dport 8000:9000 -j DROP", {TCP, Port("destination", "8000:9000")}, DROP),
        (
            (
                "! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner "
                "--uid-owner 1337 -j DROP"
            ),
            {
                Address("destination", "127.0.0.1/32", inverted=True),
                Interface("out", "lo"),
                TCP,
                Ports(("53", "15008"), inverted=True),
                Owner("uid", "1337"),
            },
            DROP,
        ),
        (
            "-s 10.0.0.0/8 -i eth+ -m owner ! --gid-owner 7 -j DROP",
            {
                Address("source", "10.0.0.0/8"),
                Interface("in", "eth+"),
                Owner("gid", "7", inverted=True),
            },
            DROP,
        ),
        (
            "-p udp -m udp --sport 53 -j CT --zone 1",
            {UDP, Port("source", "53")},
            TrackInZone(1),
        ),
        ("-p tcp -j REDIRECT --to-ports 15001", {TCP}, Redirect(15001)),
        (
            "-p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff",
            {TCP},
            TransparentProxy(1337, 15006),
        ),
        (
            "-m mark ! --mark 0x53a -j MARK --set-xmark 0x539/0xffffffff",
            {Mark("packet", 1338, inverted=True)},
            SetMark(1337),
        ),
        (
            (
                "-m connmark --mark 0x539 -j CONNMARK --restore-mark --nfmask 0xffffffff "
                "--ctmask 0xffffffff"
            ),
            {Mark("connection", 1337)},
            CopyMark("restore"),
        ),
        (
            "-m conntrack --ctstate RELATED,ESTABLISHED -j CONNMARK --save-mark",
            {ConnectionState(("RELATED", "ESTABLISHED"))},
            CopyMark("save"),
        ),
        ('-m comment --comment "say ! -p udp" -p tcp -j DOCKER', {TCP}, Jump("DOCKER")),
    ],
)
def test_a_rule_of_our_kind_is_understood(spec: str, matches: set[Match], target: Target) -> None:
    found = read_form(normal_form(spec), CHAINS)

    assert found
    assert (set(found[0]), found[1]) == (matches, target)


@pytest.mark.parametrize(
    "spec",
    [
        "-p tcp",
        "-g ISTIO_OUTPUT",
        "-j MASQUERADE",
        "-j DNAT --to-destination 10.0.0.1:80",
        "-j REDIRECT",
        "-j MARK --set-xmark 0x1/0x1",
        "-m mark --mark 0x1/0xff -j DROP",
        "-m statistic --mode random --probability 0.5 -j DROP",
        "-m socket -j DROP",
        "-p icmp -j DROP",
        "! -i eth0 -j DROP",
        "! -p tcp -j DROP",
        "-p tcp -m tcp --tcp-flags SYN SYN -j DROP",
    ],
)
def test_a_rule_of_another_kind_is_not(spec: str) -> None:
    assert read_form(normal_form(spec), CHAINS) is None
