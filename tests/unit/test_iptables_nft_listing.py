"""What is seen of us, and of others, in nft's listing."""

from iptables.nft.listing import hook_and_rules, parse_listing

OURS = """\
table inet istio-proxy-nat {
\tset foreign {
\t\ttype ipv4_addr
\t\telements = { 10.0.0.1,
\t\t\t     10.0.0.2 }
\t}

\tchain output {
\t\ttype nat hook output priority -100; policy accept;
\t\tcounter jump istio-output
\t}

\tchain istio-output {
\t}
}
"""
OTHERS = """\
table ip filter {
\tchain INPUT {
\t\ttype filter hook input priority 0; policy accept;
\t}
}
table ip istio-proxy-nat {
\tchain output {
\t}
}
"""


def test_only_our_tables_are_read() -> None:
    listing = parse_listing(OTHERS + OURS)

    assert listing.tables == ("nat",)
    assert listing.text == OURS
    assert listing.chains["nat", "output"] == [
        "type nat hook output priority -100; policy accept;",
        "counter jump istio-output",
    ]
    assert listing.chains["nat", "istio-output"] == []
    assert not listing.has_iptables
    assert not listing.is_ambient


def test_what_is_no_chain_is_seen_too() -> None:
    assert ("nat", "set foreign") in parse_listing(OURS).chains


def test_an_empty_table_is_there() -> None:
    listing = parse_listing("table inet istio-proxy-raw {\n}\n")

    assert listing.tables == ("raw",)
    assert listing.chains == {}


def test_nothing_is_nothing() -> None:
    assert parse_listing(OTHERS).tables == parse_listing("").tables == ()


def test_chains_of_the_iptables_tools_are_noticed() -> None:
    nat = "table ip nat {\n\tchain ISTIO_OUTPUT {\n\t}\n}\n"

    assert parse_listing(nat).has_iptables


def test_tables_of_the_node_agent_are_noticed() -> None:
    assert parse_listing("table inet istio-ambient-nat {\n}\n").is_ambient


def test_a_hook_is_told_from_rules() -> None:
    assert hook_and_rules(["type nat hook output priority -100;", "counter drop"]) == (
        "type nat hook output priority -100;",
        ["counter drop"],
    )
    assert hook_and_rules(["counter drop"]) == ("", ["counter drop"])
    assert hook_and_rules([]) == ("", [])
