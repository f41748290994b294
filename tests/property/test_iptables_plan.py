"""Whatever is asked for: plans install, differ, replace each other and go without a trace."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from iptables import rules
from iptables.config import Actions, CaptureConfig, parse_settings
from iptables.decide import Change, Store, undoing
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.installed import Own, differences, replace
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS
from iptables.ownership import find_own, look_alikes
from iptables.plan import plan
from iptables.record import Record, following, parse, render
from iptables.rules import Jump, Table
from tests.fakes.iptables_model import Tables, empty, restore
from tests.property.strategies_iptables import (
    COMMAND_LINES,
    ENVIRONMENTS,
    FOREIGN_RULES,
    LATER_RULES,
    MODES,
)

FACTS = HostFacts(
    addresses=(InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),),
    resolv_conf="nameserver 10.96.0.10\nnameserver fd00::10\n",
)


@st.composite
def configs(draw: st.DrawFn) -> CaptureConfig:
    """Return what any valid command line asks for, in either mode."""
    mode = draw(MODES)
    environ = draw(ENVIRONMENTS)
    flags = parse_flags(FLAGS, [*draw(COMMAND_LINES), "-m", mode], environ=environ)
    return parse_settings(flags, environ, FACTS).config


FAMILIES: st.SearchStrategy[Family] = st.sampled_from((4, 6))


def plans() -> st.SearchStrategy[tuple[Table, ...]]:
    """Return the plan of any configuration, in either family."""
    return st.builds(plan, configs(), FAMILIES)


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


@st.composite
def invaded(draw: st.DrawFn, tables: Tables) -> Tables:
    """Return tables in which others have put more rules, in front of others or after them."""
    found = {place: list(specs) for place, specs in tables.items()}
    for rule in draw(LATER_RULES):
        table, chain, spec = rule.split(" ", 2)
        place = draw(st.sampled_from([0, len(found[table, chain])]))
        found[table, chain].insert(place, spec)
    return found


def applied(
    tables: Tables, config: CaptureConfig | None, family: Family, record: Record | None
) -> tuple[Tables, Record | None]:
    """Return tables and record after a run with --reconcile, or without a plan a cleanup."""
    planned = plan(config, family) if config else ()
    own = find_own(tables, planned, record)
    actions = Actions(cleanup_only=config is None)
    noted = following(
        record,
        config or CaptureConfig(),
        actions,
        is_changed=True,
        has_look_alikes=bool(look_alikes(tables, own)),
    )
    return restore(tables, replace(own, planned)), parse(render(noted))


def every_rule(tables: Tables) -> Counter[tuple[str, str, str]]:
    return Counter((*place, spec) for place, specs in tables.items() for spec in specs)


@given(planned=plans(), before=occupied())
def test_installing_and_removing_is_no_change(planned: tuple[Table, ...], before: Tables) -> None:
    installed = restore(before, rules.render_plan(planned))
    own = find_own(installed, planned)

    assert differences(planned, own) == []
    assert restore(installed, replace(own, ())) == before


@given(first=configs(), second=configs(), family=FAMILIES, before=occupied())
def test_nothing_is_left_of_an_older_configuration_and_nothing_of_others_goes(
    first: CaptureConfig, second: CaptureConfig, family: Family, before: Tables
) -> None:
    alone, _ = applied(before, second, family, None)
    installed, record = applied(before, first, family, None)

    replaced, record = applied(installed, second, family, record)

    assert replaced == alone
    assert differences(plan(second, family), find_own(replaced, plan(second, family), record)) == []
    assert applied(replaced, None, family, record) == (before, None)


@given(first=configs(), second=configs(), family=FAMILIES, before=occupied(), data=st.data())
def test_what_others_add_between_two_configurations_stays_where_it_is(
    first: CaptureConfig,
    second: CaptureConfig,
    *,
    family: Family,
    before: Tables,
    data: st.DataObject,
) -> None:
    installed, record = applied(before, first, family, None)
    installed = data.draw(invaded(installed))
    foreign = others(installed, find_own(installed, plan(first, family), record))

    replaced, record = applied(installed, second, family, record)

    assert others(replaced, find_own(replaced, plan(second, family), record)) == foreign
    assert applied(replaced, None, family, record) == (foreign, None)


def others(tables: Tables, own: Own) -> Tables:
    """Return what is not ours."""
    ours = {(hook.table, hook.chain, hook.position) for hook in own.hooks}
    return {
        place: [spec for number, spec in enumerate(specs, 1) if (*place, number) not in ours]
        for place, specs in tables.items()
        if place not in own.chains
    }


@given(first=configs(), second=configs(), family=FAMILIES)
def test_nothing_is_left_of_what_the_reference_installed_unless_it_is_warned_about(
    first: CaptureConfig, second: CaptureConfig, family: Family
) -> None:
    installed = restore(empty(), rules.render_plan(plan(first, family)))
    own = find_own(installed, plan(second, family))

    replaced, _ = applied(installed, second, family, None)

    expected = restore(empty(), rules.render_plan(plan(second, family)))
    left = Counter((hook.table, hook.chain, hook.spec) for hook in look_alikes(installed, own))
    assert every_rule(replaced) - every_rule(expected) == left
    assert not every_rule(expected) - every_rule(replaced)


@given(
    first=configs(),
    second=configs(),
    family=FAMILIES,
    before=occupied(),
    committed=st.integers(0, 3),
)
def test_a_replacement_that_fails_half_way_is_undone(
    first: CaptureConfig,
    second: CaptureConfig,
    *,
    family: Family,
    before: Tables,
    committed: int,
) -> None:
    installed, record = applied(before, first, family, None)
    planned = plan(second, family)
    own = find_own(installed, planned, record)
    text = replace(own, planned)
    change = Change(Store(family, "nft", dump(installed)), text, planned, own)
    half = restore(installed, text, tables=committed)

    undone = restore(half, undoing(change, dump(half)))

    assert undone == installed


def dump(tables: Tables) -> str:
    """Return what iptables-save would print."""
    lines = []
    for table in ("mangle", "nat", "raw"):
        chains = {chain: specs for (name, chain), specs in tables.items() if name == table}
        lines += [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]
        lines += [f"-A {chain} {spec}" for chain, specs in chains.items() for spec in specs]
    return "\n".join([*lines, ""])


@given(planned=plans())
def test_every_chain_jumped_to_is_made_and_every_rule_says_why(planned: tuple[Table, ...]) -> None:
    for table in planned:
        targets = {rule.target.chain for rule in table.rules if isinstance(rule.target, Jump)}

        assert targets <= set(table.new_chains)
        assert all(rule.why and "\n" not in rule.text + rule.why for rule in table.rules)
