"""The whole way from flags to restore input, against exact texts; and what no text shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from iptables import rules
from iptables.config import Settings, parse_settings
from iptables.flags import parse_flags
from iptables.host import HostFacts, Servers
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS
from iptables.plan import plan
from iptables.rules import Jump, Rule

GOLDEN = Path(__file__).parents[1] / "golden" / "iptables"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def address(text: str) -> InterfaceAddress:
    family: Family = 6 if ":" in text else 4
    return InterfaceAddress("eth0", 2, family, text, is_up=True, is_loopback=False)


def settings(case: dict[str, Any]) -> Settings:
    facts = HostFacts(
        addresses=tuple(address(text) for text in case["addresses"]),
        resolv_conf=case["resolv_conf"],
    )
    flags = parse_flags(FLAGS, case["argv"], environ=case["environ"])
    found = parse_settings(flags, case["environ"], facts)
    if servers := case.get("servers"):
        dns = found.config.dns
        assert dns
        dns = dns._replace(servers=Servers(tuple(servers["v4"]), tuple(servers["v6"])))
        found = found._replace(config=found.config._replace(dns=dns))
    return found


def injected(*more: str, **environ: str) -> list[Rule]:
    argv = ["-u", "3,4", "-g", "5", "-i", "*", "-b", "*", *more]
    case = {"argv": argv, "environ": environ, "addresses": ["10.0.0.7"], "resolv_conf": None}
    return [rule for table in plan(settings(case).config, 4) for rule in table.rules]


@pytest.mark.parametrize("name", CASES)
def test_the_restore_input_is_exact(name: str, *, update_golden: bool) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    config = settings(case).config
    families: list[Family] = [4, 6] if config.families.ipv6 else [4]

    for family in families:
        text = rules.render_plan(plan(config, family))
        expected = GOLDEN / f"{name}.ipv{family}"
        if update_golden:
            expected.write_text(text)
        assert text == expected.read_text()
    assert config.families.ipv6 == (GOLDEN / f"{name}.ipv6").exists()


def test_mode_none_plans_nothing() -> None:
    assert injected("-m", "NONE") == []


def test_every_rule_says_why() -> None:
    found = injected("-m", "TPROXY", "--redirect-dns", "--capture-all-dns", "--drop-invalid")

    assert all(rule.why for rule in found)
    assert all("\n" not in rule.why for rule in found)


def test_kernel_order_puts_the_last_virtual_interface_first() -> None:
    found = injected("-k", "a,b", "-c", "eth9")
    (nat,) = rules.tables(found)

    assert [rule.spec for rule in nat.chains["PREROUTING"]] == [
        "-i b -j ISTIO_REDIRECT",
        "-i a -j ISTIO_REDIRECT",
        "-i b -j RETURN",
        "-i a -j RETURN",
        "-i eth9 -j RETURN",
        "-p tcp -j ISTIO_INBOUND",
    ]


def test_the_passthrough_mark_is_looked_at_before_anything_else_inbound() -> None:
    found = injected("-m", "TPROXY")
    mangle, _ = rules.tables(found)

    first = mangle.chains["ISTIO_INBOUND"][:3]
    assert [rule.position for rule in first] == [1, 2, 3]


def test_all_identities_come_before_the_rule_that_lets_others_go() -> None:
    found = injected(
        "--redirect-dns", "--capture-all-dns", AGENT_CAPTURE_ALL_PROXY_IDENTITIES="true"
    )

    specs = [rule.spec for rule in found if rule.chain == "ISTIO_OUTPUT" and rule.table == "nat"]
    call = "-o lo ! -d 127.0.0.1/32 -p tcp -m multiport ! --dports 53,15008 -m owner"
    others = "-m owner ! --uid-owner 3 -m owner ! --uid-owner 4 -m owner ! --gid-owner 5"
    assert specs[1:8] == [
        f"{call} --uid-owner 3 -j ISTIO_IN_REDIRECT",
        f"{call} --uid-owner 4 -j ISTIO_IN_REDIRECT",
        f"{call} --gid-owner 5 -j ISTIO_IN_REDIRECT",
        f"-o lo -p tcp ! --dport 53 {others} -j RETURN",
        "-m owner --uid-owner 3 -j RETURN",
        "-m owner --uid-owner 4 -j RETURN",
        "-m owner --gid-owner 5 -j RETURN",
    ]


def test_dns_of_an_excluded_port_is_excluded_before_dns_is_captured() -> None:
    """Case I26."""
    found = injected("-o", "53", "--redirect-dns", "--capture-all-dns")

    specs = [rule.spec for rule in found if rule.chain == "ISTIO_OUTPUT" and rule.table == "nat"]
    assert specs.index("-p udp --dport 53 -j RETURN") < specs.index("-j ISTIO_OUTPUT_DNS")


EXCLUDED = (
    "-x", "10.96.0.0/12", "-c", "eth1", "-o", "50:60", "--redirect-dns", "--capture-all-dns",
)  # fmt: skip


def test_excluded_destinations_are_asked_through_the_agent_unless_switched() -> None:
    """Source: traffic-capture.md sections 6.1 and 17.17."""
    excluded, dns = "-d 10.96.0.0/12 -j RETURN", "-j ISTIO_OUTPUT_DNS"
    for switch, first in (("false", dns), ("true", excluded)):
        found = injected(*EXCLUDED, AGENT_CAPTURE_DNS_EXCLUSIONS=switch)

        specs = [rule.spec for rule in found if rule.chain == "ISTIO_OUTPUT"]
        assert next(spec for spec in specs if spec in (excluded, dns)) == first
        assert specs.count(excluded) == 1


def test_what_is_spared_is_what_nat_returns_before_dns() -> None:
    """Source: traffic-capture.md section 17.17."""
    switch = {"AGENT_CAPTURE_DNS_EXCLUSIONS": "true"}
    query = "-p udp --dport 53"

    def tracked(*more: str, **environ: str) -> list[str]:
        found = injected("--redirect-dns", "--capture-all-dns", *more, **switch, **environ)
        raw = [rule for rule in found if rule.table == "raw" and rule.chain == "ISTIO_OUTPUT_DNS"]
        return [rule.spec for rule in raw if rule.spec.startswith(query) and "--zone" in rule.spec][
            3:
        ]

    usual = [f"{query} -j CT --zone 2"]
    assert tracked("-o", "54,80") == usual
    assert tracked("-o", "50:60") == [f"{query} -j CT --zone 1"]
    assert tracked("-c", "eth1") == [f"{query} -o eth1 -j CT --zone 1", *usual]
    assert tracked(ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE="7") == [
        f"{query} -m owner --gid-owner 7 -j CT --zone 1",
        *usual,
    ]
    assert tracked(ISTIO_OUTBOUND_OWNER_GROUPS="7,8") == [
        f"{query} -m owner ! --gid-owner 7 -m owner ! --gid-owner 8 -j CT --zone 1",
        *usual,
    ]
    assert tracked(ISTIO_OUTBOUND_OWNER_GROUPS="") == [f"{query} -j CT --zone 1", *usual]


def test_invalid_packets_are_dropped_before_anything_else() -> None:
    """Case I20."""
    mangle, _ = rules.tables(injected("--drop-invalid", "-m", "TPROXY"))

    assert mangle.chains["PREROUTING"][0].spec == "-m conntrack --ctstate INVALID -j ISTIO_DROP"


def test_answers_of_a_server_are_told_by_their_source() -> None:
    """Case I21."""
    case = {
        "argv": ["--redirect-dns"], "environ": {}, "addresses": ["10.0.0.7"],
        "resolv_conf": "nameserver 10.96.0.10",
    }  # fmt: skip
    *_, raw = plan(settings(case).config, 4)

    (answer,) = raw.chains["ISTIO_INBOUND"]
    assert answer.spec == "-p udp --sport 53 -s 10.96.0.10/32 -j CT --zone 1"


def test_no_port_is_excluded_that_was_not_named() -> None:
    """Case I29."""
    assert [
        rule.spec for rule in injected() if "--dport" in rule.spec and "RETURN" in rule.spec
    ] == ["-p tcp --dport 15008 -j RETURN"]


def test_no_jump_leads_to_a_chain_that_is_not_made() -> None:
    found = injected("-m", "TPROXY", "--redirect-dns", "--capture-all-dns", "-k", "a")

    for table in rules.tables(found):
        targets = {rule.target.chain for rule in table.rules if isinstance(rule.target, Jump)}
        assert targets <= set(table.new_chains)


def test_an_explained_rendering_differs_by_comment_lines_only() -> None:
    case: dict[str, Any] = {
        "argv": [],
        "environ": {},
        "addresses": ["10.0.0.7"],
        "resolv_conf": None,
    }
    found = plan(settings(case).config, 4)

    lines = rules.render_plan(found, explained=True).splitlines()

    plain = rules.render_plan(found).splitlines()
    assert [line for line in lines if not line.startswith("# ")] == plain
    assert lines.count("COMMIT") == len(found)
    above = lines[lines.index("-A OUTPUT -j ISTIO_OUTPUT") - 1]
    assert above == "# outbound traffic is selected in ISTIO_OUTPUT, any protocol for DNS's sake"


def test_no_rules_render_to_nothing() -> None:
    assert rules.render_plan(()) == ""
