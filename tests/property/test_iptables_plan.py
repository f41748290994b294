"""Whatever is asked for: plans install, differ, replace each other and go without a trace."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iptables import rules
from iptables.config import parse_settings
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.installed import NOTHING, Place, differences, put_back, replace
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS
from iptables.ownership import find_own, look_alikes
from iptables.plan import plan
from iptables.rules import Jump, Table
from tests.fakes.iptables_model import Tables, empty, restore
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS, FOREIGN_RULES

FACTS = HostFacts(
    addresses=(InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),),
    resolv_conf="nameserver 10.96.0.10\nnameserver fd00::10\n",
)

#: A loaded machine is no failure.
unhurried = settings(deadline=None)


BOTH_FAMILIES: tuple[Family, ...] = (4, 6)


@st.composite
def plans(draw: st.DrawFn, families: Sequence[Family] = BOTH_FAMILIES) -> tuple[Table, ...]:
    """Return the plan of any valid command line, in either family and mode."""
    mode = draw(st.sampled_from(["REDIRECT", "TPROXY"]))
    family = draw(st.sampled_from(families))
    environ = draw(ENVIRONMENTS)
    flags = parse_flags(FLAGS, [*draw(COMMAND_LINES), "-m", mode], environ=environ)
    return plan(parse_settings(flags, environ, FACTS).config, family)


@st.composite
def occupied(draw: st.DrawFn) -> Tables:
    """Return tables in which others have rules."""
    tables = empty()
    for rule in draw(FOREIGN_RULES):
        table, chain, spec = rule.split(" ", 2)
        if table != "filter":
            tables.setdefault((table, chain), []).append(spec)
            tables.setdefault((table, "FOREIGN"), [])
    return tables


def others(tables: Tables, planned: tuple[Table, ...]) -> dict[Place, list[str]]:
    """Return what is not ours, as far as anybody can tell who knows the plan only.

    Sorted: of two equal rules in a chain nobody can tell which one is ours.
    """
    own = find_own(tables, planned)
    ours = {(hook.table, hook.chain, hook.position) for hook in own.hooks}
    return {
        place: sorted(spec for number, spec in enumerate(specs, 1) if (*place, number) not in ours)
        for place, specs in tables.items()
        if place not in own.chains
    }


@unhurried
@given(planned=plans(), before=occupied())
def test_installing_and_removing_is_no_change(planned: tuple[Table, ...], before: Tables) -> None:
    installed = restore(before, rules.render_plan(planned))
    own = find_own(installed, planned)

    assert differences(planned, own) == []
    assert restore(installed, replace(own, ())) == before


@unhurried
@given(first=plans(), second=plans(), before=occupied())
def test_one_configuration_replaces_another(
    first: tuple[Table, ...], second: tuple[Table, ...], before: Tables
) -> None:
    installed = restore(before, rules.render_plan(first))
    own = find_own(installed, second)

    replaced = restore(installed, replace(own, second))

    assert differences(second, find_own(replaced, second)) == []
    assert others(replaced, second) == others(installed, second)


@unhurried
@pytest.mark.parametrize("family", BOTH_FAMILIES)
@given(data=st.data())
def test_nothing_is_left_of_an_older_configuration_unless_it_is_warned_about(
    family: Family, data: st.DataObject
) -> None:
    first, second = (data.draw(plans([family])) for _ in range(2))
    installed = restore(empty(), rules.render_plan(first))
    own = find_own(installed, second)

    replaced = restore(installed, replace(own, second))

    expected = restore(empty(), rules.render_plan(second))
    left = Counter((hook.table, hook.chain, hook.spec) for hook in look_alikes(installed, own))
    assert every_rule(replaced) - every_rule(expected) == left
    assert not every_rule(expected) - every_rule(replaced)


def every_rule(tables: Tables) -> Counter[tuple[str, str, str]]:
    return Counter((*place, spec) for place, specs in tables.items() for spec in specs)


@unhurried
@given(planned=plans(), before=occupied(), committed=st.integers(0, 3))
def test_a_change_that_fails_half_way_is_undone(
    planned: tuple[Table, ...], before: Tables, committed: int
) -> None:
    half = restore(before, rules.render_plan(planned), tables=committed)

    undone = restore(half, put_back(find_own(half, planned), NOTHING))

    assert undone == before


@unhurried
@given(first=plans(), second=plans(), before=occupied(), committed=st.integers(0, 3))
def test_a_replacement_that_fails_half_way_is_undone(
    first: tuple[Table, ...], second: tuple[Table, ...], before: Tables, committed: int
) -> None:
    installed = restore(before, rules.render_plan(first))
    own = find_own(installed, second)
    half = restore(installed, replace(own, second), tables=committed)

    undone = restore(half, put_back(find_own(half, second), own))

    assert undone == installed


@unhurried
@given(planned=plans())
def test_every_chain_jumped_to_is_made_and_every_rule_says_why(planned: tuple[Table, ...]) -> None:
    for table in planned:
        targets = {rule.target.chain for rule in table.rules if isinstance(rule.target, Jump)}

        assert targets <= set(table.new_chains)
        assert all(rule.why and "\n" not in rule.text + rule.why for rule in table.rules)
