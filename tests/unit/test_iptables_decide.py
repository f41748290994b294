"""Which variant, and what to do there: clean, compatible or drifted, in each family."""

import pytest

from iptables import rules
from iptables.config import Actions, CaptureConfig, Variant
from iptables.decide import (
    CLEAN,
    DRIFTED,
    SAME,
    Change,
    Decision,
    Plans,
    Store,
    decide,
    undoing,
)
from iptables.errors import CaptureError, SystemRefusedError
from iptables.host import Families
from iptables.installed import as_saved, parse_saved
from iptables.netlink import Family
from iptables.ownership import find_own
from iptables.plan import plan
from iptables.record import Record

CONFIG = CaptureConfig()
PLANS: Plans = {4: plan(CONFIG, 4), 6: plan(CONFIG, 6)}
IPV4 = Families(ipv6=False, has_ipv4=True, host_ip="")
BOTH = Families(ipv6=True, has_ipv4=True, host_ip="")
IPV6 = Families(ipv6=True, has_ipv4=False, host_ip="")
EMPTY = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
FOREIGN = "*filter\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"


def dump(family: Family) -> str:
    """Return the plan as if the tool printed it."""
    lines = ["*nat"]
    for (_, chain), specs in as_saved(PLANS[family]).items():
        lines += [f":{chain} - [0:0]", *(f"-A {chain} {spec}" for spec in specs)]
    return "\n".join([*lines, "COMMIT"]) + "\n"


OURS = dump(4)
DRIFT = OURS.replace("-A OUTPUT -j ISTIO_OUTPUT\n", "")


def stores(
    family: Family = 4, *, legacy: str | None = "", nft: str | None = "", plain: str | None = None
) -> list[Store]:
    texts: dict[Variant, str | None] = {"legacy": legacy, "nft": nft, "plain": plain}
    return [
        Store(family, variant, text or "", "" if text is not None else f"no {variant}")
        for variant, text in texts.items()
    ]


def chosen(decision: Decision) -> list[tuple[int, str]]:
    return [(store.family, store.variant) for store in decision.chosen]


def texts(decision: Decision) -> list[str]:
    return [note.text for note in decision.notes]


@pytest.mark.parametrize(
    ("legacy", "nft", "plain", "expected"),
    [
        ("", "", None, "nft"),
        (EMPTY, EMPTY, None, "nft"),  # what a probe leaves behind is no rule
        (FOREIGN, "", None, "legacy"),
        (FOREIGN, FOREIGN, None, "legacy"),
        (FOREIGN, OURS, None, "nft"),  # a rule of others that came later changes nothing
        (OURS, "", None, "legacy"),
        (None, "", None, "nft"),
        ("", None, None, "legacy"),
        ("", None, "", "legacy"),
        (None, None, "", "plain"),
    ],
)
def test_the_variant_with_our_rules_then_legacy_in_use_then_nft(
    legacy: str | None, nft: str | None, plain: str | None, expected: str
) -> None:
    found = decide(PLANS, stores(legacy=legacy, nft=nft, plain=plain), Actions(), IPV4)

    assert chosen(found) == [(4, expected)]


def test_a_forced_variant_is_the_only_one() -> None:
    found = decide(PLANS, stores(nft=FOREIGN), Actions(forced_variant="legacy"), IPV4)

    assert chosen(found) == [(4, "legacy")]
    with pytest.raises(SystemRefusedError, match="IPv4 can be used: no nft"):
        decide(PLANS, stores(nft=None), Actions(forced_variant="nft"), IPV4)


def test_what_to_install_is_said_where_no_tool_is_there() -> None:
    absent = [store._replace(is_absent=True) for store in stores(legacy=None, nft=None)]

    with pytest.raises(SystemRefusedError, match="no plain: install the package iptables, or"):
        decide(PLANS, absent, Actions(), IPV4)
    with pytest.raises(SystemRefusedError, match=r"no plain$"):
        decide(PLANS, [*absent[:1], *stores(legacy=None, nft=None)[1:]], Actions(), IPV4)


def test_what_a_tool_does_not_print_is_warned_about() -> None:
    legacy, nft, _ = stores(legacy=None)

    found = decide(PLANS, [legacy._replace(is_untold=True), nft], Actions(cleanup_only=True), IPV4)

    assert texts(found) == ["no legacy: what it may have of ours is left as it is"]


