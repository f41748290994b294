"""The whole way from flags to nft's input, against exact texts; and what no text shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from iptables.nft.text import removal, rule_text, transaction
from iptables.plan import plan
from iptables.rules import RETURN, TCP, Interface, Owner, Port, Rule, Table, TableName
from tests.unit.test_iptables_plan import settings

GOLDEN = Path(__file__).parents[1] / "golden" / "iptables-nft"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def planned(*argv: str, resolv_conf: str | None = None, ipv6: bool = False) -> tuple[Table, ...]:
    case: dict[str, Any] = {
        "argv": [*argv, "--dual-stack"],
        "environ": {},
        "addresses": ["10.0.0.7", *(["2001:db8::7"] if ipv6 else [])],
        "resolv_conf": resolv_conf,
    }
    config = settings(case).config
    return plan(config, *config.families.captured)


def interface_rule(name: str) -> str:
    return rule_text(Rule("nat", "PREROUTING", (Interface("in", name),), RETURN, "why"))


@pytest.mark.parametrize("name", CASES)
def test_the_transaction_is_exact(name: str, *, update_golden: bool) -> None:
    config = settings(json.loads((GOLDEN / f"{name}.json").read_text())).config

    text = transaction(plan(config, *config.families.captured))

    expected = GOLDEN / f"{name}.nft"
    if update_golden:
        expected.write_text(text)
    assert text == expected.read_text()


def test_dns_to_any_server_is_captured_in_the_references_words() -> None:
    text = transaction(planned("--redirect-dns", "--capture-all-dns"))

    place = "add rule inet istio-proxy-nat istio-output-dns"
    assert f"{place} meta l4proto tcp tcp dport 53 counter redirect to :15053\n" in text
    assert f"{place} udp dport 53 counter redirect to :15053\n" in text
    place = "add rule inet istio-proxy-raw"
    assert f"{place} istio-output-dns udp dport 53 counter ct zone set 2\n" in text
    assert f"{place} istio-inbound udp sport 53 counter ct zone set 1\n" in text


def test_ports_out_are_named_without_the_protocol() -> None:
    text = transaction(planned("-o", "8443", "-q", "8000:9000"))

    place = "add rule inet istio-proxy-nat istio-output"
    assert f"{place} tcp dport 8443 counter return\n{place} udp dport 8443 counter return\n" in text
    assert f"{place} tcp dport 8000-9000 counter jump istio-redirect\n" in text


def test_servers_of_a_family_that_is_not_captured_make_no_jump_to_nowhere() -> None:
    """Source: traffic-capture.md section 17.21."""
    config = planned("--redirect-dns", resolv_conf="nameserver fd00::10\nnameserver 10.96.0.10\n")

    text = transaction(config)

    assert "fd00::10" not in text
    assert "add chain inet istio-proxy-nat istio-output-dns" in text
    assert transaction(planned("--redirect-dns", resolv_conf="nameserver fd00::10\n")) == (
        transaction(planned())
    )


def test_a_reason_stands_above_each_rule() -> None:
    config = planned("-m", "TPROXY", "-b", "*", "--drop-invalid", ipv6=True)

    lines = transaction(config, explained=True).splitlines()

    assert [line for line in lines if not line.startswith("# ")] == (
        transaction(config).splitlines()
    )
    for number, line in enumerate(lines):
        is_rule = line.startswith(("add rule", "insert rule"))
        assert lines[number - 1].startswith("# ") == is_rule


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eth0", "iifname eth0"),
        ("bond0.100", "iifname bond0.100"),
        ("tcp", 'iifname "tcp"'),
        ("set", 'iifname "set"'),
        ("0eth", 'iifname "0eth"'),
        ("7-8", 'iifname "7-8"'),
        ("a;b", 'iifname "a;b"'),
        ("docker+", 'iifname "docker*"'),
        ("+", ""),
    ],
)
def test_an_interface_is_quoted_where_nft_would_read_something_else(
    name: str, expected: str
) -> None:
    assert interface_rule(name) == f"{expected} counter return".strip()


@pytest.mark.parametrize(
    ("table", "owner", "expected"),
    [
        ("nat", "java", "skgid java"),
        ("nat", "mark", 'skgid "mark"'),
        ("nat", "sales$", 'skgid "sales$"'),
        ("nat", "1000-2000", "skgid 1000-2000"),
        ("nat", "7-7", "skgid 7"),
        ("raw", "7", "meta skgid 7"),
    ],
)
def test_an_owner_is_a_name_a_number_or_a_range(
    table: TableName, owner: str, expected: str
) -> None:
    rule = Rule(table, "OUTPUT", (Owner("gid", owner),), RETURN, "why")

    assert rule_text(rule) == f"{expected} counter return"


def test_a_range_of_one_port_is_that_port() -> None:
    rule = Rule("nat", "ISTIO_INBOUND", (TCP, Port("destination", "7:7")), RETURN, "why")

    assert rule_text(rule) == "meta l4proto tcp tcp dport 7 counter return"


def test_removing_names_every_table_and_never_fails_on_a_missing_one() -> None:
    assert removal() == (
        "add table inet istio-proxy-nat\ndelete table inet istio-proxy-nat\n"
        "add table inet istio-proxy-mangle\ndelete table inet istio-proxy-mangle\n"
        "add table inet istio-proxy-raw\ndelete table inet istio-proxy-raw\n"
    )


def test_nothing_planned_is_an_empty_transaction() -> None:
    assert transaction(()) == ""
