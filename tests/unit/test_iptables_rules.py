"""Rules as text, tables in the order of the tool and of the kernel."""

import pytest

from iptables import rules
from iptables.rules import (
    ACCEPT,
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
    Table,
    Target,
    TrackInZone,
    TransparentProxy,
)


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (Interface("in", "eth0"), "-i eth0"),
        (Interface("out", "lo"), "-o lo"),
        (Address("source", "::6/128"), "-s ::6/128"),
        (Address("destination", "10.0.0.0/8", inverted=True), "! -d 10.0.0.0/8"),
        (TCP, "-p tcp"),
        (UDP, "-p udp"),
        (Port("source", "53"), "--sport 53"),
        (Port("destination", "8000:9000", inverted=True), "! --dport 8000:9000"),
        (Ports(("53", "15008"), inverted=True), "-m multiport ! --dports 53,15008"),
        (Ports(("53",)), "-m multiport --dports 53"),
        (Owner("uid", "1337"), "-m owner --uid-owner 1337"),
        (Owner("gid", "java", inverted=True), "-m owner ! --gid-owner java"),
        (Mark("packet", 1337), "-m mark --mark 1337"),
        (Mark("connection", 1, inverted=True), "-m connmark ! --mark 1"),
        (ConnectionState(("RELATED", "ESTABLISHED")), "-m conntrack --ctstate RELATED,ESTABLISHED"),
    ],
)
def test_matches_are_written_as_the_tools_read_them(match: Match, text: str) -> None:
    assert match.text == text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (RETURN, "RETURN"),
        (ACCEPT, "ACCEPT"),
        (DROP, "DROP"),
        (Jump("ISTIO_OUTPUT"), "ISTIO_OUTPUT"),
        (Redirect(15001), "REDIRECT --to-ports 15001"),
        (Redirect(15053, "--to-port"), "REDIRECT --to-port 15053"),
        (TransparentProxy(1337, 15006), "TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006"),
        (SetMark(1338), "MARK --set-mark 1338"),
        (CopyMark("save"), "CONNMARK --save-mark"),
        (CopyMark("restore"), "CONNMARK --restore-mark"),
        (TrackInZone(2), "CT --zone 2"),
    ],
)
def test_targets_are_written_as_the_tools_read_them(target: Target, text: str) -> None:
    assert target.text == text


def test_a_rule_is_appended_or_put_at_a_place() -> None:
    rule = Rule("nat", "OUTPUT", (TCP, Port("destination", "80")), RETURN, "why")

    assert rule.text == "-A OUTPUT -p tcp --dport 80 -j RETURN"
    assert rule._replace(position=2).text == "-I OUTPUT 2 -p tcp --dport 80 -j RETURN"
    assert rule._replace(matches=()).text == "-A OUTPUT -j RETURN"


def test_tables_are_in_order_of_name_and_rules_in_their_own() -> None:
    first = Rule("raw", "OUTPUT", (), RETURN, "")
    second = Rule("mangle", "OUTPUT", (), RETURN, "")
    third = Rule("raw", "PREROUTING", (), RETURN, "")

    assert rules.tables([first, second, third]) == (
        Table("mangle", (second,)),
        Table("raw", (first, third)),
    )


def test_chains_with_rules_are_made_before_those_only_jumped_to() -> None:
    table = Table(
        "nat",
        (
            Rule("nat", "OUTPUT", (), Jump("ISTIO_C"), ""),
            Rule("nat", "ISTIO_B", (), RETURN, ""),
            Rule("nat", "ISTIO_A", (), Jump("ISTIO_B"), ""),
        ),
    )

    assert table.new_chains == ("ISTIO_B", "ISTIO_A", "ISTIO_C")
    assert table.chains["ISTIO_C"] == []
    assert rules.render_plan([table]) == (
        "* nat\n-N ISTIO_B\n-N ISTIO_A\n-N ISTIO_C\n"
        "-A OUTPUT -j ISTIO_C\n-A ISTIO_B -j RETURN\n-A ISTIO_A -j ISTIO_B\nCOMMIT\n"
    )


def test_an_inserted_rule_is_met_before_what_was_there() -> None:
    appended = Rule("nat", "OUTPUT", (), RETURN, "a")
    first = Rule("nat", "OUTPUT", (), RETURN, "b", position=1)
    second = Rule("nat", "OUTPUT", (), RETURN, "c", position=2)

    assert Table("nat", (appended, first, second)).chains == {"OUTPUT": [first, second, appended]}


def test_an_explained_rendering_has_each_reason_above_its_rule() -> None:
    table = Table("nat", (Rule("nat", "OUTPUT", (), RETURN, "nothing leaves"),))

    text = rules.render_plan([table], explained=True)

    assert text == "* nat\n# nothing leaves\n-A OUTPUT -j RETURN\nCOMMIT\n"


def test_a_table_without_lines_is_left_out() -> None:
    assert rules.render({"raw": ["-F A"], "nat": []}) == "* raw\n-F A\nCOMMIT\n"