def test_where_nothing_is_ours_the_plan_is_installed() -> None:
    found = decide(PLANS, stores(), Actions(), IPV4)

    (change,) = found.changes
    assert change.text == rules.render_plan(PLANS[4])
    assert change.store.variant == "nft"
    assert texts(found) == [CLEAN]


def test_what_is_as_planned_is_left_as_it_is() -> None:
    found = decide(PLANS, stores(nft=OURS), Actions(), IPV4)

    assert found.changes == ()
    assert texts(found) == [SAME]


def test_drift_is_refused_and_named() -> None:
    with pytest.raises(CaptureError, match="IPv4: nat OUTPUT has nothing of ours") as raised:
        decide(PLANS, stores(nft=DRIFT), Actions(), IPV4)

    assert "--reconcile" in str(raised.value)


@pytest.mark.parametrize("actions", [Actions(reconcile=True), Actions(force_apply=True)])
def test_drift_is_replaced_where_asked_for(actions: Actions) -> None:
    found = decide(PLANS, stores(nft=DRIFT), actions, IPV4)

    (change,) = found.changes
    assert "-X ISTIO_OUTPUT" in change.text
    assert "-N ISTIO_OUTPUT" in change.text
    assert texts(found) == ["IPv4: nat OUTPUT has nothing of ours", DRIFTED]


def test_what_a_killed_run_left_is_completed() -> None:
    """The tools commit one table after the other."""
    config = CONFIG._replace(drop_invalid=True)
    plans: Plans = {4: plan(config, 4), 6: plan(config, 6)}

    decision = decide(plans, stores(nft=OURS), Actions(), IPV4)

    (change,) = decision.changes
    assert change.planned == plans[4]
    with pytest.raises(CaptureError, match="reconcile"):
        decide(plans, stores(nft=DRIFT), Actions(), IPV4)
    with pytest.raises(CaptureError, match="reconcile"):
        decide(plans, stores(nft=OURS, legacy=OURS), Actions(), IPV4)


def test_forcing_installs_anew_what_is_as_planned() -> None:
    assert len(decide(PLANS, stores(nft=OURS), Actions(force_apply=True), IPV4).changes) == 1
    assert decide(PLANS, stores(nft=OURS), Actions(reconcile=True), IPV4).changes == ()


def test_each_family_is_judged_alone() -> None:
    """Case I14."""
    both = [*stores(nft=DRIFT), *stores(6, nft=dump(6))]

    found = decide(PLANS, both, Actions(reconcile=True), BOTH)

    assert [change.store.family for change in found.changes] == [4]


def test_a_family_without_our_rules_is_added_to_one_with_them() -> None:
    found = decide(PLANS, [*stores(nft=OURS), *stores(6)], Actions(), BOTH)

    assert [change.store.family for change in found.changes] == [6]
    assert chosen(found) == [(4, "nft"), (6, "nft")]


def test_rules_of_ours_in_the_other_variant_are_drift() -> None:
    other = stores(legacy=OURS, nft="")

    with pytest.raises(CaptureError, match="iptables-legacy has rules of ours too"):
        decide(PLANS, other, Actions(forced_variant="nft"), IPV4)
    found = decide(PLANS, other, Actions(forced_variant="nft", reconcile=True), IPV4)

    legacy, nft = found.changes
    assert legacy.planned == ()
    assert "-N" not in legacy.text
    assert nft.text == rules.render_plan(PLANS[4])


def test_where_both_variants_have_our_rules_one_is_cleaned() -> None:
    found = decide(PLANS, stores(legacy=OURS, nft=OURS), Actions(reconcile=True), IPV4)

    assert chosen(found) == [(4, "legacy")]
    assert [change.planned == () for change in found.changes] == [False, True]


def test_an_uncaptured_family_is_left_alone_with_a_warning() -> None:
    found = decide(PLANS, [*stores(nft=OURS), *stores(6, nft=dump(6))], Actions(), IPV4)

    assert found.changes == ()
    assert texts(found)[0].startswith("IPv6 is not captured, but iptables-nft has rules of ours")


