"""Rules of nft's language as values: planned and read back they are the same."""

import json

import pytest

from iptables.nft.text import rule_text
from iptables.nft.values import Form, planned_form, read_form
from iptables.plan import plan
from iptables.rules import (
    DROP,
    RETURN,
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
    Rule,
    SetMark,
    Target,
    TrackInZone,
    TransparentProxy,
)
from tests.unit.test_iptables_nft_text import CASES, GOLDEN
from tests.unit.test_iptables_plan import settings

ESTABLISHED = ConnectionState(("ESTABLISHED", "RELATED"))


def form(target: Target, *matches: Match) -> Form:
    return Form(frozenset(matches), target)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_what_is_read(name: str) -> None:
    config = settings(json.loads((GOLDEN / f"{name}.json").read_text())).config

    for table in plan(config, *config.families.captured):
        for rule in table.rules:
            assert read_form(rule_text(rule)) == planned_form(rule)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("counter jump istio-output", form(Jump("istio-output"))),
        ("counter packets 7 bytes 420 drop", form(DROP)),
        ("tcp dport 15008 counter return", form(RETURN, TCP, Port("destination", "15008"))),
        (
            "meta l4proto 6 counter redirect to :15001",
            form(Redirect(15001), TCP),
        ),
        (
            'iifname "docker*" ip6 daddr 2001:db8::/32 counter jump istio-redirect',
            form(
                Jump("istio-redirect"),
                Interface("in", "docker+"),
                Address("destination", "2001:db8::/32"),
            ),
        ),
        (
            (
                'oifname "lo" ip daddr != 127.0.0.1 tcp dport != { 53, 15008 } meta skuid 1337 '
                "counter jump istio-in-redirect"
            ),
            form(
                Jump("istio-in-redirect"),
                Interface("out", "lo"),
                Address("destination", "127.0.0.1/32", inverted=True),
                TCP,
                Ports(("15008", "53"), inverted=True),
                Owner("uid", "1337", inverted=False),
            ),
        ),
        (
            "meta skgid != 1000-2000 counter return",
            form(RETURN, Owner("gid", "1000-2000", inverted=True)),
        ),
        (
            "udp sport 53 ip saddr 127.0.0.53 counter ct zone set 1",
            form(TrackInZone(1), UDP, Port("source", "53"), Address("source", "127.0.0.53/32")),
        ),
        (
            "meta l4proto 6 ct state 0x2,0x4 counter jump istio-divert",
            form(Jump("istio-divert"), TCP, ESTABLISHED),
        ),
        (
            "meta l4proto 6 meta mark 0x00000539 counter ct mark set meta mark",
            form(CopyMark("save"), TCP, Mark("packet", 1337)),
        ),
        (
            "meta l4proto 6 ct mark != 0x00000539 counter meta mark set ct mark",
            form(CopyMark("restore"), TCP, Mark("connection", 1337, inverted=True)),
        ),
        ("counter meta mark set 0x0000053a", form(SetMark(1338))),
        (
            (
                "meta l4proto 6 ip6 daddr != ::1 tproxy ip6 to :15006 meta mark set 0x00000539 "
                "counter accept"
            ),
            form(
                TransparentProxy(1337, 15006),
                TCP,
                Address("destination", "::1/128", inverted=True),
            ),
        ),
    ],
)
def test_a_listed_rule_is_read(text: str, expected: Form) -> None:
    assert read_form(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "counter",
        "masquerade",
        "icmp type echo-request accept",
        'iifname != "eth0" drop',
        'counter return comment "somebody else"',
        "tcp dport { 1, 2",
        "tcp flags syn drop",
        "ct count over 5 drop",
        "tproxy ip to 127.0.0.1:15006",
        "counter packets 7 drop",
    ],
)
def test_a_rule_of_another_kind_is_not_understood(text: str) -> None:
    assert read_form(text) is None


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Address("source", "10.1.2.3/8"), Address("source", "10.0.0.0/8")),
        (Port("source", "7:7"), Port("source", "7")),
        (Ports(("53", "53")), Ports(("53",))),
        (Owner("gid", "java"), Owner("gid", "202")),
        (Owner("uid", "5-5"), Owner("uid", "5")),
        (ConnectionState(("RELATED", "ESTABLISHED")), ESTABLISHED),
    ],
)
def test_a_planned_match_takes_the_kernels_form(match: Match, expected: Match) -> None:
    rule = Rule("nat", "ISTIO_OUTPUT", (match,), Jump("ISTIO_OUTPUT_DNS"), "why")

    found = planned_form(rule, {("--gid-owner", "java"): "202"})

    assert found == form(Jump("istio-output-dns"), expected)


def test_what_does_not_change_a_rules_meaning_is_left_out() -> None:
    everywhere = Rule("nat", "OUTPUT", (Interface("out", "+"),), RETURN, "why")
    singular = Rule("nat", "OUTPUT", (UDP,), Redirect(15053, "--to-port"), "why")

    assert planned_form(everywhere) == form(RETURN)
    assert planned_form(singular) == form(Redirect(15053), UDP)
