"""Whatever is planned: nftables gets the same rules in the same order, and reads them back."""

from hypothesis import given
from hypothesis import strategies as st

from iptables.config import CaptureConfig, parse_settings
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.netlink import Family, InterfaceAddress
from iptables.nft.text import chain_name, rule_text, table_name, transaction
from iptables.nft.values import planned_form, read_form
from iptables.options import FLAGS
from iptables.plan import plan
from iptables.rules import Jump, Table
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS

FACTS = HostFacts(
    addresses=(
        InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),
        InterfaceAddress("eth0", 2, 6, "2001:db8::7", is_up=True, is_loopback=False),
    ),
    resolv_conf="nameserver 10.96.0.10\nnameserver fd00::10\n",
)


@st.composite
def configurations(draw: st.DrawFn) -> CaptureConfig:
    """Return any valid configuration, of one family or both."""
    words = [*draw(COMMAND_LINES), "-m", draw(st.sampled_from(["REDIRECT", "TPROXY"]))]
    words += draw(st.sampled_from([["--dual-stack"], []]))
    environ = draw(ENVIRONMENTS)
    flags = parse_flags(FLAGS, words, environ=environ)
    return parse_settings(flags, environ, FACTS).config


PLANS = configurations().map(lambda config: plan(config, *config.families.captured))


def executed(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the chains that a transaction makes, as nft would; it refuses what nft refuses."""
    chains: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        verb, kind, _, table, *rest = line.split()
        if kind == "chain":
            chains[table, rest[0]] = []
        elif kind == "rule" and verb == "add":
            chains[table, rest[0]].append(" ".join(rest[1:]))
        elif kind == "rule":
            chain, index = chains[table, rest[0]], int(rest[2])
            assert index < len(chain)
            chain.insert(index, " ".join(rest[3:]))
    return chains


@given(planned=PLANS)
def test_rules_stand_in_the_plans_order(planned: tuple[Table, ...]) -> None:
    expected = {
        (table_name(table.name), chain_name(chain)): [rule_text(rule) for rule in rules]
        for table in planned
        for chain, rules in table.chains.items()
    }

    assert executed(transaction(planned)) == expected


@given(planned=PLANS)
def test_a_written_rule_is_read_as_the_planned_one(planned: tuple[Table, ...]) -> None:
    for table in planned:
        for rule in table.rules:
            assert read_form(rule_text(rule)) == planned_form(rule)


@given(planned=PLANS)
def test_every_chain_jumped_to_is_made(planned: tuple[Table, ...]) -> None:
    made = executed(transaction(planned))

    for table in planned:
        for rule in table.rules:
            if isinstance(rule.target, Jump):
                assert (table_name(table.name), chain_name(rule.target.chain)) in made


@given(config=configurations())
def test_both_families_together_have_the_rules_of_each(config: CaptureConfig) -> None:
    captured: tuple[Family, ...] = config.families.captured
    both = {rule._replace(why="") for table in plan(config, *captured) for rule in table.rules}
    each = {
        rule._replace(why="")
        for family in captured
        for table in plan(config, family)
        for rule in table.rules
    }

    assert both == each