def test_tools_of_an_uncaptured_family_may_fail() -> None:
    found = decide(PLANS, [*stores(), *stores(6, legacy=None, nft=None)], Actions(), IPV4)

    assert len(found.changes) == 1


def test_no_tools_are_an_error_that_lists_why() -> None:
    missing = [*stores(legacy=None, nft=None), *stores(6)]

    with pytest.raises(SystemRefusedError, match="no legacy; no nft; no plain"):
        decide(PLANS, missing, Actions(), BOTH)


def test_an_ipv6_host_needs_no_ipv4_tools() -> None:
    found = decide(PLANS, [*stores(legacy=None, nft=None), *stores(6)], Actions(), IPV6)

    assert [change.store.family for change in found.changes] == [6]
    assert found.notes[0].level == "warn"
    with pytest.raises(SystemRefusedError, match="IPv6"):
        decide(PLANS, [*stores(), *stores(6, legacy=None, nft=None)], Actions(), IPV6)


def test_cleanup_removes_everything_of_ours_everywhere() -> None:
    everywhere = [*stores(legacy=OURS, nft=DRIFT), *stores(6, nft=dump(6))]

    found = decide(PLANS, everywhere, Actions(cleanup_only=True), IPV4)

    assert [(change.store.family, change.store.variant) for change in found.changes] == [
        (4, "legacy"),
        (4, "nft"),
        (6, "nft"),
    ]
    assert all(change.planned == () for change in found.changes)
    assert not any("-N " in change.text for change in found.changes)


def test_what_may_be_ours_is_warned_about_where_ours_goes() -> None:
    kept = OURS.replace("COMMIT", "-A PREROUTING -i eth1 -j RETURN\nCOMMIT")

    removed = decide(PLANS, stores(nft=kept), Actions(cleanup_only=True), IPV4)
    same = decide(PLANS, stores(nft=kept), Actions(), IPV4)

    (note,) = removed.notes
    assert note.text.startswith("IPv4: nat PREROUTING keeps '-i eth1 -j RETURN'")
    assert texts(same) == [SAME]


def test_where_it_is_noted_what_is_ours_nothing_is_uncertain() -> None:
    kept = OURS.replace("COMMIT", "-A PREROUTING -i eth1 -j RETURN\nCOMMIT")
    clean = Actions(cleanup_only=True)

    foreign = decide(PLANS, stores(nft=kept), clean, IPV4, record=Record())
    noted = decide(PLANS, stores(nft=kept), clean, IPV4, record=Record(("eth1",)))

    assert foreign.notes == noted.notes == ()
    (change,) = noted.changes
    assert "-D PREROUTING -i eth1 -j RETURN" in change.text
    assert "eth1" not in foreign.changes[0].text


def test_undoing_concerns_the_tables_that_have_changed() -> None:
    """A rule like a planned one, in a table that is as it was, is of somebody else."""
    foreign = (
        "*nat\n-A PREROUTING -i eth1 -j RETURN\n-A OUTPUT -j ISTIO_OLD\n:ISTIO_OLD -\nCOMMIT\n"
    )
    config = CONFIG._replace(exclude_interfaces=("eth1",), drop_invalid=True)
    planned = plan(config, 4)
    before = find_own(parse_saved(foreign), planned, Record())
    change = Change(Store(4, "nft", foreign), "", planned, before)
    mangle = "*mangle\n:ISTIO_DROP -\n-A ISTIO_DROP -j DROP\nCOMMIT\n"

    assert undoing(change, f"*mangle\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n{foreign}") == ""
    assert undoing(change, mangle + foreign) == "* mangle\n-F ISTIO_DROP\n-X ISTIO_DROP\nCOMMIT\n"


def test_cleaning_up_where_nothing_is_ours_changes_nothing() -> None:
    assert decide(PLANS, stores(nft=FOREIGN), Actions(cleanup_only=True), IPV4).changes == ()


@pytest.mark.parametrize("actions", [Actions(), Actions(cleanup_only=True)])
def test_a_namespace_in_ambient_mode_is_not_touched(actions: Actions) -> None:
    ambient = "*mangle\n:ISTIO_PRERT - [0:0]\nCOMMIT\n" + OURS

    with pytest.raises(CaptureError, match="ambient"):
        decide(PLANS, stores(nft=ambient), actions, IPV4)
